// RUN: ladle-opt %s --ladle-normalize-reads --ladle-derive-history --ladle-build-prefill="routes=inner capacity=32 chunk=32 folds-by-chunk" --canonicalize | FileCheck %s --check-prefix=INNER
// RUN: ladle-opt %s --ladle-normalize-reads --ladle-derive-history --ladle-build-prefill="routes=adjoint capacity=32 chunk=32 folds-by-chunk" --canonicalize | FileCheck %s --check-prefix=ADJOINT

// What the slot holds goes into the state that is read and folded into; what
// follows the last whole chunk is appended.
// INNER-NOT: prefill_fold
// INNER-LABEL: ladle.step @delta_inner_prefill_entries of @delta route(inner) form(prefill_entries)
// INNER: %[[LOADED:.*]] = ladle.load_state %S
// INNER: %[[GAMMA:.*]] = ladle.decay_product %S_entries decay "[[A:.*]]"
// INNER: %[[DECAYED:.*]] = ladle.decay %[[LOADED]], %[[GAMMA]]
// INNER: %[[OLD:.*]] = ladle.fold_buffer %[[DECAYED]], %S_entries key "k" value "u" decay "[[A]]"
// INNER: ladle.read %[[OLD]]
// INNER-NOT: ladle.read_buffer
// INNER: %[[NEW:.*]] = ladle.fold_drafts %[[OLD]]
// INNER: ladle.store_state %[[NEW]], %S
// INNER: ladle.append_drafts %S_entries

// Raw entries are replayed.
// ADJOINT-NOT: prefill_fold
// ADJOINT: %[[LOADED:.*]] = ladle.load_state %S
// ADJOINT: %[[OLD:.*]] = ladle.replay %[[LOADED]], %S_entries
// ADJOINT: ladle.fold_drafts %[[OLD]]
// ADJOINT: ladle.append_drafts %S_entries
ladle.recurrence @delta(token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>, token %a: tensor<2xf32>, state %S: !ladle.state<2x16x8xf32>) -> (y: tensor<2x8xf32>) {
  %d = ladle.decay %S, %a : !ladle.state<2x16x8xf32>, tensor<2xf32>
  %p = ladle.read %d, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32> -> tensor<2x8xf32>
  %u = arith.subf %v, %p : tensor<2x8xf32>
  %0 = ladle.write %d, %k, %u : !ladle.state<2x16x8xf32>, tensor<2x16xf32>, tensor<2x8xf32>
  %y = ladle.read %0, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32> -> tensor<2x8xf32>
  ladle.yield %y, %0 : tensor<2x8xf32>, !ladle.state<2x16x8xf32>
}
