// RUN: ladle-opt %s --ladle-to-steps="routes=recurrent state-layout=dk_dv" | FileCheck %s

// CHECK: ladle.step @f_recurrent_decode
// CHECK-SAME: state %[[POOL:.*]]: !ladle.pool<2x4x8xf32, dk_dv>
// CHECK: ladle.load_state %[[POOL]] : <2x4x8xf32, dk_dv> to <2x4x8xf32>
// CHECK: ladle.store_state %{{.*}}, %[[POOL]] : <2x4x8xf32>, <2x4x8xf32, dk_dv>
ladle.recurrence @f(token %k: tensor<2x4xf32>, token %v: tensor<2x8xf32>,
                    state %S: !ladle.state<2x4x8xf32>)
    -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %T = ladle.write %S, %k, %v : !ladle.state<2x4x8xf32>, tensor<2x4xf32>,
       tensor<2x8xf32>
  ladle.yield %r, %T : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}
