// RUN: ladle-opt %s --ladle-to-cpu="routes=inner capacity=8 chunk=64" | FileCheck %s

ladle.recurrence @delta(token %k: tensor<2x16xf32>, token %v: tensor<2x32xf32>,
    token %a: tensor<2x16xf32>, state %S: !ladle.state<2x16x32xbf16>)
    -> (y: tensor<2x32xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x16x32xbf16>, tensor<2x16xf32>
       -> tensor<2x32xf32>
  %u = arith.subf %v, %r : tensor<2x32xf32>
  %S0 = ladle.decay %S, %a : !ladle.state<2x16x32xbf16>, tensor<2x16xf32>
  %S1 = ladle.write %S0, %k, %u
      : !ladle.state<2x16x32xbf16>, tensor<2x16xf32>, tensor<2x32xf32>
  ladle.yield %u, %S1 : tensor<2x32xf32>, !ladle.state<2x16x32xbf16>
}

// Scratch memory and the f32 states of the heads lie in the workspace, [dk, dv]
// with rows that do not share cache sets.
// CHECK-LABEL: func.func @delta_inner_prefill_fold(
// CHECK-SAME: memref<?xi8>
// CHECK-SAME: ladle.workspace = {{[0-9]+}} : index, ladle.workspace_per_head = 3072 : index
// CHECK-NOT: memref.alloca
// CHECK: %[[C64:.*]] = arith.constant 64 : index
// The chunks of the row, then heads; the pool is read before the first.
// CHECK: scf.for %{{.*}} to %{{.*}} step %[[C64]]
// CHECK: scf.for
// CHECK: scf.if
// CHECK: vector.load %{{.*}} : memref<?x2x32x16xbf16
// CHECK: vector.fma {{.*}} : vector<32xf32>
// CHECK: scf.if
// CHECK: vector.store %{{.*}} : memref<?x2x32x16xbf16

// CHECK-LABEL: func.func @delta_inner_prefill_entries(
// CHECK-SAME: ladle.workspace_per_head = 0 : index
// CHECK-NOT: vector.store %{{.*}} : memref<?x2x32x16xbf16
// CHECK: return
