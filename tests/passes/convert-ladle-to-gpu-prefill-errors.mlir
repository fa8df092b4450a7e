// RUN: ladle-opt %s --convert-ladle-to-gpu --split-input-file --verify-diagnostics

// Nothing to do is no error.
ladle.step @empty of @r route(inner) form(prefill_fold) (drafts %d: !ladle.drafts<64, chain>) -> () {
  ladle.yield
}

// -----

// expected-error @+2 {{cannot be lowered for GPUs: its states are of different sizes, 64 x 64 and 64 x 32}}
// expected-note @+1 {{decode on the CPU, or make the smaller one as large}}
ladle.step @sizes of @r route(inner) form(prefill_fold) (state %S: !ladle.pool<2x64x64xf32>,
    state %T: !ladle.pool<2x64x32xf32>, drafts %d: !ladle.drafts<64, chain>) -> () {
  ladle.yield
}

// -----

ladle.step @constant of @r route(inner) form(prefill_fold) (drafts %d: !ladle.drafts<4, chain>) -> (y: tensor<2xf32>) {
  %c = arith.constant dense<1.0> : tensor<2x4xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: nothing makes this stack before it is used}}
  %y = ladle.each_draft %d : !ladle.drafts<4, chain> stacks(%c : tensor<2x4xf32>) {
  ^bb0(%a: tensor<2xf32>):
    ladle.yield_draft %a : tensor<2xf32>
  } -> tensor<2x4xf32>
  ladle.yield %y : tensor<2x4xf32>
}

// -----

ladle.step @other of @r route(inner) form(prefill_fold) (token %k: tensor<2x16xf32>,
    state %p: !ladle.pool<2x16x8xf32>, drafts %d: !ladle.drafts<4, chain>) -> (y: tensor<2x8xf32>) {
  %0 = ladle.each_draft %d : !ladle.drafts<4, chain> {
    ladle.yield_draft %k : tensor<2x16xf32>
  } -> tensor<2x4x16xf32>
  %z = ladle.zero_state : !ladle.state<2x16x8xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: takes a state that no chunk is folded into}}
  %r = ladle.read %z, %0 : !ladle.state<2x16x8xf32>, tensor<2x4x16xf32> -> tensor<2x4x8xf32>
  ladle.yield %r : tensor<2x4x8xf32>
}

// -----

// expected-error @+1 {{cannot be lowered for GPUs: an output is none of ladle.each_draft}}
ladle.step @plain of @r route(inner) form(prefill_fold) (token %k: tensor<2x16xf32>,
    state %p: !ladle.pool<2x16x8xf32>, drafts %d: !ladle.drafts<4, chain>) -> (y: tensor<2x8xf32>) {
  %0 = ladle.each_draft %d : !ladle.drafts<4, chain> {
    ladle.yield_draft %k : tensor<2x16xf32>
  } -> tensor<2x4x16xf32>
  %s = ladle.load_state %p : !ladle.pool<2x16x8xf32> to !ladle.state<2x16x8xf32>
  %r = ladle.read %s, %0 : !ladle.state<2x16x8xf32>, tensor<2x4x16xf32> -> tensor<2x4x8xf32>
  ladle.yield %r : tensor<2x4x8xf32>
}

// -----

ladle.step @pool of @r route(inner) form(prefill_fold) (state %p: !ladle.pool<2x16x8xf32>,
    drafts %d: !ladle.drafts<4, chain>) -> () {
  %s = ladle.load_state %p : !ladle.pool<2x16x8xf32> to !ladle.state<2x16x8xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: stores a state that is not that of its pool with a chunk folded}}
  ladle.store_state %s, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.yield
}

// -----

// The rows of a state are square, and what is read of it becomes a key.
ladle.step @keys of @r route(inner) form(prefill_fold) (token %k: tensor<2x16xf32>,
    state %p: !ladle.pool<2x16x16xf32>, drafts %d: !ladle.drafts<4, chain>) -> () {
  %0 = ladle.each_draft %d : !ladle.drafts<4, chain> {
    ladle.yield_draft %k : tensor<2x16xf32>
  } -> tensor<2x4x16xf32>
  %s = ladle.load_state %p : !ladle.pool<2x16x16xf32> to !ladle.state<2x16x16xf32>
  %r = ladle.read %s, %0 : !ladle.state<2x16x16xf32>, tensor<2x4x16xf32> -> tensor<2x4x16xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: what is read of a state is needed along dk}}
  %f = ladle.fold_drafts %s keys[%r : tensor<2x4x16xf32>] values[%0 : tensor<2x4x16xf32>] along %d : !ladle.state<2x16x16xf32>, !ladle.drafts<4, chain>
  ladle.store_state %f, %p : !ladle.state<2x16x16xf32>, !ladle.pool<2x16x16xf32>
  ladle.yield
}

// -----

// A sum over dv keeps the rows of a state in one block.
// expected-error @+2 {{a chunk of its prompts needs 1230336 bytes of shared memory in a block, but there are 231424}}
// expected-note @+1 {{prompts of this shape are decoded by steps, or prefilled by the target cpu}}
ladle.step @large of @r route(inner) form(prefill_fold) (token %k: tensor<2x256xf32>, token %v: tensor<2x1024xf32>,
    state %p: !ladle.pool<2x256x1024xf32>, drafts %d: !ladle.drafts<4, chain>) -> (y: tensor<2xf32>) {
  %0:2 = ladle.each_draft %d : !ladle.drafts<4, chain> {
    ladle.yield_draft %k, %v : tensor<2x256xf32>, tensor<2x1024xf32>
  } -> tensor<2x4x256xf32>, tensor<2x4x1024xf32>
  %s = ladle.load_state %p : !ladle.pool<2x256x1024xf32> to !ladle.state<2x256x1024xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x256x1024xf32>, tensor<2x4x256xf32> -> tensor<2x4x1024xf32>
  %y = ladle.each_draft %d : !ladle.drafts<4, chain> stacks(%r : tensor<2x4x1024xf32>) {
  ^bb0(%a: tensor<2x1024xf32>):
    %n = ladle.sum %a dim 1 : tensor<2x1024xf32> to tensor<2xf32>
    ladle.yield_draft %n : tensor<2xf32>
  } -> tensor<2x4xf32>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x4x256xf32>] values[%0#1 : tensor<2x4x1024xf32>] along %d : !ladle.state<2x256x1024xf32>, !ladle.drafts<4, chain>
  ladle.store_state %f, %p : !ladle.state<2x256x1024xf32>, !ladle.pool<2x256x1024xf32>
  ladle.yield %y : tensor<2x4xf32>
}

// -----

!entries = !ladle.buffer<[k : 2x16xf32 @dk, a : 2xf32 @scalar, u : 2x8xf32 @dv], capacity = 16, order = ring, page = 8, weight = linear>
ladle.step @decays of @r route(kv_only) form(prefill_entries) (token %k: tensor<2x16xf32>, token %v: tensor<2x8xf32>,
    state %p: !ladle.pool<2x16x8xf32>, buffer %e: !entries, drafts %d: !ladle.drafts<4, chain>) -> () {
  %0:2 = ladle.each_draft %d : !ladle.drafts<4, chain> {
    ladle.yield_draft %k, %v : tensor<2x16xf32>, tensor<2x8xf32>
  } -> tensor<2x4x16xf32>, tensor<2x4x8xf32>
  %z = ladle.zero_state : !ladle.state<2x16x8xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: entries of a state decay together}}
  %1 = ladle.fold_buffer %z, %e key "k" value "u" : !ladle.state<2x16x8xf32>, !entries
  %2 = ladle.fold_buffer %1, %e key "k" value "u" decay "a" : !ladle.state<2x16x8xf32>, !entries
  %3 = ladle.fold_drafts %2 keys[%0#0 : tensor<2x4x16xf32>] values[%0#1 : tensor<2x4x8xf32>] along %d : !ladle.state<2x16x8xf32>, !ladle.drafts<4, chain>
  ladle.store_state %3, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.yield
}

// -----

ladle.step @s of @r route(inner) form(prefill_scan) (state %p: !ladle.pool<2x16x8xf32>) -> () {
  %z = ladle.zero_state : !ladle.state<2x16x8xf32>
  // expected-error @+1 {{cannot be lowered for GPUs: a prompt stores a state that it has not loaded}}
  ladle.store_state %z, %p : !ladle.state<2x16x8xf32>, !ladle.pool<2x16x8xf32>
  ladle.yield
}
