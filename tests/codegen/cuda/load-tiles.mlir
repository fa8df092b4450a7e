// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

!shared = memref<16x24xbf16, #gpu.address_space<workgroup>>

gpu.module @m {
  // Shared memory is one array where a kernel wants it so.
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
