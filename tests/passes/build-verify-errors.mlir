// RUN: not ladle-opt %s --ladle-build-verify=drafts=17 2>&1 | FileCheck %s --check-prefix=DRAFTS
// RUN: not ladle-opt %s --ladle-build-verify="drafts=8 capacity=15" 2>&1 | FileCheck %s --check-prefix=CAPACITY
// RUN: not ladle-opt %s --ladle-build-verify="drafts=4 routes=sideways" 2>&1 | FileCheck %s --check-prefix=ROUTE
// RUN: not ladle-opt %s --ladle-build-verify="drafts=4 routes=adjoint" 2>&1 | FileCheck %s --check-prefix=ADJOINT

// DRAFTS: error: a row must have 0 to 16 drafts and the capacity be twice as many, got 17 and 16
// CAPACITY: error: a row must have 0 to 16 drafts and the capacity be twice as many, got 8 and 15
// CAPACITY: note: the drafts of the next step must find free entries {{.*}}; set the capacity to 16 at least, or have fewer drafts
// ROUTE: error: unknown route 'sideways'
// ADJOINT: error: route 'adjoint' is not legal for 'f'
ladle.recurrence @f(token %k: tensor<1x4xf32>, state %S: !ladle.state<1x4x4xf32>)
    -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  %u = math.tanh %r : tensor<1x4xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %r, %S1 : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}
