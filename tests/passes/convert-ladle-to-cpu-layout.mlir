// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule),convert-ladle-to-cpu,canonicalize)" | FileCheck %s

// Of a state of which dv is contiguous, squares of 4 are transposed: two stages
// interleave vectors that are half of the rows apart. Rows are read from there.
// CHECK-LABEL: func.func @read(
// CHECK-SAME: %[[POOL:[^:]*]]: memref<?x2x4x16xf32, strided<[?, 64, 16, 1], offset: ?>>
// CHECK: %[[TILE:.*]] = memref.alloca() {alignment = 64 : i64} : memref<16x4xf32>
// CHECK: %[[A:.*]] = vector.load %[[POOL]]{{.*}}, vector<4xf32>
// CHECK: %[[B:.*]] = vector.load %[[POOL]]{{.*}}, vector<4xf32>
// CHECK: %[[C:.*]] = vector.load %[[POOL]]{{.*}}, vector<4xf32>
// CHECK: %[[D:.*]] = vector.load %[[POOL]]{{.*}}, vector<4xf32>
// CHECK: %[[AC:.*]] = vector.shuffle %[[A]], %[[C]] [0, 4, 1, 5]
// CHECK: vector.shuffle %[[A]], %[[C]] [2, 6, 3, 7]
// CHECK: %[[BD:.*]] = vector.shuffle %[[B]], %[[D]] [0, 4, 1, 5]
// CHECK: %[[FIRST:.*]] = vector.shuffle %[[AC]], %[[BD]] [0, 4, 1, 5]
// CHECK: vector.store %[[FIRST]], %[[TILE]]
// CHECK: vector.load %[[TILE]]
// CHECK: vector.reduction <add>
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x4xf32>,
    state %p: !ladle.pool<2x4x16xf32, dk_dv>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x4x16xf32, dk_dv> to !ladle.state<2x4x16xf32>
  %y = ladle.read %S, %q : !ladle.state<2x4x16xf32>, tensor<1x4xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}
