// RUN: ladle-opt %s --convert-ladle-to-gpu --canonicalize --cse | FileCheck %s

// 16 rows of 32 keys, of which dv is contiguous: 32 threads take a row beside
// each other's and four elements of dk each. No bulk copy can do that.
// CHECK-LABEL: gpu.func @read(
// CHECK-SAME: memref<?x2x32x16xf32, strided<[?, 512, 16, 1], offset: ?>> {ladle.name = "p"}
// CHECK-SAME: %[[TILE:[^:]*]] : memref<16x36xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: dma_start
// CHECK: %[[A:.*]] = vector.load %{{.*}}[%{{.*}}, %{{.*}}, %[[AT:.*]], %[[ROW:.*]]] {nontemporal = true} : {{.*}}, vector<1xf32>
// CHECK: %[[X:.*]] = vector.extract %[[A]][0]
// CHECK: %[[ALL:.*]] = vector.from_elements %[[X]], %{{.*}}, %{{.*}}, %{{.*}} : vector<4xf32>
// CHECK: vector.store %[[ALL]], %[[TILE]][%[[ROW]], %[[AT]]]
// CHECK: gpu.barrier
// CHECK: vector.load %[[TILE]]
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x16xf32, dk_dv>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x16xf32, dk_dv> to !ladle.state<2x32x16xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x16xf32>, tensor<1x32xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}
