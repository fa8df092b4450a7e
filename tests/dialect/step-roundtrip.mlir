// RUN: ladle-opt %s | ladle-opt | FileCheck %s

!ring = !ladle.buffer<[k : 2x8xbf16 @dk, ks : 2xf32 @scalar, u : 4x16xf32 @dv, a : 4xf32 @scalar], capacity = 16, order = ring, weight = linear>

// CHECK-LABEL: ladle.step @decode of @r route(inner) form(decode) (token %q: tensor<2x8xf32>, carry %c: tensor<4xf32>, state %pool: !ladle.pool<4x8x16xbf16>, buffer %ring: !ladle.buffer<{{.*}}>) -> (y: tensor<4x16xf32>)
ladle.step @decode of @r route(inner) form(decode) (
    token %q: tensor<2x8xf32>, carry %c: tensor<4xf32>,
    state %pool: !ladle.pool<4x8x16xbf16>, buffer %ring: !ring)
    -> (y: tensor<4x16xf32>) {
  // CHECK: ladle.decay_product %ring decay "a" : <[{{.*}}> to tensor<4xf32>
  %g = ladle.decay_product %ring decay "a" : !ring to tensor<4xf32>
  // CHECK: ladle.load_state %pool : <4x8x16xbf16> to <4x8x16xbf16>
  %S = ladle.load_state %pool : !ladle.pool<4x8x16xbf16> to !ladle.state<4x8x16xbf16>
  %p = ladle.read %S, %q : !ladle.state<4x8x16xbf16>, tensor<2x8xf32> -> tensor<4x16xf32>
  // CHECK: ladle.read_buffer %ring[%q, %q] key "k" * "ks" value "u" decay "a" : <[{{.*}}>, tensor<2x8xf32>, tensor<2x8xf32> -> tensor<4x16xf32>, tensor<4x16xf32>
  %r:2 = ladle.read_buffer %ring[%q, %q] key "k" * "ks" value "u" decay "a"
    : !ring, tensor<2x8xf32>, tensor<2x8xf32> -> tensor<4x16xf32>, tensor<4x16xf32>
  %s = ladle.sum %q dim 1 : tensor<2x8xf32> to tensor<2xf32>
  // CHECK: ladle.append %ring, %q, %{{.*}}, %{{.*}}, %c : <[{{.*}}>, tensor<2x8xf32>, tensor<2xf32>, tensor<4x16xf32>, tensor<4xf32>
  ladle.append %ring, %q, %s, %p, %c : !ring, tensor<2x8xf32>, tensor<2xf32>, tensor<4x16xf32>, tensor<4xf32>
  // CHECK: ladle.yield %{{.*}}#0, %c
  ladle.yield %r#0, %c : tensor<4x16xf32>, tensor<4xf32>
}

// A fold answers nothing.
// CHECK-LABEL: ladle.step @fold of @r route(outer) form(fold)
ladle.step @fold of @r route(outer) form(fold) (
    carry %c: tensor<4xf32>, state %pool: !ladle.pool<4x8x16xbf16>,
    buffer %ring: !ring) -> (y: tensor<4x16xf32>) {
  // CHECK: ladle.zero_state : <4x8x16xbf16>
  %S = ladle.zero_state : !ladle.state<4x8x16xbf16>
  // CHECK: ladle.fold_buffer %{{.*}}, %ring key "k" value "u" : <4x8x16xbf16>, <[
  %1 = ladle.fold_buffer %S, %ring key "k" value "u" : !ladle.state<4x8x16xbf16>, !ring
  // CHECK: ladle.store_state %{{.*}}, %pool : <4x8x16xbf16>, <4x8x16xbf16>
  ladle.store_state %1, %pool : !ladle.state<4x8x16xbf16>, !ladle.pool<4x8x16xbf16>
  // CHECK: ladle.clear %ring : <[
  ladle.clear %ring : !ring
  // CHECK: ladle.yield
  ladle.yield
}

// CHECK-LABEL: ladle.step @adjoint of @r route(adjoint) form(decode_fold)
ladle.step @adjoint of @r route(adjoint) form(decode_fold) (
    token %q: tensor<4x8xf32>, state %pool: !ladle.pool<4x8x16xf32>,
    buffer %ring: !ring) -> (y: tensor<4x16xf32>) {
  // CHECK: %{{.*}}, %{{.*}} = ladle.transport %ring[%q] through <decay = "a", keys = ["k"], {{.*}}> : <[{{.*}}>, tensor<4x8xf32> -> tensor<4x8xf32> and tensor<4x16xf32>
  %t, %y = ladle.transport %ring[%q] through <decay = "a", keys = ["k"],
    key_scales = ["ks"], values = ["u"], value_scales = [""], owners = [0],
    coefficients = ["a"], vectors = ["k"], vector_scales = ["ks"],
    after_decay = [1]>
    : !ring, tensor<4x8xf32> -> tensor<4x8xf32> and tensor<4x16xf32>
  %S = ladle.load_state %pool : !ladle.pool<4x8x16xf32> to !ladle.state<4x8x16xf32>
  // CHECK: ladle.replay %{{.*}}, %ring through <decay = "", {{.*}}> : <4x8x16xf32>, <[
  %1 = ladle.replay %S, %ring through <decay = "", keys = ["k"],
    key_scales = [""], values = [""], value_scales = [""], owners = [],
    coefficients = [], vectors = [], vector_scales = [], after_decay = []>
    : !ladle.state<4x8x16xf32>, !ring
  ladle.store_state %1, %pool : !ladle.state<4x8x16xf32>, !ladle.pool<4x8x16xf32>
  ladle.yield %y : tensor<4x16xf32>
}
