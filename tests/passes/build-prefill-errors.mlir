// RUN: not ladle-opt %s --ladle-build-prefill=chunk=0 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ladle-opt %s --ladle-build-prefill=chunk=257 2>&1 | FileCheck %s --check-prefix=CHUNK
// RUN: not ladle-opt %s --ladle-build-prefill=capacity=0 2>&1 | FileCheck %s --check-prefix=CAPACITY
// RUN: not ladle-opt %s --ladle-build-prefill=routes=sideways 2>&1 | FileCheck %s --check-prefix=ROUTE
// RUN: not ladle-opt %s --ladle-build-prefill=routes=adjoint 2>&1 | FileCheck %s --check-prefix=ADJOINT

// NONE: error: a chunk must have 1 to 256 tokens, got 0
// CHUNK: error: a chunk must have 1 to 256 tokens, got 257
// CAPACITY: error: the capacity must be 1 to 1024, got 0
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
