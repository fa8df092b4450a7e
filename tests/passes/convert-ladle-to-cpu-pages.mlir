// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule),convert-ladle-to-cpu,canonicalize)" | FileCheck %s

!pages = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x16xf32 @dv], capacity = 32, order = ring, page = 8, weight = linear>
!drafts = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x16xf32 @dv], capacity = 32, order = indexed, page = 8, weight = linear>

// Place i of a slot is entry i mod 8 of the page that the table has at i / 8.
// CHECK-LABEL: func.func @read(
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<4xi32>, %[[K:[^:]*]]: memref<?x2x8x16xf32
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[PLACE:.*]] = arith.remui %{{.*}}, %c32
// CHECK: %[[INDEX:.*]] = arith.divui %[[PLACE]], %c8
// CHECK: %[[NUMBER:.*]] = memref.load %[[TABLE]][%[[INDEX]]]
// CHECK: %[[PAGE:.*]] = arith.index_castui %[[NUMBER]]
// CHECK: %[[ENTRY:.*]] = arith.remui %[[PLACE]], %c8
// CHECK: vector.load %[[K]][%[[PAGE]], %{{.*}}, %[[ENTRY]], %c0]
ladle.step @read of @r route(kv_only) form(decode) (token %q: tensor<2x16xf32>,
    buffer %e: !pages) -> (y: tensor<2x16xf32>) {
  %y = ladle.read_buffer %e[%q] key "k" value "u" : !pages, tensor<2x16xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}

// What is appended goes to the page of the first place that is free; where
// there can be drafts, the order says which place that is.
// CHECK-LABEL: func.func @append(
// CHECK-SAME: %[[LENGTH:[^:]*]]: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: memref<?x2x16xf32, {{.*}}>, %[[ORDER:[^:]*]]: memref<32xi32>, %[[TABLE:[^:]*]]: memref<4xi32>
// CHECK: %[[FREE:.*]] = arith.addi %{{.*}}, %[[LENGTH]]
// CHECK: %[[AT:.*]] = arith.remui %[[FREE]], %c32
// CHECK: %[[PLACE:.*]] = memref.load %[[ORDER]][%[[AT]]]
// CHECK: memref.load %[[TABLE]]
// CHECK: vector.store %{{.*}} : memref<?x2x8x16xf32
ladle.step @append of @r route(kv_only) form(decode) (token %q: tensor<2x16xf32>,
    buffer %e: !drafts) -> (y: tensor<2x16xf32>) {
  ladle.append %e, %q, %q : !drafts, tensor<2x16xf32>, tensor<2x16xf32>
  ladle.yield %q : tensor<2x16xf32>
}
