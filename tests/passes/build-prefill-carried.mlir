// RUN: ladle-opt %s --ladle-normalize-reads --ladle-derive-history --ladle-build-prefill="routes=kv_only chunk=32 page=8 carries-state" --canonicalize | FileCheck %s

// The state begins as what the entries make of nothing; it is read and folded
// into like that of a slot, and values are appended besides.
// CHECK-LABEL: ladle.step @delta_kv_only_prefill_entries of @delta route(kv_only) form(prefill_entries)
// CHECK: %[[ZERO:.*]] = ladle.zero_state
// CHECK: %[[OLD:.*]] = ladle.fold_buffer %[[ZERO]], %S_entries key "k" value "u"
// CHECK: ladle.read %[[OLD]]
// CHECK-NOT: ladle.read_buffer
// CHECK: %[[U:.*]] = ladle.path_solve
// CHECK: %[[NEW:.*]] = ladle.fold_drafts %[[OLD]]
// CHECK: ladle.store_state %[[NEW]], %S
// CHECK: %[[EACH:.*]] = ladle.each_draft %chunk : <32, chain> stacks(%[[U]]
// CHECK: ladle.append_drafts %S_entries, %{{.*}}, %[[EACH]] along %chunk
ladle.recurrence @delta(token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>, state %S: !ladle.state<2x16x8xf32>) -> (y: tensor<2x8xf32>) {
  %p = ladle.read %S, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32> -> tensor<2x8xf32>
  %u = arith.subf %v, %p : tensor<2x8xf32>
  %0 = ladle.write %S, %k, %u : !ladle.state<2x16x8xf32>, tensor<2x16xf32>, tensor<2x8xf32>
  %y = ladle.read %0, %k : !ladle.state<2x16x8xf32>, tensor<2x16xf32> -> tensor<2x8xf32>
  ladle.yield %y, %0 : tensor<2x8xf32>, !ladle.state<2x16x8xf32>
}
