// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

// The delta rule, of sizes that are no multiples of tiles: what keys read is solved for along the chain, and folded.
ladle.step @delta_prefill of @delta route(inner) form(prefill_fold)
    (token %k: tensor<2x72xf32>, token %v: tensor<2x64xf32>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x72x64xbf16>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xf32>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    ladle.yield_draft %k, %v, %a : tensor<2x72xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x72xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x72x64xbf16> to !ladle.state<2x72x64xbf16>
  %r = ladle.read %s, %0#0 : !ladle.state<2x72x64xbf16>, tensor<2x32x72xf32> -> tensor<2x32x64xf32>
  %1 = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %sum = arith.subf %y, %x : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %g = ladle.path_gram %0#0, %0#0 decay %0#2 along %d : !ladle.drafts<32, chain>, tensor<2x32x72xf32>, tensor<2x32x72xf32>, tensor<2x32xf32> -> tensor<2x32x1x32x1xf32>
  %u = ladle.path_solve[%1 : tensor<2x32x64xf32>] through[%g : tensor<2x32x1x32x1xf32>]
      rows [0] columns [0] along %d : !ladle.drafts<32, chain> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain> stacks(%u : tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>):
    ladle.yield_draft %x : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x72xf32>] values[%u : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x72x64xbf16>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x72x64xbf16>, !ladle.pool<2x72x64xbf16>
  ladle.yield %y : tensor<2x32x64xf32>
}

// No entries, and the starts of prompts after the pad slot.
// CHECK-LABEL: gpu.func @delta_prefill
// CHECK-SAME: ladle.name = "pad_slot"
// CHECK-SAME: ladle.name = "cu_seqlens"
// CHECK-SAME: ladle.name = "k"
// CHECK-SAME: workgroup(
// CHECK-SAME: ladle.blocks = 2
// CHECK-SAME: ladle.common_arguments = 6

// The state is read before the first chunk, as f32.
// CHECK: vector.load %{{.*}} : memref<?x2x64x72xbf16
// CHECK: arith.extf
// CHECK: gpu.barrier
// CHECK: scf.for
// What tokens give: a token a warp, zero where there is none.
// CHECK: vector.load %{{.*}} : memref<?x2x72xf32
// CHECK: arith.select
// Products of three parts: the state with the keys, the keys with each other.
// CHECK: gpu.barrier
// CHECK: nvgpu.mma.sync{{.*}}mmaShape = [16, 8, 8], tf32Enabled
// CHECK: nvgpu.mma.sync
// CHECK: nvgpu.mma.sync
// Substitution, of four weights at a time.
// CHECK: math.fma
// Outputs go out as they are made, and the state after the last chunk.
// CHECK: vector.store %{{.*}} : memref<?x2x64xf32
// CHECK: nvgpu.mma.sync
// CHECK: gpu.barrier
// CHECK: arith.truncf
// CHECK: vector.store %{{.*}} : memref<?x2x64x72xbf16
// CHECK-NOT: nvgpu.mma.sync
// CHECK: gpu.return
