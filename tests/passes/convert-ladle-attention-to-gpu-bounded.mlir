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

// Half of the warps attend to one head after another. Nothing is written before
// what is ahead has ended, unless it may have written what is read.
// CHECK-LABEL: gpu.func @a_decode(
// CHECK-SAME: ladle.least_blocks = 1 : index
// CHECK-SAME: ladle.starts_early
// CHECK: gpu.block_id  x
// CHECK: gpu.grid_dim  x
// CHECK: scf.if
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: nvvm.setmaxregister increase 144
// CHECK: scf.if
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: gpu.block_id  y
// CHECK: gpu.grid_dim  y
// CHECK: scf.for
// CHECK: vector.load %{{.*}} : memref<?x8xi32>, vector<8xi32>

// Keys and values are on their way before the head ahead has been merged; no
// warp waits for another's.
// CHECK: nvgpu.device_async_copy
// CHECK: nvvm.barrier id = %c4_i32 number_of_threads = %c256_i32
// CHECK: nvvm.cluster.arrive.relaxed
// CHECK: memref.prefetch %{{.*}}, read, locality<3>, data : memref<?x8xi32>
// CHECK: nvgpu.mma.sync
// CHECK: gpu.barrier {ladle.of_warp}
// CHECK: nvgpu.device_async_copy
// CHECK: nvvm.barrier id = %c1_i32{{.*}} number_of_threads = %c128_i32
// CHECK: nvvm.cluster.wait
// CHECK: nvvm.cluster.arrive
// CHECK: nvvm.cluster.wait
// CHECK: nvvm.barrier id = %c3_i32{{.*}} number_of_threads = %c256_i32

// Before what is ahead has ended, the others ask for what will be read.
// CHECK: nvvm.setmaxregister decrease 112
// CHECK: scf.if
// CHECK: vector.load %{{.*}} {ladle.ahead} : memref<?xi32>, vector<1xi32>
// CHECK: vector.load %{{.*}} {ladle.ahead} : memref<?x8xi32>, vector<8xi32>
// CHECK: memref.prefetch %{{.*}}, read, locality<3>, data : memref<?x64xbf16>
// CHECK: memref.prefetch %{{.*}}, read, locality<3>, data : memref<?x64xf32>
// CHECK: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents

// While keys are attended to they update rows of the memory, score the mean key,
// add up earlier weights, and merge what the memory gave.
// CHECK: vector.load %{{.*}} : memref<?x64xf32>, vector<2xf32>
// CHECK: nvvm.griddepcontrol wait
// CHECK: vector.store %{{.*}} : memref<?x64xf32>, vector<2xf32>
// CHECK: math.sqrt
// CHECK: memref.load %{{.*}} : memref<?x40xi64>
// CHECK: memref.load %{{.*}} : memref<?x40xf16>
// CHECK: nvvm.cluster.arrive
// CHECK: nvvm.cluster.wait
// CHECK: builtin.unrealized_conversion_cast %{{.*}}, %{{.*}} : memref<{{.*}}xf32, #gpu.address_space<workgroup>>, index
// CHECK: nvvm.barrier id = %c3_i32{{.*}} number_of_threads = %c256_i32

// Summaries of all blocks are merged, and the weights of this query noted: those
// of many tokens at once, a thread's only one when all else is written. Who
// leaves next is chosen before anything waits for what is ahead.
// CHECK: builtin.unrealized_conversion_cast %{{.*}}, %{{.*}} : memref<2xf32, #gpu.address_space<workgroup>>, index
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.store %{{.*}} : memref<?x40xf16>
// CHECK: memref.store %{{.*}} : memref<?x40xi64>
// CHECK: nvvm.barrier id = %c4_i32{{.*}} number_of_threads = %c256_i32
// CHECK: gpu.shuffle xor
// CHECK: vector.load %{{.*}} : memref<?x64xf32>, vector<2xf32>
// CHECK: nvvm.cluster.arrive
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.store %{{.*}} : memref<?x2x64xf32
// CHECK: nvvm.cluster.wait
// CHECK: vector.store %{{.*}} : memref<?x64xf32>, vector<2xf32>
// CHECK: memref.store %{{.*}} : memref<?x40xf16>
// CHECK: memref.store %{{.*}} : memref<?x8xi32>
// A prompt chooses what it keeps in kernels of its own.
// CHECK: gpu.func @a_prefill_select_attend(
