// RUN: ladle-opt %s --convert-ladle-to-gpu --split-input-file --verify-diagnostics
// RUN: not ladle-opt %s --convert-ladle-to-gpu=threads=48 --split-input-file 2>&1 | FileCheck %s --check-prefix=THREADS

// THREADS: error: threads must be a multiple of 32 up to 512, got 48

// The sum over dv keeps all rows in one block, and what is read is not what was
// loaded, so that threads hold it.
// expected-error @+2 {{a head of the state has 512 × 256 elements that one block must hold, but 512 threads hold 128 each}}
// expected-note @+1 {{what is summed over dv, or goes from dv to dk, keeps rows together}}
ladle.step @norm of @r route(recurrent) form(decode) (token %q: tensor<1x256xf32>,
    token %a: tensor<2xf32>,
    state %p: !ladle.pool<2x256x512xf32>) -> (y: tensor<2xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x256x512xf32> to !ladle.state<2x256x512xf32>
  %D = ladle.decay %S, %a : !ladle.state<2x256x512xf32>, tensor<2xf32>
  %y = ladle.read %D, %q : !ladle.state<2x256x512xf32>, tensor<1x256xf32> -> tensor<2x512xf32>
  %n = ladle.sum %y dim 1 : tensor<2x512xf32> to tensor<2xf32>
  ladle.yield %n : tensor<2xf32>
}

// -----

// Products of vector decays lie in shared memory.
// expected-error @+2 {{its entries need 266240 bytes of shared memory in a block, but there are 231424}}
// expected-note @+1 {{a ring of fewer entries needs less (--capacity), the route recurrent none}}
ladle.step @long of @s route(kv_only) form(decode) (token %q: tensor<2x64xf32>,
    token %k: tensor<2x64xf32>, token %v: tensor<2x16xf32>, token %a: tensor<2x64xf32>,
    buffer %e: !ladle.buffer<[k : 2x64xf32 @dk, u : 2x16xf32 @dv, decay : 2x64xf32 @dk],
    capacity = 1024, order = ring, weight = linear>) -> (y: tensor<2x16xf32>) {
  %y = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ladle.buffer<[k : 2x64xf32 @dk, u : 2x16xf32 @dv, decay : 2x64xf32 @dk], capacity = 1024, order = ring, weight = linear>, tensor<2x64xf32> -> tensor<2x16xf32>
  ladle.append %e, %k, %v, %a : !ladle.buffer<[k : 2x64xf32 @dk, u : 2x16xf32 @dv, decay : 2x64xf32 @dk], capacity = 1024, order = ring, weight = linear>, tensor<2x64xf32>, tensor<2x16xf32>, tensor<2x64xf32>
  ladle.yield %y : tensor<2x16xf32>
}

// -----

// expected-error @+1 {{cannot be lowered for GPUs: drafts wait in a buffer of entries, and there is none}}
ladle.step @v of @r route(inner) form(verify) (drafts %d: !ladle.drafts<2>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{cannot be lowered for GPUs: drafts wait in a buffer whose order is indexed, not ring}}
ladle.step @v of @r route(inner) form(verify) (drafts %d: !ladle.drafts<2>,
    buffer %e: !ladle.buffer<[k : 2x64xf32 @dk], capacity = 8, order = ring, weight = linear>) -> () {
  ladle.yield
}

// -----

// What is read goes from dv to dk, and there it is multiplied with keys.
ladle.step @v of @r route(inner) form(verify) (token %q: tensor<2x16xf32>,
    state %p: !ladle.pool<2x16x16xf32>, drafts %d: !ladle.drafts<2>,
    buffer %e: !ladle.buffer<[k : 2x16xf32 @dk], capacity = 8, order = indexed, weight = linear>) -> () {
  %k = ladle.each_draft %d : !ladle.drafts<2> {
    ladle.yield_draft %q : tensor<2x16xf32>
  } -> tensor<2x2x16xf32>
  %S = ladle.load_state %p : !ladle.pool<2x16x16xf32> to !ladle.state<2x16x16xf32>
  %y = ladle.read %S, %k : !ladle.state<2x16x16xf32>, tensor<2x2x16xf32> -> tensor<2x2x16xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: what is read of a state is needed along dk}}
  %g = ladle.path_gram %k, %y along %d : !ladle.drafts<2>, tensor<2x2x16xf32>, tensor<2x2x16xf32> -> tensor<2x2x1x2x1xf32>
  ladle.yield
}

// -----

// expected-error @+2 {{cannot be lowered for GPUs: drafts of states that lie [dk, dv] are not verified on a GPU yet}}
// expected-note @+1 {{lay states out dv_dk}}
ladle.step @v of @r route(inner) form(verify) (drafts %d: !ladle.drafts<2>,
    state %p: !ladle.pool<2x16x16xf32, dk_dv>,
    buffer %e: !ladle.buffer<[k : 2x16xf32 @dk], capacity = 8, order = indexed, weight = linear>) -> () {
  ladle.yield
}
