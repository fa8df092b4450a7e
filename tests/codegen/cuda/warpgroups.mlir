// RUN: ladle-translate --mlir-to-cuda --split-input-file --verify-diagnostics %s | FileCheck %s

!matrix = memref<32x68xf32, #gpu.address_space<workgroup>>

gpu.module @m {
  // Warps that multiply together take from shared memory what others have made
  // known to them.
  // CHECK-LABEL: together(
  gpu.func @together(%y: memref<?xf32> {ladle.name = "y"})
      workgroup(%s: !matrix {ladle.name = "stack"})
      kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<4xf32>
    // CHECK: shared_fence();
    // CHECK-NEXT: block_barrier();
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    gpu.barrier
    // CHECK: const Vec<float, 4> [[LEFT:.*]] = load_vector<4>(y);
    %left = vector.load %y[%c0] : memref<?xf32>, vector<4xf32>
    // CHECK: Vec<float, 4> [[ZERO:.*]] = {};
    // CHECK-NEXT: Vec<float, 4> sums[] = {[[LEFT]], [[ZERO]]};
    // CHECK-NEXT: multiply_in_warpgroup<68, 32>(sums, {[[LEFT]], [[LEFT]]}, stack, {0, 1088});
    // CHECK-NEXT: const Vec<float, 4> {{.*}} = sums[0];
    // CHECK-NEXT: const Vec<float, 4> [[SECOND:.*]] = sums[1];
    %0, %1 = ladle.warpgroup_product %left, %left * %s[0, 1088] across 68 along 32
             into %left, %zero : !matrix of vector<4xf32>, vector<4xf32>
             -> vector<4xf32>, vector<4xf32>
    // CHECK: store_vector(y, [[SECOND]]);
    vector.store %1, %y[%c0] : memref<?xf32>, vector<4xf32>
    gpu.return
  }
}

// -----

!blocks = memref<16x136xbf16, #gpu.address_space<workgroup>>

gpu.module @m {
  // CHECK-LABEL: halves(
  gpu.func @halves(%x: memref<?xbf16> {ladle.name = "x"}, %y: memref<?xf32> {ladle.name = "y"})
      workgroup(%s: !blocks {ladle.name = "stack"})
      kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %left = vector.load %x[%c0] : memref<?xbf16>, vector<8xbf16>
    %sum = vector.load %y[%c0] : memref<?xf32>, vector<4xf32>
    // CHECK: multiply_in_warpgroup<136, 64>(sums, {{{.*}}}, stack, {0});
    %0:2 = ladle.warpgroup_product %left * %s[0] across 136 along 64
           into %sum, %sum : !blocks of vector<8xbf16> -> vector<4xf32>, vector<4xf32>
    // CHECK: multiply_in_warpgroup<64, 136, true>(sums_1, {{{.*}}}, stack, {128});
    %1:2 = ladle.warpgroup_product %left * %s[128] across 64 along 136 transposed
           into %0#0, %0#1 : !blocks of vector<8xbf16> -> vector<4xf32>, vector<4xf32>
    vector.store %1#1, %y[%c0] : memref<?xf32>, vector<4xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @global(%y: memref<16x20xf32> {ladle.name = "y"}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %zero = arith.constant dense<0.0> : vector<4xf32>
    // expected-error @below {{'ladle.warpgroup_product' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type 'vector<4xf32>', 'memref<16x20xf32>'}}
    // expected-note @below {{kernels are made of gpu}}
    %0, %1 = ladle.warpgroup_product %zero * %y[0] across 20 along 32
         into %zero, %zero : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @other() kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    // expected-error @below {{'nvvm.fence.proxy' cannot be printed as CUDA}}
    // expected-note @below {{kernels are made of gpu}}
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async>}
    gpu.return
  }
}
