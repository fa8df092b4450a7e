// RUN: ladle-opt %s --ladle-build-prefill="routes=inner scans-prompts" \
// RUN:   --ladle-build-decode="routes=recurrent,outer" --ladle-read-updates \
// RUN:   2>/dev/null | FileCheck %s
// RUN: ladle-opt %s --ladle-build-prefill="routes=inner scans-prompts" \
// RUN:   --ladle-build-decode="routes=recurrent" \
// RUN:   --ladle-read-updates="batch=8192" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=SOME
// RUN: ladle-opt %s --ladle-build-prefill="routes=inner scans-prompts" \
// RUN:   --ladle-build-decode="routes=recurrent" \
// RUN:   --ladle-read-updates="batch=8191" \
// RUN:   2>/dev/null | FileCheck %s --check-prefix=FEW

// Of 2^15 channels that is a gain for prompts alone.
// SOME-LABEL: ladle.step @updates_recurrent_decode
// SOME: ladle.sum
// SOME-LABEL: ladle.step @updates_inner_prefill_scan
// SOME-NOT: ladle.sum
// SOME: ladle.yield
// FEW-LABEL: ladle.step @updates_recurrent_decode
// FEW: ladle.sum
// FEW-LABEL: ladle.step @updates_inner_prefill_scan
// FEW: ladle.sum

// A channel reads what it has just written: the products that the normal form
// has instead are gone. Two heads share a query.
ladle.recurrence @updates(token %v: tensor<4x1xf32>, token %k: tensor<1x8xf32>,
    token %q: tensor<2x8xf32>, token %a: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x1xf32>) -> (y: tensor<4x1xf32>) {
  %q4 = ladle.broadcast %q dims [0, 1] : tensor<2x8xf32> to tensor<4x8xf32>
  %aq = arith.mulf %a, %q4 : tensor<4x8xf32>
  %r = ladle.read %S, %aq : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
       -> tensor<4x1xf32>
  %k2 = ladle.broadcast %k dims [0, 1] : tensor<1x8xf32> to tensor<2x8xf32>
  %kq = arith.mulf %k2, %q : tensor<2x8xf32>
  %dot = ladle.sum %kq dim 1 : tensor<2x8xf32> to tensor<2xf32>
  %dots = ladle.broadcast %dot dims [0] : tensor<2xf32> to tensor<2x1xf32>
  %dots4 = ladle.broadcast %dots dims [0, 1]
      : tensor<2x1xf32> to tensor<4x1xf32>
  %w = arith.mulf %dots4, %v : tensor<4x1xf32>
  %y = arith.addf %r, %w : tensor<4x1xf32>
  %z = math.tanh %y : tensor<4x1xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
  %S2 = ladle.write %S1, %k, %v
      : !ladle.state<4x8x1xf32>, tensor<1x8xf32>, tensor<4x1xf32>
  ladle.yield %z, %S2 : tensor<4x1xf32>, !ladle.state<4x8x1xf32>
}

// Steps of other routes find the state with their entries.
// CHECK-LABEL: ladle.step @updates_outer_decode of
// CHECK: arith.mulf
// CHECK: ladle.read
// CHECK: arith.addf
// CHECK-LABEL: ladle.step @updates_recurrent_decode
// CHECK-NOT: arith
// CHECK: %[[S2:.*]] = ladle.write
// CHECK-NEXT: ladle.read %[[S2]], %q :
// CHECK-NOT: arith
// CHECK: ladle.yield
// CHECK-LABEL: ladle.step @updates_inner_prefill_scan
// CHECK-NOT: arith
// CHECK: %[[S:.*]] = ladle.load_state
// CHECK-NOT: arith
// CHECK: %[[S1:.*]] = ladle.decay %[[S]], %a
// CHECK-NEXT: %[[S2:.*]] = ladle.write %[[S1]], %k, %v
// CHECK-NEXT: %[[Y:.*]] = ladle.read %[[S2]], %q :
// CHECK-NOT: arith
// CHECK: ladle.store_state %[[S2]]
// CHECK: %[[Z:.*]] = math.tanh %[[Y]]
// CHECK: ladle.yield %[[Z]]
// CHECK-LABEL: ladle.recurrence @other_factors

// What only looks so is read as it was: another factor, another key, another
// value.
ladle.recurrence @other_factors(token %v: tensor<4x1xf32>,
    token %k: tensor<4x8xf32>, token %q: tensor<4x8xf32>,
    token %a: tensor<4x8xf32>, token %b: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x1xf32>)
    -> (x: tensor<4x1xf32>, y: tensor<4x1xf32>, z: tensor<4x1xf32>) {
  %bq = arith.mulf %b, %q : tensor<4x8xf32>
  %aq = arith.mulf %a, %q : tensor<4x8xf32>
  %kq = arith.mulf %k, %q : tensor<4x8xf32>
  %kb = arith.mulf %k, %b : tensor<4x8xf32>
  %dot = ladle.sum %kq dim 1 : tensor<4x8xf32> to tensor<4xf32>
  %dots = ladle.broadcast %dot dims [0] : tensor<4xf32> to tensor<4x1xf32>
  %other = ladle.sum %kb dim 1 : tensor<4x8xf32> to tensor<4xf32>
  %others = ladle.broadcast %other dims [0] : tensor<4xf32> to tensor<4x1xf32>
  %w = arith.mulf %dots, %v : tensor<4x1xf32>
  %wo = arith.mulf %others, %v : tensor<4x1xf32>
  %ww = arith.mulf %dots, %dots : tensor<4x1xf32>
  %rx = ladle.read %S, %bq : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
        -> tensor<4x1xf32>
  %ry = ladle.read %S, %aq : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
        -> tensor<4x1xf32>
  %rz = ladle.read %S, %aq : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
        -> tensor<4x1xf32>
  %x = arith.addf %rx, %w : tensor<4x1xf32>
  %y = arith.addf %ry, %wo : tensor<4x1xf32>
  %z = arith.addf %rz, %ww : tensor<4x1xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<4x8x1xf32>, tensor<4x8xf32>
  %S2 = ladle.write %S1, %k, %v
      : !ladle.state<4x8x1xf32>, tensor<4x8xf32>, tensor<4x1xf32>
  ladle.yield %x, %y, %z, %S2 : tensor<4x1xf32>, tensor<4x1xf32>,
      tensor<4x1xf32>, !ladle.state<4x8x1xf32>
}

// CHECK-LABEL: ladle.step @other_factors_inner_prefill_scan
// CHECK: %[[S:.*]] = ladle.load_state
// CHECK: ladle.read %[[S]],
// CHECK: ladle.read %[[S]],
// CHECK: ladle.read %[[S]],
// CHECK: ladle.write
// CHECK-NOT: ladle.read
// CHECK: ladle.yield
