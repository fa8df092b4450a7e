// RUN: ladle-opt %s --ladle-build-verify="routes=inner capacity=8 drafts=4 entry-type=bf16" \
// RUN:   | FileCheck %s --check-prefix=INNER
// RUN: ladle-opt %s --ladle-build-verify="routes=outer capacity=8 drafts=4" \
// RUN:   | FileCheck %s --check-prefix=OUTER
// RUN: ladle-opt %s --ladle-build-verify="routes=kv_only capacity=8 drafts=4" \
// RUN:   | FileCheck %s --check-prefix=KV
// RUN: ladle-opt %s --ladle-build-verify="routes=adjoint capacity=8 drafts=4" \
// RUN:   | FileCheck %s --check-prefix=ADJOINT
// RUN: ladle-opt %s --ladle-build-verify="routes=recurrent capacity=8 drafts=4" \
// RUN:   | FileCheck %s --check-prefix=RECURRENT

// A gated delta rule in normal form, with a carry that follows the tree.
ladle.recurrence @gdr(token %q: tensor<1x4xf32>, token %k: tensor<1x4xbf16>,
    token %v: tensor<2x8xf32>, token %a: tensor<2xf32>,
    carry %z: tensor<2x8xf32>, state %S: !ladle.state<2x4x8xf32>)
    -> (y: tensor<2x8xf32>) {
  %kf = arith.extf %k : tensor<1x4xbf16> to tensor<1x4xf32>
  %r = ladle.read %S, %kf : !ladle.state<2x4x8xf32>, tensor<1x4xf32>
       -> tensor<2x8xf32>
  %w = arith.addf %v, %z : tensor<2x8xf32>
  %u = arith.subf %w, %r : tensor<2x8xf32>
  %s = ladle.read %S, %q : !ladle.state<2x4x8xf32>, tensor<1x4xf32>
       -> tensor<2x8xf32>
  %y = math.tanh %s : tensor<2x8xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2xf32>
  %S2 = ladle.write %S1, %kf, %u
      : !ladle.state<2x4x8xf32>, tensor<1x4xf32>, tensor<2x8xf32>
  ladle.yield %y, %v, %S2
      : tensor<2x8xf32>, tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}

// What does not depend on the state comes first, with the carry of the parent.
// INNER-LABEL: ladle.step @gdr_inner_verify of @gdr route(inner) form(verify)
// INNER-SAME: order = indexed
// INNER-SAME: drafts %[[D:.*]]: !ladle.drafts<4>
// INNER: %[[T:.*]]:{{.*}} = ladle.each_draft %[[D]] : <4> carries(%z : tensor<2x8xf32>)
// INNER: ladle.yield_draft
// Then the decays along paths, which scale what reads the state.
// INNER: %[[P:.*]] = ladle.path_decay %[[T]]#{{.*}} along %[[D]]
// INNER: ladle.decay_product %S_entries
// INNER: %[[S:.*]] = ladle.load_state
// INNER-COUNT-2: ladle.read %[[S]]
// INNER: ladle.read_buffer %S_entries[%{{.*}}, %{{.*}}] key "k" value "u" decay "decay"
// One solve for the values that are written, one product for the answers.
// INNER: %[[A:.*]] = ladle.path_gram %{{.*}}, %{{.*}} decay %{{.*}} -> tensor<2x4x1x4x1xf32>
// INNER: %[[U:.*]] = ladle.path_solve[%{{.*}}] through[%[[A]] : {{.*}}] rows [0] columns [0]
// INNER: %[[G:.*]] = ladle.path_gram
// INNER: ladle.path_product[%[[G]] : {{.*}}] of[%[[U]] : {{.*}}]
// INNER: math.tanh
// INNER-NOT: ladle.store_state
// INNER: ladle.append_drafts %S_entries, %{{.*}}, %[[U]], %{{.*}} along %[[D]]
// INNER-NEXT: ladle.yield %{{.*}}, %[[T]]#{{.*}} : tensor<2x4x8xf32>, tensor<2x4x8xf32>

// Drafts of a folding step read the state as it was stored.
// INNER-LABEL: ladle.step @gdr_inner_verify_fold
// INNER-NOT: ladle.read_buffer
// INNER: %[[F:.*]] = ladle.fold_buffer
// INNER: ladle.store_state %[[F]], %[[POOL:.*]] :
// INNER: %[[N:.*]] = ladle.load_state %[[POOL]]
// INNER-COUNT-2: ladle.read %[[N]]
// INNER: ladle.clear
// INNER: ladle.append_drafts

// OUTER-LABEL: ladle.step @gdr_outer_verify of
// OUTER: %[[S:.*]] = ladle.fold_buffer
// OUTER-COUNT-2: ladle.read %[[S]]
// OUTER-NOT: ladle.store_state
// OUTER-LABEL: ladle.step @gdr_outer_verify_fold

// KV-LABEL: ladle.step @gdr_kv_only_verify of
// KV-NOT: ladle.load_state
// KV: ladle.read_buffer
// KV-LABEL: ladle.step @gdr_kv_only_verify_fold
// KV: ladle.zero_state

// The solve is on the side of the vectors, so that one a draft is left.
// ADJOINT-LABEL: ladle.step @gdr_adjoint_verify of
// ADJOINT: ladle.path_solve{{.*}}tensor<2x4x8xf32>
// ADJOINT: ladle.path_solve{{.*}}tensor<2x4x4xf32>
// ADJOINT: ladle.transport
// ADJOINT-COUNT-1: ladle.read %
// ADJOINT-NOT: ladle.read %
// ADJOINT-LABEL: ladle.step @gdr_adjoint_verify_fold
// ADJOINT: ladle.replay

// Without entries, a draft is a state: the decode step makes it.
// RECURRENT-NOT: ladle.step
