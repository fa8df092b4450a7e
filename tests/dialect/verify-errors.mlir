// RUN: ladle-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{of form verify must have one argument of drafts, got 0}}
ladle.step @s of @r route(inner) form(verify) () -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{of form decode must have no argument of drafts, got 1}}
ladle.step @s of @r route(inner) form(decode) (drafts %d: !ladle.drafts<2>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{a row has 1 to 64 drafts, got 0}}
ladle.step @s of @r route(inner) form(verify) (drafts %d: !ladle.drafts<0>) -> () {
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  // expected-error @+1 {{uses a token outside of ladle.each_draft}}
  %0 = arith.negf %k : tensor<1x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  // expected-error @+1 {{result for a value 'tensor<1x4xf32>' must be stacked for '!ladle.drafts<2>', got 'tensor<1x3x4xf32>'}}
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x3x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  // expected-error @+1 {{result must be [heads, T, R, T, K] = 'tensor<1x2x1x2x1xf32>', got 'tensor<1x2x2xf32>'}}
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x2xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x1x2x1xf32>
  // expected-error @+1 {{couples 0 to 1 of 1 unknowns}}
  %2 = ladle.path_solve [%0 : tensor<1x2x4xf32>] through [%1 : tensor<1x2x1x2x1xf32>] rows [0] columns [1] along %d : !ladle.drafts<2> -> tensor<1x2x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x1x2x1xf32>
  // expected-error @+1 {{scales unknown 1 of 1, or scales it twice}}
  %2 = ladle.path_solve [%0 : tensor<1x2x4xf32>] through [%1 : tensor<1x2x1x2x1xf32>] rows [0] columns [0] scales [%0 : tensor<1x2x4xf32>] of [1] along %d : !ladle.drafts<2> -> tensor<1x2x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x1x2x1xf32>
  // expected-error @+1 {{scales unknown 0 of 1, or scales it twice}}
  %2 = ladle.path_solve [%0 : tensor<1x2x4xf32>] through [%1 : tensor<1x2x1x2x1xf32>] rows [0] columns [0] scales [%0, %0 : tensor<1x2x4xf32>, tensor<1x2x4xf32>] of [0, 0] along %d : !ladle.drafts<2> -> tensor<1x2x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x1x2x1xf32>
  // expected-error @+1 {{needs an unknown for each of 1 scales}}
  %2 = ladle.path_solve [%0 : tensor<1x2x4xf32>] through [%1 : tensor<1x2x1x2x1xf32>] rows [0] columns [0] scales [%0 : tensor<1x2x4xf32>] of [] along %d : !ladle.drafts<2> -> tensor<1x2x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>, drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  %1 = ladle.path_gram %0, %0 along %d : !ladle.drafts<2>, tensor<1x2x4xf32>, tensor<1x2x4xf32> -> tensor<1x2x1x2x1xf32>
  // expected-error @+1 {{scale 'tensor<1x2x1x2x1xf32>' does not fit 'tensor<1x2x4xf32>'}}
  %2 = ladle.path_solve [%0 : tensor<1x2x4xf32>] through [%1 : tensor<1x2x1x2x1xf32>] rows [0] columns [0] scales [%1 : tensor<1x2x1x2x1xf32>] of [0] along %d : !ladle.drafts<2> -> tensor<1x2x4xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(verify) (token %k: tensor<1x4xf32>,
    buffer %b: !ladle.buffer<[k : 1x8xf32 @dk], capacity = 8, order = indexed, weight = linear>,
    drafts %d: !ladle.drafts<2>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %k : tensor<1x4xf32>
  } -> tensor<1x2x4xf32>
  // expected-error @+1 {{stack of field 'k' must have its shape for each draft, got 'tensor<1x2x4xf32>'}}
  ladle.append_drafts %b, %0 along %d : !ladle.buffer<[k : 1x8xf32 @dk], capacity = 8, order = indexed, weight = linear>, !ladle.drafts<2>, tensor<1x2x4xf32>
  ladle.yield
}
