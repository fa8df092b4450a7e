// RUN: ladle-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-derive-history))'

// Values that any buffered route allows, but for the adjoint one.

ladle.recurrence @tanh_of_read(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{route 'adjoint' is not legal: the value of a write to state 'S' is not a linear combination of reads: 'math.tanh' of a read is not affine}}
  // expected-note @+1 {{the other routes allow any value}}
  %t = math.tanh %p : tensor<4x8xf32>
  %u = arith.addf %t, %k : tensor<4x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @product_of_reads(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{two reads are multiplied}}
  // expected-note @+1 {{the other routes allow any value}}
  %u = arith.mulf %p, %p : tensor<4x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @number_a_channel(
    token %k: tensor<4x8xf32>, token %w: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{a read is multiplied by one number a channel}}
  // expected-note @+1 {{the other routes allow any value}}
  %u = arith.mulf %w, %p : tensor<4x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @sum_of_channels(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{the channels of a read are summed}}
  // expected-note @+1 {{the other routes allow any value}}
  %s = ladle.sum %p dim 1 : tensor<4x8xf32> to tensor<4xf32>
  %u = ladle.broadcast %s dims [0] : tensor<4xf32> to tensor<4x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @coupled(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>,
    state %T: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %T, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{route 'adjoint' is not legal: the value of a write to state 'S' comes from a read of another state}}
  // expected-note @+1 {{the other routes allow any value}}
  %0 = ladle.write %S, %k, %p : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %1 = ladle.write %T, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0, %1 : !ladle.state<4x8x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// A read in a nested region is not followed.

ladle.recurrence @nested_region(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %true = arith.constant true
  // expected-remark @+2 {{'scf.if' of a read is not affine}}
  // expected-note @+1 {{the other routes allow any value}}
  %u = scf.if %true -> tensor<4x8xf32> {
    %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
    scf.yield %p : tensor<4x8xf32>
  } else {
    scf.yield %k : tensor<4x8xf32>
  }
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

// Numbers a rank, sums over ranks and repeated ranks are nothing that a query
// could not have. Only the last value keeps a channel apart.

ladle.recurrence @ranks(
    token %k: tensor<4x3x8xf32>, token %b: tensor<4x3xf32>,
    token %w: tensor<4x3x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x3x8xf32> -> tensor<4x3x8xf32>
  %numbers = ladle.broadcast %b dims [0, 1] : tensor<4x3xf32> to tensor<4x3x8xf32>
  %scaled = arith.divf %p, %numbers : tensor<4x3x8xf32>
  %sum = ladle.sum %scaled dim 1 : tensor<4x3x8xf32> to tensor<4x8xf32>
  %again = ladle.broadcast %sum dims [0, 2] : tensor<4x8xf32> to tensor<4x3x8xf32>
  %0 = ladle.write %S, %k, %again : !ladle.state<4x8x8xf32>, tensor<4x3x8xf32>, tensor<4x3x8xf32>
  // expected-remark @+2 {{a read is divided by one number a channel}}
  // expected-note @+1 {{the other routes allow any value}}
  %u = arith.divf %again, %w : tensor<4x3x8xf32>
  %1 = ladle.write %0, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x3x8xf32>, tensor<4x3x8xf32>
  ladle.yield %1 : !ladle.state<4x8x8xf32>
}
