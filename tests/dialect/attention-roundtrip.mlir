// RUN: ladle-opt %s | ladle-opt | FileCheck %s

!cache = !ladle.buffer<[k : 1x4xbf16 @dk, v : 1x8xbf16 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xbf16, values = 8xf16, capacity = 32, parts = 2,
                    rotated = true, estimates = true>
!summary = !ladle.summary<2x8xf32>

// CHECK: ladle.attention @a(token %q: tensor<2x4xf32>
// CHECK: ladle.cache_token %KV, %k, %v
// CHECK: ladle.match %q moment %m {max_gap = 7 : i64, tau = 5.000000e-01 : f64, window = 32 : i64} : tensor<2x4xf32>, tensor<2xf32> -> <2x8xf32>
// CHECK: ladle.softmax %q, %{{.*}} scale 5.000000e-01
// CHECK: ladle.complete %{{.*}}, %{{.*}} {band = 2 : i64} : <2x8xf32>
ladle.attention @a(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x8xf32>, token %m: tensor<2xf32>, buffer %KV: !cache)
    -> (o: tensor<2x8xf32>) attributes {page_size = 16 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x8xf32>
  %prefix = ladle.match %q moment %m
      {max_gap = 7 : i64, tau = 0.5 : f64, window = 32 : i64}
      : tensor<2x4xf32>, tensor<2xf32> -> !summary
  %all = ladle.softmax %q, %next scale 0.5 : tensor<2x4xf32>, !cache -> !summary
  %done = ladle.complete %prefix, %all {band = 2 : i64} : !summary
  %o = ladle.normalize %done : !summary to tensor<2x8xf32>
  ladle.yield %o, %next : tensor<2x8xf32>, !cache
}

// CHECK: ladle.attention_step @s of @a form(decode)
// CHECK-SAME: ring %ring: !ladle.ring<2x4xbf16, values = 8xf16, capacity = 32, parts = 2, rotated = true, estimates = true>
// CHECK: ladle.find %q, %ring rotated %q {drift = 5.000000e-01 : f64, tau = 5.000000e-01 : f64, window = 32 : i64}
// CHECK: ladle.reuse %ring, %{{.*}} part 1
// CHECK: ladle.attend %q, %KV from wide to band after %{{.*}} scale 5.000000e-01
// CHECK: ladle.merge
// CHECK: ladle.store_summary %q, %{{.*}}, %{{.*}} in %ring rotated %q after %
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache, ring %ring: !ring) -> (o: tensor<2x8xf32>)
    attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64,
                wide_band = 4 : i64, wide_gap = 8 : i64} {
  %m = ladle.find %q, %ring rotated %q
      {drift = 0.5 : f64, tau = 0.5 : f64, window = 32 : i64}
      : tensor<2x4xf32>, !ring rotated tensor<2x4xf32> -> !ladle.match<2>
  %r = ladle.reuse %ring, %m part 1 : !ring, !ladle.match<2> -> !summary
  %f = ladle.attend %q, %KV from wide to band after %m scale 0.5
      : tensor<2x4xf32>, !cache after !ladle.match<2> -> !summary
  %s = ladle.merge %r, %f : !summary
  ladle.store_summary %q, %s, %r in %ring rotated %q after %m
      : tensor<2x4xf32>, !summary, !summary in !ring rotated tensor<2x4xf32>
      after !ladle.match<2>
  %o = ladle.normalize %s : !summary to tensor<2x8xf32>
  ladle.yield %o : tensor<2x8xf32>
}
