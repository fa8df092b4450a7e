// RUN: ladle-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{of form prefill_fold must have one argument of drafts, got 0}}
ladle.step @s of @r route(inner) form(prefill_fold) () -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{of form prefill_entries must have drafts that are a chain, got '!ladle.drafts<8>'}}
ladle.step @s of @r route(inner) form(prefill_entries) (drafts %d: !ladle.drafts<8>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{a row has 1 to 256 drafts in a chain, got 257}}
ladle.step @s of @r route(inner) form(prefill_fold) (drafts %d: !ladle.drafts<257, chain>) -> () {
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>,
    state %p: !ladle.pool<1x4x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %S = ladle.load_state %p : !ladle.pool<1x4x4xf32> to !ladle.state<1x4x4xf32>
  // expected-error @+1 {{folds drafts that are a chain, got '!ladle.drafts<2>'}}
  %1 = ladle.fold_drafts %S keys [%0 : tensor<1x2x4xf32>] values [%0 : tensor<1x2x4xf32>] along %d : !ladle.state<1x4x4xf32>, !ladle.drafts<2>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(prefill_fold) (token %k: tensor<1x4xf32>,
    state %p: !ladle.pool<1x4x8xf32>, drafts %d: !ladle.drafts<2, chain>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2, chain> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %S = ladle.load_state %p : !ladle.pool<1x4x8xf32> to !ladle.state<1x4x8xf32>
  // expected-error @+1 {{values 'tensor<1x2x4xf32>' do not fit into '!ladle.state<1x4x8xf32>'}}
  %1 = ladle.fold_drafts %S keys [%0 : tensor<1x2x4xf32>] values [%0 : tensor<1x2x4xf32>] along %d : !ladle.state<1x4x8xf32>, !ladle.drafts<2, chain>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(prefill_fold) (token %k: tensor<1x4xf32>,
    state %p: !ladle.pool<1x4x4xf32>, drafts %d: !ladle.drafts<2, chain>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2, chain> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %S = ladle.load_state %p : !ladle.pool<1x4x4xf32> to !ladle.state<1x4x4xf32>
  // expected-error @+1 {{has 1 keys for 0 values}}
  %1 = ladle.fold_drafts %S keys [%0 : tensor<1x2x4xf32>] along %d : !ladle.state<1x4x4xf32>, !ladle.drafts<2, chain>
  ladle.yield
}
