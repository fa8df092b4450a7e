// RUN: ladle-opt %s --ladle-to-steps="routes=inner capacity=4" --convert-ladle-to-gpu | FileCheck %s --check-prefix=ALL
// RUN: ladle-opt %s --ladle-to-steps="routes=inner capacity=4" --convert-ladle-to-gpu=forms=1 | FileCheck %s --check-prefix=DECODE
// RUN: ladle-opt %s --ladle-to-steps="routes=inner capacity=4" --convert-ladle-to-gpu=forms=2 | FileCheck %s --check-prefix=FOLDING
// RUN: ladle-opt %s --ladle-to-steps="routes=inner capacity=4" --convert-ladle-to-gpu=forms=5 | FileCheck %s --check-prefix=APART
// RUN: not ladle-opt %s --ladle-to-steps="routes=recurrent" --convert-ladle-to-gpu=forms=2 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ladle-opt %s --convert-ladle-to-gpu=forms=32 2>&1 | FileCheck %s --check-prefix=RANGE

// One kernel holds rows that fold and rows that do not; a flush has its own.
// ALL-COUNT-2: gpu.func
// ALL-NOT: gpu.func

// Neither the threshold nor the pool is stored to.
// DECODE: gpu.func @f_inner_decode(
// DECODE-SAME: %[[THRESHOLD:[^:]*]]: memref<1xi32>
// DECODE-NOT: memref.load %[[THRESHOLD]]
// DECODE-NOT: gpu.func

// FOLDING: gpu.func @f_inner_decode_fold(
// FOLDING-SAME: %[[THRESHOLD:[^:]*]]: memref<1xi32>
// FOLDING-NOT: memref.load %[[THRESHOLD]]
// FOLDING-NOT: gpu.func

// APART: gpu.func @f_inner_decode(
// APART: gpu.func @f_inner_fold(

// NONE: error: route 'recurrent' has none of the forms that kernels are to hold
// NONE: note: a route without a buffer has the form decode alone
// RANGE: error: forms must be a sum of 1, 2, 4, 8 and 16, got 32
ladle.recurrence @f(token %k: tensor<1x32xf32>, token %v: tensor<1x16xf32>,
                    state %S: !ladle.state<1x32x16xf32>)
    -> (y: tensor<1x16xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x32x16xf32>, tensor<1x32xf32>
       -> tensor<1x16xf32>
  %T = ladle.write %S, %k, %v : !ladle.state<1x32x16xf32>, tensor<1x32xf32>,
       tensor<1x16xf32>
  ladle.yield %r, %T : tensor<1x16xf32>, !ladle.state<1x32x16xf32>
}
