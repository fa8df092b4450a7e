// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

// What is read of a state reaches an answer of 16 bits through elementwise
// operations alone: two parts of the state are enough.
ladle.step @rounded of @linear route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xbf16>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %value: tensor<2x64xf32>):
    %sum = arith.addf %x, %value : tensor<2x64xf32>
    %short = arith.truncf %sum : tensor<2x64xf32> to tensor<2x64xbf16>
    ladle.yield_draft %short : tensor<2x64xbf16>
  } -> tensor<2x32x64xbf16>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%0#1 : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xbf16>
}

// CHECK-LABEL: gpu.func @rounded
// CHECK-COUNT-2: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: arith.truncf
// CHECK: nvgpu.mma.sync

// The same answer in 32 bits takes all three.
ladle.step @whole of @linear route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xf32>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %value: tensor<2x64xf32>):
    %sum = arith.addf %x, %value : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%0#1 : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xf32>
}

// CHECK-LABEL: gpu.func @whole
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK: nvgpu.mma.sync

// So does an answer of 16 bits that is solved for, and folded.
ladle.step @solved of @linear route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xbf16>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %g = ladle.path_gram %0#0, %0#0 decay %0#2 along %d : !ladle.drafts<32, chain>, tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32> -> tensor<2x32x1x32x1xf32>
  %u = ladle.path_solve[%r : tensor<2x32x64xf32>] through[%g : tensor<2x32x1x32x1xf32>]
      rows [0] columns [0] along %d : !ladle.drafts<32, chain> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain> stacks(%u : tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>):
    %short = arith.truncf %x : tensor<2x64xf32> to tensor<2x64xbf16>
    ladle.yield_draft %short : tensor<2x64xbf16>
  } -> tensor<2x32x64xbf16>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%u : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xbf16>
}

// CHECK-LABEL: gpu.func @solved
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>

// And one that depends on a comparison.
ladle.step @compared of @linear route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xbf16>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %value: tensor<2x64xf32>):
    %is = arith.cmpf olt, %x, %value : tensor<2x64xf32>
    %zero = arith.constant dense<0.0> : tensor<2x64xf32>
    %least = arith.select %is, %value, %zero : tensor<2x64xi1>, tensor<2x64xf32>
    %short = arith.truncf %least : tensor<2x64xf32> to tensor<2x64xbf16>
    ladle.yield_draft %short : tensor<2x64xbf16>
  } -> tensor<2x32x64xbf16>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%0#1 : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xbf16>
}

// CHECK-LABEL: gpu.func @compared
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NOT: nvgpu.mma.sync
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
