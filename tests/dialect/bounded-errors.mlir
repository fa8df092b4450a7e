// RUN: ladle-opt %s --split-input-file --verify-diagnostics

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{budget must hold the sinks, 0 at least, and the recent tokens, 1 at least; got 8 for 4 and 6}}
  ladle.evict_from %KV into %M {budget = 8 : i64, pool = 5 : i64, queries = 8 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{cache must have room for a token more than the budget of 20, got 20}}
  ladle.evict_from %KV into %M {budget = 20 : i64, pool = 5 : i64, queries = 8 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{queries and variance must not be negative, and there is no variance without a count of queries; got 0 and 1}}
  ladle.evict_from %KV into %M {budget = 16 : i64, pool = 5 : i64, queries = 0 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{pool must be odd, got 4}}
  ladle.evict_from %KV into %M {budget = 16 : i64, pool = 4 : i64, queries = 8 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{needs a taylor memory of its keys, got '!ladle.memory<linear, 1x4x8xf32>'}}
  ladle.evict_from %KV into %M {budget = 16 : i64, pool = 5 : i64, queries = 8 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{cache must have room for 21 tokens, got 20}}
  ladle.fold_from %KV into %M {segment = 12 : i64, sinks = 4 : i64, window = 5 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x4xf32>):
    ladle.yield %key : tensor<1x4xf32>
  }
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{sinks and window must not be negative and a segment must be positive, got 4, 5 and 0}}
  ladle.fold_from %KV into %M {segment = 0 : i64, sinks = 4 : i64, window = 5 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x4xf32>):
    ladle.yield %key : tensor<1x4xf32>
  }
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{decay must be above 0 and at most 1, got 2}}
  ladle.fold_from %KV into %M {segment = 8 : i64, sinks = 4 : i64, window = 5 : i64, decay = 2.0 : f64} : !cache, !memory {
  ^bb0(%key: tensor<1x4xf32>):
    ladle.yield %key : tensor<1x4xf32>
  }
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{needs a linear memory, got '!ladle.memory<taylor, 1x4x8xf32>'}}
  ladle.fold_from %KV into %M {segment = 8 : i64, sinks = 4 : i64, window = 5 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x4xf32>):
    ladle.yield %key : tensor<1x4xf32>
  }
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{must yield the features of a key, 'tensor<1x4xf32>'}}
  ladle.fold_from %KV into %M {segment = 8 : i64, sinks = 4 : i64, window = 5 : i64} : !cache, !memory {
  ^bb0(%key: tensor<1x4xf32>):
    ladle.yield
  }
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{result must be 2x8, got 'tensor<2x4xf32>'}}
  %r = ladle.recall %q, %M : tensor<2x4xf32>, !memory -> tensor<2x4xf32>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<linear, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x5xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{query must be [heads, 4] with a multiple of 1 heads, got 'tensor<2x5xf32>'}}
  %r = ladle.recall %q, %M : tensor<2x5xf32>, !memory -> tensor<2x8xf32>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{limit must not be negative, got -1}}
  %r = ladle.taylor %q, %M scale 1.0 limit -1.0 : tensor<2x4xf32>, !memory -> !summary
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x5xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 0 : i64} {
  // expected-error @+1 {{query must be [heads, 4] with a multiple of 1 heads, got 'tensor<2x5xf32>'}}
  ladle.note_weights %q, %KV scale 1.0 : tensor<2x5xf32>, !cache
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 20,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{page_size of a bounded cache must be 0, got 16}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 16 : i64} {
  ladle.evict_from %KV into %M {budget = 16 : i64, pool = 5 : i64, queries = 8 : i64, recent = 6 : i64, sinks = 4 : i64, variance = 1.0 : f64} : !cache, !memory
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!memory = !ladle.memory<taylor, 1x4x8xf32>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, memory %M: !memory)
    -> () attributes {page_size = 16 : i64} {
  // expected-error @+1 {{cache must be bounded and hold keys and values, got '!ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0, order = paged, weight = exp>'}}
  ladle.note_weights %q, %KV scale 1.0 : tensor<2x4xf32>, !cache
  ladle.yield
}

// -----

// expected-error @+1 {{unknown kind of memory 'cubic', expected linear or taylor}}
func.func private @f(!ladle.memory<cubic, 1x4x8xf32>)

// -----

// expected-error @+1 {{expected heads x key x value x type, got 2 dimensions}}
func.func private @f(!ladle.memory<linear, 4x8xf32>)
