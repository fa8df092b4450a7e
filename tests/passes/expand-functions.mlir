// RUN: ladle-opt %s --split-input-file --ladle-expand-functions | FileCheck %s
// RUN: ladle-opt %s --split-input-file --ladle-expand-functions=approximate \
// RUN:   | FileCheck %s --check-prefix=APPROXIMATE

// The example of the pass description.

// CHECK-LABEL: ladle.recurrence @l2norm
// CHECK: %[[EPS:.*]] = arith.constant dense<9.99999997E-7> : tensor<4xf32>
// CHECK: %[[SQUARES:.*]] = arith.mulf %x, %x : tensor<4x64xf32>
// CHECK: %[[SUM:.*]] = ladle.sum %[[SQUARES]] dim 1 : tensor<4x64xf32> to tensor<4xf32>
// CHECK: %[[SAFE:.*]] = arith.addf %[[SUM]], %[[EPS]] : tensor<4xf32>
// CHECK: %[[SCALE:.*]] = math.rsqrt %[[SAFE]] : tensor<4xf32>
// CHECK: %[[SPREAD:.*]] = ladle.broadcast %[[SCALE]] dims [0] : tensor<4xf32> to tensor<4x64xf32>
// CHECK: %[[Y:.*]] = arith.mulf %x, %[[SPREAD]] : tensor<4x64xf32>
// CHECK: ladle.yield %[[Y]]
ladle.recurrence @l2norm(token %x: tensor<4x64xf32>) -> (y: tensor<4x64xf32>) {
  %y = ladle.l2norm %x eps 1.0e-6 : tensor<4x64xf32>
  ladle.yield %y : tensor<4x64xf32>
}

// -----

// With a rank the norm is over the last dimension of each row.

// CHECK-LABEL: ladle.recurrence @l2norm_of_rows
// CHECK: ladle.sum %{{.*}} dim 2 : tensor<4x3x8xf32> to tensor<4x3xf32>
// CHECK: ladle.broadcast %{{.*}} dims [0, 1] : tensor<4x3xf32> to tensor<4x3x8xf32>
ladle.recurrence @l2norm_of_rows(token %x: tensor<4x3x8xf32>) -> (y: tensor<4x3x8xf32>) {
  %y = ladle.l2norm %x eps 0.0 : tensor<4x3x8xf32>
  ladle.yield %y : tensor<4x3x8xf32>
}

// -----

// What has exponentials of vectors may approximate them; numbers stay accurate.

// APPROXIMATE-LABEL: ladle.recurrence @gates
// APPROXIMATE: math.exp %{{.*}} fastmath<afn> : tensor<4x8xf32>
// APPROXIMATE: math.exp %{{.*}} : tensor<4xf32>
// CHECK-LABEL: ladle.recurrence @gates
// CHECK-NOT: afn
ladle.recurrence @gates(token %x: tensor<4x8xf32>, token %b: tensor<4xf32>) -> (y: tensor<4x8xf32>, z: tensor<4xf32>) {
  %y = ladle.silu %x : tensor<4x8xf32>
  %z = ladle.sigmoid %b : tensor<4xf32>
  ladle.yield %y, %z : tensor<4x8xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: ladle.recurrence @sigmoid
// CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : tensor<4xf32>
// CHECK: %[[NEGATED:.*]] = arith.negf %x
// CHECK: %[[EXP:.*]] = math.exp %[[NEGATED]]
// CHECK: %[[DENOMINATOR:.*]] = arith.addf %[[EXP]], %[[ONE]]
// CHECK: arith.divf %[[ONE]], %[[DENOMINATOR]]
ladle.recurrence @sigmoid(token %x: tensor<4xf32>) -> (y: tensor<4xf32>) {
  %y = ladle.sigmoid %x : tensor<4xf32>
  ladle.yield %y : tensor<4xf32>
}

// -----

// CHECK-LABEL: ladle.recurrence @silu
// CHECK: %[[DENOMINATOR:.*]] = arith.addf
// CHECK: arith.divf %x, %[[DENOMINATOR]]
ladle.recurrence @silu(token %x: tensor<4xf32>) -> (y: tensor<4xf32>) {
  %y = ladle.silu %x : tensor<4xf32>
  ladle.yield %y : tensor<4xf32>
}

// -----

// max(x, 0) + log1p(e), e = exp(-|x|); log1p(e) is 2 artanh(e / (e + 2)).

// CHECK-LABEL: ladle.recurrence @softplus
// CHECK-DAG: %[[C0:.*]] = arith.constant dense<0.66666317> : tensor<4xf32>
// CHECK-DAG: %[[C1:.*]] = arith.constant dense<0.400249094> : tensor<4xf32>
// CHECK-DAG: %[[C2:.*]] = arith.constant dense<2.796060e-01> : tensor<4xf32>
// CHECK-DAG: %[[C3:.*]] = arith.constant dense<0.281783342> : tensor<4xf32>
// CHECK-DAG: %[[TWO:.*]] = arith.constant dense<2.000000e+00> : tensor<4xf32>
// CHECK: %[[ABS:.*]] = math.absf %x
// CHECK: %[[NEGATED:.*]] = arith.negf %[[ABS]]
// CHECK: %[[EXP:.*]] = math.exp %[[NEGATED]]
// CHECK: %[[MORE:.*]] = arith.addf %[[EXP]], %[[TWO]]
// CHECK: %[[S:.*]] = arith.divf %[[EXP]], %[[MORE]]
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[S]], %[[S]]
// CHECK: %[[S3:.*]] = math.fma %[[C3]], %[[SQUARE]], %[[C2]]
// CHECK: %[[S2:.*]] = math.fma %[[S3]], %[[SQUARE]], %[[C1]]
// CHECK: %[[S1:.*]] = math.fma %[[S2]], %[[SQUARE]], %[[C0]]
// CHECK: %[[CUBE:.*]] = arith.mulf %[[S]], %[[SQUARE]]
// CHECK: %[[TWICE:.*]] = arith.addf %[[S]], %[[S]]
// CHECK: %[[TAIL:.*]] = math.fma %[[CUBE]], %[[S1]], %[[TWICE]]
// CHECK: %[[MAX:.*]] = arith.maximumf %x
// CHECK: arith.addf %[[MAX]], %[[TAIL]]
// CHECK-NOT: math.log
ladle.recurrence @softplus(token %x: tensor<4xf32>) -> (y: tensor<4xf32>) {
  %y = ladle.softplus %x : tensor<4xf32>
  ladle.yield %y : tensor<4xf32>
}

// -----

// max(x, 0) + expm1(min(x, 0)).

// CHECK-LABEL: ladle.recurrence @elu
// CHECK: %[[MIN:.*]] = arith.minimumf %x
// CHECK: math.exp %[[MIN]]
// CHECK: %[[MAX:.*]] = arith.maximumf %x
// CHECK: arith.addf %[[MAX]]
// CHECK-NOT: math.expm1
ladle.recurrence @elu(token %x: tensor<4xf32>) -> (y: tensor<4xf32>) {
  %y = ladle.elu %x : tensor<4xf32>
  ladle.yield %y : tensor<4xf32>
}

// -----

// elu(x) + 1 is max(x, 0) + exp(min(x, 0)).

// CHECK-LABEL: ladle.recurrence @elu_plus_one
// CHECK: %[[MIN:.*]] = arith.minimumf %x
// CHECK: %[[EXP:.*]] = math.exp %[[MIN]]
// CHECK: %[[MAX:.*]] = arith.maximumf %x
// CHECK: %[[Y:.*]] = arith.addf %[[MAX]], %[[EXP]]
// CHECK-NOT: math.log
// CHECK: ladle.yield %[[Y]]
ladle.recurrence @elu_plus_one(token %x: tensor<4xf32>) -> (y: tensor<4xf32>) {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %elu = ladle.elu %x : tensor<4xf32>
  %y = arith.addf %elu, %one : tensor<4xf32>
  ladle.yield %y : tensor<4xf32>
}

// -----

// Movements of elements are left to the lowering, and so are other types.

// CHECK-LABEL: ladle.recurrence @left_alone
// CHECK: ladle.rotate
// CHECK: ladle.shift
// CHECK: math.log1p %{{.*}} : tensor<1x8xf64>
ladle.recurrence @left_alone(token %x: tensor<1x8xf32>, token %a: tensor<1x4xf32>,
    token %d: tensor<1x8xf64>, carry %w: tensor<1x3x8xf32>) -> (y: tensor<1x8xf64>) {
  %r = ladle.rotate %x, %a : tensor<1x8xf32>, tensor<1x4xf32>
  %s = ladle.shift %w, %r : tensor<1x3x8xf32>, tensor<1x8xf32>
  %y = math.log1p %d : tensor<1x8xf64>
  ladle.yield %y, %s : tensor<1x8xf64>, tensor<1x3x8xf32>
}
