// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

!shared = memref<16x24xbf16, #gpu.address_space<workgroup>>

gpu.module @m {
  // Shared memory is one array where a kernel wants it so. What is large comes
  // first in it, and begins where sectors do.
  // CHECK-LABEL: tiles(
  // CHECK: LADLE_DYNAMIC_SHARED(shared_memory, 768);
  gpu.func @tiles(%y: memref<?xf32> {ladle.name = "y"}, %row: index, %column: index)
      workgroup(%s: !shared {ladle.name = "stack"})
      kernel attributes {ladle.one_array, known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<2x2xf32>
    // CHECK: load_tiles<false>(stack + {{.*}} * 24 +
    %a = nvgpu.ldmatrix %s[%row, %column] {numTiles = 4 : i32, transpose = false}
        : !shared -> vector<4x2xbf16>
    // CHECK: load_tiles<true>(stack + {{.*}} * 24)
    %t = nvgpu.ldmatrix %s[%row, %c0] {numTiles = 4 : i32, transpose = true}
        : !shared -> vector<4x2xbf16>
    %flat = vector.shape_cast %t : vector<4x2xbf16> to vector<8xbf16>
    %half = vector.extract_strided_slice %flat {offsets = [0], sizes = [4], strides = [1]}
        : vector<8xbf16> to vector<4xbf16>
    %b = vector.shape_cast %half : vector<4xbf16> to vector<2x2xbf16>
    %d = nvgpu.mma.sync(%a, %b, %zero) {mmaShape = [16, 8, 16]}
        : (vector<4x2xbf16>, vector<2x2xbf16>, vector<2x2xf32>) -> vector<2x2xf32>
    %sums = vector.shape_cast %d : vector<2x2xf32> to vector<4xf32>
    vector.store %sums, %y[%c0] : memref<?xf32>, vector<4xf32>
    gpu.return
  }
}

!counter = memref<1xi64, #gpu.address_space<workgroup>>
!weights = memref<4xf32, #gpu.address_space<workgroup>>

gpu.module @order {
  // CHECK-LABEL: order(
  // CHECK: LADLE_DYNAMIC_SHARED(shared_memory, 800);
  // CHECK-NEXT: bf16 *const stack = (bf16 *)(shared_memory + 0); // [384]
  // CHECK-NEXT: long long *const counter = (long long *)(shared_memory + 768); // [1]
  // CHECK-NEXT: float *const weights = (float *)(shared_memory + 784); // [4]
  // CHECK-NEXT: int *const places = (int *)stack;
  gpu.func @order(%y: memref<?xf32> {ladle.name = "y"})
      workgroup(%c: !counter {ladle.name = "counter"},
                %w: !weights {ladle.name = "weights"},
                %s: !shared {ladle.name = "stack"},
                %p: memref<4xi32, #gpu.address_space<workgroup>>
                    {ladle.name = "places", ladle.shares = 2 : index})
      kernel attributes {ladle.one_array, known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %w[%c0] : !weights
    memref.store %zero, %y[%c0] : memref<?xf32>
    gpu.return
  }
}
