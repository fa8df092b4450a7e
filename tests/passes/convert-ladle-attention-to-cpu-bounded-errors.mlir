// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --split-input-file \
// RUN:   --verify-diagnostics

!cache = !ladle.buffer<[k : 2x4xf32 @dk, v : 2x4xf32 @dv], capacity = 8,
                       order = bounded, weight = exp>
// expected-error @+1 {{nothing attends to the cache}}
ladle.attention_step @nothing of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  ladle.yield %q : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 2x4xf32 @dk, v : 2x4xf32 @dv], capacity = 8,
                       order = bounded, weight = exp>
ladle.attention_step @late of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-error @+1 {{the cache changes after it has been read}}
  ladle.append %KV, %q, %q : !cache, tensor<2x4xf32>, tensor<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 2x4xf32 @dk, v : 2x4xf32 @dv], capacity = 8,
                       order = bounded, weight = exp>
ladle.attention_step @rank of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x2x4xf32>)
    attributes {page_size = 0 : i64} {
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  %w = ladle.broadcast %o dims [0, 2] : tensor<2x4xf32> to tensor<2x2x4xf32>
  // expected-error @+1 {{outputs are [heads] or [heads, D], got 'tensor<2x2x4xf32>'}}
  ladle.yield %w : tensor<2x2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 2x4xf32 @dk, v : 2x4xf32 @dv], capacity = 8,
                       order = bounded, weight = exp>
ladle.attention_step @piece of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64, band = 2 : i64} {
  // expected-error @+1 {{a bounded cache is attended to as a whole}}
  %s = ladle.attend %q, %KV from band to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}
