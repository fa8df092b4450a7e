// RUN: ladle-opt %s --split-input-file --ladle-build-verify="routes=inner capacity=8 drafts=4" | FileCheck %s
// RUN: ladle-opt %s --split-input-file --ladle-build-prefill="routes=inner capacity=8" | FileCheck %s --check-prefix=PROMPT
// RUN: not ladle-opt %s --split-input-file --ladle-build-verify="routes=adjoint capacity=8 drafts=4" \
// RUN:   2>&1 | FileCheck %s --check-prefix=ADJOINT

// What a read is multiplied by before it is written. Numbers of channels stay
// with the solve, which takes them after the sums along ancestors.

// CHECK-LABEL: ladle.step @channels_inner_verify
// CHECK: %[[T:.*]]:{{[0-9]+}} = ladle.each_draft
// CHECK: arith.negf %w
// CHECK: ladle.yield_draft %{{.*}}, %[[W:.*]], %{{.*}} :
// CHECK: %[[R:.*]] = ladle.each_draft %{{.*}} stacks(%[[READ:[^,]*]], {{.*}}, %[[T]]#[[FACTOR:[0-9]+]], %[[T]]#{{[0-9]+}} :
// CHECK: arith.addf
// CHECK-NEXT: %[[SCALED:.*]] = arith.mulf
// CHECK-NEXT: arith.addf %[[SCALED]]
// CHECK: %[[A:.*]] = ladle.path_gram
// CHECK: ladle.path_solve[%[[R]] : tensor<2x4x8xf32>] through[%[[A]] : tensor<2x4x1x4x1xf32>] rows [0] columns [0] scales[%[[T]]#[[FACTOR]] : tensor<2x4x8xf32>] of [0] along
// PROMPT-LABEL: ladle.step @channels_inner_prefill_fold
// PROMPT: ladle.path_solve{{.*}} scales[%{{.*}} : tensor<2x64x8xf32>] of [0] along
// ADJOINT: error: route 'adjoint' is not legal for 'channels'
// ADJOINT: note: the value of a write to state 'S' is not a linear combination of reads: a read is multiplied by one number a channel
ladle.recurrence @channels(token %k: tensor<2x4xf32>, token %v: tensor<2x8xf32>,
    token %w: tensor<2x8xf32>, state %S: !ladle.state<2x4x8xf32>)
    -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %e = arith.subf %v, %r : tensor<2x8xf32>
  %n = arith.negf %w : tensor<2x8xf32>
  %u = arith.mulf %e, %n : tensor<2x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<2x4x8xf32>, tensor<2x4xf32>, tensor<2x8xf32>
  ladle.yield %r, %S1 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}

// -----

// Numbers of ranks are in the query, and so in the Gram products.

// CHECK-LABEL: ladle.step @ranks_inner_verify
// CHECK: ladle.each_draft
// CHECK: %[[C:.*]] = ladle.broadcast %b dims [0, 1] : tensor<2x3xf32> to tensor<2x3x4xf32>
// CHECK: arith.mulf %k, %[[C]]
// CHECK: ladle.path_solve[%{{.*}} : tensor<2x4x3x8xf32>] through[%{{.*}} : tensor<2x4x3x4x3xf32>] rows [0] columns [0] along
// PROMPT-LABEL: ladle.step @ranks_inner_prefill_fold
// ADJOINT: ladle.step @ranks_adjoint_verify
ladle.recurrence @ranks(token %k: tensor<2x3x4xf32>, token %v: tensor<2x3x8xf32>,
    token %b: tensor<2x3xf32>, state %S: !ladle.state<2x4x8xf32>)
    -> (y: tensor<2x3x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x3x4xf32>
       -> tensor<2x3x8xf32>
  %all = ladle.broadcast %b dims [0, 1] : tensor<2x3xf32> to tensor<2x3x8xf32>
  %scaled = arith.mulf %all, %r : tensor<2x3x8xf32>
  %u = arith.subf %v, %scaled : tensor<2x3x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<2x4x8xf32>, tensor<2x3x4xf32>, tensor<2x3x8xf32>
  ladle.yield %r, %S1 : tensor<2x3x8xf32>, !ladle.state<2x4x8xf32>
}

// -----

// A sum over ranks of reads is a read with the sum of their queries, and one
// that is repeated over ranks is one with its query repeated.

// CHECK-LABEL: ladle.step @sums_inner_verify
// CHECK: ladle.each_draft
// CHECK: %[[Q:.*]] = ladle.sum %k dim 1 : tensor<2x3x4xf32> to tensor<2x4xf32>
// CHECK: ladle.broadcast %[[Q]] dims [0, 2] : tensor<2x4xf32> to tensor<2x3x4xf32>
// CHECK: ladle.path_solve[%{{.*}} : tensor<2x4x3x8xf32>]
// PROMPT-LABEL: ladle.step @sums_inner_prefill_fold
// ADJOINT: ladle.step @sums_adjoint_verify
// ADJOINT: ladle.sum %k dim 1 : tensor<2x3x4xf32> to tensor<2x4xf32>
// ADJOINT: ladle.transport %S_entries[%{{[^,]*}}] {{.*}} tensor<2x4x4xf32>
ladle.recurrence @sums(token %k: tensor<2x3x4xf32>, token %v: tensor<2x3x8xf32>,
    state %S: !ladle.state<2x4x8xf32>) -> (y: tensor<2x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<2x4x8xf32>, tensor<2x3x4xf32>
       -> tensor<2x3x8xf32>
  %sum = ladle.sum %r dim 1 : tensor<2x3x8xf32> to tensor<2x8xf32>
  %all = ladle.broadcast %sum dims [0, 2] : tensor<2x8xf32> to tensor<2x3x8xf32>
  %u = arith.subf %v, %all : tensor<2x3x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<2x4x8xf32>, tensor<2x3x4xf32>, tensor<2x3x8xf32>
  ladle.yield %sum, %S1 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}

// -----

// A scale that is repeated over ranks is the same for both reads. What an
// output repeats is read once.

// CHECK-LABEL: ladle.step @repeated_inner_verify
// CHECK: ladle.load_state
// CHECK: ladle.read %{{.*}} -> tensor<2x4x3x8xf32>
// CHECK: ladle.read %{{.*}} -> tensor<2x4x8xf32>
// CHECK-NOT: ladle.read %
// CHECK: ladle.path_solve{{.*}} scales[%{{.*}} : tensor<2x4x3x8xf32>] of [0]
// PROMPT-LABEL: ladle.step @repeated_inner_prefill_fold
// ADJOINT: error: route 'adjoint' is not legal for 'repeated'
ladle.recurrence @repeated(token %q: tensor<2x4xf32>, token %w: tensor<2x4xf32>,
    token %k: tensor<2x3x4xf32>, token %v: tensor<2x3x8xf32>,
    token %b: tensor<2x8xf32>, state %S: !ladle.state<2x4x8xf32>)
    -> (y: tensor<2x3x8xf32>) {
  %r = ladle.read %S, %q : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %s = ladle.read %S, %w : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %0 = arith.mulf %b, %r : tensor<2x8xf32>
  %1 = arith.mulf %b, %s : tensor<2x8xf32>
  %2 = ladle.broadcast %0 dims [0, 2] : tensor<2x8xf32> to tensor<2x3x8xf32>
  %3 = ladle.broadcast %1 dims [0, 2] : tensor<2x8xf32> to tensor<2x3x8xf32>
  %4 = arith.addf %2, %3 : tensor<2x3x8xf32>
  %u = arith.subf %v, %4 : tensor<2x3x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<2x4x8xf32>, tensor<2x3x4xf32>, tensor<2x3x8xf32>
  %t = ladle.read %S, %q : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
       -> tensor<2x8xf32>
  %5 = ladle.broadcast %t dims [0, 2] : tensor<2x8xf32> to tensor<2x3x8xf32>
  %y = arith.mulf %5, %v : tensor<2x3x8xf32>
  ladle.yield %y, %S1 : tensor<2x3x8xf32>, !ladle.state<2x4x8xf32>
}

// -----

// Reads with scales of their own are unknowns of their own, whose sum is the
// value: what meets the key is the sum of all of them, so that a Gram product
// stands in two columns. The remainder is the first one's.

// CHECK-LABEL: ladle.step @two_scales_inner_verify
// CHECK: %[[T:.*]]:{{[0-9]+}} = ladle.each_draft
// CHECK: %[[A:.*]] = ladle.path_gram
// CHECK: %[[B:.*]] = ladle.path_gram
// CHECK-NOT: ladle.path_gram
// CHECK: %[[U:.*]]:2 = ladle.path_solve[%{{.*}}, %{{.*}} : tensor<1x4x8xf32>, tensor<1x4x8xf32>] through[%[[A]], %[[A]], %[[B]], %[[B]] : {{.*}}] rows [0, 0, 1, 1] columns [0, 1, 0, 1] scales[%[[T]]#{{[0-9]+}}, %[[T]]#{{[0-9]+}} : {{.*}}] of [0, 1] along
// CHECK: %[[SUM:.*]] = ladle.each_draft %{{.*}} stacks(%[[U]]#0, %[[U]]#1 :
// CHECK: ladle.append_drafts %{{.*}}, %{{.*}}, %[[SUM]] along
// PROMPT-LABEL: ladle.step @two_scales_inner_prefill_fold
// PROMPT: ladle.path_solve{{.*}} columns [0, 1, 0, 1]
// PROMPT: ladle.fold_drafts
// ADJOINT: error: route 'adjoint' is not legal for 'two_scales'
ladle.recurrence @two_scales(token %q: tensor<1x4xf32>, token %k: tensor<1x4xf32>,
    token %l: tensor<1x4xf32>, token %v: tensor<1x8xf32>,
    token %w: tensor<1x8xf32>, state %S: !ladle.state<1x4x8xf32>)
    -> (y: tensor<1x8xf32>) {
  %r = ladle.read %S, %k : !ladle.state<1x4x8xf32>, tensor<1x4xf32>
       -> tensor<1x8xf32>
  %s = ladle.read %S, %l : !ladle.state<1x4x8xf32>, tensor<1x4xf32>
       -> tensor<1x8xf32>
  %0 = arith.mulf %r, %v : tensor<1x8xf32>
  %1 = arith.divf %s, %w : tensor<1x8xf32>
  %2 = arith.addf %0, %1 : tensor<1x8xf32>
  %u = arith.addf %2, %w : tensor<1x8xf32>
  %S1 = ladle.write %S, %k, %u
      : !ladle.state<1x4x8xf32>, tensor<1x4xf32>, tensor<1x8xf32>
  %y = ladle.read %S, %q : !ladle.state<1x4x8xf32>, tensor<1x4xf32>
       -> tensor<1x8xf32>
  ladle.yield %y, %S1 : tensor<1x8xf32>, !ladle.state<1x4x8xf32>
}
