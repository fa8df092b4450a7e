// RUN: ladle-opt %s --ladle-fuse-match-amend-complete --split-input-file \
// RUN:   --verify-diagnostics
// RUN: not ladle-opt %s --ladle-fuse-match-amend-complete="summary-type=f8" \
// RUN:   --split-input-file 2>&1 | FileCheck %s
// CHECK: summary-type must be f32, bf16 or f16, got 'f8'

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @scaled(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %all : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  %twice = arith.addf %o, %o : tensor<2x4xf32>
  // expected-error @+1 {{no plan for this attention: its output is no ladle.normalize}}
  ladle.yield %twice, %next : tensor<2x4xf32>, !cache
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @merged(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %next = ladle.cache_token %KV, %k, %v : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %all = ladle.softmax %q, %next scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-error @+1 {{no plan for this attention: the prefix is no ladle.match}}
  %done = ladle.complete %all, %all {band = 2 : i64} : !ladle.summary<2x4xf32>
  %o = ladle.normalize %done : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %next : tensor<2x4xf32>, !cache
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention @stale(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x4xf32>, buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  // expected-error @+1 {{no plan for this attention: it does not read the cache with this token}}
  %all = ladle.softmax %q, %KV scale 0.5
         : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %all : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o, %KV : tensor<2x4xf32>, !cache
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// expected-error @+1 {{no plan for this attention: it has 0 outputs, expected one}}
ladle.attention @mute(token %k: tensor<1x4xf32>, buffer %KV: !cache) -> ()
    attributes {page_size = 1 : i64} {
  ladle.yield %KV : !cache
}
