// RUN: ladle-opt %s --split-input-file --canonicalize | FileCheck %s

// A decay by 1 and a write of 0 leave the state as it is.

// CHECK-LABEL: ladle.recurrence @no_change
// CHECK-NEXT: ladle.yield %S
ladle.recurrence @no_change(
    token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %zero = arith.constant dense<0.0> : tensor<4x8xf32>
  %0 = ladle.decay %S, %one : !ladle.state<4x8x8xf32>, tensor<4xf32>
  %1 = ladle.write %0, %k, %zero : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %2 = ladle.write %1, %zero, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %2 : !ladle.state<4x8x8xf32>
}

// -----

// A decay that is not 1 everywhere stays.

// CHECK-LABEL: ladle.recurrence @some_change
// CHECK: %[[NEXT:.*]] = ladle.decay
// CHECK: ladle.yield %[[NEXT]]
ladle.recurrence @some_change(state %S: !ladle.state<2x8x8xf32>) -> () {
  %a = arith.constant dense<[1.0, 0.5]> : tensor<2xf32>
  %0 = ladle.decay %S, %a : !ladle.state<2x8x8xf32>, tensor<2xf32>
  ladle.yield %0 : !ladle.state<2x8x8xf32>
}

// -----

// A state that nobody reads is not computed.

// CHECK-LABEL: ladle.recurrence @unused
// CHECK-NEXT: ladle.yield %S
ladle.recurrence @unused(token %k: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  %0 = ladle.write %S, %k, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %1 = ladle.read %0, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  ladle.yield %S : !ladle.state<4x8x8xf32>
}
