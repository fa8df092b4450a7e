// RUN: ladle-opt %s | ladle-opt | FileCheck %s
// RUN: ladle-opt %s --mlir-print-op-generic | ladle-opt | FileCheck %s

// CHECK-LABEL: ladle.recurrence @everything(param %p: tensor<4xf32>, token %x: tensor<1x8xbf16>, carry %c: tensor<4x8xf16>, state %S: !ladle.state<4x8x16xbf16>) -> (y: tensor<4x16xbf16>, "odd name": tensor<4xf32>)
ladle.recurrence @everything(
    param %p: tensor<4xf32>, token %x: tensor<1x8xbf16>,
    carry %c: tensor<4x8xf16>, state %S: !ladle.state<4x8x16xbf16>)
    -> (y: tensor<4x16xbf16>, "odd name": tensor<4xf32>) {
  %k = arith.extf %x : tensor<1x8xbf16> to tensor<1x8xf32>
  // CHECK: %[[DECAYED:.*]] = ladle.decay %S, %p : <4x8x16xbf16>, tensor<4xf32>
  %0 = ladle.decay %S, %p : !ladle.state<4x8x16xbf16>, tensor<4xf32>
  // CHECK: %[[READ:.*]] = ladle.read %[[DECAYED]], %{{.*}} : <4x8x16xbf16>, tensor<1x8xf32> -> tensor<4x16xf32>
  %r = ladle.read %0, %k : !ladle.state<4x8x16xbf16>, tensor<1x8xf32> -> tensor<4x16xf32>
  // CHECK: ladle.write %[[DECAYED]], %{{.*}}, %[[READ]] : <4x8x16xbf16>, tensor<1x8xf32>, tensor<4x16xf32>
  %1 = ladle.write %0, %k, %r : !ladle.state<4x8x16xbf16>, tensor<1x8xf32>, tensor<4x16xf32>
  %y = arith.truncf %r : tensor<4x16xf32> to tensor<4x16xbf16>
  // CHECK: ladle.yield %{{.*}}, %p, %c, %{{.*}} : tensor<4x16xbf16>, tensor<4xf32>, tensor<4x8xf16>, !ladle.state<4x8x16xbf16>
  ladle.yield %y, %p, %c, %1 : tensor<4x16xbf16>, tensor<4xf32>, tensor<4x8xf16>, !ladle.state<4x8x16xbf16>
}

// Nothing at all is a recurrence, too.
// CHECK-LABEL: ladle.recurrence @nothing() -> ()
// CHECK-NEXT: ladle.yield
ladle.recurrence @nothing() -> () {
  ladle.yield
}

// An SSA name cannot hold every argument name: the attribute does.
// CHECK-LABEL: ladle.recurrence @argument_names
// CHECK-SAME: attributes {argument_names = ["a name with spaces"]}
ladle.recurrence @argument_names(token %x: tensor<1xf32>) -> (y: tensor<1xf32>)
    attributes {argument_names = ["a name with spaces"]} {
  ladle.yield %x : tensor<1xf32>
}
