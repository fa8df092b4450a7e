// RUN: ladle-opt %s --ladle-build-decode="routes=inner capacity=8 entry-type=bf16" \
// RUN:   | FileCheck %s --check-prefix=INNER
// RUN: ladle-opt %s --ladle-build-decode="routes=outer capacity=8" \
// RUN:   | FileCheck %s --check-prefix=OUTER
// RUN: ladle-opt %s --ladle-build-decode="routes=recurrent" \
// RUN:   | FileCheck %s --check-prefix=RECURRENT
// RUN: ladle-opt %s --ladle-build-decode="routes=kv_only" \
// RUN:   | FileCheck %s --check-prefix=KV
// RUN: ladle-opt %s --ladle-build-decode="routes=adjoint" \
// RUN:   | FileCheck %s --check-prefix=ADJOINT

// A gated delta rule in normal form: the routes differ in how the state is
// read and in what becomes of the write.
ladle.recurrence @gdr(token %q: tensor<1x4xf32>, token %k: tensor<1x4xbf16>,
    token %v: tensor<2x8xf32>, token %a: tensor<2xf32>,
    state %S: !ladle.state<2x4x8xf32>) -> (y: tensor<2x8xf32>) {
  %kf = arith.extf %k : tensor<1x4xbf16> to tensor<1x4xf32>
  %r = ladle.read %S, %kf : !ladle.state<2x4x8xf32>, tensor<1x4xf32>
       -> tensor<2x8xf32>
  %ab = ladle.broadcast %a dims [0] : tensor<2xf32> to tensor<2x8xf32>
  %ar = arith.mulf %ab, %r : tensor<2x8xf32>
  %u = arith.subf %v, %ar : tensor<2x8xf32>
  %s = ladle.read %S, %q : !ladle.state<2x4x8xf32>, tensor<1x4xf32>
       -> tensor<2x8xf32>
  %as = arith.mulf %ab, %s : tensor<2x8xf32>
  %kq = arith.mulf %kf, %q : tensor<1x4xf32>
  %d = ladle.sum %kq dim 1 : tensor<1x4xf32> to tensor<1xf32>
  %db = ladle.broadcast %d dims [0] : tensor<1xf32> to tensor<2x8xf32>
  %du = arith.mulf %db, %u : tensor<2x8xf32>
  %y = arith.addf %as, %du : tensor<2x8xf32>
  %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2xf32>
  %S2 = ladle.write %S1, %kf, %u
      : !ladle.state<2x4x8xf32>, tensor<1x4xf32>, tensor<2x8xf32>
  ladle.yield %y, %S2 : tensor<2x8xf32>, !ladle.state<2x4x8xf32>
}

// The key is cached raw; only u is rounded to the entry type.
// INNER-LABEL: ladle.step @gdr_inner_decode of @gdr route(inner) form(decode)
// INNER-SAME: buffer %[[B:.*]]: !ladle.buffer<[k : 1x4xbf16 @dk, u : 2x8xbf16 @dv, decay : 2xf32 @scalar], capacity = 8
// INNER-DAG: ladle.decay_product %[[B]] decay "decay"
// INNER-DAG: %[[S:.*]] = ladle.load_state
// INNER-DAG: ladle.read %[[S]]
// INNER: ladle.read_buffer %[[B]][%{{.*}}, %{{.*}}] key "k" value "u" decay "decay"
// INNER-NOT: ladle.store_state
// INNER: ladle.append %[[B]]
// INNER-LABEL: ladle.step @gdr_inner_decode_fold
// INNER: ladle.fold_buffer
// INNER: ladle.decay
// INNER: ladle.write
// INNER: ladle.store_state
// INNER: ladle.clear
// INNER-LABEL: ladle.step @gdr_inner_fold
// INNER-NOT: ladle.read
// INNER: ladle.fold_buffer
// INNER: ladle.store_state

// OUTER-LABEL: ladle.step @gdr_outer_decode of
// OUTER: %[[S:.*]] = ladle.fold_buffer
// OUTER: ladle.read %[[S]]
// OUTER-NOT: ladle.store_state
// OUTER: ladle.append

// RECURRENT-LABEL: ladle.step @gdr_recurrent_decode of
// RECURRENT-NOT: buffer
// RECURRENT: %[[S:.*]] = ladle.load_state
// RECURRENT: ladle.read %[[S]]
// RECURRENT: ladle.store_state
// RECURRENT-NOT: ladle.step @

// A checkpoint is neither loaded nor, but for the fold, stored.
// KV-LABEL: ladle.step @gdr_kv_only_decode of
// KV-NOT: ladle.load_state
// KV: ladle.read_buffer
// KV-NOT: ladle.load_state
// KV-LABEL: ladle.step @gdr_kv_only_decode_fold
// KV-NOT: ladle.load_state
// KV: ladle.zero_state
// KV: ladle.store_state

// One query a state, whatever the number of reads.
// ADJOINT-LABEL: ladle.step @gdr_adjoint_decode of
// ADJOINT: %[[T:.*]], %{{.*}} = ladle.transport %{{[^[]*}}[%{{[^],]*}}] through
// ADJOINT: ladle.read %{{.*}}, %[[T]] :
// ADJOINT-NOT: ladle.read %
// ADJOINT: ladle.append
// ADJOINT-LABEL: ladle.step @gdr_adjoint_decode_fold
// ADJOINT: %[[R:.*]] = ladle.replay
// ADJOINT: ladle.read %[[R]]
