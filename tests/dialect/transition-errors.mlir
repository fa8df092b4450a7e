// RUN: ladle-opt %s --split-input-file --verify-diagnostics

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x8x16xf32>
  // expected-error @+1 {{lists of the transition differ in length}}
  %0 = ladle.replay %S, %b through <decay = "", keys = ["k"], key_scales = [],
    values = ["u"], value_scales = [""], owners = [], coefficients = [],
    vectors = [], vector_scales = [], after_decay = []>
    : !ladle.state<4x8x16xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv, c : 4xf32 @scalar], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x8x16xf32>
  // expected-error @+1 {{a read belongs to write 1 of 1}}
  %0 = ladle.replay %S, %b through <decay = "", keys = ["k"], key_scales = [""],
    values = ["u"], value_scales = [""], owners = [1], coefficients = ["c"],
    vectors = ["k"], vector_scales = [""], after_decay = [0]>
    : !ladle.state<4x8x16xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x8x16xf32>
  // expected-error @+1 {{buffer has no field ''}}
  %0 = ladle.replay %S, %b through <decay = "", keys = [""], key_scales = [""],
    values = ["u"], value_scales = [""], owners = [], coefficients = [],
    vectors = [], vector_scales = [], after_decay = []>
    : !ladle.state<4x8x16xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, a : 2x2x8xf32 @dk, c : 4xf32 @scalar], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x8x16xf32>
  // expected-error @+1 {{vector 'a' and the key of its write differ in rank}}
  %0 = ladle.replay %S, %b through <decay = "", keys = ["k"], key_scales = [""],
    values = [""], value_scales = [""], owners = [0], coefficients = ["c"],
    vectors = ["a"], vector_scales = [""], after_decay = [0]>
    : !ladle.state<4x8x16xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(fold) (buffer %b: !ring) -> () {
  %S = ladle.zero_state : !ladle.state<4x8x15xf32>
  // expected-error @+1 {{key 'k' and value 'u' do not fit a state '!ladle.state<4x8x15xf32>'}}
  %0 = ladle.replay %S, %b through <decay = "", keys = ["k"], key_scales = [""],
    values = ["u"], value_scales = [""], owners = [], coefficients = [],
    vectors = [], vector_scales = [], after_decay = []>
    : !ladle.state<4x8x15xf32>, !ring
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk, u : 4x16xf32 @dv], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(decode) (token %q: tensor<4x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{origin must have the type of its query, 'tensor<4x8xf32>', got 'tensor<2x8xf32>'}}
  %0, %1 = ladle.transport %b[%q] through <decay = "", keys = ["k"], key_scales = [""],
    values = ["u"], value_scales = [""], owners = [], coefficients = [],
    vectors = [], vector_scales = [], after_decay = []>
    : !ring, tensor<4x8xf32> -> tensor<2x8xf32> and tensor<4x16xf32>
  ladle.yield
}

// -----

!ring = !ladle.buffer<[k : 2x8xf32 @dk], capacity = 4, order = ring, weight = linear>
ladle.step @s of @r route(adjoint) form(decode) (token %q: tensor<4x8xf32>, buffer %b: !ring) -> () {
  // expected-error @+1 {{needs a write to carry queries through}}
  %0, %1 = ladle.transport %b[%q] through <decay = "", keys = [], key_scales = [],
    values = [], value_scales = [], owners = [], coefficients = [],
    vectors = [], vector_scales = [], after_decay = []>
    : !ring, tensor<4x8xf32> -> tensor<4x8xf32> and tensor<4x16xf32>
  ladle.yield
}
