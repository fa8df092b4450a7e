// RUN: ladle-opt %s --ladle-build-bounded-attention | FileCheck %s

!cache = !ladle.buffer<[k : 2x8xbf16 @dk, v : 2x8xbf16 @dv], capacity = 33,
                       order = bounded, weight = exp>
!memory = !ladle.memory<taylor, 2x8x8xf32>
!summary = !ladle.summary<4x8xf32>

// What a prompt keeps is chosen after its last token: its step evicts nothing
// and notes nothing.
// CHECK: ladle.attention_step @a_decode of @a form(decode)
// CHECK-SAME: buffer %[[KV:[^:]*]]: {{.*}} memory %[[T:[^:]*]]: !ladle.memory
// CHECK-NEXT: ladle.append %[[KV]], %k, %v
// CHECK-NEXT: ladle.evict_from %[[KV]] into %[[T]] {budget = 32 : i64
// CHECK-NEXT: %[[EXACT:.*]] = ladle.attend %q, %[[KV]] from start to end scale 5.000000e-01
// CHECK-NEXT: %[[REST:.*]] = ladle.taylor %q, %[[T]]
// CHECK-NEXT: ladle.merge %[[EXACT]], %[[REST]]
// CHECK-NEXT: %[[O:.*]] = ladle.normalize
// CHECK-NEXT: ladle.note_weights %q, %[[KV]]
// CHECK-NEXT: ladle.yield %[[O]] : tensor<4x8xf32>
// CHECK: ladle.attention_step @a_prefill_select of @a form(prefill_select)
// CHECK-NEXT: ladle.append
// CHECK-NEXT: ladle.attend
// CHECK-NEXT: ladle.taylor
// CHECK-NEXT: ladle.merge
// CHECK-NEXT: ladle.normalize
// CHECK-NEXT: ladle.yield
ladle.attention @a(token %q: tensor<4x8xf32>, token %k: tensor<2x8xf32>,
                   token %v: tensor<2x8xf32>, buffer %KV: !cache,
                   memory %T: !memory)
    -> (o: tensor<4x8xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !cache, tensor<2x8xf32>, tensor<2x8xf32>
  %kept, %folded = ladle.evict %next into %T
      {budget = 32 : i64, pool = 5 : i64, queries = 8 : i64, recent = 8 : i64,
       sinks = 0 : i64, variance = 2.0e+02 : f64} : !cache, !memory -> !memory
  %exact = ladle.softmax %q, %kept scale 0.5
      : tensor<4x8xf32>, !cache -> !summary
  %rest = ladle.taylor %q, %folded scale 0.5 limit 0.0
      : tensor<4x8xf32>, !memory -> !summary
  %all = ladle.merge %exact, %rest : !summary
  %o = ladle.normalize %all : !summary to tensor<4x8xf32>
  %seen = ladle.observe %q, %kept scale 0.5 : tensor<4x8xf32>, !cache
  ladle.yield %o, %seen, %folded : tensor<4x8xf32>, !cache, !memory
}

!segments = !ladle.buffer<[k : 2x8xbf16 @dk, v : 2x8xbf16 @dv], capacity = 28,
                          order = bounded, weight = exp>
!linear = !ladle.memory<linear, 2x8x8xf32>

// A segmented cache answers prompts with the step that decodes.
// CHECK: ladle.attention_step @s_decode of @s form(decode)
// CHECK: ladle.append
// CHECK-NEXT: ladle.fold_from %{{.*}} into %{{.*}} {segment = 16 : i64
// CHECK-NEXT: ^bb0(%[[KEY:.*]]: tensor<2x8xf32>):
// CHECK-NEXT: math.exp %[[KEY]]
// CHECK: ladle.recall %q, %M
// CHECK: ladle.once %M
// CHECK-NOT: ladle.attention_step
ladle.attention @s(token %q: tensor<4x8xf32>, token %k: tensor<2x8xf32>,
                   token %v: tensor<2x8xf32>, buffer %KV: !segments,
                   memory %M: !linear)
    -> (o: tensor<4x8xf32>) attributes {page_size = 0 : i64} {
  %next = ladle.cache_token %KV, %k, %v
      : !segments, tensor<2x8xf32>, tensor<2x8xf32>
  %kept, %folded = ladle.fold_segment %next into %M
      {segment = 16 : i64, sinks = 4 : i64, window = 8 : i64}
      : !segments, !linear {
  ^bb0(%key: tensor<2x8xf32>):
    %feature = math.exp %key : tensor<2x8xf32>
    ladle.yield %feature : tensor<2x8xf32>
  }
  %exact = ladle.softmax %q, %kept scale 0.5
      : tensor<4x8xf32>, !segments -> !summary
  %dot = ladle.normalize %exact : !summary to tensor<4x8xf32>
  %recalled = ladle.recall %q, %folded
      : tensor<4x8xf32>, !linear -> tensor<4x8xf32>
  %o = ladle.once %folded, %recalled, %dot : !linear, tensor<4x8xf32>
  ladle.yield %o, %kept, %folded : tensor<4x8xf32>, !segments, !linear
}
