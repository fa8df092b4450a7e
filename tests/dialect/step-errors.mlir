// RUN: ladle-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{unknown route 'sideways'}}
ladle.step @s of @r route(sideways) form(decode) () -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{unknown form 'answer'}}
ladle.step @s of @r route(inner) form(answer) () -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{state argument must be a !ladle.pool, got '!ladle.state<1x8x8xf32>'}}
ladle.step @s of @r route(inner) form(fold) (state %S: !ladle.state<1x8x8xf32>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{buffer argument must be a !ladle.buffer, got 'tensor<1xf32>'}}
ladle.step @s of @r route(inner) form(fold) (buffer %b: tensor<1xf32>) -> () {
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(decode) (carry %c: tensor<1xf32>) -> () {
  // expected-error @+1 {{must yield 1 values, got 0}}
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(fold) (carry %c: tensor<1xf32>) -> () {
  // expected-error @+1 {{must yield 0 values, got 1}}
  ladle.yield %c : tensor<1xf32>
}

// -----

ladle.step @s of @r route(inner) form(decode) (state %p: !ladle.pool<1x8x8xf32>) -> () {
  // expected-error @+1 {{state '!ladle.state<1x8x8xbf16>' does not fit into '!ladle.pool<1x8x8xf32>'}}
  %S = ladle.load_state %p : !ladle.pool<1x8x8xf32> to !ladle.state<1x8x8xbf16>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(decode) (state %p: !ladle.pool<1x8x8xf32>) -> () {
  %S = ladle.zero_state : !ladle.state<1x8x9xf32>
  // expected-error @+1 {{state '!ladle.state<1x8x9xf32>' does not fit into '!ladle.pool<1x8x8xf32>'}}
  ladle.store_state %S, %p : !ladle.state<1x8x9xf32>, !ladle.pool<1x8x8xf32>
  ladle.yield
}
