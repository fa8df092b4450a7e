// RUN: ladle-opt %s --ladle-build-verify="routes=inner drafts=4" -split-input-file -verify-diagnostics

ladle.recurrence @saturating(token %k: tensor<1x4xf32>,
    state %S: !ladle.state<1x4x4xf32>) -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  %u = math.tanh %r : tensor<1x4xf32>
  // expected-remark@+2 {{route 'inner' verifies one draft after another: a value that is written is not affine in reads: 'math.tanh' of a read is not affine}}
  // expected-note@+1 {{what is written may be a sum of reads times numbers of the token, and of values of the token}}
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %r, %S1 : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}

// -----

ladle.recurrence @feedback(token %k: tensor<1x4xf32>,
    carry %z: tensor<1x4xf32>, state %S: !ladle.state<1x4x4xf32>)
    -> (y: tensor<1x4xf32>) {
  // expected-remark@+2 {{route 'inner' verifies one draft after another: a carry is computed from a read of a state, so that a draft waits for the answer of its parent}}
  // expected-note@+1 {{what is written may be a sum of reads}}
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  %S1 = ladle.write %S, %k, %z
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %r, %r, %S1
      : tensor<1x4xf32>, tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}

// -----

ladle.recurrence @scaled_ranks(token %k: tensor<1x2x4xf32>,
    token %q: tensor<1x4xf32>, token %w: tensor<1x2x4xf32>,
    state %S: !ladle.state<1x4x4xf32>) -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x2x4xf32>
       -> tensor<1x2x4xf32>
  %0 = arith.mulf %r, %w : tensor<1x2x4xf32>
  %u = ladle.sum %0 dim 1 : tensor<1x2x4xf32> to tensor<1x4xf32>
  // expected-remark@+2 {{the ranks of a read are summed after they have been multiplied by one number a channel}}
  // expected-note@+1 {{what is written may be a sum of reads}}
  %S1 = ladle.write %S, %q, %u
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %u, %S1 : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}
