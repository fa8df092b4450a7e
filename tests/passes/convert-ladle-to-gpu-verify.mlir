// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

// The delta rule with two drafts a row: k and q read the state, what k reads is
// solved for along the ancestors.
!buffer = !ladle.buffer<[k : 2x64xf32 @dk, u : 2x64xf32 @dv],
    capacity = 8, order = indexed, weight = linear>
ladle.step @delta_verify of @delta route(inner) form(verify)
    (token %k: tensor<2x64xf32>, token %v: tensor<2x64xf32>,
     state %S: !ladle.pool<2x64x64xf32>, buffer %e: !buffer,
     drafts %d: !ladle.drafts<2>) -> (y: tensor<2x64xf32>) {
  %0:2 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k, %v : tensor<2x64xf32>, tensor<2x64xf32>
  } -> tensor<2x2x64xf32>, tensor<2x2x64xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x2x64xf32> -> tensor<2x2x64xf32>
  %1 = ladle.each_draft %d : !ladle.drafts<2>
      stacks(%r, %0#1 : tensor<2x2x64xf32>, tensor<2x2x64xf32>) {
  ^bb0(%a: tensor<2x64xf32>, %b: tensor<2x64xf32>):
    %sum = arith.addf %a, %b : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> tensor<2x2x64xf32>
  %g = ladle.path_gram %0#0, %0#0 along %d : !ladle.drafts<2>, tensor<2x2x64xf32>, tensor<2x2x64xf32> -> tensor<2x2x1x2x1xf32>
  %u = ladle.path_solve[%1 : tensor<2x2x64xf32>] through[%g : tensor<2x2x1x2x1xf32>]
      rows [0] columns [0] along %d : !ladle.drafts<2> -> tensor<2x2x64xf32>
  ladle.append_drafts %e, %0#0, %u along %d : !buffer, !ladle.drafts<2>, tensor<2x2x64xf32>, tensor<2x2x64xf32>
  ladle.yield %u : tensor<2x2x64xf32>
}

// CHECK-LABEL: gpu.func @delta_verify
// CHECK-SAME: ladle.name = "entry_order"
// CHECK-SAME: ladle.name = "waiting"
// CHECK-SAME: ladle.name = "cu_seqlens"
// CHECK-SAME: ladle.name = "parents"
// CHECK-SAME: ladle.name = "has_parents"
// CHECK-SAME: attributes {{.*}}ladle.blocks

// The state is on its way before anything else of the slot is looked at.
// CHECK: memref.dma_start
// The tree of the drafts by shuffles, and where entries lie.
// CHECK: gpu.shuffle {{ ?}}idx
// CHECK: memref.store {{.*}} : memref<2xi32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK-NOT: nvvm.griddepcontrol
// A warp a draft.
// CHECK: vector.store {{.*}} : memref<2x80xf32
// Products with the ancestors, none for others.
// CHECK: arith.select {{.*}} : f32
// CHECK: memref.store {{.*}} : memref<2x4xf32, #gpu.address_space<workgroup>>
// Then the state: three products of parts are as good as f32.
// CHECK: memref.dma_wait
// CHECK-COUNT-3: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 8], tf32Enabled}
// The substitution: the second draft takes what the first has written.
// CHECK: math.fma
// CHECK-NEXT: arith.select
// Only what is written waits for the kernel ahead: how many drafts wait in the
// slot, which nothing ahead is to read, keys that become entries, outputs.
// CHECK: nvvm.griddepcontrol {{ ?}}wait
// CHECK: memref.store {{.*}} : memref<?xi32>
// CHECK: vector.store {{.*}} : memref<?x2x8x64xf32
// CHECK: memref.store {{.*}}ladle.kept
