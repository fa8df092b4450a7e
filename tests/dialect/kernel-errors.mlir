// RUN: ladle-opt %s --split-input-file --verify-diagnostics

func.func @results(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{has 2 tiles of sums and 1 results}}
  %0 = "ladle.warpgroup_product"(%a, %m, %a, %a) <{rights = array<i64: 0>, across = 20 : i64, along = 32 : i64, operandSegmentSizes = array<i32: 1, 1, 2>}> : (vector<4xf32>, memref<16x20xf32>, vector<4xf32>, vector<4xf32>) -> vector<4xf32>
  return
}

// -----

func.func @columns(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{must have 16 to 128 columns, a power of two, got 24}}
  %0:3 = ladle.warpgroup_product %a * %m[0] across 20 along 32 into %a, %a, %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @one(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{must have 16 to 128 columns, a power of two, got 8}}
  %0 = ladle.warpgroup_product %a * %m[0] across 20 along 32 into %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>
  return
}

// -----

func.func @sides(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{has 1 left sides and 2 right sides}}
  %0:2 = ladle.warpgroup_product %a * %m[0, 4] across 20 along 32 into %a, %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @size(%a: vector<4xf32>, %m: memref<?x20xf32>) {
  // expected-error @+1 {{takes memory of known size and without gaps, got 'memref<?x20xf32>'}}
  %0:2 = ladle.warpgroup_product %a * %m[0] across 20 along 32 into %a, %a : memref<?x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @gaps(%a: vector<4xf32>, %m: memref<16x20xf32, strided<[24, 1]>>) {
  // expected-error @+1 {{takes memory of known size and without gaps, got 'memref<16x20xf32, strided<[24, 1]>>'}}
  %0:2 = ladle.warpgroup_product %a * %m[0] across 20 along 32 into %a, %a : memref<16x20xf32, strided<[24, 1]>> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @apart(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{takes 4 elements together, which lie no 18 apart}}
  %0:2 = ladle.warpgroup_product %a * %m[0] across 18 along 32 into %a, %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @outside(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{takes 84 elements from 240 on, a multiple of 4, of 320}}
  %0:2 = ladle.warpgroup_product %a, %a * %m[0, 240] across 20 along 32 into %a, %a : memref<16x20xf32> of vector<4xf32>, vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @odd(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{takes 84 elements from 2 on, a multiple of 4, of 320}}
  %0:2 = ladle.warpgroup_product %a * %m[2] across 20 along 32 into %a, %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @types(%a: vector<4xf32>, %m: memref<16x40xbf16>) {
  // expected-error @+1 {{takes left sides of 'bf16', got 'vector<4xf32>'}}
  %0:2 = ladle.warpgroup_product %a * %m[0] across 40 along 64 into %a, %a : memref<16x40xbf16> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}

// -----

func.func @transposed(%a: vector<4xf32>, %m: memref<16x20xf32>) {
  // expected-error @+1 {{transposes bf16 alone}}
  %0:2 = ladle.warpgroup_product %a * %m[0] across 20 along 32 transposed into %a, %a : memref<16x20xf32> of vector<4xf32> -> vector<4xf32>, vector<4xf32>
  return
}
