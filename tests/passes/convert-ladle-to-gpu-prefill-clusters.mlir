// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=1" | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=1 cluster=1" \
// RUN:   | FileCheck %s --check-prefix=ALONE

// Decays a channel, for few prompts: what needs no state is made by two blocks
// in turn, each for both.
ladle.step @together_prefill of @channels route(inner) form(prefill_fold)
    (token %q: tensor<2x64xf32>, token %k: tensor<2x64xf32>, token %v: tensor<2x64xf32>,
     token %a: tensor<2x64xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<16, chain>) -> (y: tensor<2x64xf32>) {
  %0:4 = ladle.each_draft %d : !ladle.drafts<16, chain> {
    %aq = arith.mulf %a, %q : tensor<2x64xf32>
    ladle.yield_draft %a, %k, %v, %aq : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>
  } -> tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32>
  %1 = ladle.path_decay %0#0 along %d : !ladle.drafts<16, chain>, tensor<2x16x64xf32>
  %2 = ladle.each_draft %d : !ladle.drafts<16, chain>
      stacks(%0#3, %1 : tensor<2x16x64xf32>, tensor<2x16x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %z = arith.mulf %x, %y : tensor<2x64xf32>
    ladle.yield_draft %z : tensor<2x64xf32>
  } -> tensor<2x16x64xf32>
  %3 = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %4 = ladle.read %3, %2 : !ladle.state<2x64x64xf32>, tensor<2x16x64xf32> -> tensor<2x16x64xf32>
  %5 = ladle.path_gram %0#3, %0#1 decay %0#0 along %d : !ladle.drafts<16, chain>, tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32> -> tensor<2x16x1x16x1xf32>
  %6 = ladle.path_product[%5 : tensor<2x16x1x16x1xf32>] of[%0#2 : tensor<2x16x64xf32>]
      along %d : !ladle.drafts<16, chain> -> tensor<2x16x64xf32>
  %7 = ladle.each_draft %d : !ladle.drafts<16, chain>
      stacks(%4, %6 : tensor<2x16x64xf32>, tensor<2x16x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %z = arith.addf %x, %y : tensor<2x64xf32>
    ladle.yield_draft %z : tensor<2x64xf32>
  } -> tensor<2x16x64xf32>
  %8 = ladle.fold_drafts %3 keys[%0#1 : tensor<2x16x64xf32>] values[%0#2 : tensor<2x16x64xf32>]
      decay %0#0 : tensor<2x16x64xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<16, chain>
  ladle.store_state %8, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %7 : tensor<2x16x64xf32>
}

// ALONE-NOT: ladle.cluster
// ALONE-NOT: nvvm.cluster

// CHECK-LABEL: gpu.func @together_prefill
// CHECK-SAME: known_block_size = array<i32: 384, 1, 1>
// CHECK-SAME: ladle.cluster = 2 : index
// CHECK-SAME: ladle.grid_blocks = 4 : index
// What is cleared, the other block writes from here on.
// CHECK: gpu.barrier
// CHECK-NEXT: nvvm.cluster.arrive {aligned}
// CHECK-NEXT: nvvm.cluster.wait {aligned}
// CHECK: scf.if
// Warps with rows meet the others once for two steps, whose places are two of
// four. They have written nothing that others read.
// CHECK: scf.for %[[STEP:.*]] = %c0{{.*}} to %{{.*}} step %c1{{.*}} iter_args(
// CHECK: arith.remui %[[STEP]], %c4
// CHECK: %[[PLACE:.*]] = arith.remui %[[STEP]], %c2
// CHECK-NEXT: %[[FIRST:.*]] = arith.cmpi ult, %[[PLACE]], %c1
// CHECK-NEXT: scf.if %[[FIRST]] {
// CHECK-NEXT: nvvm.cluster.arrive.relaxed {aligned}
// CHECK-NEXT: nvvm.cluster.wait {aligned}
// CHECK-NEXT: } else {
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c64
// CHECK: vector.load %{{.*}} : memref<16x72xf32
// CHECK: } else {
// Those ahead make one of the two, if there is one, and store it twice.
// CHECK: gpu.block_id x
// CHECK: %[[RANK:.*]] = arith.remui %{{.*}}, %c2
// CHECK: gpu.block_id x
// CHECK-NEXT: arith.remui %{{.*}}, %c2
// CHECK-NEXT: arith.addi %{{.*}}, %c1
// CHECK-NEXT: %[[OTHER:.*]] = arith.remui %{{.*}}, %c2
// CHECK-NEXT: %[[THEIRS:.*]] = builtin.unrealized_conversion_cast %[[OURS:.*]], %[[OTHER]] : memref<[[SIZE:64x72xf32]], {{.*}}>, index to memref<[[SIZE]]
// CHECK: scf.for %[[MADE:.*]] = %[[RANK]] to %{{.*}} step %c2
// CHECK: memref.subview %[[OURS]]
// CHECK: memref.subview %[[THEIRS]]
// CHECK: arith.cmpi slt, %[[MADE]], %{{.*}}
// CHECK-NEXT: scf.if
// Keys that will be written over by those that decay stay with the block.
// CHECK: vector.store %{{.*}}, %[[KEYS:subview.*]][%{{.*}}] : memref<16x72xf32, strided
// CHECK-NEXT: arith.mulf
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c256
// CHECK: vector.load
// Queries that decay are made of a channel's, beside what doublings multiply.
// CHECK: scf.for %[[CHANNEL:.*]] = %{{.*}} to %c64
// CHECK: memref.store %[[SOME:.*]], %[[OWN:subview.*]][%[[ROW:.*]], %[[CHANNEL]]] : memref<16x72xf32, strided
// CHECK-NEXT: memref.store %[[SOME]], %{{.*}}[%[[ROW]], %[[CHANNEL]]] : memref<16x72xf32
// CHECK: }
// CHECK: nvvm.cluster.arrive {aligned}
// CHECK-NEXT: nvvm.cluster.wait {aligned}
// CHECK: gpu.return

// A value that is turned waits in shared memory, of which each block has its own
// tile: nobody makes that for another.
ladle.step @turned_prefill of @channels route(inner) form(prefill_fold)
    (token %q: tensor<2x64xf32>, token %k: tensor<2x64xf32>, token %v: tensor<2x64xf32>,
     token %a: tensor<2x64xf32>, token %r: tensor<2x16xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<16, chain>) -> (y: tensor<2x64xf32>) {
  %0:4 = ladle.each_draft %d : !ladle.drafts<16, chain> {
    %aq = arith.mulf %a, %q : tensor<2x64xf32>
    %w = ladle.rotate %v, %r : tensor<2x64xf32>, tensor<2x16xf32>
    ladle.yield_draft %a, %k, %w, %aq : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>
  } -> tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32>
  %1 = ladle.path_decay %0#0 along %d : !ladle.drafts<16, chain>, tensor<2x16x64xf32>
  %2 = ladle.each_draft %d : !ladle.drafts<16, chain>
      stacks(%0#3, %1 : tensor<2x16x64xf32>, tensor<2x16x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %z = arith.mulf %x, %y : tensor<2x64xf32>
    ladle.yield_draft %z : tensor<2x64xf32>
  } -> tensor<2x16x64xf32>
  %3 = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %4 = ladle.read %3, %2 : !ladle.state<2x64x64xf32>, tensor<2x16x64xf32> -> tensor<2x16x64xf32>
  %5 = ladle.path_gram %0#3, %0#1 decay %0#0 along %d : !ladle.drafts<16, chain>, tensor<2x16x64xf32>, tensor<2x16x64xf32>, tensor<2x16x64xf32> -> tensor<2x16x1x16x1xf32>
  %6 = ladle.path_product[%5 : tensor<2x16x1x16x1xf32>] of[%0#2 : tensor<2x16x64xf32>]
      along %d : !ladle.drafts<16, chain> -> tensor<2x16x64xf32>
  %7 = ladle.each_draft %d : !ladle.drafts<16, chain>
      stacks(%4, %6 : tensor<2x16x64xf32>, tensor<2x16x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %z = arith.addf %x, %y : tensor<2x64xf32>
    ladle.yield_draft %z : tensor<2x64xf32>
  } -> tensor<2x16x64xf32>
  %8 = ladle.fold_drafts %3 keys[%0#1 : tensor<2x16x64xf32>] values[%0#2 : tensor<2x16x64xf32>]
      decay %0#0 : tensor<2x16x64xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<16, chain>
  ladle.store_state %8, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %7 : tensor<2x16x64xf32>
}

// CHECK-LABEL: gpu.func @turned_prefill
// CHECK-NOT: ladle.cluster
// CHECK-NOT: nvvm.cluster
// CHECK: gpu.return
