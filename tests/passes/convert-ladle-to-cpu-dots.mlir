// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule),convert-ladle-to-cpu,canonicalize)" | FileCheck %s

// Over 32 keys a row leaves 16 partial sums of its dot product, and 16 rows are
// summed together: 8 + 4 + 2 + 1 additions of a blend and a shuffle. The line that
// the output goes to and the query of the next head are asked for before.
// CHECK-LABEL: func.func @read(
// CHECK: %[[SUMS:.*]] = memref.alloca() {{.*}} : memref<16x16xf32>
// CHECK: %[[Q:.*]] = vector.load {{.*}} vector<32xf32>
// CHECK: scf.for %[[HEAD:.*]] =
// CHECK: memref.prefetch %[[Y:.*]][%{{.*}}, %[[HEAD]], %c0], write
// CHECK: memref.prefetch %{{.*}}[%{{.*}}, %c1, %c0], read
// CHECK: memref.prefetch %{{.*}}[%{{.*}}, %c1, %c16], read
// CHECK: scf.for %[[ROW:.*]] = %c0 to %c16 step %c1
// CHECK: %[[STATE:.*]] = vector.load %{{.*}}[%{{.*}}, %[[HEAD]], %[[ROW]], %c0]
// CHECK-DAG: %[[S0:.*]] = vector.extract_strided_slice %[[STATE]] {offsets = [0]
// CHECK-DAG: %[[Q0:.*]] = vector.extract_strided_slice %[[Q]] {offsets = [0]
// CHECK: %[[P0:.*]] = arith.mulf %[[S0]], %[[Q0]] : vector<16xf32>
// CHECK-DAG: %[[S1:.*]] = vector.extract_strided_slice %[[STATE]] {offsets = [16]
// CHECK-DAG: %[[Q1:.*]] = vector.extract_strided_slice %[[Q]] {offsets = [16]
// CHECK: %[[P1:.*]] = arith.mulf %[[S1]], %[[Q1]] : vector<16xf32>
// CHECK: %[[P:.*]] = arith.addf %[[P0]], %[[P1]]
// CHECK: vector.store %[[P]], %[[SUMS]][%[[ROW]], %c0]
// CHECK: }
// CHECK-NOT: vector.reduction
// CHECK: %[[R0:.*]] = vector.load %[[SUMS]][%c0, %c0]
// CHECK: %[[R4:.*]] = vector.load %[[SUMS]][%c4, %c0]
// CHECK: %[[NEAR:.*]] = vector.shuffle %[[R0]], %[[R4]] [0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31]
// CHECK: %[[FAR:.*]] = vector.shuffle %[[R0]], %[[R4]] [4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27]
// CHECK: arith.addf %[[NEAR]], %[[FAR]]
// CHECK-COUNT-14: arith.addf
// CHECK: vector.store %{{.*}}, %[[Y]]
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x16xf32>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x16xf32> to !ladle.state<2x32x16xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x16xf32>, tensor<1x32xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}

// A rest of 6 rows is summed as 4 and 2.
// CHECK-LABEL: func.func @rest(
// CHECK: vector.insert_strided_slice %{{.*}} {offsets = [0], strides = [1]} : vector<4xf32> into vector<6xf32>
// CHECK: vector.insert_strided_slice %{{.*}} {offsets = [4], strides = [1]} : vector<2xf32> into vector<6xf32>
ladle.step @rest of @r route(recurrent) form(decode) (token %q: tensor<1x16xf32>,
    state %p: !ladle.pool<1x16x6xf32>) -> (y: tensor<1x6xf32>) {
  %S = ladle.load_state %p : !ladle.pool<1x16x6xf32> to !ladle.state<1x16x6xf32>
  %y = ladle.read %S, %q : !ladle.state<1x16x6xf32>, tensor<1x16xf32> -> tensor<1x6xf32>
  ladle.yield %y : tensor<1x6xf32>
}
