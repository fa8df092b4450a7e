// RUN: ladle-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-normalize-reads))' \
// RUN:   | FileCheck %s

// Decays move before writes and become one.

// CHECK-LABEL: ladle.recurrence @decay_after_write
// CHECK-DAG: %[[FACTOR:.*]] = arith.mulf %a, %b : tensor<4xf32>
// CHECK-DAG: %[[SPREAD:.*]] = ladle.broadcast %b dims [0] : tensor<4xf32> to tensor<4x8xf32>
// CHECK-DAG: %[[KEY:.*]] = arith.mulf %[[SPREAD]], %k
// CHECK-DAG: %[[DECAYED:.*]] = ladle.decay %S, %[[FACTOR]]
// CHECK: %[[NEXT:.*]] = ladle.write %[[DECAYED]], %[[KEY]], %v
// CHECK: ladle.yield %[[NEXT]]
ladle.recurrence @decay_after_write(
    token %a: tensor<4xf32>, token %b: tensor<4xf32>, token %k: tensor<4x8xf32>,
    token %v: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<4xf32>
  %1 = ladle.write %0, %k, %v : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %2 = ladle.decay %1, %b : !ladle.state<4x8x8xf32>, tensor<4xf32>
  ladle.yield %2 : !ladle.state<4x8x8xf32>
}

// -----

// A number a head and a vector make a vector.

// CHECK-LABEL: ladle.recurrence @mixed_decays
// CHECK: %[[SPREAD:.*]] = ladle.broadcast %b dims [0] : tensor<4xf32> to tensor<4x8xf32>
// CHECK: %[[FACTOR:.*]] = arith.mulf %[[SPREAD]], %{{.*}} : tensor<4x8xf32>
// CHECK: %[[NEXT:.*]] = ladle.decay %S, %[[FACTOR]] : <4x8x8xf32>, tensor<4x8xf32>
// CHECK: ladle.yield %[[NEXT]]
ladle.recurrence @mixed_decays(
    token %a: tensor<2x8xf32>, token %b: tensor<4xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> () {
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<2x8xf32>
  %1 = ladle.decay %0, %b : !ladle.state<4x8x8xf32>, tensor<4xf32>
  ladle.yield %1 : !ladle.state<4x8x8xf32>
}

// -----

// Gated delta rule: two reads of the argument are left, each scaled.

// CHECK-LABEL: ladle.recurrence @gated_delta_rule
// CHECK: %[[DECAYED:.*]] = ladle.decay %S, %alpha
// CHECK: %[[P:.*]] = ladle.read %S, %k
// CHECK: ladle.write %[[DECAYED]], %k
// CHECK: %[[Y:.*]] = ladle.read %S, %q
// CHECK-NOT: ladle.read
// CHECK-NOT: ladle.write
ladle.recurrence @gated_delta_rule(
    token %q: tensor<2x8xf32>, token %k: tensor<2x8xf32>,
    token %v: tensor<4x8xf32>, token %alpha: tensor<4xf32>,
    token %beta: tensor<4xf32>, state %S: !ladle.state<4x8x8xf32>)
    -> (y: tensor<4x8xf32>) {
  %0 = ladle.decay %S, %alpha : !ladle.state<4x8x8xf32>, tensor<4xf32>
  %p = ladle.read %0, %k : !ladle.state<4x8x8xf32>, tensor<2x8xf32> -> tensor<4x8xf32>
  %e = arith.subf %v, %p : tensor<4x8xf32>
  %b = ladle.broadcast %beta dims [0] : tensor<4xf32> to tensor<4x8xf32>
  %u = arith.mulf %b, %e : tensor<4x8xf32>
  %1 = ladle.write %0, %k, %u : !ladle.state<4x8x8xf32>, tensor<2x8xf32>, tensor<4x8xf32>
  %y = ladle.read %1, %q : !ladle.state<4x8x8xf32>, tensor<2x8xf32> -> tensor<4x8xf32>
  ladle.yield %y, %1 : tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// Reads before and after a write with one query become one read.

// CHECK-LABEL: ladle.recurrence @same_read
// CHECK: ladle.read %S, %k
// CHECK-NOT: ladle.read
ladle.recurrence @same_read(
    token %k: tensor<4x8xf32>, token %v: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x8xf32>)
    -> (before: tensor<4x8xf32>, after: tensor<4x8xf32>) {
  %before = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %0 = ladle.write %S, %k, %v : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %after = ladle.read %0, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  ladle.yield %before, %after, %0 : tensor<4x8xf32>, tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// A version that is only read, a read that is not used, one head, rank 1.

// CHECK-LABEL: ladle.recurrence @side_versions
// CHECK-NOT: ladle.write
// CHECK: ladle.read %S, %q
// CHECK-NOT: ladle.write
// CHECK: ladle.yield %{{.*}}, %S
ladle.recurrence @side_versions(
    token %q: tensor<1x1x8xf32>, token %k: tensor<1x1x8xf32>,
    token %v: tensor<1x1x8xf32>, state %S: !ladle.state<1x8x8xbf16>)
    -> (y: tensor<1x1x8xf32>) {
  %0 = ladle.write %S, %k, %v : !ladle.state<1x8x8xbf16>, tensor<1x1x8xf32>, tensor<1x1x8xf32>
  %y = ladle.read %0, %q : !ladle.state<1x8x8xbf16>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  %unused = ladle.read %0, %k : !ladle.state<1x8x8xbf16>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  ladle.yield %y, %S : tensor<1x1x8xf32>, !ladle.state<1x8x8xbf16>
}

// -----

// Nothing to do without states.

// CHECK-LABEL: ladle.recurrence @no_state
// CHECK: ladle.yield %x
ladle.recurrence @no_state(token %x: tensor<1x1xf32>) -> (y: tensor<1x1xf32>) {
  ladle.yield %x : tensor<1x1xf32>
}
