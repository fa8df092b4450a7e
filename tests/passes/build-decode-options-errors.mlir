// RUN: not ladle-opt %s --ladle-build-decode=capacity=0 2>&1 | FileCheck %s --check-prefix=CAPACITY
// RUN: not ladle-opt %s --ladle-build-decode=entry-type=i8 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not ladle-opt %s --ladle-build-decode=routes=sideways 2>&1 | FileCheck %s --check-prefix=ROUTE
// RUN: not ladle-opt %s --ladle-build-decode=state-layout=dk 2>&1 | FileCheck %s --check-prefix=LAYOUT
// RUN: not ladle-opt %s --ladle-build-decode="capacity=12 page=-8" 2>&1 | FileCheck %s --check-prefix=PAGE

// PAGE: error: page must not be negative, got -8
// LAYOUT: error: states must lie dv_dk or dk_dv, got dk
// CAPACITY: error: the capacity must be 1 to 1024, got 0
// TYPE: error: entries must be f32, bf16 or f16, got i8
// ROUTE: error: unknown route 'sideways'
ladle.recurrence @f(token %k: tensor<1x4xf32>, state %S: !ladle.state<1x4x4xf32>)
    -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  ladle.yield %r, %S : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}
