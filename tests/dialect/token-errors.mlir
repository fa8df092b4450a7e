// RUN: ladle-opt %s --split-input-file --verify-diagnostics

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{needs one entry of dims for each of 2 dimensions, got 1}}
  %0 = ladle.broadcast %x dims [0] : tensor<4x8xf32> to tensor<4x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4xf32>) -> () {
  // expected-error @+1 {{must map heads to heads: dims starts with 1}}
  %0 = ladle.broadcast %x dims [1] : tensor<4xf32> to tensor<8x4xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8x8xf32>) -> () {
  // expected-error @+1 {{dims must increase}}
  %0 = ladle.broadcast %x dims [0, 2, 1] : tensor<4x8x8xf32> to tensor<4x8x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{dims entry 2 is outside of a result of rank 2}}
  %0 = ladle.broadcast %x dims [0, 2] : tensor<4x8xf32> to tensor<4x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{dimension 1 of size 8 becomes dimension 1 of size 9}}
  %0 = ladle.broadcast %x dims [0, 1] : tensor<4x8xf32> to tensor<4x9xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4xf32>) -> () {
  // expected-error @+1 {{4 heads do not divide 6}}
  %0 = ladle.broadcast %x dims [0] : tensor<4xf32> to tensor<6xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{cannot sum over dimension 0 of 'tensor<4x8xf32>': heads are never summed}}
  %0 = ladle.sum %x dim 0 : tensor<4x8xf32> to tensor<8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{result must drop dimension 1, got 'tensor<8xf32>'}}
  %0 = ladle.sum %x dim 1 : tensor<4x8xf32> to tensor<8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4xf32>) -> () {
  // expected-error @+1 {{needs a dimension besides heads, got 'tensor<4xf32>'}}
  %0 = ladle.l2norm %x eps 0.0 : tensor<4xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>) -> () {
  // expected-error @+1 {{eps must not be negative, got -1}}
  %0 = ladle.l2norm %x eps -1.0 : tensor<4x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>, token %a: tensor<4x5xf32>) -> () {
  // expected-error @+1 {{angle 'tensor<4x5xf32>' must have the shape of the input but for its last dimension}}
  %0 = ladle.rotate %x, %a : tensor<4x8xf32>, tensor<4x5xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>, token %w: tensor<4x2x7xf32>) -> () {
  // expected-error @+1 {{window 'tensor<4x2x7xf32>' must be [heads, W, D] for an input [heads, D], got 'tensor<4x8xf32>'}}
  %0 = ladle.shift %w, %x : tensor<4x2x7xf32>, tensor<4x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xf32>, token %w: tensor<4x2x8xf32>) -> () {
  // expected-error @+1 {{weight 'tensor<4x2x8xf32>' must be [heads, W + 1, D] for a window 'tensor<4x2x8xf32>'}}
  %0 = ladle.conv %w, %x, %w : tensor<4x2x8xf32>, tensor<4x8xf32>, tensor<4x2x8xf32>
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<4x8xbf16>) -> () {
  // expected-error @+1 {{must be f32 tensor of positive static shape, heads first, but got 'tensor<4x8xbf16>'}}
  %0 = ladle.sigmoid %x : tensor<4x8xbf16>
  ladle.yield
}
