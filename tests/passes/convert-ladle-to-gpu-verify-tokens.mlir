// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

// A key and a query of 16 bits, each times a number: they are multiplied as
// they came, and the numbers with what comes out.
!buffer = !ladle.buffer<[k : 2x64xbf16 @dk, u : 2x64xf32 @dv],
    capacity = 8, order = indexed, weight = linear>
!vectors = tensor<2x2x64xf32>
ladle.step @scaled_verify of @scaled route(inner) form(verify)
    (token %q: tensor<2x64xbf16>, token %k: tensor<2x64xbf16>,
     token %v: tensor<2x64xf32>, token %b: tensor<2xf32>,
     state %S: !ladle.pool<2x64x64xf32>, buffer %e: !buffer,
     drafts %d: !ladle.drafts<2>) -> (y: tensor<2x64xf32>) {
  %0:4 = ladle.each_draft %d : !ladle.drafts<2> {
    %1 = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
    %2 = ladle.broadcast %b dims [0] : tensor<2xf32> to tensor<2x64xf32>
    %3 = arith.mulf %1, %2 : tensor<2x64xf32>
    %4 = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %5 = arith.mulf %4, %2 : tensor<2x64xf32>
    ladle.yield_draft %3, %5, %4, %v : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>
  } -> !vectors, !vectors, !vectors, !vectors
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, !vectors -> !vectors
  %g = ladle.path_gram %0#0, %0#1 along %d : !ladle.drafts<2>, !vectors, !vectors -> tensor<2x2x1x2x1xf32>
  %p = ladle.path_product[%g : tensor<2x2x1x2x1xf32>] of[%0#3 : !vectors]
      along %d : !ladle.drafts<2> -> !vectors
  %y = ladle.each_draft %d : !ladle.drafts<2> stacks(%r, %p : !vectors, !vectors) {
  ^bb0(%a: tensor<2x64xf32>, %c: tensor<2x64xf32>):
    %sum = arith.addf %a, %c : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> !vectors
  ladle.append_drafts %e, %0#2, %0#3 along %d : !buffer, !ladle.drafts<2>, !vectors, !vectors
  ladle.yield %y : !vectors
}

// CHECK-LABEL: gpu.func @scaled_verify
// What comes out of the state lies where its rows did.
// CHECK-SAME: ladle.shares
// CHECK: vector.store {{.*}} : memref<4x80xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// Two drafts and what is before them are one tile of products.
// CHECK: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 16]}
// Of the state, two parts meet vectors that need none.
// CHECK: memref.dma_wait
// CHECK-COUNT-8: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 8], tf32Enabled}
// CHECK-NOT: mma.sync
// CHECK: gpu.barrier {ladle.of_warp}
