// RUN: ladle-opt %s --convert-ladle-to-gpu="drafts=4" | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="drafts=4 forms=1" | FileCheck %s --check-prefix=DECODE
// RUN: not ladle-opt %s --convert-ladle-to-gpu="drafts=17" 2>&1 | FileCheck %s --check-prefix=MANY

!entries = !ladle.buffer<[k : 2x16xf32 @dk, u : 2x8xf32 @dv], capacity = 16, order = indexed, weight = linear>

// Beside the kernels of steps there are one for a draft of each row, and one
// that folds before the first.
// CHECK-LABEL: gpu.func @decode(
// CHECK-LABEL: gpu.func @r_inner_draft(
// CHECK-SAME: %[[M:[^:]*]]: memref<1xi32> {ladle.name = "fold_threshold"}
// CHECK-SAME: %[[WAITING:[^:]*]]: memref<?xi32> {ladle.name = "waiting"}
// CHECK-SAME: %[[STARTS:[^:]*]]: memref<?xi32> {ladle.name = "cu_seqlens"}
// CHECK-SAME: %[[PARENTS:[^:]*]]: memref<?xi32> {ladle.name = "parents"}
// CHECK-SAME: {ladle.name = "has_parents"}
// CHECK-SAME: {ladle.name = "draft"}
// CHECK-SAME: {ladle.name = "rows_of"}
// CHECK: memref.load %[[STARTS]]
// CHECK: memref.load %[[M]]
// CHECK: memref.store %{{.*}}, %[[WAITING]]
// CHECK: memref.load %[[PARENTS]]
// CHECK-LABEL: gpu.func @r_inner_draft_fold(
// CHECK-SAME: %[[WAITING_TOO:[^:]*]]: memref<?xi32> {ladle.name = "waiting"}
// CHECK-NOT: memref.store %{{.*}}, %[[WAITING_TOO]]
// CHECK: vector.store
// DECODE-NOT: draft(
// MANY: error: drafts must be 0 to 16, got 17
ladle.step @decode of @r route(inner) form(decode) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>, buffer %e: !entries) -> (y: tensor<2x8xf32>) {
  %0 = ladle.read_buffer %e[%k] key "k" value "u" : !entries, tensor<2x16xf32> -> tensor<2x8xf32>
  ladle.append %e, %k, %v : !entries, tensor<2x16xf32>, tensor<2x8xf32>
  ladle.yield %0 : tensor<2x8xf32>
}
ladle.step @fold of @r route(inner) form(fold) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>, buffer %e: !entries) -> (y: tensor<2x8xf32>) {
  %0 = ladle.load_state %p : <2x16x8xf32> to <2x16x8xf32>
  %1 = ladle.fold_buffer %0, %e key "k" value "u" : !ladle.state<2x16x8xf32>, !entries
  ladle.store_state %1, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.clear %e : !entries
  ladle.yield
}

// Without entries a slot has a state for each draft: it reads that of its
// parent, and writes its own.
// CHECK-LABEL: gpu.func @states(
// CHECK-SAME: %[[VERSIONS:[^:]*]]: memref<?xi32> {ladle.name = "carry_versions"}
// CHECK: %[[NUMBER:.*]] = memref.load %[[VERSIONS]]
// CHECK: %[[VERSION:.*]] = arith.index_cast %[[NUMBER]]
// CHECK: arith.addi %{{.*}}, %[[VERSION]]
// CHECK-LABEL: gpu.func @s_recurrent_draft(
// CHECK-SAME: %[[OF:[^:]*]]: memref<?xi32> {ladle.name = "carry_versions"}
// CHECK-SAME: %[[LEFT:[^:]*]]: memref<?xi32> {ladle.name = "waiting"}
// CHECK-SAME: %[[TREE:[^:]*]]: memref<?xi32> {ladle.name = "parents"}
// CHECK: memref.load %[[OF]]
// CHECK: memref.load %[[TREE]]
// CHECK: memref.store %{{.*}}, %[[LEFT]]
ladle.step @states of @s route(recurrent) form(decode) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>) -> (y: tensor<2x8xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x16x8xf32> to !ladle.state<2x16x8xf32>
  %T = ladle.write %S, %k, %v : !ladle.state<2x16x8xf32>, tensor<2x16xf32>, tensor<2x8xf32>
  ladle.store_state %T, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  %y = ladle.read %T, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32> -> tensor<2x8xf32>
  ladle.yield %y : tensor<2x8xf32>
}
