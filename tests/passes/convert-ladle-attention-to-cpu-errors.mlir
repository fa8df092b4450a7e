// RUN: ladle-opt %s --convert-ladle-attention-to-cpu --split-input-file \
// RUN:   --verify-diagnostics

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention_step @computed of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  // expected-error @+1 {{'arith.negf' is not lowered in a step of an attention}}
  %n = arith.negf %q : tensor<2x4xf32>
  %s = ladle.attend %n, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
ladle.attention_step @scales of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64, band = 1 : i64} {
  %s = ladle.attend %q, %KV from start to band scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  // expected-error @+1 {{attends with another query or scale than the piece before it}}
  %t = ladle.attend %q, %KV from band to end scale 2.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %u = ladle.merge %s, %t : !ladle.summary<2x4xf32>
  %o = ladle.normalize %u : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// expected-error @+1 {{has 0 attends, 0 finds and 0 stores of summaries}}
ladle.attention_step @nothing of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  ladle.yield %q : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
// expected-error @+1 {{does not yield one ladle.normalize}}
ladle.attention_step @query of @a form(decode) (token %q: tensor<2x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 1 : i64} {
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  ladle.yield %q : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 9,
                       order = bounded, weight = exp>
// expected-error @+1 {{cannot be lowered for the CPU: neither '@a' nor its decode step says what it evicts}}
ladle.attention_step @alone of @a form(prefill_select) (
    token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %k : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 9,
                       order = bounded, weight = exp>
ladle.attention_step @another of @a form(decode) (
    token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %k : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.evict_from %KV {budget = 8 : i64, sinks = 0 : i64, recent = 1 : i64,
      queries = 2 : i64, variance = 0.0 : f64, pool = 1 : i64} : !cache
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  // expected-error @+1 {{the weights that are noted have to be those of an attend before}}
  ladle.note_weights %q, %KV scale 2.0 : tensor<2x4xf32>, !cache
  ladle.yield %o : tensor<2x4xf32>
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x4xf32 @dv], capacity = 9,
                       order = bounded, weight = exp>
ladle.attention_step @once of @a form(decode) (
    token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %k : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.evict_from %KV {budget = 8 : i64, sinks = 0 : i64, recent = 1 : i64,
      queries = 2 : i64, variance = 0.0 : f64, pool = 1 : i64} : !cache
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %o = ladle.normalize %s : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}
// expected-error @+1 {{a prompt is appended, and attended to once; got 2 attends}}
ladle.attention_step @twice of @a form(prefill_select) (
    token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    buffer %KV: !cache) -> (o: tensor<2x4xf32>)
    attributes {page_size = 0 : i64} {
  ladle.append %KV, %k, %k : !cache, tensor<1x4xf32>, tensor<1x4xf32>
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %t = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  %u = ladle.merge %s, %t : !ladle.summary<2x4xf32>
  %o = ladle.normalize %u : !ladle.summary<2x4xf32> to tensor<2x4xf32>
  ladle.yield %o : tensor<2x4xf32>
}
