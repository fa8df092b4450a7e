// RUN: ladle-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// expected-error @+1 {{expected heads x dk x dv x type, got 2 dimensions}}
"test.op"() {t = !ladle.state<8x8xf32>} : () -> ()

// -----

// expected-error @+1 {{sizes must be positive, got 0x8x8}}
"test.op"() {t = !ladle.state<0x8x8xf32>} : () -> ()

// -----

// expected-error @+1 {{stored elements must be f32, bf16 or f16, got 'f64'}}
"test.op"() {t = !ladle.pool<1x8x8xf64>} : () -> ()

// -----

// expected-error @+1 {{unknown layout 'dk' of a pool, expected dv_dk or dk_dv}}
"test.op"() {t = !ladle.pool<1x8x8xf32, dk>} : () -> ()

// -----

// expected-error @+1 {{expected heads x size x type, got 3 dimensions}}
"test.op"() {t = !ladle.summary<1x8x8xf32>} : () -> ()

// -----

// expected-error @+1 {{a buffer needs at least one field}}
"test.op"() {t = !ladle.buffer<[], capacity = 1, order = ring, weight = linear>} : () -> ()

// -----

// expected-error @+1 {{capacity must not be negative, got -1}}
"test.op"() {t = !ladle.buffer<[k : 1x8xf32 @dk], capacity = -1, order = ring, weight = linear>} : () -> ()

// -----

// expected-error @+1 {{page must not be negative, got -8}}
"test.op"() {t = !ladle.buffer<[k : 1x8xf32 @dk], capacity = 12, order = ring, page = -8, weight = linear>} : () -> ()

// -----

// expected-error @+1 {{two fields are called 'k'}}
"test.op"() {t = !ladle.buffer<[k : 1x8xf32 @dk, k : 1x8xf32 @dk], capacity = 1, order = ring, weight = linear>} : () -> ()

// -----

// expected-error @+1 {{fields 'k0' and 'k1' on side @dk end in 8 and 9 channels}}
"test.op"() {t = !ladle.buffer<[k0 : 1x8xf32 @dk, k1 : 1x9xf32 @dk], capacity = 1, order = ring, weight = linear>} : () -> ()

// -----

// expected-error @+1 {{expected @dk, @dv or @scalar, got @up}}
"test.op"() {f = #ladle.field<k : 1x8xf32 @up>} : () -> ()

// -----

// expected-error @+1 {{field 'k' must have 1 to 3 positive dimensions, heads first}}
"test.op"() {f = #ladle.field<k : 1x2x3x4xf32 @dk>} : () -> ()

// -----

// expected-error @+1 {{field 'k' on side @dk must be [heads, (R,) channels], got 1 dimensions}}
"test.op"() {f = #ladle.field<k : 4xf32 @dk>} : () -> ()

// -----

// expected-error @+1 {{field 'g' on side @scalar must be [heads], got 2 dimensions}}
"test.op"() {f = #ladle.field<g : 4x8xf32 @scalar>} : () -> ()

// -----

// expected-error @+1 {{field 'k' must hold f32, bf16 or f16, got 'i8'}}
"test.op"() {f = #ladle.field<k : 4x8xi8 @dk>} : () -> ()

// -----

// expected-error @+1 {{a field needs a name}}
"test.op"() {f = #ladle.field<"" : 4x8xf32 @dk>} : () -> ()
