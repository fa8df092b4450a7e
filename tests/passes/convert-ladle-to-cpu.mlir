// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule),convert-ladle-to-cpu,canonicalize)" | FileCheck %s

// One function for a row of the batch and a range of heads: seven indices, the
// token, the pool, the output. dv = 20 takes one tile of 16 rows and a rest.
// CHECK-LABEL: func.func @read(
// CHECK-SAME: %[[ROW:[^:]*]]: index, %[[READ:[^:]*]]: index, %[[WRITE:[^:]*]]: index,
// CHECK-SAME: memref<?x1x4xf32, strided<[?, ?, 1], offset: ?>>
// CHECK-SAME: memref<?x2x20x4xbf16, strided<[?, 80, 4, 1], offset: ?>>
// CHECK-SAME: memref<?x2x20xf32, strided<[?, ?, 1], offset: ?>>
// CHECK: %[[Q:.*]] = vector.load %{{.*}}[%[[ROW]], %c0, %c0] : {{.*}}, vector<4xf32>
// CHECK: scf.for %[[HEAD:.*]] =
// CHECK: scf.for
// CHECK: %[[BITS:.*]] = vector.load %{{.*}}[%[[READ]], %[[HEAD]], %{{.*}}, %c0]
// CHECK: %[[STATE:.*]] = arith.extf %[[BITS]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[STATE]], %[[Q]] : vector<4xf32>
// CHECK: vector.reduction <add>, %[[PRODUCT]] fastmath<reassoc>
// CHECK: vector.store %{{.*}}[%[[ROW]], %[[HEAD]], %{{.*}}] : {{.*}}, vector<16xf32>
// CHECK: vector.store %{{.*}}[%[[ROW]], %[[HEAD]], %c16] : {{.*}}, vector<4xf32>
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x4xf32>,
    state %p: !ladle.pool<2x4x20xbf16>) -> (y: tensor<2x20xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x4x20xbf16> to !ladle.state<2x4x20xbf16>
  %y = ladle.read %S, %q : !ladle.state<2x4x20xbf16>, tensor<1x4xf32> -> tensor<2x20xf32>
  ladle.yield %y : tensor<2x20xf32>
}
