// RUN: ladle-opt %s --split-input-file --canonicalize | FileCheck %s

// CHECK-LABEL: ladle.recurrence @same_type
// CHECK-NEXT: ladle.yield %x
ladle.recurrence @same_type(token %x: tensor<4x8xf32>) -> (y: tensor<4x8xf32>) {
  %0 = ladle.broadcast %x dims [0, 1] : tensor<4x8xf32> to tensor<4x8xf32>
  ladle.yield %0 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: ladle.recurrence @constant
// CHECK-NEXT: %[[C:.*]] = arith.constant dense<2.000000e+00> : tensor<4x8xf32>
// CHECK-NEXT: ladle.yield %[[C]]
ladle.recurrence @constant() -> (y: tensor<4x8xf32>) {
  %two = arith.constant dense<2.0> : tensor<1xf32>
  %0 = ladle.broadcast %two dims [0] : tensor<1xf32> to tensor<4x8xf32>
  ladle.yield %0 : tensor<4x8xf32>
}

// -----

// Repeating what was repeated is repeating once.

// CHECK-LABEL: ladle.recurrence @twice
// CHECK-NEXT: %[[Y:.*]] = ladle.broadcast %x dims [0, 3] : tensor<2x8xf32> to tensor<8x3x5x8xf32>
// CHECK-NEXT: ladle.yield %[[Y]]
ladle.recurrence @twice(token %x: tensor<2x8xf32>) -> (y: tensor<8x3x5x8xf32>) {
  %0 = ladle.broadcast %x dims [0, 2] : tensor<2x8xf32> to tensor<4x3x8xf32>
  %1 = ladle.broadcast %0 dims [0, 1, 3] : tensor<4x3x8xf32> to tensor<8x3x5x8xf32>
  ladle.yield %1 : tensor<8x3x5x8xf32>
}
