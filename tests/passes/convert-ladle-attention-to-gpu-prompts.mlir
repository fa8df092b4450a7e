// RUN: ladle-opt %s --ladle-fuse-match-amend-complete --split-input-file \
// RUN:   --convert-ladle-attention-to-gpu | FileCheck %s

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @exact(token %q: tensor<2x64xbf16>, token %k: tensor<1x64xbf16>,
    token %v: tensor<1x64xbf16>, buffer %KV: !cache) -> (o: tensor<2x64xf32>)
    attributes {page_size = 16 : i64} {
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %all = ladle.softmax %qf, %next scale 0.125
         : tensor<2x64xf32>, !cache -> !ladle.summary<2x64xf32>
  %o = ladle.normalize %all : !ladle.summary<2x64xf32> to tensor<2x64xf32>
  ladle.yield %o, %next : tensor<2x64xf32>, !cache
}

// Tokens find their row by halves.
// CHECK-LABEL: gpu.func @exact_prefill_amend_append
// CHECK-SAME: ladle.argument = "cu_seqlens"
// CHECK: scf.for {{.*}} %c16
// CHECK: vector.store {{.*}} : memref<?x64xbf16>, vector<8xbf16>

// Lengths say which tile a block has. Queries are the rows of a product, and
// weights are two numbers of 16 bits each.
// CHECK-LABEL: gpu.func @exact_prefill_amend_attend
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK: gpu.shuffle up
// CHECK: vector.load {{.*}} vector<8xbf16>
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.device_async_wait {{.*}} {numGroups = 1 : i32}
// CHECK: nvgpu.mma.sync
// CHECK: math.exp2
// CHECK: arith.truncf
// CHECK: arith.truncf
// CHECK: nvgpu.mma.sync
// All keys are one segment.
// CHECK-NOT: ring_values

// CHECK-LABEL: gpu.func @exact_prefill_amend_finish
// CHECK-SAME: known_block_size = array<i32: 32, 1, 1>

// -----

!cache = !ladle.buffer<[k : 1x64xf32 @dk, v : 1x32xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @mac(token %p: tensor<2x64xf32>, token %q: tensor<2x64xf32>,
    token %k: tensor<1x64xf32>, token %v: tensor<1x32xf32>,
    buffer %KV: !cache) -> (o: tensor<2x32xf32>)
    attributes {page_size = 16 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x64xf32>, tensor<1x32xf32>
  %prefix = ladle.match %p {tau = 0.45 : f64, window = 64 : i64}
            : tensor<2x64xf32> -> !ladle.summary<2x32xf32>
  %all = ladle.softmax %q, %next scale 0.125
         : tensor<2x64xf32>, !cache -> !ladle.summary<2x32xf32>
  %done = ladle.complete %prefix, %all {band = 8 : i64} : !ladle.summary<2x32xf32>
  %o = ladle.normalize %done : !ladle.summary<2x32xf32> to tensor<2x32xf32>
  ladle.yield %o, %next : tensor<2x32xf32>, !cache
}

// Numbers of 32 bits are multiplied plainly. What is stored is attended to
// first, in a segment of its own.
// CHECK-LABEL: gpu.func @mac_prefill_amend_attend
// CHECK-SAME: ladle.argument = "capacity"
// CHECK: scf.for
// CHECK: nvgpu.device_async_copy
// CHECK-NOT: nvgpu.mma.sync
// CHECK: math.exp2
// CHECK: vector.fma
// CHECK: math.log

// The mean of the squares is of all that the prompt leaves.
// CHECK-LABEL: gpu.func @mac_prefill_amend_finish
// CHECK-SAME: ladle.argument = "ring_queries"
// CHECK: vector.reduction
// CHECK: arith.divf
