// RUN: ladle-opt %s --pass-pipeline="builtin.module(ladle.step(ladle-schedule))" \
// RUN:   -split-input-file -verify-diagnostics

// expected-error@+1 {{head counts must divide one another, got 2 and 3}}
ladle.step @f of @r route(recurrent) form(decode) (token %k: tensor<2x4xf32>,
    // expected-note@+1 {{give this value a multiple of 2 heads}}
    token %v: tensor<3x4xf32>, state %p: !ladle.pool<6x4x4xf32>) -> () {
  ladle.yield
}

// -----

// expected-error@+1 {{states of one recurrence must have the same number of heads to be decoded together, got 2 and 4}}
ladle.step @g of @r route(recurrent) form(decode) (state %p: !ladle.pool<2x4x4xf32>,
    // expected-note@+1 {{declare this state with 2 heads}}
    state %s: !ladle.pool<4x4x4xf32>) -> () {
  ladle.yield
}
