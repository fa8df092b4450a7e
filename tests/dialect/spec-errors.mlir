// RUN: ladle-opt %s --split-input-file --verify-diagnostics

ladle.recurrence @r(state %S: !ladle.state<4x8x16xf32>, token %a: tensor<4x4xf32>) -> () {
  // expected-error @+1 {{factor must be [heads] or [heads, dk] with dk = 8, got 'tensor<4x4xf32>'}}
  %0 = ladle.decay %S, %a : !ladle.state<4x8x16xf32>, tensor<4x4xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %a: tensor<3xf32>, state %S: !ladle.state<4x8x16xf32>) -> () {
  // expected-error @+1 {{factor has 3 heads, which do not divide the 4 of the state}}
  %0 = ladle.decay %S, %a : !ladle.state<4x8x16xf32>, tensor<3xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %k: tensor<4x7xf32>, token %u: tensor<4x16xf32>,
                    state %S: !ladle.state<4x8x16xf32>) -> () {
  // expected-error @+1 {{key must be [heads, dk] or [heads, R, dk] with dk = 8, got 'tensor<4x7xf32>'}}
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x16xf32>, tensor<4x7xf32>, tensor<4x16xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %k: tensor<4x2x8xf32>, token %u: tensor<4x16xf32>,
                    state %S: !ladle.state<4x8x16xf32>) -> () {
  // expected-error @+1 {{value must be [heads, R, dv] with dv = 16 for a key 'tensor<4x2x8xf32>', got 'tensor<4x16xf32>'}}
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x16xf32>, tensor<4x2x8xf32>, tensor<4x16xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %k: tensor<4x8xf32>, token %u: tensor<4x15xf32>,
                    state %S: !ladle.state<4x8x16xf32>) -> () {
  // expected-error @+1 {{value must be [heads, dv] with dv = 16 for a key 'tensor<4x8xf32>', got 'tensor<4x15xf32>'}}
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x16xf32>, tensor<4x8xf32>, tensor<4x15xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %q: tensor<8xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x16xf32>) {
  // expected-error @+1 {{query must be [heads, dk] or [heads, R, dk] with dk = 8, got 'tensor<8xf32>'}}
  %y = ladle.read %S, %q : !ladle.state<4x8x16xf32>, tensor<8xf32> -> tensor<4x16xf32>
  ladle.yield %y, %S : tensor<4x16xf32>, !ladle.state<4x8x16xf32>
}

// -----

ladle.recurrence @r(token %q: tensor<2x8xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<2x16xf32>) {
  // expected-error @+1 {{result must be 'tensor<4x16xf32>', got 'tensor<2x16xf32>'}}
  %y = ladle.read %S, %q : !ladle.state<4x8x16xf32>, tensor<2x8xf32> -> tensor<2x16xf32>
  ladle.yield %y, %S : tensor<2x16xf32>, !ladle.state<4x8x16xf32>
}

// -----

// A value without heads cannot be divided among the heads of a state.
ladle.recurrence @r(state %S: !ladle.state<4x8x16xf32>) -> () {
  %a = arith.constant dense<> : tensor<0xf32>
  // expected-error @+1 {{must be f32 tensor of positive static shape, heads first, but got 'tensor<0xf32>'}}
  %0 = ladle.decay %S, %a : !ladle.state<4x8x16xf32>, tensor<0xf32>
  ladle.yield %0 : !ladle.state<4x8x16xf32>
}
