// RUN: ladle-opt %s --ladle-build-bounded-attention --split-input-file --verify-diagnostics

!cache = !ladle.buffer<[k : 2x8xbf16 @dk, v : 2x8xbf16 @dv], capacity = 33,
                       order = bounded, weight = exp>
// expected-error @+1 {{no step for this attention: its cache is bounded, but nothing leaves it}}
ladle.attention @a(token %k: tensor<2x8xf32>, token %v: tensor<2x8xf32>,
                   buffer %KV: !cache) -> () attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !cache, tensor<2x8xf32>, tensor<2x8xf32>
  ladle.yield %next : !cache
}

// -----

!cache = !ladle.buffer<[k : 2x8xbf16 @dk, v : 2x8xbf16 @dv], capacity = 33,
                       order = bounded, weight = exp>
!summary = !ladle.summary<4x8xf32>
ladle.attention @a(token %q: tensor<4x8xf32>, token %k: tensor<2x8xf32>,
                   token %v: tensor<2x8xf32>, buffer %KV: !cache)
    -> (o: tensor<4x8xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !cache, tensor<2x8xf32>, tensor<2x8xf32>
  %kept = ladle.evict %next
      {budget = 32 : i64, pool = 5 : i64, queries = 8 : i64, recent = 8 : i64,
       sinks = 0 : i64, variance = 2.0e+02 : f64} : !cache
  // expected-error @+1 {{no step for this attention: the operation does not take the cache as the operation before has left it}}
  %all = ladle.softmax %q, %next scale 0.5 : tensor<4x8xf32>, !cache -> !summary
  %o = ladle.normalize %all : !summary to tensor<4x8xf32>
  ladle.yield %o, %kept : tensor<4x8xf32>, !cache
}

// -----

!cache = !ladle.buffer<[k : 2x8xbf16 @dk, v : 2x8xbf16 @dv], capacity = 33,
                       order = bounded, weight = exp>
!summary = !ladle.summary<4x8xf32>
ladle.attention @a(token %q: tensor<4x8xf32>, token %k: tensor<2x8xf32>,
                   token %v: tensor<2x8xf32>, buffer %KV: !cache)
    -> (o: tensor<4x8xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !cache, tensor<2x8xf32>, tensor<2x8xf32>
  %kept = ladle.evict %next
      {budget = 32 : i64, pool = 5 : i64, queries = 8 : i64, recent = 8 : i64,
       sinks = 0 : i64, variance = 2.0e+02 : f64} : !cache
  %all = ladle.softmax %q, %kept scale 0.5 : tensor<4x8xf32>, !cache -> !summary
  // expected-error @+1 {{no step for this attention: a match needs a cache that keeps all tokens}}
  %prefix = ladle.match %q {tau = 5.0e-01 : f64, window = 8 : i64}
      : tensor<4x8xf32> -> !summary
  %done = ladle.complete %prefix, %all {band = 2 : i64} : !summary
  %o = ladle.normalize %done : !summary to tensor<4x8xf32>
  ladle.yield %o, %kept : tensor<4x8xf32>, !cache
}
