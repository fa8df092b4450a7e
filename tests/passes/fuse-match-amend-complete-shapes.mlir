// RUN: ladle-opt %s --ladle-fuse-match-amend-complete --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// Nothing is reused: one piece, no ring, no form for prompts.
// expected-remark @+1 {{not fused: the attention reuses nothing}}
ladle.attention @exact(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %all : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}
// CHECK-LABEL: @exact_decode
// CHECK-NOT: !ladle.ring
// CHECK: ladle.attend %q, %KV from start to end
// CHECK-NOT: prefill_amend

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// At tau = 1 a match is none.
ladle.attention @never(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  // expected-remark @+1 {{not fused: tau is 1, at which no query matches}}
  %prefix = ladle.match %q {tau = 1.0 : f64, window = 8 : i64}
            : tensor<2x4xf32> -> !ladle.summary<2x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %done = ladle.complete %prefix, %all {band = 2 : i64} : !ladle.summary<2x4xf32>
  %o = ladle.normalize %done : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}
// CHECK-LABEL: @never_decode
// CHECK-NOT: !ladle.ring
// CHECK: ladle.attend %q, %KV from start to end

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// Sinks, two bands, a gate on rotated queries, and a moment that is given.
ladle.attention @wide(param %moment: tensor<2xf32>, token %p: tensor<2x4xf32>,
    token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %prefix = ladle.match %p moment %moment
      {tau = 0.5 : f64, window = 8 : i64, drift = 0.25 : f64}
      : tensor<2x4xf32>, tensor<2xf32> -> !ladle.summary<2x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-remark @+1 {{attention to 4 pieces, merges and the summary}}
  %done = ladle.complete %prefix, %all
      {band = 2 : i64, sinks = 1 : i64, wide_band = 4 : i64, wide_gap = 3 : i64}
      : !ladle.summary<2x4xf32>
  %o = ladle.normalize %done : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}
// CHECK-LABEL: @wide_decode
// CHECK-SAME: parts = 2, rotated = true, estimates = false
// CHECK: %[[NEWEST:.*]] = ladle.attend %q, %KV from band to end
// CHECK: %[[FRONT:.*]] = ladle.attend %q, %KV from start to sinks
// CHECK: %[[MATCH:.*]] = ladle.find %p, %ring rotated %q moment %moment
// CHECK: %[[R0:.*]] = ladle.reuse %ring, %[[MATCH]] part 0
// CHECK: %[[F0:.*]] = ladle.attend %q, %KV from sinks to wide after %[[MATCH]]
// CHECK: %[[S0:.*]] = ladle.merge %[[R0]], %[[F0]]
// CHECK: %[[R1:.*]] = ladle.reuse %ring, %[[MATCH]] part 1
// CHECK: %[[F1:.*]] = ladle.attend %q, %KV from wide to band after %[[MATCH]]
// CHECK: %[[S1:.*]] = ladle.merge %[[R1]], %[[F1]]
// CHECK: ladle.store_summary %p, %[[S0]], %[[S1]] in %ring rotated %q after %[[MATCH]]
// CHECK: %[[A:.*]] = ladle.merge %[[FRONT]], %[[S0]]
// CHECK: %[[B:.*]] = ladle.merge %[[A]], %[[S1]]
// CHECK: ladle.merge %[[B]], %[[NEWEST]]

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// Sinks alone are one piece more, and in no summary.
ladle.attention @sinks(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %prefix = ladle.match %q {tau = 0.5 : f64, window = 8 : i64}
            : tensor<2x4xf32> -> !ladle.summary<2x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-remark @+1 {{attention to 3 pieces, merges and the summary}}
  %done = ladle.complete %prefix, %all
      {band = 2 : i64, sinks = 1 : i64} : !ladle.summary<2x4xf32>
  %o = ladle.normalize %done : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}
// CHECK-LABEL: @sinks_decode
// CHECK-SAME: parts = 1, rotated = false, estimates = true
// CHECK: %[[NEWEST:.*]] = ladle.attend %q, %KV from band to end
// CHECK: %[[FRONT:.*]] = ladle.attend %q, %KV from start to sinks
// CHECK: %[[MATCH:.*]] = ladle.find %q, %ring
// CHECK: %[[R:.*]] = ladle.reuse %ring, %[[MATCH]] part 0
// CHECK: %[[F:.*]] = ladle.attend %q, %KV from sinks to band after %[[MATCH]]
// CHECK: %[[S:.*]] = ladle.merge %[[R]], %[[F]]
// CHECK: ladle.store_summary %q, %[[S]] in %ring after %[[MATCH]]
// CHECK: %[[A:.*]] = ladle.merge %[[FRONT]], %[[S]]
// CHECK: ladle.merge %[[A]], %[[NEWEST]]
// CHECK-LABEL: @sinks_prefill_amend
// CHECK: %[[OLDER:.*]] = ladle.attend %q, %KV from sinks to band
// CHECK: ladle.store_summary %q, %[[OLDER]] in %ring :

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// Two bands alone are one piece more, and two summaries.
ladle.attention @bands(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %prefix = ladle.match %q {tau = 0.5 : f64, window = 8 : i64}
            : tensor<2x4xf32> -> !ladle.summary<2x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-remark @+1 {{attention to 3 pieces, merges and the summary}}
  %done = ladle.complete %prefix, %all
      {band = 2 : i64, wide_band = 4 : i64, wide_gap = 3 : i64} : !ladle.summary<2x4xf32>
  %o = ladle.normalize %done : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}
// CHECK-LABEL: @bands_decode
// CHECK-SAME: parts = 2, rotated = false, estimates = true
// CHECK: %[[NEWEST:.*]] = ladle.attend %q, %KV from band to end
// CHECK-NOT: to sinks
// CHECK: %[[MATCH:.*]] = ladle.find %q, %ring
// CHECK: %[[R0:.*]] = ladle.reuse %ring, %[[MATCH]] part 0
// CHECK: %[[F0:.*]] = ladle.attend %q, %KV from sinks to wide after %[[MATCH]]
// CHECK: %[[S0:.*]] = ladle.merge %[[R0]], %[[F0]]
// CHECK: %[[R1:.*]] = ladle.reuse %ring, %[[MATCH]] part 1
// CHECK: %[[F1:.*]] = ladle.attend %q, %KV from wide to band after %[[MATCH]]
// CHECK: %[[S1:.*]] = ladle.merge %[[R1]], %[[F1]]
// CHECK: ladle.store_summary %q, %[[S0]], %[[S1]] in %ring after %[[MATCH]]
// CHECK: %[[A:.*]] = ladle.merge %[[S0]], %[[S1]]
// CHECK: ladle.merge %[[A]], %[[NEWEST]]
// CHECK-LABEL: @bands_prefill_amend
// CHECK: %[[P0:.*]] = ladle.attend %q, %KV from sinks to wide
// CHECK: %[[P1:.*]] = ladle.attend %q, %KV from wide to band
// CHECK: ladle.store_summary %q, %[[P0]], %[[P1]] in %ring :
