// RUN: ladle-opt %s --convert-ladle-to-cpu -split-input-file -verify-diagnostics

// expected-error@+2 {{step has no schedule}}
// expected-note@+1 {{run ladle-schedule first}}
ladle.step @f of @r route(recurrent) form(decode) (token %k: tensor<2x4xf32>) -> (y: tensor<2x4xf32>) {
  ladle.yield %k : tensor<2x4xf32>
}
