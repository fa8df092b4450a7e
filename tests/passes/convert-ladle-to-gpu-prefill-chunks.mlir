// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

!entries = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x8xf32 @dv], capacity = 16, order = ring, weight = linear>

// A launch takes a part of a prompt: what fills up the chunk that the slot has
// begun, or the rest. The state is loaded if there are tokens, gets what the
// slot holds, and is stored in the loop where the last whole chunk ends; tokens
// behind that are appended.
// CHECK-LABEL: gpu.func @prompt(
// CHECK-SAME: {ladle.name = "cu_seqlens"}
// CHECK-SAME: %[[PART:[^:]*]]: i32 {ladle.name = "part"}
// CHECK-SAME: %[[POOL:[^:]*]]: memref<{{[^>]*>?}}> {ladle.name = "p"}
// CHECK-SAME: %[[KEYS:[^:]*]]: memref<{{[^>]*>?}}> {ladle.name = "e_k"}
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[PART]]
// CHECK: %[[END:.*]] = arith.select %[[FIRST]]
// CHECK: %[[COUNT:.*]] = arith.select %[[FIRST]]
// CHECK: %[[SOME:.*]] = arith.cmpi sgt, %{{.*}}, %c0
// CHECK: scf.if %[[SOME]]
// CHECK: vector.load %[[POOL]]
// CHECK: memref.load %[[KEYS]]
// CHECK: scf.for
// CHECK: %[[IS_END:.*]] = arith.cmpi eq, %{{.*}}, %[[END]]
// CHECK: scf.if %[[IS_END]]
// CHECK: vector.store %{{.*}}, %[[POOL]]
ladle.step @prompt of @r route(inner) form(prefill_entries) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>, buffer %e: !entries, drafts %d: !ladle.drafts<16, chain>) -> () {
  %0:2 = ladle.each_draft %d : !ladle.drafts<16, chain> {
    ladle.yield_draft %k, %v : tensor<2x16xf32>, tensor<2x8xf32>
  } -> tensor<2x16x16xf32>, tensor<2x16x8xf32>
  %z = ladle.load_state %p : <2x16x8xf32> to <2x16x8xf32>
  %1 = ladle.fold_buffer %z, %e key "k" value "u" : !ladle.state<2x16x8xf32>, !entries
  %2 = ladle.fold_drafts %1 keys[%0#0 : tensor<2x16x16xf32>] values[%0#1 : tensor<2x16x8xf32>] along %d : !ladle.state<2x16x8xf32>, !ladle.drafts<16, chain>
  ladle.store_state %2, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.append_drafts %e, %0#0, %0#1 along %d : !entries, !ladle.drafts<16, chain>, tensor<2x16x16xf32>, tensor<2x16x8xf32>
  ladle.yield
}
