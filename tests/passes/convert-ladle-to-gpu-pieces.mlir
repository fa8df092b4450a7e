// RUN: ladle-opt %s --convert-ladle-to-gpu="threads=64 pieces=2 stages=2" --canonicalize --cse | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="threads=64" --canonicalize --cse > %t.default
// RUN: ladle-opt %s --convert-ladle-to-gpu="threads=64 pieces=1 stages=1" --canonicalize --cse | cmp - %t.default
// RUN: not ladle-opt %s --convert-ladle-to-gpu="threads=64 pieces=4" 2>&1 | FileCheck %s --check-prefix=PIECES
// RUN: not ladle-opt %s --convert-ladle-to-gpu="threads=64 stages=8" 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not ladle-opt %s --convert-ladle-to-gpu="pieces=17" 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not ladle-opt %s --convert-ladle-to-gpu="stages=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// 32 rows of 32 keys, two warps of 16 rows each, whose two stages are 8. Four
// copies, those of the first stage first, each started by the warp that waits
// for it. The first rows are read before the others are waited for.
// CHECK-LABEL: gpu.func @read(
// CHECK-SAME: %[[COPIES:[^:]*]] : memref<4xi64, #gpu.address_space<workgroup>>, %[[TILE:[^:]*]] : memref<32x32xf32, #gpu.address_space<workgroup>>
// CHECK: memref.dma_start %{{.*}}[%{{.*}}, %{{.*}}, %c0, %c0], %[[TILE]][%c0, %c0], %c256, %[[COPIES]][%c0]
// CHECK: memref.dma_start %{{.*}}, %[[TILE]][%c16, %c0], %c256, %[[COPIES]][%c2] {ladle.warp = 1 : i32}
// CHECK: memref.dma_start %{{.*}}, %[[TILE]][%c8, %c0], %c256, %[[COPIES]][%c1]
// CHECK: memref.dma_start %{{.*}}, %[[TILE]][%c24, %c0], %c256, %[[COPIES]][%c3] {ladle.warp = 1 : i32}
// CHECK-NOT: dma_start
// CHECK: memref.dma_wait %[[COPIES]][%[[FIRST:.*]]], %c0
// CHECK-COUNT-2: vector.load %[[TILE]]
// CHECK: %[[SECOND:.*]] = arith.addi %[[FIRST]], %c1
// CHECK: memref.dma_wait %[[COPIES]][%[[SECOND]]], %c0
// CHECK-COUNT-2: vector.load %[[TILE]]
// CHECK-NOT: vector.load %[[TILE]]

// PIECES: error: pieces must divide the 2 warps of a block, got 4
// PIECES: note: more threads, or more rows in a block, give more warps
// STAGES: error: stages must divide the 4 rows of a thread, got 8
// STAGES: note: fewer threads, or more rows in a block, give a thread more rows
// RANGE: error: pieces and stages must be 0 to 16, got 17 and 0
// NEGATIVE: error: pieces and stages must be 0 to 16, got 0 and -1
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x32xf32>) -> (y: tensor<2x32xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x32xf32> to !ladle.state<2x32x32xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x32xf32>, tensor<1x32xf32> -> tensor<2x32xf32>
  ladle.yield %y : tensor<2x32xf32>
}
