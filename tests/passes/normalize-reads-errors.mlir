// RUN: ladle-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-normalize-reads))'

ladle.recurrence @swapped(
    state %S: !ladle.state<4x8x8xf32>, state %T: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+2 {{'ladle.yield' op replaces state 'S' by a version of state 'T'}}
  // expected-note @+1 {{decay and write a state itself; another state enters its update through ladle.read}}
  ladle.yield %T, %S : !ladle.state<4x8x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @chosen(
    token %c: tensor<1xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %true = arith.constant true
  // expected-error @+2 {{'arith.select' op takes a state}}
  // expected-note @+1 {{a state is only decayed, written and read; compute with what ladle.read gives}}
  %0 = arith.select %true, %S, %S : !ladle.state<4x8x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}

// -----

ladle.recurrence @reset(state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+2 {{'ladle.zero_state' op gives a state}}
  // expected-note @+1 {{a state is only decayed, written and read}}
  %0 = ladle.zero_state : !ladle.state<4x8x8xf32>
  ladle.yield %0 : !ladle.state<4x8x8xf32>
}
