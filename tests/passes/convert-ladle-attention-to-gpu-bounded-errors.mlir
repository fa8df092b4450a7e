// RUN: ladle-opt %s --ladle-build-bounded-attention --convert-ladle-attention-to-gpu --verify-diagnostics

!cache = !ladle.buffer<[k : 1x64xbf16 @dk, v : 1x64xbf16 @dv], capacity = 200001,
                       order = bounded, weight = exp>
!summary = !ladle.summary<2x64xf32>
// expected-error @+2 {{cannot be lowered for GPUs: a budget of 200000 tokens}}
// expected-note @+1 {{wanted 65536 at the most: the blocks of a head have what they note of its tokens in shared memory}}
ladle.attention @a(token %q: tensor<2x64xbf16>, token %k: tensor<1x64xbf16>,
    token %v: tensor<1x64xbf16>, buffer %KV: !cache)
    -> (o: tensor<2x64xf32>) attributes {page_size = 0 : i64} {
  %qf = arith.extf %q : tensor<2x64xbf16> to tensor<2x64xf32>
  %kf = arith.extf %k : tensor<1x64xbf16> to tensor<1x64xf32>
  %vf = arith.extf %v : tensor<1x64xbf16> to tensor<1x64xf32>
  %next = ladle.cache_token %KV, %kf, %vf
      : !cache, tensor<1x64xf32>, tensor<1x64xf32>
  %kept = ladle.evict %next
      {budget = 200000 : i64, pool = 3 : i64, queries = 8 : i64,
       recent = 8 : i64, sinks = 0 : i64, variance = 2.0e+02 : f64} : !cache
  %all = ladle.softmax %qf, %kept scale 0.125
      : tensor<2x64xf32>, !cache -> !summary
  %o = ladle.normalize %all : !summary to tensor<2x64xf32>
  %seen = ladle.observe %qf, %kept scale 0.125 : tensor<2x64xf32>, !cache
  ladle.yield %o, %seen : tensor<2x64xf32>, !cache
}
