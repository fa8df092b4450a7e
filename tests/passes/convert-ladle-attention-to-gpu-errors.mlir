// RUN: ladle-opt %s --convert-ladle-attention-to-gpu --split-input-file \
// RUN:   --verify-diagnostics

!cache = !ladle.buffer<[k : 1x20xf32 @dk, v : 1x32xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// expected-error @+2 {{cannot be lowered for GPUs: keys have 20 elements}}
// expected-note @+1 {{wanted a multiple of 32 up to 256}}
ladle.attention_step @keys of @a form(decode) (token %q: tensor<2x20xf32>,
    buffer %KV: !cache) -> (o: tensor<2x32xf32>)
    attributes {page_size = 1 : i64} {
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x20xf32>, !cache -> !ladle.summary<2x32xf32>
  %o = ladle.normalize %s : !ladle.summary<2x32xf32> to tensor<2x32xf32>
  ladle.yield %o : tensor<2x32xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x32xf32 @dk, v : 1x512xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// expected-error @+2 {{cannot be lowered for GPUs: values have 512 elements}}
// expected-note @+1 {{wanted a multiple of 32 up to 256}}
ladle.attention_step @values of @a form(decode) (token %q: tensor<2x32xf32>,
    buffer %KV: !cache) -> (o: tensor<2x512xf32>)
    attributes {page_size = 1 : i64} {
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x32xf32>, !cache -> !ladle.summary<2x512xf32>
  %o = ladle.normalize %s : !ladle.summary<2x512xf32> to tensor<2x512xf32>
  ladle.yield %o : tensor<2x512xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x32xf32 @dk, v : 1x32xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention_step @computed of @a form(decode) (token %q: tensor<2x32xf32>,
    buffer %KV: !cache) -> (o: tensor<2x32xf32>)
    attributes {page_size = 1 : i64} {
  // expected-error @+1 {{'arith.negf' is not lowered in a step of an attention}}
  %n = arith.negf %q : tensor<2x32xf32>
  %s = ladle.attend %n, %KV from start to end scale 1.0
      : tensor<2x32xf32>, !cache -> !ladle.summary<2x32xf32>
  %o = ladle.normalize %s : !ladle.summary<2x32xf32> to tensor<2x32xf32>
  ladle.yield %o : tensor<2x32xf32>
}
