// RUN: ladle-opt %s --ladle-build-prefill="routes=inner scans-prompts" \
// RUN:   2>/dev/null | FileCheck %s
// RUN: ladle-opt %s --ladle-build-prefill="routes=outer drafts=3 page=8 scans-prompts" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=OUTER
// RUN: ladle-opt %s --ladle-build-prefill="routes=kv_only page=8 scans-prompts" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=NONE
// RUN: ladle-opt %s --ladle-build-prefill="routes=inner" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=CHUNK
// RUN: ladle-opt %s --ladle-build-prefill="routes=inner carries-state folds-by-chunk scans-prompts" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=FOLDS

// Heads of one value: the step of recurrent, which takes neither entries nor a
// chunk.
ladle.recurrence @channels(token %x: tensor<4x1xf32>, token %B: tensor<1x8xf32>,
    token %a: tensor<4x8xf32>, state %S: !ladle.state<4x8x1xf32>)
    -> (y: tensor<4x1xf32>) {
  %y = ladle.read %S, %B : !ladle.state<4x8x1xf32>, tensor<1x8xf32>
       -> tensor<4x1xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
  %S2 = ladle.write %S1, %B, %x
      : !ladle.state<4x8x1xf32>, tensor<1x8xf32>, tensor<4x1xf32>
  ladle.yield %y, %S2 : tensor<4x1xf32>, !ladle.state<4x8x1xf32>
}

// CHECK-LABEL: ladle.step @channels_inner_prefill_scan of @channels route(inner) form(prefill_scan)
// CHECK-NOT: buffer
// CHECK-NOT: drafts
// CHECK-SAME: state %[[POOL:[^:]*]]: !ladle.pool<4x8x1xf32>
// CHECK-NEXT: %[[S:.*]] = ladle.load_state %[[POOL]]
// CHECK-NEXT: %[[Y:.*]] = ladle.read %[[S]], %B
// CHECK-NEXT: %[[S1:.*]] = ladle.decay %[[S]], %a
// CHECK-NEXT: %[[S2:.*]] = ladle.write %[[S1]], %B, %x
// CHECK-NEXT: ladle.store_state %[[S2]], %[[POOL]]
// CHECK-NEXT: ladle.yield %[[Y]]
// CHECK-NOT: form(prefill
// OUTER: @channels_outer_prefill_scan of @channels route(outer) form(prefill_scan)
// OUTER-NOT: buffer
// OUTER: ladle.yield
// A prompt that stays entries is another thing.
// NONE-NOT: form(prefill
// CHUNK: form(prefill_fold)
// CHUNK: form(prefill_entries)
// CHUNK-NOT: form(prefill_scan)
// Nor does one stop where a chunk ends.
// FOLDS-NOT: form(prefill

// What is written waits for the token before, and so does a carry.
ladle.recurrence @serial(token %k: tensor<2x4xf32>, token %v: tensor<2x4xf32>,
    carry %c: tensor<2x4xf32>, state %S: !ladle.state<2x4x4xf32>)
    -> (y: tensor<2x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x4xf32>, tensor<2x4xf32>
       -> tensor<2x4xf32>
  %u = math.tanh %r : tensor<2x4xf32>
  %w = arith.addf %u, %c : tensor<2x4xf32>
  %S1 = ladle.write %S, %k, %w
      : !ladle.state<2x4x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  ladle.yield %r, %u, %S1
      : tensor<2x4xf32>, tensor<2x4xf32>, !ladle.state<2x4x4xf32>
}

// CHECK-LABEL: ladle.step @serial_inner_prefill_scan
// CHECK: ladle.read
// CHECK: math.tanh
// CHECK: ladle.store_state
// CHECK: ladle.yield %{{.*}}, %{{.*}} : tensor<2x4xf32>, tensor<2x4xf32>
