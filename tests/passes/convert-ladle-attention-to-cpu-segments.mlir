// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --canonicalize --cse | FileCheck %s

!cache = !ladle.buffer<[k : 2x64xbf16 @dk, v : 2x64xbf16 @dv],
                       capacity = 28, order = bounded, weight = exp>
!memory = !ladle.memory<linear, 2x64x64xf32>

// All of a step in one function: integers, parameters, tokens, the output,
// keys and values, the memory and its normaliser.
// CHECK-LABEL: func.func @segments_decode(
// CHECK-SAME: %[[ROW:arg[0-9]+]]: index
// CHECK-SAME: memref<1x32x64xf32
// CHECK-SAME: memref<?x4x64xf32
// CHECK-SAME: memref<?x2x28x64xbf16>, %{{.*}}: memref<?x2x28x64xbf16>, %{{.*}}: memref<?x2x64x64xf32>, %{{.*}}: memref<?x2x64xf32>)
ladle.attention_step @segments_decode of @segments form(decode) (
    param %w1: tensor<1x32x64xf32>, param %g: tensor<1x64xf32>,
    token %q: tensor<4x64xf32>, token %k: tensor<2x64xf32>,
    token %v: tensor<2x64xf32>, buffer %KV: !cache, memory %M: !memory)
    -> (o: tensor<4x64xf32>) attributes {page_size = 0 : i64} {
  // The token enters the cache, if it does.
  // CHECK: scf.if
  // CHECK: arith.truncf %{{.*}} : vector<64xf32> to vector<64xbf16>
  // CHECK: vector.store
  ladle.append %KV, %k, %v : !cache, tensor<2x64xf32>, tensor<2x64xf32>
  // Features of cached keys, 16 tokens at a time.
  // CHECK: scf.if
  // CHECK: math.exp %{{.*}} : vector<64xf32>
  ladle.fold_from %KV into %M
      {sinks = 4 : i64, window = 8 : i64, segment = 16 : i64, decay = 0.5 : f64}
      : !cache, !memory {
  ^bb0(%key: tensor<2x64xf32>):
    %feature = math.exp %key : tensor<2x64xf32>
    ladle.yield %feature : tensor<2x64xf32>
  }
  %exact = ladle.attend %q, %KV from start to end scale 1.25e-01
      : tensor<4x64xf32>, !cache -> !ladle.summary<4x64xf32>
  %dot = ladle.normalize %exact : !ladle.summary<4x64xf32> to tensor<4x64xf32>
  %fq = math.exp %q : tensor<4x64xf32>
  %recalled = ladle.recall %fq, %M : tensor<4x64xf32>, !memory
      -> tensor<4x64xf32>
  // The memory is read first, and the first tokens asked for beside it.
  // CHECK: scf.for %{{.*}} = %c0 to %c64 step %c1 iter_args
  // CHECK: memref.prefetch %{{.*}} : memref<?x2x28x64xbf16>
  // CHECK: call @segments_decode_tokens(
  // A matrix times a vector is a loop over rows for all heads that share it, if
  // something has been folded, and no product of 4x32x64 ever exists. The memory
  // of the next head is asked for meanwhile.
  // CHECK: scf.if %{{.*}} {
  // CHECK: scf.for %{{.*}} = %c0 to %c32 step %c8
  // CHECK-COUNT-8: vector.load %{{.*}} : memref<1x32x64xf32
  // CHECK: memref.prefetch %{{.*}} : memref<?x2x64x64xf32>
  // CHECK-COUNT-16: vector.fma
  // CHECK-NOT: vector<4x
  // CHECK: %[[CHOICE:.*]] = scf.if %{{.*}} -> (vector<64xf32>)
  %w = ladle.broadcast %w1 dims [0, 1, 2]
      : tensor<1x32x64xf32> to tensor<4x32x64xf32>
  %r = ladle.broadcast %recalled dims [0, 2]
      : tensor<4x64xf32> to tensor<4x32x64xf32>
  %product = arith.mulf %w, %r : tensor<4x32x64xf32>
  %hidden = ladle.sum %product dim 2 : tensor<4x32x64xf32> to tensor<4x32xf32>
  // The way back, whose sum runs over the dimension between.
  // CHECK: scf.for %{{.*}} = %c0 to %c32 step %c1 iter_args
  %h = ladle.broadcast %hidden dims [0, 1]
      : tensor<4x32xf32> to tensor<4x32x64xf32>
  %back = arith.mulf %w, %h : tensor<4x32x64xf32>
  %passed = ladle.sum %back dim 1 : tensor<4x32x64xf32> to tensor<4x64xf32>
  %gate = ladle.broadcast %g dims [0, 1] : tensor<1x64xf32> to tensor<4x64xf32>
  %gated = arith.mulf %gate, %passed : tensor<4x64xf32>
  %both = arith.addf %gated, %dot : tensor<4x64xf32>
  // CHECK: } else {
  %o = ladle.once %M, %both, %dot : !memory, tensor<4x64xf32>
  // CHECK: vector.store %[[CHOICE]]
  ladle.yield %o : tensor<4x64xf32>
}
