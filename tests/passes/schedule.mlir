// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule))" | FileCheck %s

// What depends on a read runs along the rows; what reduces it over dv is of
// the next phase; the store waits for the last read of the old rows.
// CHECK-LABEL: ladle.step @f
// CHECK-SAME: ladle.head_group = 2 : index
// CHECK-SAME: ladle.last_phase = 3 : index
// CHECK-SAME: ladle.levels = array<i64: 1, 2>
// CHECK-SAME: ladle.tile_rows = 16 : index
ladle.step @f of @r route(recurrent) form(decode) (token %k: tensor<1x4xf32>,
    state %p: !ladle.pool<2x4x4xf32>) -> (n: tensor<2xf32>, kk: tensor<1x4xf32>) {
  // CHECK: ladle.load_state {{.*}} {ladle.phase = 0 : index}
  %S = ladle.load_state %p : !ladle.pool<2x4x4xf32> to !ladle.state<2x4x4xf32>
  // CHECK: arith.mulf {{.*}} {ladle.phase = 0 : index}
  %kk = arith.mulf %k, %k : tensor<1x4xf32>
  // CHECK: ladle.read {{.*}} {ladle.phase = 1 : index}
  %r = ladle.read %S, %k : !ladle.state<2x4x4xf32>, tensor<1x4xf32> -> tensor<2x4xf32>
  // CHECK: arith.mulf {{.*}} {ladle.phase = 1 : index}
  %rr = arith.mulf %r, %r : tensor<2x4xf32>
  // CHECK: ladle.sum {{.*}} {ladle.phase = 2 : index}
  %n = ladle.sum %rr dim 1 : tensor<2x4xf32> to tensor<2xf32>
  %nb = ladle.broadcast %n dims [0] : tensor<2xf32> to tensor<2x4xf32>
  // CHECK: arith.mulf {{.*}} {ladle.phase = 3 : index}
  %u = arith.mulf %nb, %r : tensor<2x4xf32>
  %S1 = ladle.write %S, %k, %u : !ladle.state<2x4x4xf32>, tensor<1x4xf32>, tensor<2x4xf32>
  // CHECK: ladle.store_state {{.*}} {ladle.phase = 3 : index}
  ladle.store_state %S1, %p : !ladle.state<2x4x4xf32>, !ladle.pool<2x4x4xf32>
  ladle.yield %n, %kk : tensor<2xf32>, tensor<1x4xf32>
}
