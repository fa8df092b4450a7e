// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
// RUN:   --convert-ladle-attention-to-gpu | FileCheck %s
// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
// RUN:   --convert-ladle-attention-to-gpu=cluster=1 \
// RUN:   | FileCheck %s --check-prefix=ALONE
// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
// RUN:   --convert-ladle-attention-to-gpu=cluster=2 \
// RUN:   | FileCheck %s --check-prefix=TWO

!cache = !ladle.buffer<[k : 1x96xbf16 @dk, v : 1x96xbf16 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @mac(token %p: tensor<2x96xbf16>, token %q: tensor<2x96xbf16>,
    token %k: tensor<1x96xbf16>, token %v: tensor<1x96xbf16>,
    buffer %KV: !cache) -> (o: tensor<2x96xf32>)
    attributes {page_size = 16 : i64} {
  %pf = arith.extf %p : tensor<2x96xbf16> to tensor<2x96xf32>
  %qf = arith.extf %q : tensor<2x96xbf16> to tensor<2x96xf32>
  %kf = arith.extf %k : tensor<1x96xbf16> to tensor<1x96xf32>
  %vf = arith.extf %v : tensor<1x96xbf16> to tensor<1x96xf32>
  %next = ladle.cache_token %KV, %kf, %vf : !cache, tensor<1x96xf32>, tensor<1x96xf32>
  %prefix = ladle.match %pf {tau = 0.45 : f64, window = 64 : i64}
            : tensor<2x96xf32> -> !ladle.summary<2x96xf32>
  %all = ladle.softmax %qf, %next scale 0.125
         : tensor<2x96xf32>, !cache -> !ladle.summary<2x96xf32>
  %done = ladle.complete %prefix, %all {band = 8 : i64} : !ladle.summary<2x96xf32>
  %o = ladle.normalize %done : !ladle.summary<2x96xf32> to tensor<2x96xf32>
  ladle.yield %o, %next : tensor<2x96xf32>, !cache
}

// Three elements of a lane: a block of a cluster has one of each.
// CHECK-LABEL: gpu.func @mac_decode_finish(
// CHECK-NOT: ladle.cluster
// CHECK: vector.load {{.*}} : memref<?x96xf32>, vector<3xf32>
// CHECK-LABEL: gpu.func @mac_decode_finish_slices(
// CHECK-NOT: few_rows
// CHECK-SAME: ladle.cluster = 3

// What was matched is read before others are told; what it may be replaced by
// is written when they have read it. What a head has once, one of them writes.
// CHECK: vector.load %{{.*}} : memref<?x96xf32>, vector<1xf32>
// CHECK: nvvm.cluster.arrive
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-COUNT-32: vector.load %{{.*}} : memref<?x192xf32>, vector<1xf32>
// CHECK: vector.store %{{.*}} : memref<8x32xf32, #gpu.address_space<workgroup>>, vector<1xf32>
// CHECK: nvvm.cluster.wait
// CHECK-NEXT: gpu.barrier
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0{{.*}} : index
// CHECK-NEXT: scf.if %[[FIRST]]
// CHECK: vector.store %{{.*}} : memref<?x96xbf16>, vector<3xbf16>
// CHECK: vector.store %{{.*}} : memref<?x96xf32>, vector<1xf32>

// ALONE-NOT: finish_slices
// TWO-NOT: finish_slices
