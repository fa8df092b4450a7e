// RUN: ladle-opt %s --convert-ladle-to-gpu --canonicalize --cse | FileCheck %s

// 16 rows of 32 keys: a group of 8 lanes covers a row by 4 elements each. The
// state is copied to shared memory as a whole while the query is loaded; each
// group reads 4 rows, and a butterfly that adds and halves leaves row i with
// lane i, which stores it.
// CHECK-LABEL: gpu.func @read(
// CHECK-SAME: %[[READ:[^:]*]]: memref<?xi32> {ladle.name = "read_slots"}
// CHECK-SAME: {ladle.alignment = 16 : index, ladle.name = "q"}
// CHECK-SAME: memref<?x2x16x32xf32, strided<[?, 512, 32, 1], offset: ?>> {ladle.name = "p"}
// CHECK-SAME: workgroup(%[[COPIES:[^:]*]] : memref<1xi64, #gpu.address_space<workgroup>>, %[[TILE:[^:]*]] : memref<16x32xf32, #gpu.address_space<workgroup>>)
// CHECK-SAME: kernel attributes {known_block_size = array<i32: 32, 1, 1>, ladle.common_arguments = 5 : index, ladle.grid_blocks = 2 : index, ladle.starts_early, ladle.wide_products}
// The next kernel of the stream may start, as this one did: it waits for those
// ahead of it before it writes.
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: %[[THREAD:.*]] = gpu.thread_id x
// CHECK: %[[ROW:.*]] = gpu.block_id y
// CHECK: %[[HEAD:.*]] = gpu.block_id x
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK: %[[KEY:.*]] = arith.muli %[[LANE]], %c4
// The query needs no slot.
// CHECK: %[[QUERY:.*]] = vector.load %{{.*}}[%[[ROW]], %c0, %[[KEY]]]
// CHECK: %[[SLOT:.*]] = memref.load %[[READ]][%[[ROW]]]
// The row of a padded slot is zero.
// CHECK: scf.if
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.store %cst
// CHECK: } else {
// CHECK: memref.dma_start %{{.*}}[%{{.*}}, %[[HEAD]], %c0, %c0], %[[TILE]][%c0, %c0], %c512, %[[COPIES]][%c0] {nontemporal}
// CHECK: memref.dma_wait %[[COPIES]]
// CHECK: nvvm.griddepcontrol wait
// CHECK: %[[STATE:.*]] = vector.load %[[TILE]][%{{.*}}, %[[KEY]]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[STATE]], %[[QUERY]] : vector<4xf32>
// CHECK: vector.reduction <add>, %[[PRODUCT]]
// Four rows become two, one, and the sum over the other lanes.
// CHECK: gpu.shuffle  xor %{{.*}}, %c2_i32
// CHECK: gpu.shuffle  xor %{{.*}}, %c2_i32
// CHECK: gpu.shuffle  xor %{{.*}}, %c1_i32
// CHECK: gpu.shuffle  xor %{{.*}}, %c4_i32
// CHECK-NOT: gpu.shuffle
// CHECK-NOT: gpu.barrier
// CHECK: scf.if
// CHECK-NEXT: memref.store %{{.*}}, %{{.*}}[%[[ROW]], %[[HEAD]], %{{.*}}] {ladle.kept}
ladle.step @read of @r route(recurrent) form(decode) (token %q: tensor<1x32xf32>,
    state %p: !ladle.pool<2x32x16xf32>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x16xf32> to !ladle.state<2x32x16xf32>
  %y = ladle.read %S, %q : !ladle.state<2x32x16xf32>, tensor<1x32xf32> -> tensor<2x16xf32>
  ladle.yield %y : tensor<2x16xf32>
}

// Rows meet no other row, so a large state is shared out: 16 tiles of 32 rows,
// 16 KiB each, for each of 2 heads. Tensor cores multiply rows of bf16 with the
// three parts of a query, which lie in shared memory with a row of zeros.
// CHECK-LABEL: gpu.func @tiles(
// CHECK-SAME: %[[ROWS:[^:]*]] : memref<32x256xbf16, #gpu.address_space<workgroup>>
// CHECK-SAME: %[[PARTS:[^:]*]] : memref<4x264xbf16, #gpu.address_space<workgroup>>
// CHECK-SAME: known_block_size = array<i32: 32, 1, 1>, ladle.common_arguments = 5 : index, ladle.grid_blocks = 32 : index
// CHECK: %[[TILE:.*]] = arith.remui %{{.*}}, %c16
// CHECK: arith.muli %[[TILE]], %c32
// CHECK: %[[HIGH:.*]] = arith.truncf %[[QUERY:.*]] : vector<4xf32> to vector<4xbf16>
// CHECK: %[[WIDE:.*]] = arith.extf %[[HIGH]]
// CHECK: %[[REST:.*]] = arith.subf %[[QUERY]], %[[WIDE]]
// CHECK: arith.truncf %[[REST]]
// CHECK: vector.store %[[HIGH]], %[[PARTS]]
// CHECK: gpu.barrier
// CHECK: memref.dma_wait
// CHECK: scf.for
// CHECK: vector.load %[[PARTS]]{{.*}} vector<8xbf16>
// CHECK-COUNT-2: vector.load %[[ROWS]]{{.*}} vector<8xbf16>
// CHECK-COUNT-2: nvgpu.mma.sync{{.*}} {mmaShape = [16, 8, 16]}
// CHECK-COUNT-2: vector.load %[[ROWS]]{{.*}} vector<8xbf16>
// CHECK-COUNT-2: nvgpu.mma.sync
ladle.step @tiles of @t route(recurrent) form(decode) (token %q: tensor<1x256xf32>,
    state %p: !ladle.pool<2x256x512xbf16>) -> (y: tensor<2x512xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x256x512xbf16> to !ladle.state<2x256x512xbf16>
  %y = ladle.read %S, %q : !ladle.state<2x256x512xbf16>, tensor<1x256xf32> -> tensor<2x512xf32>
  ladle.yield %y : tensor<2x512xf32>
}

// Rows that fold and rows that do not are two branches of one kernel. Entries
// are copied, too: the part of the ring up to its end, and the part after it.
// The number of each entry is with a lane, before it is known where the ring
// starts. Entries are waited for before states. The fold is a product of tiles;
// rows are stored where they were read, and leave in one piece.
// CHECK-LABEL: gpu.func @step(
// CHECK-SAME: %[[ROWS:[^:]*]] : memref<16x32xf32, #gpu.address_space<workgroup>>
// CHECK: %[[DECAYS:.*]] = memref.load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : memref<?x2x4xf32
// CHECK: %[[FOLDS:.*]] = arith.ori
// CHECK-COUNT-4: memref.dma_start
// CHECK: gpu.shuffle  idx %[[DECAYS]]
// CHECK-COUNT-2: memref.dma_wait
// CHECK: scf.if %[[FOLDS]] {
// CHECK: %[[OLD:.*]] = vector.load %[[ROWS]]
// CHECK: nvgpu.mma.sync
// CHECK: arith.addf %[[OLD]], %{{.*}} : vector<4xf32>
// CHECK: vector.store %{{.*}}, %[[ROWS]]
// CHECK: memref.dma_start %[[ROWS]]
// CHECK: } else {
// CHECK-NOT: nvgpu.mma.sync
// CHECK: gpu.return
ladle.step @step of @s route(inner) form(decode) (token %q: tensor<2x32xf32>,
    token %k: tensor<2x32xf32>, token %v: tensor<2x16xf32>, token %a: tensor<2xf32>,
    state %p: !ladle.pool<2x32x16xf32>,
    buffer %e: !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar],
    capacity = 4, order = ring, weight = linear>) -> (y: tensor<2x16xf32>) {
  %y = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>, tensor<2x32xf32> -> tensor<2x16xf32>
  ladle.append %e, %k, %v, %a : !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>, tensor<2x32xf32>, tensor<2x16xf32>, tensor<2xf32>
  ladle.yield %y : tensor<2x16xf32>
}
ladle.step @fold of @s route(inner) form(decode_fold) (token %q: tensor<2x32xf32>,
    token %k: tensor<2x32xf32>, token %v: tensor<2x16xf32>, token %a: tensor<2xf32>,
    state %p: !ladle.pool<2x32x16xf32>,
    buffer %e: !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar],
    capacity = 4, order = ring, weight = linear>) -> (y: tensor<2x16xf32>) {
  %S = ladle.load_state %p : !ladle.pool<2x32x16xf32> to !ladle.state<2x32x16xf32>
  %y = ladle.read_buffer %e[%q] key "k" value "u" decay "decay" : !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>, tensor<2x32xf32> -> tensor<2x16xf32>
  %F = ladle.fold_buffer %S, %e key "k" value "u" decay "decay" : !ladle.state<2x32x16xf32>, !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>
  ladle.store_state %F, %p : !ladle.state<2x32x16xf32>, !ladle.pool<2x32x16xf32>
  ladle.clear %e : !ladle.buffer<[k : 2x32xf32 @dk, u : 2x16xf32 @dv, decay : 2xf32 @scalar], capacity = 4, order = ring, weight = linear>
  ladle.yield %y : tensor<2x16xf32>
}
