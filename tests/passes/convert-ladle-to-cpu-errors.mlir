// RUN: ladle-opt %s --convert-ladle-to-cpu -split-input-file -verify-diagnostics

// expected-error@+2 {{step has no schedule}}
// expected-note@+1 {{run ladle-schedule first}}
ladle.step @f of @r route(recurrent) form(decode) (token %k: tensor<2x4xf32>) -> (y: tensor<2x4xf32>) {
  ladle.yield %k : tensor<2x4xf32>
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>,
    drafts %d: !ladle.drafts<2>) -> (y: tensor<1x4xf32>) attributes {
    ladle.levels = array<i64: 1>, ladle.last_phase = 0 : index,
    ladle.tile_rows = 4 : index, ladle.head_group = 1 : index} {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  // expected-error @+1 {{cannot be lowered for the CPU: 'arith.negf' is not for all drafts of a row}}
  %1 = arith.negf %0 : tensor<1x2x4xf32>
  ladle.yield %1 : tensor<1x2x4xf32>
}

// -----

// expected-error @+1 {{cannot be lowered for the CPU: a carry is none that ladle.each_draft leaves behind}}
ladle.step @s of @r route(inner) form(verify) (carry %z: tensor<1x4xf32>,
    drafts %d: !ladle.drafts<2>) -> () attributes {
    ladle.levels = array<i64: 1>, ladle.last_phase = 0 : index,
    ladle.tile_rows = 4 : index, ladle.head_group = 1 : index} {
  %0 = arith.constant dense<0.0> : tensor<1x2x4xf32>
  ladle.yield %0 : tensor<1x2x4xf32>
}

// -----

ladle.step @twice of @r route(recurrent) form(prefill_fold) (
    state %p: !ladle.pool<1x4x4xf32>, drafts %d: !ladle.drafts<2, chain>) -> () attributes {
    ladle.last_phase = 0 : index, ladle.levels = array<i64: 1>,
    ladle.head_group = 1 : index, ladle.tile_rows = 4 : index} {
  %S = ladle.load_state %p : !ladle.pool<1x4x4xf32> to !ladle.state<1x4x4xf32>
  %1 = ladle.fold_drafts %S along %d : !ladle.state<1x4x4xf32>, !ladle.drafts<2, chain>
  // expected-error @+1 {{cannot be lowered for the CPU: folds a state that does not come from a pool}}
  %2 = ladle.fold_drafts %1 along %d : !ladle.state<1x4x4xf32>, !ladle.drafts<2, chain>
  ladle.store_state %2, %p : !ladle.state<1x4x4xf32>, !ladle.pool<1x4x4xf32>
  ladle.yield
}

// -----

ladle.step @unfolded of @r route(recurrent) form(prefill_fold) (
    state %p: !ladle.pool<1x4x4xf32>, drafts %d: !ladle.drafts<2, chain>) -> () attributes {
    ladle.last_phase = 0 : index, ladle.levels = array<i64: 1>,
    ladle.head_group = 1 : index, ladle.tile_rows = 4 : index} {
  %S = ladle.load_state %p : !ladle.pool<1x4x4xf32> to !ladle.state<1x4x4xf32>
  // expected-error @+1 {{cannot be lowered for the CPU: stores a state that is not that of its pool with a chunk folded}}
  ladle.store_state %S, %p : !ladle.state<1x4x4xf32>, !ladle.pool<1x4x4xf32>
  ladle.yield
}
