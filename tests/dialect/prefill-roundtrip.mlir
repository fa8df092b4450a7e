// RUN: ladle-opt %s | ladle-opt | FileCheck %s

// CHECK-LABEL: ladle.step @fold of @r route(recurrent) form(prefill_fold)
// CHECK-SAME: drafts %chunk: !ladle.drafts<256, chain>
ladle.step @fold of @r route(recurrent) form(prefill_fold) (
    token %k: tensor<2x8xf32>, token %v: tensor<2x4xf32>, token %a: tensor<2xf32>,
    state %pool: !ladle.pool<2x8x4xbf16>, drafts %chunk: !ladle.drafts<256, chain>) -> () {
  %t:3 = ladle.each_draft %chunk : !ladle.drafts<256, chain> {
    ladle.yield_draft %k, %v, %a : tensor<2x8xf32>, tensor<2x4xf32>, tensor<2xf32>
  } -> tensor<2x256x8xf32>, tensor<2x256x4xf32>, tensor<2x256xf32>
  %S = ladle.load_state %pool : !ladle.pool<2x8x4xbf16> to !ladle.state<2x8x4xbf16>
  // CHECK: ladle.fold_drafts %{{.*}} keys[%{{.*}}#0 : tensor<2x256x8xf32>] values[%{{.*}}#1 : tensor<2x256x4xf32>] decay %{{.*}}#2 : tensor<2x256xf32> along %chunk : <2x8x4xbf16>, <256, chain>
  %S1 = ladle.fold_drafts %S keys [%t#0 : tensor<2x256x8xf32>] values [%t#1 : tensor<2x256x4xf32>] decay %t#2 : tensor<2x256xf32> along %chunk : !ladle.state<2x8x4xbf16>, !ladle.drafts<256, chain>
  // CHECK: ladle.fold_drafts %{{[^ ]*}} along %chunk
  %S2 = ladle.fold_drafts %S1 along %chunk : !ladle.state<2x8x4xbf16>, !ladle.drafts<256, chain>
  ladle.store_state %S2, %pool : !ladle.state<2x8x4xbf16>, !ladle.pool<2x8x4xbf16>
  ladle.yield
}

// CHECK-LABEL: ladle.step @entries of @r route(kv_only) form(prefill_entries)
ladle.step @entries of @r route(kv_only) form(prefill_entries) (drafts %chunk: !ladle.drafts<8, chain>) -> () {
  ladle.yield
}
