// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefixes=CHECK,PAIRS,ONCE
// RUN: ladle-opt %s --convert-ladle-attention-to-cpu=asks-again --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefixes=CHECK,PAIRS,AGAIN
// RUN: ladle-opt %s --convert-ladle-attention-to-cpu=dots-bf16 --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefixes=CHECK,DOTS,ONCE
// RUN: ladle-opt %s --convert-ladle-attention-to-cpu=lanes=8 --canonicalize --cse \
// RUN:   | FileCheck %s --check-prefix=NARROW

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv],
                       capacity = 28, order = bounded, weight = exp>

// A function of its own, in which sums stay in registers.
// CHECK-LABEL: func.func private @four_heads_tokens(
// CHECK-SAME: passthrough = ["noinline"]
// Blocks of 32 tokens, 8 tiles of four heads and four keys, so of 16 scores.
// CHECK: scf.for {{.*}} step %c32 {
// CHECK: scf.for %{{.*}} = %c0 to %c8 step %c1 {{.*}} -> (vector<16xf32>) {
// By columns, beside which the same of two keys and two values a block ahead
// are asked for, and again of keys that come soon.
// CHECK: scf.for %{{.*}} = %c0 to %c64 step %c32
// CHECK-COUNT-4: memref.prefetch {{.*}}, read, locality<2>
// ONCE-NOT: memref.prefetch
// AGAIN-COUNT-4: memref.prefetch {{.*}}, read, locality<3>
// AGAIN-NOT: memref.prefetch
// Each key is loaded once for all heads.
// PAIRS: %[[PAIR:.*]] = vector.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
// PAIRS: arith.shli %[[PAIR]]
// PAIRS: arith.andi %[[PAIR]]
// PAIRS-COUNT-32: vector.fma
// DOTS-COUNT-16: x86vector.avx512.dot %{{.*}} : vector<32xbf16> -> vector<16xf32>
// DOTS-NOT: x86vector
// CHECK: scf.yield
// One product with the scale for the scores of all heads, which are all there.
// CHECK: arith.mulf {{.*}} : vector<16xf32>
// CHECK-NEXT: vector.store
// What is kept of the sums so far.
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK-NOT: math.exp
// Sums of four heads and 64 elements stay in registers over all values; weights
// are found beside them, in one exp for all heads.
// CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK: scf.for %{{.*}} = %c0 to %c4 step %c2
// CHECK-COUNT-4: memref.prefetch {{.*}}, read, locality<2>
// AGAIN-COUNT-2: memref.prefetch {{.*}}, read, locality<3>
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// The tokens that are left, where some of a tile may not be.
// CHECK: scf.for {{.*}} step %c32 {
// CHECK: arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<16xi1>, vector<16xf32>
// CHECK-LABEL: func.func @four_heads(
// CHECK: call @four_heads_tokens(

// Fewer of them where there are half as many registers of half the width.
// NARROW-LABEL: func.func private @four_heads_tokens(
// NARROW-COUNT-4: scf.for %{{.*}} = %c0 to %c4 step %c2 {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
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
// CHECK-LABEL: func.func private @computed_tokens(
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
