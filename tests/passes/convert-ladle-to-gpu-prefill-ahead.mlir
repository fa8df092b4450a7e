// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=64 threads=256 forms=8" | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=1" \
// RUN:   | FileCheck %s --check-prefix=PARTS

// The delta rule for few prompts, where others of a block make the next step.
ladle.step @ahead_prefill of @delta route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xf32>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %1 = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %sum = arith.subf %y, %x : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %g = ladle.path_gram %0#0, %0#0 decay %0#2 along %d : !ladle.drafts<32, chain>, tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32> -> tensor<2x32x1x32x1xf32>
  %u = ladle.path_solve[%1 : tensor<2x32x64xf32>] through[%g : tensor<2x32x1x32x1xf32>]
      rows [0] columns [0] along %d : !ladle.drafts<32, chain> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain> stacks(%u : tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>):
    ladle.yield_draft %x : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%u : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xf32>
}


// CHECK-LABEL: gpu.func @ahead_prefill
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// Warps with rows hold the state, and meet the others once a step.
// CHECK: scf.if
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<4xf32>
// What passes from one part to the other is there twice.
// Inverses are of 16 tokens each.
// CHECK: memref.subview {{.*}} : memref<64x40xf32, {{.*}} to memref<32x40xf32
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c256
// CHECK-NOT: {{gpu|nvvm}}.barrier
// CHECK: nvgpu.ldmatrix
// CHECK-NOT: {{gpu|nvvm}}.barrier
// CHECK: scf.yield
// CHECK: } else {
// The others load tokens, and make Gram products and inverses.
// CHECK: memref.subview {{.*}} : memref<64x40xf32, {{.*}} to memref<32x40xf32
// CHECK: memref.prefetch {{.*}} : memref<?x2x64xbf16
// CHECK: memref.subview {{.*}} : memref<?x2x64xbf16
// CHECK: vector.maskedload {{.*}} : memref<1x1x{{.*}}xbf16
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c128
// CHECK: nvgpu.ldmatrix
// CHECK: math.fma
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c256
// CHECK: gpu.return

// Of one prompt, two warps have the same rows, half of dk each, and two crews take
// steps in turn.
// PARTS-LABEL: gpu.func @ahead_prefill
// PARTS-SAME: known_block_size = array<i32: 384, 1, 1>
// PARTS-SAME: ladle.may_spill = 112
// PARTS: scf.if
// A warp has 32 of 64 columns, four tiles.
// PARTS: scf.for {{.*}} iter_args({{.*}}) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
// What both read is there three times, and a barrier for each crew.
// PARTS: %[[TURN:.*]] = arith.remui %{{.*}}, %c3
// PARTS: memref.subview {{.*}} : memref<96x40xf32, {{.*}} to memref<32x40xf32
// PARTS: %[[CREW:.*]] = arith.remui %{{.*}}, %c2
// PARTS: nvvm.barrier id = %{{.*}} number_of_threads = %c256
// Sums over halves of dk become those over all.
// PARTS: vector.store %{{.*}}, %[[SUMS:[a-z0-9]+]][{{.*}}] : memref<16x128xf32
// PARTS: nvvm.barrier id = %{{.*}} number_of_threads = %c64
// PARTS: vector.load %[[SUMS]]
// PARTS: arith.addf
// Each stores its half of the tokens.
// PARTS: arith.select {{.*}} : vector<4xf32>
// PARTS: } else {
// PARTS: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c2
// PARTS: nvvm.barrier id = %{{.*}} number_of_threads = %c128
// PARTS: nvvm.barrier id = %{{.*}} number_of_threads = %c256
// PARTS: gpu.return
