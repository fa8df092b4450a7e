// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --canonicalize --cse | FileCheck %s

!cache = !ladle.buffer<[k : 2x32xbf16 @dk, v : 2x16xbf16 @dv],
                       capacity = 41, order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 2x32x16xf32>

// Behind keys and values: L, its sums, n and the spread; how many tokens are
// held, their order and positions; weights of 8 queries, and how many there were.
// CHECK-LABEL: func.func @slake_decode(
// CHECK-SAME: memref<?x2x41x32xbf16>, %{{.*}}: memref<?x2x41x16xbf16>,
// CHECK-SAME: memref<?x2x32x16xf32>, %{{.*}}: memref<?x2x32xf32>, %{{.*}}: memref<?x2x16xf32>, %{{.*}}: memref<?x2x2xf32>,
// CHECK-SAME: memref<?x2xi64>, %{{.*}}: memref<?x2x41xi32>, %{{.*}}: memref<?x2x41xi64>,
// CHECK-SAME: memref<?x2x8x41xf32>, %{{.*}}: memref<?x2xi64>)
ladle.attention_step @slake_decode of @slake form(decode) (
    token %q: tensor<4x32xf32>, token %k: tensor<2x32xf32>,
    token %v: tensor<2x16xf32>, buffer %KV: !cache, memory %T: !memory)
    -> (o: tensor<4x16xf32>) attributes {page_size = 0 : i64} {
  // CHECK: scf.if
  // CHECK: vector.store %{{.*}} : memref<?x2x41x32xbf16>, vector<32xbf16>
  ladle.append %KV, %k, %v : !cache, tensor<2x32xf32>, tensor<2x16xf32>
  // Saliences of all entries, in the order of the sequence, and the least one.
  // CHECK: scf.if
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>)
  // CHECK: arith.maximumf %{{.*}} : vector<16xf32>
  // CHECK-COUNT-5: vector.load %{{.*}} : memref<68xf32>, vector<16xf32>
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xi32>)
  // CHECK: arith.cmpf olt, {{.*}} : vector<16xf32>
  // CHECK: vector.extract %{{.*}}[0] : i32 from vector<16xi32>
  // It is folded, before the last entry takes its place.
  // CHECK: vector.store %{{.*}} : memref<?x2x32x16xf32>, vector<16xf32>
  // CHECK: vector.load %{{.*}} : memref<?x2x41x32xbf16>
  ladle.evict_from %KV into %T
      {budget = 40 : i64, sinks = 1 : i64, recent = 4 : i64, queries = 8 : i64,
       variance = 200.0 : f64, pool = 5 : i64} : !cache, !memory
  // CHECK: call @slake_decode_tokens(
  %exact = ladle.attend %q, %KV from start to end scale 0.125
      : tensor<4x32xf32>, !cache -> !ladle.summary<4x16xf32>
  // Beyond the limit no row of L is read.
  // CHECK: arith.cmpf ogt, %{{.*}}, %cst{{.*}} : f32
  // CHECK: scf.if {{.*}} -> (vector<16xf32>)
  // CHECK: scf.for {{.*}} -> (vector<16xf32>)
  // CHECK: vector.fma
  %evicted = ladle.taylor %q, %T scale 0.125 limit 32.0
      : tensor<4x32xf32>, !memory -> !ladle.summary<4x16xf32>
  %all = ladle.merge %exact, %evicted : !ladle.summary<4x16xf32>
  %o = ladle.normalize %all : !ladle.summary<4x16xf32> to tensor<4x16xf32>
  // CHECK: vector.store %{{.*}} : memref<?x2x8x41xf32>, vector<16xf32>
  ladle.note_weights %q, %KV scale 0.125 : tensor<4x32xf32>, !cache
  ladle.yield %o : tensor<4x16xf32>
}

// A prompt is read where it lies, leaves scores, and is folded by a list.
// CHECK-LABEL: func.func @slake_prefill_select(
// CHECK-SAME: memref<?x2xi64>, %{{.*}}: memref<2x?xf32>, %{{.*}}: memref<?xf32>, %{{.*}}: memref<?xi32>)
// CHECK: vector.store %{{.*}} : memref<2x?xf32>, vector<16xf32>
// CHECK-NOT: memref<?x2x41x32xbf16>, vector<32xbf16>{{$}}
// CHECK-LABEL: func.func @slake_prefill_select_fold(
// CHECK-COUNT-16: vector.fma
ladle.attention_step @slake_prefill_select of @slake form(prefill_select) (
    token %q: tensor<4x32xf32>, token %k: tensor<2x32xf32>,
    token %v: tensor<2x16xf32>, buffer %KV: !cache, memory %T: !memory)
    -> (o: tensor<4x16xf32>) attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %v : !cache, tensor<2x32xf32>, tensor<2x16xf32>
  %exact = ladle.attend %q, %KV from start to end scale 0.125
      : tensor<4x32xf32>, !cache -> !ladle.summary<4x16xf32>
  %o = ladle.normalize %exact : !ladle.summary<4x16xf32> to tensor<4x16xf32>
  ladle.yield %o : tensor<4x16xf32>
}
