// RUN: ladle-opt %s --ladle-build-prefill="routes=inner capacity=8 chunk=32 entry-type=bf16" \
// RUN:   | FileCheck %s --check-prefix=INNER
// RUN: ladle-opt %s --ladle-build-prefill="routes=recurrent" \
// RUN:   | FileCheck %s --check-prefix=RECURRENT
// RUN: ladle-opt %s --ladle-build-prefill="routes=kv_only drafts=4" \
// RUN:   | FileCheck %s --check-prefix=KV
// RUN: ladle-opt %s --ladle-build-prefill="routes=adjoint" \
// RUN:   | FileCheck %s --check-prefix=ADJOINT

// A gated delta rule in normal form, with a carry.
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

// The state is read with all vectors of the chunk; it takes no entries.
// INNER-LABEL: ladle.step @gdr_inner_prefill_fold of @gdr route(inner) form(prefill_fold)
// INNER-NOT: buffer
// INNER-SAME: state %[[POOL:[^:]*]]: !ladle.pool
// INNER-SAME: drafts %[[C:[^:]*]]: !ladle.drafts<32, chain>
// INNER: %[[T:.*]]:{{.*}} = ladle.each_draft %[[C]] : <32, chain> carries(%z : tensor<2x8xf32>)
// INNER: %[[P:.*]] = ladle.path_decay %[[D:.*]] along %[[C]]
// INNER: %[[S:.*]] = ladle.load_state %[[POOL]]
// A number a token is multiplied with what is read.
// INNER: %[[X:.*]] = ladle.read %[[S]]
// INNER: ladle.read %[[S]]
// INNER: ladle.each_draft %[[C]] : <32, chain> stacks(%[[X]], %[[P]]
// INNER: %[[A:.*]] = ladle.path_gram %{{.*}}, %[[K:.*]] decay %[[D]] {{.*}} -> tensor<2x32x1x32x1xf32>
// INNER: %[[U:.*]] = ladle.path_solve[%{{.*}}] through[%[[A]] : {{.*}}] rows [0] columns [0]
// INNER: ladle.path_product
// INNER: math.tanh
// INNER: %[[F:.*]] = ladle.fold_drafts %[[S]] keys[%[[K]] : {{.*}}] values[%[[U]] : {{.*}}] decay %[[D]]
// INNER-NEXT: ladle.store_state %[[F]], %[[POOL]]
// INNER-NEXT: ladle.yield

// The other form reads what there is by its route, and appends.
// INNER-LABEL: ladle.step @gdr_inner_prefill_entries of @gdr route(inner) form(prefill_entries)
// INNER-SAME: order = ring
// INNER: ladle.load_state
// INNER: ladle.read_buffer
// INNER-NOT: ladle.store_state
// INNER: ladle.append_drafts %S_entries, {{.*}} along %{{.*}} : {{.*}} u : 2x8xbf16

// Without a buffer there is one form, without a state the other.
// RECURRENT: ladle.step @gdr_recurrent_prefill_fold
// RECURRENT-SAME: !ladle.drafts<64, chain>
// RECURRENT-NOT: ladle.step
// KV-NOT: prefill_fold
// KV: ladle.step @gdr_kv_only_prefill_entries
// KV-SAME: order = indexed
// KV-NOT: ladle.load_state
// KV: ladle.append_drafts

// A fold needs the values that are written; entries of this route are raw.
// ADJOINT: ladle.step @gdr_adjoint_prefill_fold
// ADJOINT-NOT: ladle.transport
// ADJOINT: ladle.fold_drafts
// ADJOINT: ladle.step @gdr_adjoint_prefill_entries
// ADJOINT: ladle.transport
