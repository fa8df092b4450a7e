// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

!shared = memref<2x64xf16, #gpu.address_space<workgroup>>

gpu.module @m {
  // Where a wait is for some of the groups, all are committed.
  // CHECK-LABEL: counted(
  gpu.func @counted(%x: memref<?x64xf16> {ladle.name = "x"})
      workgroup(%s: !shared {ladle.name = "tile"})
      kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    // CHECK: copy_16_bytes(tile + 0, x + 0);
    %copy = nvgpu.device_async_copy %x[%c0, %c0], %s[%c0, %c0], 8
        : memref<?x64xf16> to !shared
    // CHECK-NEXT: copy_rows_commit();
    %group = nvgpu.device_async_create_group %copy
    // CHECK-NEXT: copy_rows_wait<1>();
    nvgpu.device_async_wait %group {numGroups = 1 : i32}
    gpu.return
  }

  // CHECK-LABEL: all(
  gpu.func @all(%x: memref<?x64xf16> {ladle.name = "x"})
      workgroup(%s: !shared {ladle.name = "tile"})
      kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    // CHECK: copy_16_bytes(tile + 0, x + 0);
    %copy = nvgpu.device_async_copy %x[%c0, %c0], %s[%c0, %c0], 8
        : memref<?x64xf16> to !shared
    // CHECK-NEXT: copy_rows_wait();
    %group = nvgpu.device_async_create_group %copy
    nvgpu.device_async_wait %group
    gpu.return
  }

  // A warp that waits for its own copies waits for nobody else.
  // CHECK-LABEL: of_warp(
  gpu.func @of_warp(%x: memref<?x64xf16> {ladle.name = "x"})
      workgroup(%s: !shared {ladle.name = "tile"})
      kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %copy = nvgpu.device_async_copy %x[%c0, %c0], %s[%c0, %c0], 8
        : memref<?x64xf16> to !shared
    %group = nvgpu.device_async_create_group %copy
    // CHECK: copy_rows_wait_in_warp<3>();
    nvgpu.device_async_wait %group {numGroups = 3 : i32, ladle.of_warp}
    gpu.return
  }

  // Tensor cores multiply f16 as they do bf16.
  // CHECK-LABEL: product(
  gpu.func @product(%y: memref<?xf32> {ladle.name = "y"})
      kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %a = arith.constant dense<1.0> : vector<4x2xf16>
    %b = arith.constant dense<2.0> : vector<2x2xf16>
    %c = arith.constant dense<0.0> : vector<2x2xf32>
    // CHECK: Vec<half, 8>
    // CHECK: Vec<half, 4>
    // CHECK: multiply_tiles(
    %d = nvgpu.mma.sync(%a, %b, %c) {mmaShape = [16, 8, 16]}
        : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
    %flat = vector.shape_cast %d : vector<2x2xf32> to vector<4xf32>
    vector.store %flat, %y[%c0] : memref<?xf32>, vector<4xf32>
    gpu.return
  }
}
