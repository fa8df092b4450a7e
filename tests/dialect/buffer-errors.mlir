// RUN: ladle-opt %s --split-input-file --verify-diagnostics

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 3x16xf32 @dv, a : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (buffer %b: !ring) -> () {
  // expected-error @+1 {{buffer has no field 'g'}}
  %0 = ladle.decay_product %b decay "g" : !ring to tensor<2xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 3x16xf32 @dv, a : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (buffer %b: !ring) -> () {
  // expected-error @+1 {{field 'u' is on side @dv}}
  %0 = ladle.decay_product %b decay "u" : !ring to tensor<3x16xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 3x16xf32 @dv, a : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (buffer %b: !ring) -> () {
  // expected-error @+1 {{result must have the shape of field 'a', got 'tensor<1xf32>'}}
  %0 = ladle.decay_product %b decay "a" : !ring to tensor<1xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x2x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{key 'k' and value 'u' differ in rank}}
  %0 = ladle.read_buffer %b[%q] key "k" value "u" : !ring, tensor<2x8xf32> -> tensor<4x16xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{query must be [heads, dk] or [heads, R, dk] with dk = 8, got 'tensor<8xf32>'}}
  %0 = ladle.read_buffer %b[%q] key "k" value "u" : !ring, tensor<8xf32> -> tensor<4x16xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{result must have dv = 16 in place of dk for a query 'tensor<2x8xf32>', got 'tensor<4x8xf32>'}}
  %0 = ladle.read_buffer %b[%q] key "k" value "u" : !ring, tensor<2x8xf32> -> tensor<4x8xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 3x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{field 'u' has 3 heads, which do not divide the 4 of the result}}
  %0 = ladle.read_buffer %b[%q] key "k" value "u" : !ring, tensor<2x8xf32> -> tensor<4x16xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{has 1 queries, but 0 results}}
  "ladle.read_buffer"(%b, %q) {key = "k", value = "u"} : (!ring, tensor<2x8xf32>) -> ()
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (buffer %b: !ring) -> () {
  // expected-error @+1 {{needs a query}}
  "ladle.read_buffer"(%b) {key = "k", value = "u"} : (!ring) -> ()
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x9x16xf32>
  // expected-error @+1 {{key 'k' and value 'u' do not fit a state '!ladle.state<4x9x16xf32>'}}
  %0 = ladle.fold_buffer %S, %b key "k" value "u" : !ladle.state<4x9x16xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{needs a value for each of 2 fields, got 1}}
  ladle.append %b, %q : !ring, tensor<2x8xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(inner) form(decode) (token %q: tensor<1x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{value of field 'k' must have its shape, got 'tensor<1x8xf32>'}}
  ladle.append %b, %q : !ring, tensor<1x8xf32>
  ladle.yield
}
