// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefixes=CHECK,PAIRS
// RUN: ladle-opt %s --convert-ladle-attention-to-cpu=dots-bf16 --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefixes=CHECK,DOTS
// RUN: ladle-opt %s --convert-ladle-attention-to-cpu=lanes=8 --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefix=NARROW

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv],
                       capacity = 28, order = bounded, weight = exp>

// Four heads and four keys are a tile of 16 scores. Each key is loaded once.
// CHECK-LABEL: func.func @four_heads(
// CHECK: scf.for {{.*}} -> (vector<16xf32>) {
// PAIRS-COUNT-4: memref.prefetch
// PAIRS: %[[PAIR:.*]] = vector.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
// PAIRS: arith.shli %[[PAIR]]
// PAIRS: arith.andi %[[PAIR]]
// DOTS-COUNT-32: x86vector.avx512.dot %{{.*}} : vector<32xbf16> -> vector<16xf32>
// DOTS-NOT: x86vector
// One product with the scale for the scores of all heads.
// CHECK: arith.mulf {{.*}} : vector<16xf32>
// CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
// All heads in one exp: of what is kept of the sums so far, and of the scores.
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK-NOT: math.exp
// Sums of four heads and 64 elements stay in registers over all values.
// CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK-COUNT-64: vector.fma
// CHECK-NOT: vector.fma

// Fewer of them where there are half as many registers of half the width.
// NARROW-LABEL: func.func @four_heads(
// NARROW-COUNT-4: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
ladle.attention_step @four_heads of @a form(decode) (
    token %q: tensor<4x64xbf16>, token %k: tensor<1x64xf32>,
    token %v: tensor<1x64xf32>, buffer %KV: !cache)
    -> (o: tensor<4x64xf32>) attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %v : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %wide = arith.extf %q : tensor<4x64xbf16> to tensor<4x64xf32>
  %exact = ladle.attend %wide, %KV from start to end scale 1.25e-01
      : tensor<4x64xf32>, !cache -> !ladle.summary<4x64xf32>
  %o = ladle.normalize %exact : !ladle.summary<4x64xf32> to tensor<4x64xf32>
  ladle.yield %o : tensor<4x64xf32>
}

// A query that is computed is no number of bf16.
// CHECK-LABEL: func.func @computed(
// CHECK-NOT: x86vector
// CHECK: return
ladle.attention_step @computed of @b form(decode) (
    token %q: tensor<4x64xbf16>, token %k: tensor<1x64xf32>,
    token %v: tensor<1x64xf32>, buffer %KV: !cache)
    -> (o: tensor<4x64xf32>) attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %v : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %wide = arith.extf %q : tensor<4x64xbf16> to tensor<4x64xf32>
  %twice = arith.addf %wide, %wide : tensor<4x64xf32>
  %exact = ladle.attend %twice, %KV from start to end scale 1.25e-01
      : tensor<4x64xf32>, !cache -> !ladle.summary<4x64xf32>
  %o = ladle.normalize %exact : !ladle.summary<4x64xf32> to tensor<4x64xf32>
  ladle.yield %o : tensor<4x64xf32>
}
