// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
// RUN:   --convert-ladle-attention-to-gpu | FileCheck %s

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @mac(token %p: tensor<2x64xbf16>, token %q: tensor<2x64xbf16>,
    token %k: tensor<1x64xbf16>, token %v: tensor<1x64xbf16>,
    buffer %KV: !cache) -> (o: tensor<2x64xf32>)
    attributes {page_size = 16 : i64} {
  %pf = arith.extf %p : tensor<2x64xbf16> to tensor<2x64xf32>
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %prefix = ladle.match %pf {tau = 0.45 : f64, window = 64 : i64}
            : tensor<2x64xf32> -> !ladle.summary<2x64xf32>
  %all = ladle.softmax %qf, %next scale 0.125
         : tensor<2x64xf32>, !cache -> !ladle.summary<2x64xf32>
  %done = ladle.complete %prefix, %all {band = 8 : i64} : !ladle.summary<2x64xf32>
  %o = ladle.normalize %done : !ladle.summary<2x64xf32> to tensor<2x64xf32>
  ladle.yield %o, %next : tensor<2x64xf32>, !cache
}

// The ring is asked for before what is ahead has ended, and the next kernel
// starts when this one has waited; of an early step it starts at once, and
// tokens wait alone.
// CHECK-LABEL: gpu.func @mac_decode_find
// CHECK: scf.if
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: vector.load {{.*}} {ladle.ahead}
// CHECK: memref.prefetch
// CHECK: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents

// Loads of several entries are asked for together; less than the nearest is
// nearer, NaN is not, and of two that are as near the newer one stays.
// CHECK: vector.maskedload
// CHECK-NOT: arith.subf
// CHECK: vector.maskedload
// CHECK: arith.subf
// CHECK: gpu.shuffle xor
// CHECK: arith.cmpf olt
// CHECK: vector.load %{{.*}} : memref<?x1x64xbf16, {{.*}}>, vector<8xbf16>
// CHECK: vector.load %{{.*}} : memref<?x1x64xbf16, {{.*}}>, vector<8xbf16>
// CHECK-NEXT: scf.if
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK: vector.store %{{.*}} : memref<?x64xbf16>
// CHECK: nvvm.griddepcontrol wait

// Every match is decided about behind the wait, where rows stand is known
// before it, and the list of pieces is made of sums over the
// threads before.
// CHECK-LABEL: gpu.func @mac_decode_plan
// CHECK: memref.load %{{.*}} : memref<?x8xi32>
// CHECK: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: arith.mulf %{{.*}} : f32
// CHECK: arith.cmpf olt
// CHECK: gpu.shuffle up
// CHECK: vector.store %{{.*}} : memref<?x4xi32>, vector<4xi32>

// Keys are multiplied by the queries of all heads that share them, values by
// weights that are two numbers of 16 bits each.
// CHECK-LABEL: gpu.func @mac_decode_attend
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.device_async_wait {{.*}} {ladle.of_warp, numGroups = 5 : i32}
// CHECK: nvgpu.mma.sync
// CHECK: gpu.barrier {ladle.of_warp}
// CHECK: nvgpu.device_async_copy
// CHECK: math.exp
// CHECK: nvgpu.device_async_wait {{.*}} {ladle.of_warp, numGroups = 5 : i32}
// CHECK: arith.truncf
// CHECK: arith.truncf
// CHECK: nvgpu.mma.sync
// CHECK: gpu.barrier {ladle.of_warp}
// CHECK: nvgpu.device_async_copy

// Blocks of few rows read where these stand before the wait, and behind it what
// has been found of all heads. They add up what all attend to, and leave where
// pieces are; those whose warps attend to one range merge what these have.
// CHECK-LABEL: gpu.func @mac_decode_few
// CHECK: vector.load {{.*}} {ladle.ahead} : memref<?x8xi32>
// CHECK-NOT: nvgpu.device_async_copy
// CHECK: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: vector.load %{{.*}} : memref<?xf32>, vector<4xf32>
// CHECK: gpu.barrier
// CHECK: arith.cmpf olt
// CHECK: gpu.barrier
// CHECK: gpu.shuffle up
// CHECK: vector.store %{{.*}} : memref<?x8xi32>, vector<4xi32>
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.mma.sync
// CHECK: gpu.barrier
// CHECK: vector.store %{{.*}} : memref<4x128xf32, #gpu.address_space<workgroup>>

// What the entry held is read before the wait for pieces, of which a lane
// weighs one each.
// CHECK-LABEL: gpu.func @mac_decode_finish
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: memref.load %{{.*}} : memref<?x2xi32>
// CHECK: vector.load %{{.*}} : memref<?x64xf32>, vector<2xf32>
// CHECK: nvvm.griddepcontrol wait
// CHECK: scf.for
// CHECK: vector.load %{{.*}} : memref<?x4xf32>, vector<2xf32>
// CHECK: math.exp
// CHECK: gpu.shuffle idx
// CHECK: gpu.barrier
// CHECK: math.log

// Prompts have kernels of their own.
// CHECK-LABEL: gpu.func @mac_prefill_amend_append
// CHECK-NOT: ladle.attend
