// RUN: ladle-opt %s | ladle-opt | FileCheck %s

// CHECK-LABEL: ladle.step @chain of @r route(inner) form(verify)
// CHECK-SAME: drafts %drafts: !ladle.drafts<4>
ladle.step @chain of @r route(inner) form(verify) (
    token %k: tensor<2x8xbf16>, carry %z: tensor<2x8xf32>,
    buffer %b: !ladle.buffer<[k : 2x8xf32 @dk], capacity = 8, order = indexed, weight = linear>,
    drafts %drafts: !ladle.drafts<4>) -> (y: tensor<2x8xf32>) {
  // CHECK: %[[A:.*]]:3 = ladle.each_draft %drafts : <4> carries(%z : tensor<2x8xf32>) {
  // CHECK: ladle.yield_draft %{{.*}} : tensor<2x8xf32>, tensor<2xf32>, tensor<2x8xf32>
  // CHECK: } -> tensor<2x4x8xf32>, tensor<2x4xf32>, tensor<2x4x8xf32>
  %a:3 = ladle.each_draft %drafts : !ladle.drafts<4> carries(%z : tensor<2x8xf32>) {
  ^bb0(%before: tensor<2x8xf32>):
    %kf = arith.extf %k : tensor<2x8xbf16> to tensor<2x8xf32>
    %s = ladle.sum %before dim 1 : tensor<2x8xf32> to tensor<2xf32>
    ladle.yield_draft %kf, %s, %kf : tensor<2x8xf32>, tensor<2xf32>, tensor<2x8xf32>
  } -> tensor<2x4x8xf32>, tensor<2x4xf32>, tensor<2x4x8xf32>
  // CHECK: ladle.path_decay %[[A]]#1 along %drafts : <4>, tensor<2x4xf32>
  %p = ladle.path_decay %a#1 along %drafts : !ladle.drafts<4>, tensor<2x4xf32>
  // CHECK: %[[G:.*]] = ladle.path_gram %[[A]]#0, %[[A]]#0 decay %[[A]]#1 along %drafts
  %g = ladle.path_gram %a#0, %a#0 decay %a#1 along %drafts : !ladle.drafts<4>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4xf32> -> tensor<2x4x1x4x1xf32>
  // CHECK: %[[U:.*]] = ladle.path_solve[%[[A]]#0 : tensor<2x4x8xf32>] through[%[[G]] : tensor<2x4x1x4x1xf32>] rows [0] columns [0] along %drafts
  %u = ladle.path_solve [%a#0 : tensor<2x4x8xf32>] through [%g : tensor<2x4x1x4x1xf32>] rows [0] columns [0] along %drafts : !ladle.drafts<4> -> tensor<2x4x8xf32>
  // CHECK: ladle.path_solve[%[[U]] : tensor<2x4x8xf32>] through[%[[G]] : tensor<2x4x1x4x1xf32>] rows [0] columns [0] scales[%[[A]]#0 : tensor<2x4x8xf32>] of [0] along %drafts
  %scaled = ladle.path_solve [%u : tensor<2x4x8xf32>] through [%g : tensor<2x4x1x4x1xf32>] rows [0] columns [0] scales [%a#0 : tensor<2x4x8xf32>] of [0] along %drafts : !ladle.drafts<4> -> tensor<2x4x8xf32>
  // CHECK: ladle.path_product[%[[G]] : tensor<2x4x1x4x1xf32>] of[%[[U]] : tensor<2x4x8xf32>] along %drafts
  %y = ladle.path_product [%g : tensor<2x4x1x4x1xf32>] of [%u : tensor<2x4x8xf32>] along %drafts : !ladle.drafts<4> -> tensor<2x4x8xf32>
  // CHECK: ladle.append_drafts %b, %[[A]]#0 along %drafts
  ladle.append_drafts %b, %a#0 along %drafts : !ladle.buffer<[k : 2x8xf32 @dk], capacity = 8, order = indexed, weight = linear>, !ladle.drafts<4>, tensor<2x4x8xf32>
  ladle.yield %y, %a#2 : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}
