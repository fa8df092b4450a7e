// RUN: ladle-opt %s --ladle-build-bounded-attention \
// RUN:   --convert-ladle-attention-to-gpu --split-input-file | FileCheck %s

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 28,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x64x64xf32>
!summary = !ladle.summary<2x64xf32>
ladle.attention @a(param %w: tensor<1x64x64xf32>, token %q: tensor<2x64xbf16>,
    token %k: tensor<1x64xbf16>, token %v: tensor<1x64xbf16>,
    buffer %KV: !cache, memory %M: !memory)
    -> (o: tensor<2x64xf32>) attributes {page_size = 0 : i64} {
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf
      : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %kept, %folded = ladle.fold_segment %next into %M
      {sinks = 4 : i64, window = 8 : i64, segment = 16 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x64xf32>):
    %feature = math.exp %key : tensor<1x64xf32>
    ladle.yield %feature : tensor<1x64xf32>
  }
  %dot = ladle.softmax %qf, %kept scale 0.125
      : tensor<2x64xf32>, !cache -> !summary
  %exact = ladle.normalize %dot : !summary to tensor<2x64xf32>
  %fq = math.exp %qf : tensor<2x64xf32>
  %recalled = ladle.recall %fq, %folded
      : tensor<2x64xf32>, !memory -> tensor<2x64xf32>
  %ws = ladle.broadcast %w dims [0, 1, 2]
      : tensor<1x64x64xf32> to tensor<2x64x64xf32>
  %rs = ladle.broadcast %recalled dims [0, 2]
      : tensor<2x64xf32> to tensor<2x64x64xf32>
  %terms = arith.mulf %ws, %rs : tensor<2x64x64xf32>
  %passed = ladle.sum %terms dim 2 : tensor<2x64x64xf32> to tensor<2x64xf32>
  %both = arith.addf %exact, %passed : tensor<2x64xf32>
  %o = ladle.once %folded, %both, %exact
      : !memory, tensor<2x64xf32>
  ladle.yield %o, %kept, %folded : tensor<2x64xf32>, !cache, !memory
}

// CHECK-LABEL: gpu.func @a_decode(

// Features of keys, of the cache and of the prompt, times values; the last tile
// of a segment is not full.
// CHECK-LABEL: gpu.func @a_prefill_amend_fold(
// CHECK: nvgpu.device_async_copy %{{.*}} : memref<?x64xbf16> to
// CHECK: nvgpu.device_async_copy %{{.*}} : memref<?x1x64xbf16, strided
// CHECK: math.exp %{{.*}} : vector<8xf32>
// CHECK: nvgpu.mma.sync
// CHECK: vector.store %{{.*}} : memref<?x64xf32>, vector<8xf32>
// CHECK: gpu.shuffle xor
// CHECK: memref.store %{{.*}} : memref<?xf32>

// What a segment adds gives way to the memory before it; rows are noted.
// CHECK-LABEL: gpu.func @a_prefill_amend_scan(
// CHECK: memref.store %{{.*}} : memref<?x8xi32>
// CHECK: scf.for
// CHECK: %[[ADDED:.*]] = vector.load %[[SUMS:.*]][
// CHECK: vector.store %{{.*}}, %[[SUMS]][
// CHECK: arith.addf %{{.*}}, %[[ADDED]]

// Tiles of sinks, then a query's own segment; then the memories of a warp, and
// the matrix, in numbers of bf16.
// CHECK-LABEL: gpu.func @a_prefill_amend_attend(
// CHECK: nvgpu.mma.sync
// CHECK: math.exp2
// CHECK: math.exp %{{.*}} : vector<8xf32>
// CHECK: arith.truncf %{{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK: vector.load %{{.*}} : memref<?x64xf32>, vector<4xf32>
// CHECK: nvgpu.mma.sync
// CHECK: vector.load %{{.*}} : memref<1x64x64xf32, strided
// CHECK: nvgpu.mma.sync
// CHECK: vector.store %{{.*}} : memref<?x2x64xf32

// CHECK-LABEL: gpu.func @a_prefill_amend_keep(
// CHECK: memref.store %{{.*}} : memref<?x8xi32>
// CHECK: vector.store %{{.*}} : memref<?x64xbf16>

// -----

// What a kernel does not know is decoded, a token of each row at a time.
!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 28,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x64x64xf32>
!summary = !ladle.summary<2x64xf32>
ladle.attention @b(token %q: tensor<2x64xbf16>, token %k: tensor<1x64xbf16>,
    token %v: tensor<1x64xbf16>, buffer %KV: !cache, memory %M: !memory)
    -> (o: tensor<2x64xf32>) attributes {page_size = 0 : i64} {
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf
      : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %kept, %folded = ladle.fold_segment %next into %M
      {sinks = 4 : i64, window = 8 : i64, segment = 16 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x64xf32>):
    ladle.yield %key : tensor<1x64xf32>
  }
  %dot = ladle.softmax %qf, %kept scale 0.125
      : tensor<2x64xf32>, !cache -> !summary
  %exact = ladle.normalize %dot : !summary to tensor<2x64xf32>
  %recalled = ladle.recall %qf, %folded
      : tensor<2x64xf32>, !memory -> tensor<2x64xf32>
  %squares = arith.mulf %recalled, %recalled : tensor<2x64xf32>
  %all = ladle.sum %squares dim 1 : tensor<2x64xf32> to tensor<2xf32>
  %wide = ladle.broadcast %all dims [0] : tensor<2xf32> to tensor<2x64xf32>
  %o = arith.addf %exact, %wide : tensor<2x64xf32>
  ladle.yield %o, %kept, %folded : tensor<2x64xf32>, !cache, !memory
}

// CHECK-LABEL: gpu.func @b_decode(
// CHECK-LABEL: gpu.func @b_prefill_amend(
// CHECK-NOT: gpu.func
