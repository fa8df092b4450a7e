// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
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

// A warp finds its portion from where the rows stand, and copies its first
// tiles before what is ahead has ended, each a group of its own. Behind the
// wait it looks again, and waits for what it has copied for nothing; those that
// it has copied are not counted again.
// CHECK-LABEL: gpu.func @exact_decode_attend
// CHECK-SAME: ladle.argument = "few_rows"
// CHECK: vector.load {{.*}} {ladle.ahead} : memref<?xi32>
// CHECK: vector.load {{.*}} {ladle.ahead} : memref<?x8xi32>
// CHECK: gpu.shuffle up
// CHECK: scf.if
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.device_async_create_group
// CHECK: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: vector.load {{.*}} {ladle.ahead} : memref<?xi32>
// CHECK: nvgpu.device_async_wait {{.*}} {ladle.of_warp, numGroups = 0 : i32}
// CHECK: scf.if
// CHECK: nvgpu.device_async_copy
// CHECK: nvgpu.device_async_create_group
// CHECK: nvgpu.device_async_wait {{.*}} {ladle.of_warp, numGroups = 5 : i32}
// CHECK: nvgpu.mma.sync

// Warps of a block that attend to one task leave one piece. The last block that
// knows where rows stand moves the cursors.
// CHECK: gpu.barrier
// CHECK: vector.store %{{.*}} : memref<4x128xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: vector.store %{{.*}} : memref<?x128xf32>, vector<2xf32>
// CHECK: gpu.barrier
// CHECK: memref.atomic_rmw addi %{{.*}}, %{{.*}}[%c0{{.*}}] : (i32, memref<?xi32>) -> i32
// CHECK: memref.store %{{.*}}, %{{.*}} : memref<?x8xi32>

// The last block to arrive at a task has loaded the token, to which it attends
// as well.
// CHECK: vector.load %{{.*}} : memref<?x1x64xbf16, {{.*}}>, vector<2xbf16>
// CHECK: memref.atomic_rmw addi
// CHECK: gpu.barrier
// CHECK: vector.load %{{.*}} : memref<?x4xf32>, vector<2xf32>
// CHECK: vector.store %{{.*}} : memref<?x2x64xf32, {{.*}}>, vector<2xf32>
// CHECK: gpu.barrier
// CHECK: vector.store %{{.*}} : memref<?x64xbf16>, vector<8xbf16>

// Of few rows nothing is left to do.
// CHECK-LABEL: gpu.func @exact_decode_finish
// CHECK-NOT: few_rows
// CHECK: gpu.return
