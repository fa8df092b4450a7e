// RUN: ladle-opt %s | ladle-opt | FileCheck %s
// RUN: ladle-opt %s --mlir-print-op-generic | ladle-opt | FileCheck %s

!matrix = memref<32x68xf32>

// CHECK-LABEL: func.func @products
func.func @products(%rest: vector<4xf32>, %most: vector<4xf32>, %memory: !matrix,
                    %a: vector<4xf32>, %b: vector<4xf32>) -> vector<4xf32> {
  // CHECK: %{{.*}}:2 = ladle.warpgroup_product %{{.*}}, %{{.*}}, %{{.*}} * %{{.*}}[0, 1088, 0]
  // CHECK-SAME: across 68 along 32 into %{{.*}}, %{{.*}} : memref<32x68xf32>
  // CHECK-SAME: of vector<4xf32>, vector<4xf32>, vector<4xf32> -> vector<4xf32>, vector<4xf32>
  %0, %1 = ladle.warpgroup_product %rest, %most, %most * %memory[0, 1088, 0]
           across 68 along 32 into %a, %b : !matrix
           of vector<4xf32>, vector<4xf32>, vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return %1 : vector<4xf32>
}

// CHECK-LABEL: func.func @halves
func.func @halves(%left: vector<8xbf16>, %memory: memref<16x136xbf16>, %a: vector<4xf32>) {
  // CHECK: ladle.warpgroup_product %{{.*}} * %{{.*}}[128] across 64 along 136 transposed into
  // CHECK-SAME: memref<16x136xbf16> of vector<8xbf16> -> vector<4xf32>, vector<4xf32>
  %0:2 = ladle.warpgroup_product %left * %memory[128] across 64 along 136 transposed
         into %a, %a : memref<16x136xbf16> of vector<8xbf16> -> vector<4xf32>, vector<4xf32>
  return
}
