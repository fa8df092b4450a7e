// RUN: ladle-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-normalize-reads))' \
// RUN:   | FileCheck %s

// Writes of rank R = 3, a read of rank 1: the products are added.

// CHECK-LABEL: ladle.recurrence @write_rank
// CHECK: %[[Q:.*]] = ladle.broadcast %q dims [0, 2] : tensor<4x8xf32> to tensor<4x3x8xf32>
// CHECK: %[[PRODUCT:.*]] = arith.mulf %k, %[[Q]] : tensor<4x3x8xf32>
// CHECK: %[[DOT:.*]] = ladle.sum %[[PRODUCT]] dim 2 : tensor<4x3x8xf32> to tensor<4x3xf32>
// CHECK: %[[WEIGHT:.*]] = ladle.broadcast %[[DOT]] dims [0, 1] : tensor<4x3xf32> to tensor<4x3x16xf32>
// CHECK: %[[TERMS:.*]] = arith.mulf %[[WEIGHT]], %v : tensor<4x3x16xf32>
// CHECK: ladle.sum %[[TERMS]] dim 1 : tensor<4x3x16xf32> to tensor<4x16xf32>
ladle.recurrence @write_rank(
    token %q: tensor<4x8xf32>, token %k: tensor<4x3x8xf32>,
    token %v: tensor<4x3x16xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x16xf32>) {
  %0 = ladle.write %S, %k, %v : !ladle.state<4x8x16xf32>, tensor<4x3x8xf32>, tensor<4x3x16xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x16xf32>, tensor<4x8xf32> -> tensor<4x16xf32>
  ladle.yield %y, %0 : tensor<4x16xf32>, !ladle.state<4x8x16xf32>
}

// -----

// A write of rank 1, two queries.

// CHECK-LABEL: ladle.recurrence @query_rank
// CHECK: %[[K:.*]] = ladle.broadcast %k dims [0, 2] : tensor<4x8xf32> to tensor<4x2x8xf32>
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[K]], %q : tensor<4x2x8xf32>
// CHECK: %[[DOT:.*]] = ladle.sum %[[PRODUCT]] dim 2 : tensor<4x2x8xf32> to tensor<4x2xf32>
// CHECK: %[[WEIGHT:.*]] = ladle.broadcast %[[DOT]] dims [0, 1] : tensor<4x2xf32> to tensor<4x2x16xf32>
// CHECK: %[[V:.*]] = ladle.broadcast %v dims [0, 2] : tensor<4x16xf32> to tensor<4x2x16xf32>
// CHECK: arith.mulf %[[WEIGHT]], %[[V]] : tensor<4x2x16xf32>
ladle.recurrence @query_rank(
    token %q: tensor<4x2x8xf32>, token %k: tensor<4x8xf32>,
    token %v: tensor<4x16xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x2x16xf32>) {
  %0 = ladle.write %S, %k, %v : !ladle.state<4x8x16xf32>, tensor<4x8xf32>, tensor<4x16xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x16xf32>, tensor<4x2x8xf32> -> tensor<4x2x16xf32>
  ladle.yield %y, %0 : tensor<4x2x16xf32>, !ladle.state<4x8x16xf32>
}

// -----

// Two queries, writes of rank 3: every query meets every key.

// CHECK-LABEL: ladle.recurrence @both_ranks
// CHECK: %[[K:.*]] = ladle.broadcast %k dims [0, 2, 3] : tensor<4x3x8xf32> to tensor<4x2x3x8xf32>
// CHECK: %[[Q:.*]] = ladle.broadcast %q dims [0, 1, 3] : tensor<4x2x8xf32> to tensor<4x2x3x8xf32>
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[K]], %[[Q]]
// CHECK: %[[DOT:.*]] = ladle.sum %[[PRODUCT]] dim 3 : tensor<4x2x3x8xf32> to tensor<4x2x3xf32>
// CHECK: %[[WEIGHT:.*]] = ladle.broadcast %[[DOT]] dims [0, 1, 2] : tensor<4x2x3xf32> to tensor<4x2x3x16xf32>
// CHECK: %[[V:.*]] = ladle.broadcast %v dims [0, 2, 3] : tensor<4x3x16xf32> to tensor<4x2x3x16xf32>
// CHECK: %[[TERMS:.*]] = arith.mulf %[[WEIGHT]], %[[V]]
// CHECK: ladle.sum %[[TERMS]] dim 2 : tensor<4x2x3x16xf32> to tensor<4x2x16xf32>
ladle.recurrence @both_ranks(
    token %q: tensor<4x2x8xf32>, token %k: tensor<4x3x8xf32>,
    token %v: tensor<4x3x16xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x2x16xf32>) {
  %0 = ladle.write %S, %k, %v : !ladle.state<4x8x16xf32>, tensor<4x3x8xf32>, tensor<4x3x16xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x16xf32>, tensor<4x2x8xf32> -> tensor<4x2x16xf32>
  ladle.yield %y, %0 : tensor<4x2x16xf32>, !ladle.state<4x8x16xf32>
}
