// RUN: ladle-opt %s --ladle-to-cpu="routes=inner capacity=8 drafts=4" | FileCheck %s

ladle.recurrence @delta(token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %S: !ladle.state<2x16x8xf32>) -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32>
       -> tensor<2x8xf32>
  %u = arith.subf %v, %r : tensor<2x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<2x16x8xf32>, tensor<2x16xf32>, tensor<2x8xf32>
  ladle.yield %u, %S1 : tensor<2x8xf32>, !ladle.state<2x16x8xf32>
}

// Entries lie where the order of the slot says, before the fields; after these
// come the parents. Stacks lie in scratch memory of a head.
// CHECK-LABEL: func.func @delta_inner_verify(
// CHECK-SAME: memref<8xi32>, {{.*}}memref<4xi32>
// CHECK-DAG: memref.alloca() {alignment = 64 : i64} : memref<4x16xf32>
// CHECK-DAG: memref.alloca() {alignment = 64 : i64} : memref<4x4xf32>
// CHECK: scf.while
// CHECK: arith.cmpi sge

// Rows are stored as they are read.
// CHECK-LABEL: func.func @delta_inner_verify_fold(
// CHECK: vector.store %{{.*}}memref<?x2x8x16xf32

// CHECK-LABEL: func.func @delta_inner_decode(
// CHECK-SAME: memref<8xi32>
// CHECK: memref.load %{{.*}} : memref<8xi32>
