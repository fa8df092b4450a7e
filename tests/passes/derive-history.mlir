// RUN: ladle-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(ladle.recurrence(ladle-derive-history))' \
// RUN:   | FileCheck %s

// The delta rule: the value is affine, everything else token-only.

// CHECK-LABEL: ladle.recurrence @delta_rule
// CHECK-SAME: ladle.routes = [#ladle.route<recurrent>, #ladle.route<outer>, #ladle.route<inner>, #ladle.route<adjoint>, #ladle.route<kv_only>]
// CHECK: ladle.decay %S, %a {ladle.class = #ladle.operand_class<token_only>}
// CHECK: ladle.read %S, %k {ladle.class = #ladle.operand_class<token_only>}
// CHECK: ladle.write %{{.*}}, %k, %{{.*}} {ladle.class = #ladle.operand_class<affine>, ladle.key_class = #ladle.operand_class<token_only>}
ladle.recurrence @delta_rule(
    token %a: tensor<4xf32>, token %k: tensor<4x8xf32>,
    token %v: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>)
    -> (y: tensor<4x8xf32>) {
  %0 = ladle.decay %S, %a : !ladle.state<4x8x8xf32>, tensor<4xf32>
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %b = ladle.broadcast %a dims [0] : tensor<4xf32> to tensor<4x8xf32>
  %n = arith.negf %p : tensor<4x8xf32>
  %d = arith.divf %n, %b : tensor<4x8xf32>
  %e = arith.mulf %b, %d : tensor<4x8xf32>
  %u = arith.addf %v, %e : tensor<4x8xf32>
  %1 = ladle.write %0, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %p, %1 : tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// What becomes of a read outside of the state does not matter: an output that
// is not affine, a carry that comes from a read.

// CHECK-LABEL: ladle.recurrence @output_not_affine
// CHECK-SAME: #ladle.route<adjoint>
// CHECK: ladle.write {{.*}} {ladle.class = #ladle.operand_class<token_only>, ladle.key_class = #ladle.operand_class<token_only>}
ladle.recurrence @output_not_affine(
    token %k: tensor<4x8xf32>, token %v: tensor<4x8xf32>,
    carry %c: tensor<4x8xf32>, state %S: !ladle.state<4x8x8xf32>)
    -> (y: tensor<4x8xf32>) {
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %y = math.tanh %p : tensor<4x8xf32>
  %u = arith.addf %v, %c : tensor<4x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %y, %p, %0 : tensor<4x8xf32>, tensor<4x8xf32>, !ladle.state<4x8x8xf32>
}

// -----

// A number a head may be computed after it has been repeated, or be constant.

// CHECK-LABEL: ladle.recurrence @numbers_a_head
// CHECK-SAME: #ladle.route<adjoint>
ladle.recurrence @numbers_a_head(
    token %a: tensor<2xf32>, token %b: tensor<4xf32>, token %k: tensor<4x8xf32>,
    state %S: !ladle.state<4x8x8xf32>) -> () {
  %half = arith.constant dense<0.5> : tensor<4x8xf32>
  %p = ladle.read %S, %k : !ladle.state<4x8x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %0 = ladle.broadcast %a dims [0] : tensor<2xf32> to tensor<4x8xf32>
  %1 = ladle.broadcast %b dims [0] : tensor<4xf32> to tensor<4x8xf32>
  %2 = arith.mulf %0, %1 : tensor<4x8xf32>
  %3 = ladle.sigmoid %2 : tensor<4x8xf32>
  %4 = arith.mulf %3, %half : tensor<4x8xf32>
  %u = arith.mulf %p, %4 : tensor<4x8xf32>
  %5 = ladle.write %S, %k, %u : !ladle.state<4x8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  ladle.yield %5 : !ladle.state<4x8x8xf32>
}
