// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

!pages = !ladle.buffer<[k : 2x64xf32 @dk, u : 2x64xf32 @dv, decay : 2xf32 @scalar], capacity = 16, order = ring, page = 8, weight = linear>

// The table comes before the arguments of the step, and behind the pages of a
// slot stands the spare one. Rows without a state are of another kind than those
// with one. Numbers are loaded from the pages that the table names, without the
// mark of what others hold as well; fields are copied a page at a time, the last
// as far as there are entries.
// CHECK-LABEL: gpu.func @read(
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<?x3xi32> {ladle.name = "page_table"}
// CHECK-SAME: %[[STATES:[^:]*]]: memref<?xi32> {ladle.name = "state_table"}
// CHECK-SAME: %[[EPOCHS:[^:]*]]: memref<?xi32> {ladle.name = "epochs"}
// CHECK-SAME: %[[KIND:[^:]*]]: i32 {ladle.name = "row_kind"}
// CHECK-SAME: %[[K:[^:]*]]: memref<?x2x8x64xf32, {{[^{]*}}> {ladle.name = "e_k"}
// CHECK: %[[SLOT:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK: memref.load %[[STATES]][%[[SLOT]]]
// CHECK: memref.load %[[EPOCHS]][%[[SLOT]]]
// CHECK: arith.cmpi eq, %[[KIND]], %{{.*}} : i32
// CHECK: scf.if
// CHECK: memref.load %[[TABLE]][%[[SLOT]], %{{.*}}]
// CHECK: scf.for %[[FIRST:.*]] = %c0 to %[[LENGTH:.*]] step %c8 {
// CHECK: %[[INDEX:.*]] = arith.divui %[[FIRST]], %c8
// CHECK: %[[LEFT:.*]] = arith.subi %[[LENGTH]], %[[FIRST]]
// CHECK: %[[NUMBER:.*]] = memref.load %[[TABLE]][%[[SLOT]], %[[INDEX]]]
// CHECK: %[[BARE:.*]] = arith.andi %[[NUMBER]], %c1073741823_i32
// CHECK: %[[PAGE:.*]] = arith.index_cast %[[BARE]]
// CHECK: arith.minsi %[[LEFT]], %c8
// CHECK: memref.dma_start %[[K]][%[[PAGE]], %{{.*}}, %c0, %c0]
ladle.step @read of @r route(kv_only) form(decode) (token %q: tensor<2x64xf32>,
    buffer %e: !pages) -> (y: tensor<2x64xf32>) {
  %y = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !pages, tensor<2x64xf32> -> tensor<2x64xf32>
  ladle.yield %y : tensor<2x64xf32>
}
