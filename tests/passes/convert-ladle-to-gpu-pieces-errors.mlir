// RUN: ladle-opt %s --split-input-file --convert-ladle-to-gpu="pieces=2" --verify-diagnostics

// expected-error @+2 {{it reads no state that could be copied in pieces or stages}}
// expected-note @+1 {{leave pieces and stages out}}
ladle.step @none of @r route(recurrent) form(decode) (token %q: tensor<2x32xf32>)
    -> (y: tensor<2x32xf32>) {
  ladle.yield %q : tensor<2x32xf32>
}

// -----

// expected-error @+2 {{pieces and stages are of states that are copied in bulk}}
// expected-note @+1 {{heads that share a carry, states of which dv is contiguous and rows that threads do not divide are copied by threads}}
ladle.step @transposed of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x32xf32, dk_dv>) -> (y: tensor<2x32xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x32xf32, dk_dv> to !ladle.state<2x32x32xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x32xf32>, tensor<1x32xf32> -> tensor<2x32xf32>
  ladle.yield %y : tensor<2x32xf32>
}
