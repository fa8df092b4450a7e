// RUN: ladle-opt %s | ladle-opt | FileCheck %s

// A cache that evicts, with a memory of what was evicted.
// CHECK-LABEL: ladle.attention @slake
ladle.attention @slake(
    token %q: tensor<4x64xf32>, token %k: tensor<2x64xf32>,
    token %v: tensor<2x64xf32>,
    buffer %KV: !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                capacity = 129, order = bounded, weight = exp>,
    memory %T: !ladle.memory<taylor, 2x64x64xbf16>)
    -> (o: tensor<4x64xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 129, order = bounded, weight = exp>,
        tensor<2x64xf32>, tensor<2x64xf32>
  // CHECK: ladle.evict %{{.*}} into %T {budget = 128 : i64, pool = 5 : i64, queries = 32 : i64, recent = 32 : i64, sinks = 0 : i64, variance = 2.000000e+02 : f64}
  %kept, %folded = ladle.evict %next into %T
      {budget = 128 : i64, pool = 5 : i64, queries = 32 : i64,
       recent = 32 : i64, sinks = 0 : i64, variance = 2.0e+02 : f64}
      : !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 129, order = bounded, weight = exp>,
        !ladle.memory<taylor, 2x64x64xbf16> -> !ladle.memory<taylor, 2x64x64xbf16>
  %exact = ladle.softmax %q, %kept scale 1.25e-01
      : tensor<4x64xf32>, !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 129, order = bounded, weight = exp>
      -> !ladle.summary<4x64xf32>
  // CHECK: ladle.taylor %q, %{{.*}} scale 1.250000e-01 limit 1.000000e+00
  %evicted = ladle.taylor %q, %folded scale 1.25e-01 limit 1.0
      : tensor<4x64xf32>, !ladle.memory<taylor, 2x64x64xbf16>
      -> !ladle.summary<4x64xf32>
  %all = ladle.merge %exact, %evicted : !ladle.summary<4x64xf32>
  %o = ladle.normalize %all : !ladle.summary<4x64xf32> to tensor<4x64xf32>
  // CHECK: ladle.observe %q, %{{.*}} scale 1.250000e-01
  %seen = ladle.observe %q, %kept scale 1.25e-01
      : tensor<4x64xf32>, !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 129, order = bounded, weight = exp>
  ladle.yield %o, %seen, %folded
      : tensor<4x64xf32>, !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 129, order = bounded, weight = exp>,
        !ladle.memory<taylor, 2x64x64xbf16>
}

// A cache whose segments are folded.
// CHECK-LABEL: ladle.attention @segments
ladle.attention @segments(
    token %q: tensor<4x64xf32>, token %k: tensor<2x64xf32>,
    token %v: tensor<2x64xf32>,
    buffer %KV: !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                capacity = 28, order = bounded, weight = exp>,
    memory %M: !ladle.memory<linear, 2x64x64xf32>)
    -> (o: tensor<4x64xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 28, order = bounded, weight = exp>,
        tensor<2x64xf32>, tensor<2x64xf32>
  // CHECK: ladle.fold_segment %{{.*}} into %M {segment = 16 : i64, sinks = 4 : i64, window = 8 : i64}
  %kept, %folded = ladle.fold_segment %next into %M
      {segment = 16 : i64, sinks = 4 : i64, window = 8 : i64}
      : !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 28, order = bounded, weight = exp>,
        !ladle.memory<linear, 2x64x64xf32> {
  ^bb0(%key: tensor<2x64xf32>):
    %feature = math.exp %key : tensor<2x64xf32>
    ladle.yield %feature : tensor<2x64xf32>
  }
  %exact = ladle.softmax %q, %kept scale 1.25e-01
      : tensor<4x64xf32>, !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 28, order = bounded, weight = exp>
      -> !ladle.summary<4x64xf32>
  %dot = ladle.normalize %exact : !ladle.summary<4x64xf32> to tensor<4x64xf32>
  %fq = math.exp %q : tensor<4x64xf32>
  // CHECK: ladle.recall %{{.*}}, %{{.*}} : tensor<4x64xf32>, <linear, 2x64x64xf32> -> tensor<4x64xf32>
  %recalled = ladle.recall %fq, %folded
      : tensor<4x64xf32>, !ladle.memory<linear, 2x64x64xf32>
      -> tensor<4x64xf32>
  %both = arith.addf %recalled, %dot : tensor<4x64xf32>
  // CHECK: ladle.once
  %o = ladle.once %folded, %both, %dot
      : !ladle.memory<linear, 2x64x64xf32>, tensor<4x64xf32>
  ladle.yield %o, %kept, %folded
      : tensor<4x64xf32>, !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                      capacity = 28, order = bounded, weight = exp>,
        !ladle.memory<linear, 2x64x64xf32>
}
