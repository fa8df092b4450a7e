// RUN: ladle-opt %s --ladle-build-bounded-attention \
// RUN:   --convert-ladle-attention-to-gpu | FileCheck %s

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 33,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x64x64xf32>
!summary = !ladle.summary<2x64xf32>
ladle.attention @a(token %q: tensor<2x64xbf16>, token %k: tensor<1x64xbf16>,
    token %v: tensor<1x64xbf16>, buffer %KV: !cache, memory %T: !memory)
    -> (o: tensor<2x64xf32>) attributes {page_size = 0 : i64} {
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf
      : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %kept, %folded = ladle.evict %next into %T
      {budget = 32 : i64, pool = 3 : i64, queries = 8 : i64, recent = 8 : i64,
       sinks = 0 : i64, variance = 2.0e+02 : f64} : !cache, !memory -> !memory
  %exact = ladle.softmax %qf, %kept scale 0.125
      : tensor<2x64xf32>, !cache -> !summary
  %rest = ladle.taylor %qf, %folded scale 0.125 limit 2.0
      : tensor<2x64xf32>, !memory -> !summary
  %all = ladle.merge %exact, %rest : !summary
  %o = ladle.normalize %all : !summary to tensor<2x64xf32>
  %seen = ladle.observe %qf, %kept scale 0.125 : tensor<2x64xf32>, !cache
  ladle.yield %o, %seen, %folded : tensor<2x64xf32>, !cache, !memory
}

// Keys come from the cache and from the prompt; the memory is added when the
// sums of tokens have been noted.
// CHECK-LABEL: gpu.func @a_prefill_select_attend(
// CHECK: nvgpu.device_async_copy %{{.*}} : memref<?x64xbf16> to
// CHECK: nvgpu.device_async_copy %{{.*}} : memref<?x1x64xbf16, strided
// CHECK: nvgpu.mma.sync
// CHECK: math.log2
// CHECK: memref.store %{{.*}} : memref<?x2xf32>
// CHECK: vector.load %{{.*}} : memref<?x64xf32>, vector<8xf32>

// A number of each candidate.
// CHECK-LABEL: gpu.func @a_prefill_select_score(
// CHECK: nvgpu.mma.sync
// CHECK: math.exp2
// CHECK: memref.store %{{.*}} : memref<?xf32>

// CHECK-LABEL: gpu.func @a_prefill_select_select(
// CHECK: arith.cmpi uge
// CHECK: arith.cmpi ugt
// CHECK: memref.store %{{.*}} : memref<?x40xi32>

// CHECK-LABEL: gpu.func @a_prefill_select_fold(
// CHECK: vector.store %{{.*}} : memref<64x64xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: vector.fma

// CHECK-LABEL: gpu.func @a_prefill_select_keep(
// CHECK: vector.store %{{.*}} : memref<?x64xbf16>
// CHECK: memref.store %{{.*}} : memref<?x40xf16>
// CHECK: memref.store %{{.*}} : memref<?x40xi32>
// CHECK: memref.store %{{.*}} : memref<?x40xi64>

// A lower budget: salience of what is held, then moves from one entry into
// another.
// CHECK-LABEL: gpu.func @a_prefill_select_lower(
// CHECK: memref.load %{{.*}} : memref<?x40xi64>
// CHECK: memref.store %{{.*}} : memref<?xf32>
// CHECK: arith.cmpi uge
// CHECK: memref.store %{{.*}} : memref<?x8xi32>

// CHECK-LABEL: gpu.func @a_prefill_select_pack(
// CHECK: %[[KEY:.*]] = vector.load %[[KEYS:.*]][%{{.*}}, %{{.*}}] : memref<?x64xbf16>
// CHECK: vector.store %[[KEY]], %[[KEYS]]

// Who would stay by another budget; there is a limit, so that the spread of
// the others counts.
// CHECK-LABEL: gpu.func @a_prefill_select_mark(
// CHECK: arith.cmpi uge
// CHECK: memref.store %{{.*}} : memref<?xi32>
// CHECK: vector.fma

// All keys twice.
// CHECK-LABEL: gpu.func @a_prefill_select_prefer(
// CHECK: nvgpu.mma.sync
// CHECK: math.exp2
// CHECK: nvgpu.mma.sync
// CHECK: math.absf
// CHECK: memref.store %{{.*}} : memref<?x3xf32>
