// RUN: ladle-opt %s --mlir-print-debuginfo --mlir-print-local-scope \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-normalize-reads))' \
// RUN:   | FileCheck %s

// The name stays with the value that the author named; what helps to compute
// it keeps the line.

// CHECK: ladle.read %S, %q {{.*}} loc("r.ladle":7:9)
// CHECK: arith.addf {{.*}} loc("o"("r.ladle":7:9))
ladle.recurrence @r(
    token %q: tensor<4x8xf32>, token %v: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> (y: tensor<4x8xf32>) {
  %0 = ladle.write %S, %q, %v : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  %y = ladle.read %0, %q : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("o"("r.ladle":7:9))
  ladle.yield %y, %0 : tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}
