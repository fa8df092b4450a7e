// RUN: sed "s/STATE/bf16/" %s \
// RUN:   | ladle-opt --ladle-build-verify="routes=inner capacity=16 drafts=4" \
// RUN:   | FileCheck %s --check-prefix=STEP
// RUN: sed "s/STATE/bf16/" %s \
// RUN:   | ladle-opt --ladle-build-verify="routes=inner capacity=16 drafts=4" --convert-ladle-to-gpu \
// RUN:   | FileCheck %s --check-prefixes=ALL,SHORT
// RUN: sed "s/STATE/f32/" %s \
// RUN:   | ladle-opt --ladle-build-verify="routes=inner capacity=16 drafts=4" --convert-ladle-to-gpu \
// RUN:   | FileCheck %s --check-prefixes=ALL,LONG
// RUN: sed "s/STATE/f32/" %s \
// RUN:   | ladle-opt --ladle-build-verify="routes=inner capacity=16 drafts=3" --convert-ladle-to-gpu \
// RUN:   | FileCheck %s --check-prefix=THREE

// Decays a channel: vectors of drafts make room for one another.
!state = !ladle.state<2x128x64xSTATE>
ladle.recurrence @channels(token %q: tensor<2x128xf32>,
    token %k: tensor<2x128xf32>, token %v: tensor<2x64xf32>,
    token %a: tensor<2x128xf32>, state %S: !state) -> (y: tensor<2x64xf32>) {
  %ka = arith.mulf %k, %a : tensor<2x128xf32>
  %r = ladle.read %S, %ka : !state, tensor<2x128xf32> -> tensor<2x64xf32>
  %u = arith.subf %v, %r : tensor<2x64xf32>
  %D = ladle.decay %S, %a : !state, tensor<2x128xf32>
  %W = ladle.write %D, %k, %u : !state, tensor<2x128xf32>, tensor<2x64xf32>
  %qa = arith.mulf %q, %a : tensor<2x128xf32>
  %y = ladle.read %S, %qa : !state, tensor<2x128xf32> -> tensor<2x64xf32>
  ladle.yield %y, %W : tensor<2x64xf32>, !state
}

// What a state is read with is what entries are, times the decays of these:
// vectors meet those of the path once.
// STEP-LABEL: ladle.step @channels_inner_verify of
// STEP: %[[PATH:.*]] = ladle.path_decay
// STEP: %[[READS:.*]]:2 = ladle.each_draft {{.*}} stacks(%{{.*}}, %[[PATH]], %{{.*}} :
// STEP: %[[PRODUCT:.*]] = ladle.decay_product
// STEP: %[[OF_STATE:.*]]:2 = ladle.each_draft {{.*}} stacks(%[[READS]]#0, %[[READS]]#1 :
// STEP-COUNT-2: arith.mulf %{{.*}}, %[[PRODUCT]]
// STEP: ladle.read %{{.*}}, %[[OF_STATE]]#0
// STEP: ladle.read_buffer %S_entries[%[[READS]]#0, %[[READS]]#1]

// Decays and keys that are stored, and two reads, of four drafts each; two more
// where the former wait in shared memory.
// ALL-LABEL: gpu.func @channels_inner_verify(
// SHORT-SAME: workgroup({{.*}} : memref<16x144xf32,
// LONG-SAME: workgroup({{.*}} : memref<24x144xf32,
// ALL-COUNT-4: vector.store {{.*}} memref<{{16|24}}x144xf32
// ALL: gpu.barrier
// A team has what it reads with once more, times the decay of its path, which
// has no rows.
// ALL-COUNT-2: vector.store {{.*}} memref<{{16|24}}x144xf32
// ALL: gpu.barrier
// Of rows that do not fold, vectors for the state come after a barrier: all
// teams have read what was there.
// ALL: } else {
// ALL-COUNT-2: vector.store {{.*}} memref<{{16|24}}x144xf32
// ALL: gpu.barrier
// ALL-NOT: vector.store {{.*}} memref<{{16|24}}x144xf32

// Of four teams for three drafts, the last reads nothing that others may be
// storing.
// THREE-LABEL: gpu.func @channels_inner_verify(
// THREE: workgroup({{.*}} : memref<18x144xf32,
// THREE: scf.if %{{.*}} -> (vector<4xf32>) {
// THREE-NEXT: arith.addi
// THREE: vector.load {{.*}} memref<18x144xf32
