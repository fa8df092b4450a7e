// RUN: ladle-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-derive-history))'

// Each remark names the operation that prevents routes, and the way out.

ladle.recurrence @decay_from_read(
    token %k: tensor<4x8xf32>, token %v: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %a = ladle.sigmoid %p : tensor<4x8xf32>
  // expected-remark @+2 {{routes 'outer', 'inner', 'adjoint', 'kv_only' are not legal: the decay of state 'S' comes from a read}}
  // expected-note @+1 {{compute it from inputs, parameters and carries, or decode by route 'recurrent'}}
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<4x8xf32>
  %1 = ladle.write %0, %k, %v : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %1 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @key_from_read(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{are not legal: the key of a write to state 'S' comes from a read}}
  // expected-note @+1 {{compute it from inputs}}
  %0 = ladle.write %S, %p, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @query_from_read(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>)
    -> (y: tensor<4x8xf32>) {
  // expected-note @+1 {{this is the read}}
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  // expected-remark @+2 {{are not legal: the query of a read of state 'S' comes from a read}}
  // expected-note @+1 {{compute it from inputs}}
  %y = ladle.read %S, %p : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %0 = ladle.write %S, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %y, %0 : tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// expected-remark @+2 {{routes 'outer', 'inner', 'adjoint', 'kv_only' are not legal: there is no state}}
// expected-note @+1 {{route 'recurrent' decodes it; nothing needs a history}}
ladle.recurrence @no_state(token %x: tensor<1xf32>) -> (y: tensor<1xf32>) {
  ladle.yield %x : tensor<1xf32>
}

// -----

// expected-remark @+2 {{are not legal: state 'S' is never written}}
// expected-note @+1 {{write to it, or decode by route 'recurrent'}}
ladle.recurrence @never_written(
    token %a: tensor<1xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<1xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}
