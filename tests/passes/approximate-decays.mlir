// RUN: ladle-opt %s --pass-pipeline='builtin.module(ladle.recurrence(ladle-approximate-decays))' \
// RUN:   | FileCheck %s

// The decay of Mamba, and what else is made of exponentials.
ladle.recurrence @f(param %A: tensor<2x4xf32>, token %d: tensor<2x4xf32>,
    token %k: tensor<2x4xf32>, token %v: tensor<2x8xf32>,
    state %S: !ladle.state<2x4x8xf32>) -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %y = math.exp %r : tensor<2x8xf32>
  %e = math.exp %A : tensor<2x4xf32>
  %x = arith.mulf %e, %d : tensor<2x4xf32>
  %n = arith.negf %x : tensor<2x4xf32>
  %a = math.exp %n : tensor<2x4xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
  %b = math.exp %v : tensor<2x8xf32>
  %S2 = ladle.write %S1, %k, %b
      : !ladle.state<2x4x8xf32>, tensor<2x4xf32>, tensor<2x8xf32>
  ladle.yield %y, %S2 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}
// CHECK-LABEL: ladle.recurrence @f(
// CHECK: math.exp %{{.*}} : tensor<2x8xf32>
// CHECK: math.exp %A fastmath<afn>
// CHECK: arith.mulf
// CHECK: arith.negf
// CHECK: %[[A:.*]] = math.exp %{{.*}} fastmath<afn>
// CHECK: ladle.decay %{{.*}}, %[[A]]
// CHECK: math.exp %v : tensor<2x8xf32>

// A number costs nothing.
ladle.recurrence @number(token %g: tensor<2xf32>, token %k: tensor<2x4xf32>,
    state %S: !ladle.state<2x4x8xf32>) -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %a = math.exp %g : tensor<2xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2xf32>
  ladle.yield %r, %S1 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}
// CHECK-LABEL: ladle.recurrence @number(
// CHECK: math.exp %g : tensor<2xf32>

// A gate that is 1 / (1 + exp(-x)) is as accurate as others: its divisor is no
// decay.
ladle.recurrence @gate(token %g: tensor<2xf32>, token %k: tensor<2x4xf32>,
    state %S: !ladle.state<2x4x8xf32>) -> (y: tensor<2x8xf32>) {
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %e = math.exp %g : tensor<2xf32>
  %d = arith.addf %e, %one : tensor<2xf32>
  %a = arith.divf %one, %d : tensor<2xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2xf32>
  ladle.yield %r, %S1 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}
// CHECK-LABEL: ladle.recurrence @gate(
// CHECK: math.exp %g : tensor<2xf32>
