// RUN: ladle-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-normalize-reads))' \
// RUN:   | FileCheck %s

// The example of the pass description.

// CHECK-LABEL: ladle.recurrence @read_after_decay_and_write(
// CHECK-SAME: token %[[A:.*]]: tensor<4xf32>, token %[[Q:.*]]: {{.*}}, token %[[K:.*]]: {{.*}}, token %[[V:.*]]: {{.*}}, state %[[S:.*]]: !ladle.state
// CHECK: %[[DECAYED:.*]] = ladle.decay %[[S]], %[[A]]
// CHECK: %[[NEXT:.*]] = ladle.write %[[DECAYED]], %[[K]], %[[V]]
// CHECK: %[[SPREAD:.*]] = ladle.broadcast %[[A]] dims [0] : tensor<4xf32> to tensor<4x64xf32>
// CHECK: %[[READ:.*]] = ladle.read %[[S]], %[[Q]]
// CHECK: %[[OLD:.*]] = arith.mulf %[[SPREAD]], %[[READ]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[K]], %[[Q]]
// CHECK: %[[DOT:.*]] = ladle.sum %[[PRODUCT]] dim 1 : tensor<4x64xf32> to tensor<4xf32>
// CHECK: %[[WEIGHT:.*]] = ladle.broadcast %[[DOT]] dims [0] : tensor<4xf32> to tensor<4x64xf32>
// CHECK: %[[NEW:.*]] = arith.mulf %[[WEIGHT]], %[[V]]
// CHECK: %[[Y:.*]] = arith.addf %[[OLD]], %[[NEW]]
// CHECK: ladle.yield %[[Y]], %[[NEXT]]
ladle.recurrence @read_after_decay_and_write(
    token %a: tensor<4xf32>, token %q: tensor<4x64xf32>,
    token %k: tensor<4x64xf32>, token %v: tensor<4x64xf32>,
    state %S: !ladle.state<4x64x64xf32>) -> (y: tensor<4x64xf32>) {
  %0 = ladle.decay %S, %a : !ladle.state<4x64x64xf32>, tensor<4xf32>
  %1 = ladle.write %0, %k, %v : !ladle.state<4x64x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>
  %y = ladle.read %1, %q : !ladle.state<4x64x64xf32>, tensor<4x64xf32> -> tensor<4x64xf32>
  ladle.yield %y, %1 : tensor<4x64xf32>, !ladle.state<4x64x64xf32>
}

// -----

// A vector decay scales the query; 2 and 3 heads meet at 6.

// CHECK-LABEL: ladle.recurrence @vector_decay
// CHECK: %[[A:.*]] = ladle.broadcast %a dims [0, 1] : tensor<2x8xf32> to tensor<6x8xf32>
// CHECK: %[[Q:.*]] = ladle.broadcast %q dims [0, 1] : tensor<3x8xf32> to tensor<6x8xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[A]], %[[Q]]
// CHECK: %[[Y:.*]] = ladle.read %S, %[[SCALED]] : <6x8x16xf32>, tensor<6x8xf32> -> tensor<6x16xf32>
// CHECK: ladle.yield %[[Y]]
ladle.recurrence @vector_decay(
    token %a: tensor<2x8xf32>, token %q: tensor<3x8xf32>,
    state %S: !ladle.state<6x8x16xf32>) -> (y: tensor<6x16xf32>) {
  %0 = ladle.decay %S, %a : !ladle.state<6x8x16xf32>, tensor<2x8xf32>
  %y = ladle.read %0, %q : !ladle.state<6x8x16xf32>, tensor<3x8xf32> -> tensor<6x16xf32>
  ladle.yield %y, %0 : tensor<6x16xf32>, !ladle.state<6x8x16xf32>
}

// -----

// Key and query have 2 heads: so has their product, even if the spec repeats
// them, and the sum of the products; only then are there 4.

// CHECK-LABEL: ladle.recurrence @grouped_heads
// CHECK: %[[READ:.*]] = ladle.read %S
// CHECK: %[[PRODUCT:.*]] = arith.mulf %k, %q : tensor<2x8xf32>
// CHECK: %[[DOT:.*]] = ladle.sum %[[PRODUCT]] dim 1 : tensor<2x8xf32> to tensor<2xf32>
// CHECK: %[[WEIGHT:.*]] = ladle.broadcast %[[DOT]] dims [0] : tensor<2xf32> to tensor<4x16xf32>
// CHECK: %[[NEW:.*]] = arith.mulf %[[WEIGHT]], %v : tensor<4x16xf32>
// CHECK: arith.addf %[[READ]], %[[NEW]]
ladle.recurrence @grouped_heads(
    token %q: tensor<2x8xf32>, token %k: tensor<2x8xf32>,
    token %v: tensor<4x16xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x16xf32>) {
  %repeated = ladle.broadcast %k dims [0, 1] : tensor<2x8xf32> to tensor<4x8xf32>
  %0 = ladle.write %S, %repeated, %v : !ladle.state<4x8x16xf32>, tensor<4x8xf32>, tensor<4x16xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x16xf32>, tensor<2x8xf32> -> tensor<4x16xf32>
  ladle.yield %y, %0 : tensor<4x16xf32>, !ladle.state<4x8x16xf32>
}

// -----

// All heads share key, value and query: what they add is computed once.

// CHECK-LABEL: ladle.recurrence @shared_by_all_heads
// CHECK: %[[NEW:.*]] = arith.mulf %{{.*}}, %v : tensor<1x16xf32>
// CHECK: ladle.broadcast %[[NEW]] dims [0, 1] : tensor<1x16xf32> to tensor<4x16xf32>
ladle.recurrence @shared_by_all_heads(
    token %q: tensor<1x8xf32>, token %k: tensor<1x8xf32>,
    token %v: tensor<1x16xf32>, state %S: !ladle.state<4x8x16xf32>)
    -> (y: tensor<4x16xf32>) {
  %0 = ladle.write %S, %k, %v : !ladle.state<4x8x16xf32>, tensor<1x8xf32>, tensor<1x16xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x16xf32>, tensor<1x8xf32> -> tensor<4x16xf32>
  ladle.yield %y, %0 : tensor<4x16xf32>, !ladle.state<4x8x16xf32>
}
