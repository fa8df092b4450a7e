// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule),convert-ladle-to-cpu,canonicalize)" | FileCheck %s

!ring = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 8, order = ring, weight = linear>

// A buffer is read in two passes: from the newest entry to the oldest for the
// weights, with the product of the decays passed so far, then in the order of
// memory for the values. While rows of the state stream, a share of the next
// head's entries is asked for.
// CHECK-LABEL: func.func @read(
// CHECK-SAME: %{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: index, %[[BASE:[^:]*]]: index, %[[LENGTH:[^:]*]]: index,
// CHECK: %[[WEIGHTS:.*]] = memref.alloca() {{.*}} : memref<1x8xf32>
// CHECK: scf.for %[[HEAD:.*]] =
// CHECK: scf.for %[[J:.*]] = %c0 to %[[LENGTH]] step %c1 iter_args(%[[PASSED:.*]] = %cst{{.*}}) -> (f32)
// CHECK: %[[NEWEST:.*]] = arith.subi %[[LENGTH]], %c1
// CHECK: %[[POSITION:.*]] = arith.subi %[[NEWEST]], %[[J]]
// CHECK: %[[DOT:.*]] = vector.reduction <add>
// CHECK: %[[WEIGHT:.*]] = arith.mulf %[[DOT]], %[[PASSED]] : f32
// CHECK: memref.store %[[WEIGHT]], %[[WEIGHTS]][%c0, %[[POSITION]]]
// CHECK: scf.for %[[J:.*]] = %c0 to %[[LENGTH]] step %c1 iter_args(%[[SUM:.*]] = %{{.*}}) -> (vector<16xf32>)
// CHECK: %[[U:.*]] = vector.load {{.*}} vector<16xf32>
// CHECK: %[[W:.*]] = memref.load %[[WEIGHTS]][%c0, %[[J]]]
// CHECK: %[[SPLAT:.*]] = vector.broadcast %[[W]]
// CHECK: vector.fma %[[SPLAT]], %[[U]], %[[SUM]]
// CHECK: scf.for
// CHECK: %[[ENTRY:.*]] = arith.remui %{{.*}}, %c8
// CHECK: %[[NEXT:.*]] = arith.addi %[[HEAD]], %c1
// CHECK: memref.prefetch %{{.*}}[%{{.*}}, %[[NEXT]], %[[ENTRY]], %c0], read, {{.*}} memref<?x2x8x16xf32
// CHECK: memref.prefetch %{{.*}}[%{{.*}}, %{{.*}}, %[[ENTRY]], %c0], read, {{.*}} memref<?x2x8x16xf32
// CHECK: memref.prefetch %{{.*}}[%{{.*}}, %{{.*}}, %[[ENTRY]]], read, {{.*}} memref<?x2x8xf32
ladle.step @read of @r route(inner) form(decode) (token %q: tensor<2x16xf32>,
    state %p: !ladle.pool<2x16x16xf32>, buffer %e: !ring) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x16x16xf32> to !ladle.state<2x16x16xf32>
  %a = ladle.read %S, %q : !ladle.state<2x16x16xf32>, tensor<2x16xf32> -> tensor<2x16xf32>
  %b = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ring, tensor<2x16xf32> -> tensor<2x16xf32>
  %y = arith.addf %a, %b : tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}
