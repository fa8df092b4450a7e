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

// What is ahead has ended before anything is read; scores are left for who notes
// weights.
// CHECK-LABEL: gpu.func @a_decode_attend
// CHECK-SAME: ladle.starts_early
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: nvgpu.mma.sync
// CHECK: memref.store %{{.*}} : memref<?x40xf32>

// Rows of the memory are loaded, updated, stored and multiplied; weights of a
// query go into their row; the token that leaves next is chosen.
// CHECK-LABEL: gpu.func @a_decode_finish
// CHECK: nvvm.griddepcontrol wait
// CHECK: vector.load %{{.*}} : memref<?x64xf32>
// CHECK: vector.store %{{.*}} : memref<?x64xf32>
// CHECK: math.sqrt
// CHECK: vector.store %{{.*}} : memref<?x40xf16>, vector<4xf16>
// CHECK: gpu.shuffle xor
// A prompt chooses what it keeps elsewhere.
// CHECK-NOT: gpu.func
