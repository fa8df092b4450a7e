// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu=tile-rows=16 | FileCheck %s

// Decays that are vectors: a thread loads its elements of every entry, the
// newest first, and leaves keys in shared memory, each times the decays of the
// later ones. Only values are copied in bulk. The queries of the state wait for
// the product of all decays, those of the entries do not; tensor cores read.
// They fold, too: keys are multiplied by the decay of the token and split into
// two bf16 where they lie, the token's key is one more of them, and the decays
// of the state are multiplied with each other, before rows are gone through.
// CHECK-LABEL: gpu.func @step(
// CHECK-SAME: %[[ROWS:[^:]*]] : memref<{{[0-9]+}}x32xbf16, #gpu.address_space<workgroup>>
// CHECK-NOT: dma_start{{.*}}memref<?x2x2x32xf32
// CHECK: %[[NEWEST:.*]]:2 = scf.if %[[IS:.*]] -> (vector<1xf32>, vector<1xbf16>)
// CHECK: vector.load
// CHECK: vector.load
// CHECK: %[[OLDEST:.*]]:2 = scf.if
// CHECK: %[[KEY:.*]] = arith.extf %[[NEWEST]]#1
// CHECK: vector.store %{{.*}}, %[[KEYS:.*]][%{{.*}}, %{{.*}}] : memref<2x36xf32, #gpu.address_space<workgroup>>
// CHECK: %[[PASSED:.*]] = arith.mulf %{{.*}}, %[[NEWEST]]#0 : vector<1xf32>
// CHECK: arith.mulf %{{.*}}, %[[OLDEST]]#0 : vector<1xf32>
// CHECK: gpu.barrier
// CHECK: memref.dma_wait
// CHECK: nvgpu.mma.sync
// CHECK-NOT: memref.dma_wait
// CHECK: scf.if
// CHECK-NOT: nvgpu.mma.sync
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: %[[KEY:.*]] = vector.load %[[KEYS]]{{.*}} vector<4xf32>
// CHECK: %[[DECAY:.*]] = vector.load
// CHECK: %[[DECAYED:.*]] = arith.mulf %[[KEY]], %[[DECAY]]
// CHECK: %[[FIRST:.*]] = arith.truncf %[[DECAYED]]
// CHECK: %[[REST:.*]] = arith.subf %[[DECAYED]]
// CHECK: %[[SECOND:.*]] = arith.truncf %[[REST]]
// CHECK: %[[BOTH:.*]] = vector.shuffle %[[FIRST]], %[[SECOND]] [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: vector.store %[[BOTH]], %[[PARTS:.*]][%{{.*}}, %{{.*}}] : memref<2x72xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK: scf.for
// CHECK: vector.store %{{.*}}, %[[PARTS]]
// CHECK: scf.for
// CHECK: %[[OF_STATE:.*]] = arith.mulf
// CHECK: memref.store %[[OF_STATE]], %[[PRODUCT:.*]][
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: scf.for
// CHECK: vector.load %[[PRODUCT]]
// CHECK: vector.load %[[PARTS]]
// CHECK-COUNT-4: nvgpu.mma.sync
// CHECK-NOT: vector.fma
// CHECK: vector.store %{{.*}}, %[[ROWS]]
// CHECK: memref.dma_start %[[ROWS]]
ladle.step @step of @s route(inner) form(decode) (token %q: tensor<2x32xf32>,
    token %k: tensor<2x32xbf16>, token %v: tensor<2x16xf32>, token %a: tensor<2x32xf32>,
    state %p: !ladle.pool<2x32x16xbf16>,
    buffer %e: !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk],
    capacity = 2, order = ring, weight = linear>) -> (y: tensor<2x16xf32>) {
  %d = ladle.decay_product %e decay "decay" : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear> to tensor<2x32xf32>
  %S = ladle.load_state %p : !ladle.pool<2x32x16xbf16> to !ladle.state<2x32x16xbf16>
  %late = arith.mulf %d, %q : tensor<2x32xf32>
  %r = ladle.read %S, %late : !ladle.state<2x32x16xbf16>, tensor<2x32xf32> -> tensor<2x16xf32>
  %x = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear>, tensor<2x32xf32> -> tensor<2x16xf32>
  %y = arith.addf %r, %x : tensor<2x16xf32>
  %kf = arith.extf %k : tensor<2x32xbf16> to tensor<2x32xf32>
  ladle.append %e, %kf, %v, %a : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear>, tensor<2x32xf32>, tensor<2x16xf32>, tensor<2x32xf32>
  ladle.yield %y : tensor<2x16xf32>
}
ladle.step @fold of @s route(inner) form(decode_fold) (token %q: tensor<2x32xf32>,
    token %k: tensor<2x32xbf16>, token %v: tensor<2x16xf32>, token %a: tensor<2x32xf32>,
    state %p: !ladle.pool<2x32x16xbf16>,
    buffer %e: !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk],
    capacity = 2, order = ring, weight = linear>) -> (y: tensor<2x16xf32>) {
  %d = ladle.decay_product %e decay "decay" : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear> to tensor<2x32xf32>
  %S = ladle.load_state %p : !ladle.pool<2x32x16xbf16> to !ladle.state<2x32x16xbf16>
  %late = arith.mulf %d, %q : tensor<2x32xf32>
  %r = ladle.read %S, %late : !ladle.state<2x32x16xbf16>, tensor<2x32xf32> -> tensor<2x16xf32>
  %x = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear>, tensor<2x32xf32> -> tensor<2x16xf32>
  %y = arith.addf %r, %x : tensor<2x16xf32>
  %D = ladle.decay %S, %d : !ladle.state<2x32x16xbf16>, tensor<2x32xf32>
  %F = ladle.fold_buffer %D, %e key "k" value "u" decay "decay" : !ladle.state<2x32x16xbf16>, !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear>
  %A = ladle.decay %F, %a : !ladle.state<2x32x16xbf16>, tensor<2x32xf32>
  %kf = arith.extf %k : tensor<2x32xbf16> to tensor<2x32xf32>
  %W = ladle.write %A, %kf, %v : !ladle.state<2x32x16xbf16>, tensor<2x32xf32>, tensor<2x16xf32>
  ladle.store_state %W, %p : !ladle.state<2x32x16xbf16>, !ladle.pool<2x32x16xbf16>
  ladle.clear %e : !ladle.buffer<[k : 2x32xbf16 @dk, u : 2x16xbf16 @dv, decay : 2x32xf32 @dk], capacity = 2, order = ring, weight = linear>
  ladle.yield %y : tensor<2x16xf32>
}
