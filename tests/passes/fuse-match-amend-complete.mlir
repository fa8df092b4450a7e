// RUN: ladle-opt %s --ladle-fuse-match-amend-complete="summary-type=bf16" \
// RUN:   | FileCheck %s

// What a token leaves is the reused summary and the fresh piece up to the band;
// the newest piece completes the output and is in no summary.

!cache = !ladle.buffer<[k : 2x8xf32 @dk, v : 2x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @mac(token %p: tensor<4x8xf32>, token %q: tensor<4x8xf32>,
    token %k: tensor<2x8xf32>, token %v: tensor<2x8xf32>,
    buffer %KV: !cache) -> (o: tensor<4x8xf32>)
    attributes {page_size = 16 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<2x8xf32>, tensor<2x8xf32>
  %prefix = ladle.match %p {tau = 0.45 : f64, window = 64 : i64}
            : tensor<4x8xf32> -> !ladle.summary<4x8xf32>
  %all = ladle.softmax %q, %next scale 0.125
         : tensor<4x8xf32>, !cache -> !ladle.summary<4x8xf32>
  %done = ladle.complete %prefix, %all {band = 8 : i64} : !ladle.summary<4x8xf32>
  %o = ladle.normalize %done : !ladle.summary<4x8xf32> to tensor<4x8xf32>
  ladle.yield %o, %next : tensor<4x8xf32>, !cache
}

// CHECK: ladle.attention @mac
// CHECK-LABEL: ladle.attention_step @mac_decode of @mac form(decode)
// CHECK-SAME: ring %ring: !ladle.ring<4x8xf32, values = 8xbf16, capacity = 64, parts = 1, rotated = false, estimates = true>
// CHECK-SAME: attributes {band = 8 : i64, page_size = 16 : i64, sinks = 0 : i64}
// CHECK-NEXT: ladle.append %KV, %k, %v
// CHECK-NEXT: %[[NEWEST:.*]] = ladle.attend %q, %KV from band to end scale 1.250000e-01
// CHECK-NEXT: %[[MATCH:.*]] = ladle.find %p, %ring {tau = 4.500000e-01 : f64, window = 64 : i64}
// CHECK-NEXT: %[[REUSED:.*]] = ladle.reuse %ring, %[[MATCH]] part 0
// CHECK-NEXT: %[[FRESH:.*]] = ladle.attend %q, %KV from sinks to band after %[[MATCH]]
// CHECK-NEXT: %[[SUMMARY:.*]] = ladle.merge %[[REUSED]], %[[FRESH]]
// CHECK-NEXT: ladle.store_summary %p, %[[SUMMARY]] in %ring after %[[MATCH]]
// CHECK-NEXT: %[[ALL:.*]] = ladle.merge %[[SUMMARY]], %[[NEWEST]]
// CHECK-NEXT: %[[O:.*]] = ladle.normalize %[[ALL]]
// CHECK-NEXT: ladle.yield %[[O]]

// CHECK-LABEL: ladle.attention_step @mac_prefill_amend of @mac form(prefill_amend)
// CHECK-NOT: ladle.find
// CHECK: %[[NEWEST:.*]] = ladle.attend %q, %KV from band to end
// CHECK-NEXT: %[[SUMMARY:.*]] = ladle.attend %q, %KV from sinks to band scale
// CHECK-NEXT: ladle.store_summary %p, %[[SUMMARY]] in %ring :
// CHECK-NEXT: ladle.merge %[[SUMMARY]], %[[NEWEST]]
