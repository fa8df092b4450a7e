// RUN: ladle-opt %s --convert-ladle-to-gpu --canonicalize --cse | FileCheck %s

// 16 rows of 32 keys: 8 lanes cover a row by 4 elements each, so that 128
// threads hold one chunk. The state is loaded first; the query goes through
// shared memory; a butterfly over 8 lanes ends the dot products, and thread v
// keeps element v.
// CHECK-LABEL: gpu.func @read(
// CHECK-SAME: %[[READ:[^:]*]]: memref<?xi32> {ladle.name = "read_slots"}
// CHECK-SAME: memref<?x2x16x32xf32, strided<[?, 512, 32, 1], offset: ?>> {ladle.name = "p"}
// CHECK-SAME: workgroup(%[[QUERY:[^:]*]] : memref<1x32xf32, #gpu.address_space<workgroup>>, %[[READS:[^:]*]] : memref<1x16xf32, #gpu.address_space<workgroup>>)
// CHECK-SAME: kernel attributes {known_block_size = array<i32: 128, 1, 1>, ladle.grid_blocks = 2 : index}
// CHECK: %[[THREAD:.*]] = gpu.thread_id x
// CHECK: %[[ROW:.*]] = gpu.block_id y
// CHECK: %[[HEAD:.*]] = gpu.block_id x
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK: %[[GROUP:.*]] = arith.divui %[[THREAD]], %c8
// CHECK: %[[SLOT:.*]] = memref.load %[[READ]][%[[ROW]]]
// The row of a padded slot is zero.
// CHECK: scf.if
// CHECK: memref.store %cst
// CHECK: } else {
// CHECK: %[[KEY:.*]] = arith.muli %[[LANE]], %c4
// CHECK: %[[STATE:.*]] = vector.load %{{.*}}[%{{.*}}, %[[HEAD]], %[[GROUP]], %[[KEY]]] {nontemporal = true}
// CHECK: memref.store %{{.*}}, %[[QUERY]][%c0, %[[THREAD]]]
// CHECK: gpu.barrier
// CHECK: %[[Q:.*]] = vector.load %[[QUERY]][%c0, %[[KEY]]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[STATE]], %[[Q]] : vector<4xf32>
// CHECK: %[[SUM:.*]] = vector.reduction <add>, %[[PRODUCT]]
// CHECK: gpu.shuffle  xor %[[SUM]], %c1_i32
// CHECK: gpu.shuffle  xor %{{.*}}, %c2_i32
// CHECK: gpu.shuffle  xor %{{.*}}, %c4_i32
// CHECK-NOT: gpu.shuffle
// CHECK: memref.store %{{.*}}, %[[READS]][%c0, %[[GROUP]]]
// CHECK: gpu.barrier
// CHECK: %[[MINE:.*]] = memref.load %[[READS]]
// CHECK: memref.store %[[MINE]], %{{.*}}[%[[ROW]], %[[HEAD]], %[[THREAD]]]
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x16xf32>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x16xf32> to !ladle.state<2x32x16xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x16xf32>, tensor<1x32xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}

// Rows meet no other row, so a large state is shared out: 4 tiles of 128 rows
// for each of 2 heads, 256 elements a row in 256 threads.
// CHECK-LABEL: gpu.func @tiles(
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>, ladle.grid_blocks = 16 : index
// CHECK: %[[TILE:.*]] = arith.remui %{{.*}}, %c8
// CHECK: arith.muli %[[TILE]], %c64
ladle.step @tiles of @t route(recurrent) form(decode) (token %q: tensor<1x256xf32>,
    state %p: !ladle.pool<2x256x512xbf16>) -> (y: tensor<2x512xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x256x512xbf16> to !ladle.state<2x256x512xbf16>
  %y = ladle.read %S, %q : !ladle.state<2x256x512xbf16>, tensor<1x256xf32> -> tensor<2x512xf32>
  ladle.yield %y : tensor<2x512xf32>
}
