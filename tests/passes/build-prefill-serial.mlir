// RUN: ladle-opt %s --ladle-build-prefill="routes=recurrent" -verify-diagnostics | FileCheck %s

// A decay that comes from a read: not even the recurrent route has a chunk.
ladle.recurrence @f(token %k: tensor<1x4xf32>, token %v: tensor<1x4xf32>,
    state %S: !ladle.state<1x4x4xf32>) -> (y: tensor<1x4xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
       -> tensor<1x4xf32>
  %a = math.exp %r : tensor<1x4xf32>
  // expected-remark@+2 {{route 'recurrent' prefills one token after another: }}
  // expected-note@+1 {{what is written may be a sum of reads}}
  %S0 = ladle.decay %S, %a : !ladle.state<1x4x4xf32>, tensor<1x4xf32>
  %S1 = ladle.write %S0, %k, %v
      : !ladle.state<1x4x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  ladle.yield %r, %S1 : tensor<1x4xf32>, !ladle.state<1x4x4xf32>
}
// CHECK-NOT: ladle.step
