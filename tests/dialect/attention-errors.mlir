// RUN: ladle-opt %s --split-input-file --verify-diagnostics

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{must begin before it ends, got from band to band}}
  %s = ladle.attend %q, %KV from band to band scale 1.0
      : tensor<2x4xf32>, !cache -> !summary
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{unknown bound 'middle', expected start, sinks, wide, band or end}}
  %s = ladle.attend %q, %KV from middle to band scale 1.0
      : tensor<2x4xf32>, !cache -> !summary
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x5xf32>, buffer %KV: !cache)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{query must be [heads, dk] with dk = 4, got 'tensor<2x5xf32>'}}
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x5xf32>, !cache -> !summary
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{result must be a summary of 2x8, got}}
  %s = ladle.attend %q, %KV from start to end scale 1.0
      : tensor<2x4xf32>, !cache -> !ladle.summary<2x4xf32>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{tau and drift must be from 0 to 1, got 2}}
  %m = ladle.find %q, %ring {tau = 2.0 : f64, window = 8 : i64}
      : tensor<2x4xf32>, !ring -> !ladle.match<2>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{window must be positive, got 0}}
  %m = ladle.find %q, %ring {tau = 0.5 : f64, window = 0 : i64}
      : tensor<2x4xf32>, !ring -> !ladle.match<2>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{max_gap, max_chain and skip must not be negative, got -1}}
  %m = ladle.find %q, %ring {tau = 0.5 : f64, window = 8 : i64, skip = -1 : i64}
      : tensor<2x4xf32>, !ring -> !ladle.match<2>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{drift needs rotated queries, here and in the ring}}
  %m = ladle.find %q, %ring rotated %q {tau = 0.5 : f64, window = 8 : i64}
      : tensor<2x4xf32>, !ring rotated tensor<2x4xf32> -> !ladle.match<2>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{match must be of 2 heads, got '!ladle.match<3>'}}
  %m = ladle.find %q, %ring {tau = 0.5 : f64, window = 8 : i64}
      : tensor<2x4xf32>, !ring -> !ladle.match<3>
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  %m = ladle.find %q, %ring {tau = 0.5 : f64, window = 8 : i64}
      : tensor<2x4xf32>, !ring -> !ladle.match<2>
  // expected-error @+1 {{part must be below the 1 of the ring, got 1}}
  %r = ladle.reuse %ring, %m part 1 : !ring, !ladle.match<2> -> !summary
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  // expected-error @+1 {{needs a summary for each of 1 parts of the ring, got 0}}
  "ladle.store_summary"(%q, %ring) <{operandSegmentSizes = array<i32: 1, 0, 1, 0, 0>}>
      : (tensor<2x4xf32>, !ring) -> ()
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{has a ring, but no band or no sinks}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64} {
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{has a ring of 1 parts and wide_band}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, ring %ring: !ring)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64, wide_band = 4 : i64, wide_gap = 1 : i64} {
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{has 0 caches, expected one}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{page_size must be positive, got 0}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache)
    -> () attributes {page_size = 0 : i64} {
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{takes no argument of kind 'carry'}}
ladle.attention_step @s of @a form(decode) (token %q: tensor<2x4xf32>, buffer %KV: !cache, carry %c: tensor<2xf32>)
    -> () attributes {page_size = 16 : i64, band = 2 : i64, sinks = 0 : i64} {
  ladle.yield
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
// expected-error @+1 {{takes no ring: those belong to a ladle.attention_step}}
ladle.recurrence @r(ring %ring: !ring) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{a ring holds 1 or 2 summaries a token, got 3}}
module attributes {a = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32,
                                 parts = 3, rotated = false, estimates = true>} {}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention @a(token %q: tensor<2x4xf32>, token %k: tensor<1x4xf32>,
    token %v: tensor<1x8xf32>, buffer %KV: !cache) -> ()
    attributes {page_size = 16 : i64} {
  // expected-error @+1 {{needs a value for each of 2 fields, got 1}}
  %next = ladle.cache_token %KV, %k : !cache, tensor<1x4xf32>
  ladle.yield %next : !cache
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention @a(token %q: tensor<2x4xf32>, buffer %KV: !cache) -> ()
    attributes {page_size = 16 : i64} {
  %all = ladle.softmax %q, %KV scale 0.5 : tensor<2x4xf32>, !cache -> !summary
  // expected-error @+1 {{wide_band must be at least the band 4, got 2}}
  %done = ladle.complete %all, %all
      {band = 4 : i64, wide_band = 2 : i64, wide_gap = 1 : i64} : !summary
  ladle.yield %KV : !cache
}

// -----

!cache = !ladle.buffer<[k : 1x4xf32 @dk, v : 1x8xf32 @dv], capacity = 0,
                       order = paged, weight = exp>
!ring = !ladle.ring<2x4xf32, values = 8xf32, capacity = 32, parts = 1,
                    rotated = false, estimates = true>
!summary = !ladle.summary<2x8xf32>
ladle.attention @a(token %q: tensor<2x4xf32>, buffer %KV: !cache) -> ()
    attributes {page_size = 16 : i64} {
  %all = ladle.softmax %q, %KV scale 0.5 : tensor<2x4xf32>, !cache -> !summary
  // expected-error @+1 {{band and sinks must not be negative, got -1 and 0}}
  %done = ladle.complete %all, %all {band = -1 : i64} : !summary
  ladle.yield %KV : !cache
}
