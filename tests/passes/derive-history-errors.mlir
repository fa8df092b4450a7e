// RUN: ladle-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-derive-history))'

ladle.recurrence @read_after_write(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>)
    -> (y: tensor<4x8xf32>) {
  %0 = ladle.write %S, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  // expected-error @+2 {{'ladle.read' op reads a state that is not an argument of the recurrence}}
  // expected-note @+1 {{run ladle-normalize-reads first}}
  %y = ladle.read %0, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  ladle.yield %y, %0 : tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @decay_after_write(
    token %k: tensor<4x8xf32>, token %a: tensor<4xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> () {
  %0 = ladle.write %S, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  // expected-error @+2 {{'ladle.decay' op decays state 'S' after a write}}
  // expected-note @+1 {{run ladle-normalize-reads first}}
  %1 = ladle.decay %0, %a : !ladle.state<4x8x8xf32>, tensor<4xf32>
  ladle.yield %1 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @two_decays(
    token %a: tensor<4xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+2 {{'ladle.decay' op decays state 'S' before another decay}}
  // expected-note @+1 {{run ladle-normalize-reads first}}
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<4xf32>
  %1 = ladle.decay %0, %a : !ladle.state<4x8x8xf32>, tensor<4xf32>
  ladle.yield %1 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @side_version(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+2 {{'ladle.write' op gives a version of a state that is not yielded}}
  // expected-note @+1 {{run ladle-normalize-reads first}}
  %0 = ladle.write %S, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %S : !ladle.state<4x8x8xf32>
}
