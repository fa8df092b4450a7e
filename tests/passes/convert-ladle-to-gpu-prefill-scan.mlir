// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s
// RUN: ladle-opt %s --convert-ladle-to-gpu="batch=1" \
// RUN:   | FileCheck %s --check-prefix=FEW

// Heads of one value: a lane has a head's row, from the first token to the last.
ladle.step @channels of @channels route(inner) form(prefill_scan)
    (param %A: tensor<64x16xf32>, token %x: tensor<64x1xbf16>,
     token %B: tensor<1x16xbf16>, state %S: !ladle.pool<64x16x1xf32>)
    -> (y: tensor<64x1xf32>) {
  %xf = arith.extf %x : tensor<64x1xbf16> to tensor<64x1xf32>
  %Bf = arith.extf %B : tensor<1x16xbf16> to tensor<1x16xf32>
  %a = math.exp %A : tensor<64x16xf32>
  %s = ladle.load_state %S : !ladle.pool<64x16x1xf32> to !ladle.state<64x16x1xf32>
  %s1 = ladle.decay %s, %a : !ladle.state<64x16x1xf32>, tensor<64x16xf32>
  %s2 = ladle.write %s1, %Bf, %xf : !ladle.state<64x16x1xf32>, tensor<1x16xf32>, tensor<64x1xf32>
  %y = ladle.read %s2, %Bf : !ladle.state<64x16x1xf32>, tensor<1x16xf32> -> tensor<64x1xf32>
  ladle.store_state %s2, %S : !ladle.state<64x16x1xf32>, !ladle.pool<64x16x1xf32>
  ladle.yield %y : tensor<64x1xf32>
}

// CHECK-LABEL: gpu.func @channels(
// CHECK-SAME: ladle.name = "pad_slot"
// CHECK-SAME: ladle.name = "cu_seqlens"
// CHECK-SAME: ladle.name = "A"
// CHECK-SAME: known_block_size = array<i32: 64, 1, 1>
// CHECK-SAME: ladle.common_arguments = 6
// CHECK-SAME: ladle.grid_blocks = 1
// Rows of the tile go to registers; what needs no token is computed ahead.
// CHECK: memref.dma_start
// CHECK: memref.dma_wait
// CHECK-COUNT-4: vector.load %{{.*}} : memref<64x16xf32, #gpu.address_space<workgroup>>
// CHECK-COUNT-4: math.exp
// Of each token 4 loads: those of the first four tokens come before any is
// answered, and those of another with each that is.
// CHECK-COUNT-16: vector.load %{{.*}} : memref<?x1x16xbf16
// CHECK: scf.for %{{.*}} iter_args(%{{.*}}) -> (vector<4xf32>, vector<4xf32>,
// CHECK-NOT: math.exp
// CHECK-COUNT-4: vector.load %{{.*}} : memref<?x1x16xbf16
// CHECK: vector.fma
// CHECK: memref.store %{{.*}} : memref<?x64x1xf32
// CHECK: scf.yield
// CHECK: {ladle.unroll = 4 : index}
// CHECK-COUNT-4: vector.store %{{.*}} : memref<?x64x1x16xf32
// FEW: gpu.func @channels(
// Of one row two lanes have a head.
// FEW: scf.for %{{.*}} iter_args(%{{.*}}) -> (vector<4xf32>, vector<4xf32>,
// FEW: gpu.shuffle
// FEW: {ladle.unroll = 6 : index}

// What is read of a state becomes a carry: rows meet in shared memory, twice a
// token, so that nobody writes what another still reads.
ladle.step @carried of @carried route(recurrent) form(prefill_scan)
    (token %k: tensor<2x32xf32>, carry %c: tensor<2x32xbf16>,
     state %S: !ladle.pool<2x32x32xf32>) -> (y: tensor<2x32xf32>) {
  %cf = arith.extf %c : tensor<2x32xbf16> to tensor<2x32xf32>
  %q = arith.addf %k, %cf : tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x32x32xf32> to !ladle.state<2x32x32xf32>
  %r = ladle.read %s, %q : !ladle.state<2x32x32xf32>, tensor<2x32xf32> -> tensor<2x32xf32>
  %u = math.tanh %r : tensor<2x32xf32>
  %s1 = ladle.write %s, %k, %u : !ladle.state<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32xf32>
  ladle.store_state %s1, %S : !ladle.state<2x32x32xf32>, !ladle.pool<2x32x32xf32>
  %next = arith.truncf %u : tensor<2x32xf32> to tensor<2x32xbf16>
  ladle.yield %r, %next : tensor<2x32xf32>, tensor<2x32xbf16>
}

// What it leaves goes to memory of its own, from the last argument on, rounded
// as a step would have.
// CHECK-LABEL: gpu.func @carried(
// CHECK-SAME: %[[NEXT:[^:]*]]: memref<?x2x32xbf16{{[^{]*}} {ladle.name = "next_c"}
// CHECK: scf.for
// CHECK: gpu.barrier
// CHECK: arith.truncf
// CHECK: gpu.barrier
// CHECK: scf.yield
// CHECK: memref.store %{{.*}}, %[[NEXT]]
