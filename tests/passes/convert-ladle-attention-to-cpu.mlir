// RUN: ladle-opt %s --ladle-fuse-match-amend-complete \
// RUN:   --convert-ladle-attention-to-cpu | FileCheck %s

!cache = !ladle.buffer<[k : 1x16xf32 @dk, v : 1x16xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @mac(token %p: tensor<2x16xf32>, token %q: tensor<2x16xf32>,
    token %k: tensor<1x16xf32>, token %v: tensor<1x16xf32>,
    buffer %KV: !cache) -> (o: tensor<2x16xf32>)
    attributes {page_size = 16 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x16xf32>, tensor<1x16xf32>
  %prefix = ladle.match %p {tau = 0.45 : f64, window = 64 : i64}
            : tensor<2x16xf32> -> !ladle.summary<2x16xf32>
  %all = ladle.softmax %q, %next scale 0.25
         : tensor<2x16xf32>, !cache -> !ladle.summary<2x16xf32>
  %done = ladle.complete %prefix, %all {band = 8 : i64} : !ladle.summary<2x16xf32>
  %o = ladle.normalize %done : !ladle.summary<2x16xf32> to tensor<2x16xf32>
  ladle.yield %o, %next : tensor<2x16xf32>, !cache
}

// The distance has to be less: NaN is no match, and ties stay with the newest.
// CHECK-LABEL: func.func @mac_decode_find
// CHECK: scf.for
// CHECK: arith.subf {{.*}} : vector<16xf32>
// CHECK: arith.cmpf olt
// CHECK: memref.store %{{.*}} : memref<?x2xi32>

// A tile of two heads and eight keys; heads begin where their matches end.
// CHECK-LABEL: func.func @mac_decode_attend
// CHECK: scf.for
// CHECK-COUNT-8: vector.load %{{.*}} : memref<?x1x16x16xf32>, vector<16xf32>
// CHECK: arith.cmpi sge, {{.*}} : vector<16xi32>
// CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK: vector.fma

// CHECK-LABEL: func.func @mac_decode_finish
// CHECK: math.log
// CHECK-LABEL: func.func @mac_prefill_amend_attend
// CHECK-LABEL: func.func @mac_prefill_amend_finish
// CHECK-NOT: ladle.
