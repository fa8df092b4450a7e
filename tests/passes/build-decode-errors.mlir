// RUN: ladle-opt %s --ladle-build-decode=routes=adjoint -split-input-file -verify-diagnostics

// expected-error@+1 {{route 'adjoint' is not legal for 'saturating'}}
ladle.recurrence @saturating(token %k: tensor<1x4xf32>,
    state %S: !ladle.state<1x4x4xf32>) -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  // expected-note@+1 {{'math.tanh' of a read is not affine}}
  %u = math.tanh %r : tensor<1x4xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %r, %S1 : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}
