// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

!entries = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x8xf32 @dv], capacity = 32, order = ring, page = 8, weight = linear>

// A prompt that leaves fewer entries than the second threshold keeps them, as
// does one whose slot has no state of its own. The state begins with the entries
// that there are; those of tokens go to pages, and the state to the pool if they
// do not.
// CHECK-LABEL: gpu.func @prompt(
// CHECK-SAME: %[[M:[^:]*]]: memref<2xi32> {ladle.name = "fold_threshold"}
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<?x5xi32> {ladle.name = "page_table"}
// CHECK-SAME: {ladle.name = "cu_seqlens"}
// CHECK-SAME: %[[POOL:[^:]*]]: memref<{{[^>]*>?}}> {ladle.name = "p"}
// CHECK-SAME: %[[KEYS:[^:]*]]: memref<{{[^>]*>?}}> {ladle.name = "e_k"}
// CHECK: memref.load %[[M]][%c1]
// CHECK: %[[FEW:.*]] = arith.cmpi slt
// CHECK: %[[KEEPS:.*]] = arith.ori %[[FEW]],
// CHECK: scf.for
// CHECK: memref.load %[[TABLE]]
// CHECK: memref.load %[[KEYS]]
// CHECK: scf.for
// CHECK: arith.andi %{{.*}}, %[[KEEPS]]
// CHECK: %[[FOLDS:.*]] = arith.xori %[[KEEPS]]
// CHECK: scf.if %[[FOLDS]]
// CHECK: vector.store %{{.*}}, %[[POOL]]
ladle.step @prompt of @r route(kv_only) form(prefill_entries) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>, buffer %e: !entries, drafts %d: !ladle.drafts<16, chain>) -> () {
  %0:2 = ladle.each_draft %d : !ladle.drafts<16, chain> {
    ladle.yield_draft %k, %v : tensor<2x16xf32>, tensor<2x8xf32>
  } -> tensor<2x16x16xf32>, tensor<2x16x8xf32>
  %z = ladle.zero_state : !ladle.state<2x16x8xf32>
  %1 = ladle.fold_buffer %z, %e key "k" value "u" : !ladle.state<2x16x8xf32>, !entries
  %2 = ladle.fold_drafts %1 keys[%0#0 : tensor<2x16x16xf32>] values[%0#1 : tensor<2x16x8xf32>] along %d : !ladle.state<2x16x8xf32>, !ladle.drafts<16, chain>
  ladle.store_state %2, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.append_drafts %e, %0#0, %0#1 along %d : !entries, !ladle.drafts<16, chain>, tensor<2x16x16xf32>, tensor<2x16x8xf32>
  ladle.yield
}
