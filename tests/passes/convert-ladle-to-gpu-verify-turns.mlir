// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="verify-heads=2" \
// RUN:   | FileCheck %s --check-prefix=TWO
// RUN: ladle-opt %s --convert-ladle-to-gpu="verify-heads=1" \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=8" \
// RUN:   | FileCheck %s --check-prefix=FEW

// Four heads share a key and a query: a block takes them one after the other.
!buffer = !ladle.buffer<[k : 1x64xbf16 @dk, u : 4x64xbf16 @dv, d : 4xf32 @scalar],
    capacity = 8, order = indexed, weight = linear>
!shared = tensor<1x2x64xf32>
!vectors = tensor<4x2x64xf32>
!numbers = tensor<4x2xf32>
ladle.step @turns_verify of @turns route(inner) form(verify)
    (token %q: tensor<1x64xbf16>, token %k: tensor<1x64xbf16>,
     token %v: tensor<4x64xbf16>, token %a: tensor<4xf32>,
     state %S: !ladle.pool<4x64x64xf32>, buffer %e: !buffer,
     drafts %d: !ladle.drafts<2>) -> (y: tensor<4x64xf32>) {
  %0:4 = ladle.each_draft %d : !ladle.drafts<2> {
    %1 = math.exp %a : tensor<4xf32>
    %2 = arith.extf %q : tensor<1x64xbf16> to tensor<1x64xf32>
    %3 = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
    %4 = arith.extf %v : tensor<4x64xbf16> to tensor<4x64xf32>
    ladle.yield_draft %1, %2, %3, %4 : tensor<4xf32>, tensor<1x64xf32>, tensor<1x64xf32>, tensor<4x64xf32>
  } -> !numbers, !shared, !shared, !vectors
  %s = ladle.load_state %S : !ladle.pool<4x64x64xf32> to !ladle.state<4x64x64xf32>
  %r = ladle.read %s, %0#1 : !ladle.state<4x64x64xf32>, !shared -> !vectors
  %g = ladle.path_gram %0#1, %0#2 decay %0#0 along %d : !ladle.drafts<2>, !shared, !shared, !numbers -> tensor<4x2x1x2x1xf32>
  %p = ladle.path_product[%g : tensor<4x2x1x2x1xf32>] of[%0#3 : !vectors]
      along %d : !ladle.drafts<2> -> !vectors
  %y = ladle.each_draft %d : !ladle.drafts<2> stacks(%r, %p : !vectors, !vectors) {
  ^bb0(%one: tensor<4x64xf32>, %other: tensor<4x64xf32>):
    %sum = arith.addf %one, %other : tensor<4x64xf32>
    ladle.yield_draft %sum : tensor<4x64xf32>
  } -> !vectors
  ladle.append_drafts %e, %0#2, %0#3, %0#0 along %d : !buffer, !ladle.drafts<2>, !shared, !vectors, !numbers
  ladle.yield %y : !vectors
}

// CHECK-LABEL: gpu.func @turns_verify
// A counter for the copy of each tile, and numbers of all drafts of all heads.
// CHECK-SAME: memref<4xi64, #gpu.address_space<workgroup>>
// CHECK-SAME: memref<8x1xf32, #gpu.address_space<workgroup>>
// CHECK-SAME: ladle.grid_blocks = 1 : index
// The first tile is copied before the row's place is known.
// CHECK: memref.dma_start
// CHECK-NOT: nvvm.griddepcontrol
// CHECK: math.exp
// What tokens have to do with each other is computed once.
// CHECK: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 16]}
// CHECK: scf.for
// Of a turn, the tile is read first, and that of the next head follows it.
// CHECK: memref.dma_wait
// CHECK-COUNT-8: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 8], tf32Enabled}
// CHECK: gpu.barrier {ladle.releases}
// CHECK: scf.if
// CHECK-NEXT: arith.addi
// CHECK: memref.dma_start
// CHECK-NOT: mma.sync
// The first head stores what all have in common, when it may.
// CHECK: nvvm.griddepcontrol {{ ?}}wait
// CHECK: scf.if
// CHECK: memref.store {{.*}} : memref<?xi32>
// CHECK: ladle.rolled

// TWO: memref<2xi64, #gpu.address_space<workgroup>>
// TWO-SAME: ladle.grid_blocks = 2 : index
// TWO: ladle.releases

// ONE: ladle.grid_blocks = 4 : index
// ONE-NOT: ladle.releases

// A small batch is spread over more blocks.
// FEW-NOT: ladle.releases
