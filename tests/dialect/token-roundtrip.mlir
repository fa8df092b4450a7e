// RUN: ladle-opt %s | ladle-opt | FileCheck %s

// CHECK-LABEL: ladle.recurrence @functions
ladle.recurrence @functions(token %x: tensor<4x8xf32>, token %a: tensor<4x3xf32>,
    carry %w: tensor<4x2x8xf32>, param %h: tensor<4x3x8xf32>) -> () {
  // CHECK: ladle.broadcast %x dims [0, 2] : tensor<4x8xf32> to tensor<8x2x8xf32>
  %0 = ladle.broadcast %x dims [0, 2] : tensor<4x8xf32> to tensor<8x2x8xf32>
  // CHECK: ladle.sum %x dim 1 : tensor<4x8xf32> to tensor<4xf32>
  %1 = ladle.sum %x dim 1 : tensor<4x8xf32> to tensor<4xf32>
  // CHECK: ladle.sigmoid %x : tensor<4x8xf32>
  %2 = ladle.sigmoid %x : tensor<4x8xf32>
  // CHECK: ladle.silu %x : tensor<4x8xf32>
  %3 = ladle.silu %x : tensor<4x8xf32>
  // CHECK: ladle.softplus %x : tensor<4x8xf32>
  %4 = ladle.softplus %x : tensor<4x8xf32>
  // CHECK: ladle.elu %x : tensor<4x8xf32>
  %5 = ladle.elu %x : tensor<4x8xf32>
  // CHECK: ladle.l2norm %x eps 9.9999999999999995E-7 : tensor<4x8xf32>
  %6 = ladle.l2norm %x eps 1.0e-6 : tensor<4x8xf32>
  // CHECK: ladle.rotate %x, %a : tensor<4x8xf32>, tensor<4x3xf32>
  %7 = ladle.rotate %x, %a : tensor<4x8xf32>, tensor<4x3xf32>
  // CHECK: ladle.shift %w, %x : tensor<4x2x8xf32>, tensor<4x8xf32>
  %8 = ladle.shift %w, %x : tensor<4x2x8xf32>, tensor<4x8xf32>
  // CHECK: ladle.conv %w, %x, %h : tensor<4x2x8xf32>, tensor<4x8xf32>, tensor<4x3x8xf32>
  %9 = ladle.conv %w, %x, %h : tensor<4x2x8xf32>, tensor<4x8xf32>, tensor<4x3x8xf32>
  ladle.yield %8 : tensor<4x2x8xf32>
}
