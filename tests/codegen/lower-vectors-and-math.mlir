// RUN: ladle-opt %s --ladle-lower-vectors-and-math | FileCheck %s

// CHECK-LABEL: func @rows_are_reduced_one_by_one
func.func @rows_are_reduced_one_by_one(%x: vector<2x8xf32>, %acc: vector<2xf32>)
    -> vector<2xf32> {
  // CHECK-COUNT-2: vector.reduction <add>, {{.*}} : vector<8xf32> into f32
  %0 = vector.multi_reduction <add>, %x, %acc [1]
     : vector<2x8xf32> to vector<2xf32>
  return %0 : vector<2xf32>
}

// CHECK-LABEL: func @exp_is_a_polynomial
func.func @exp_is_a_polynomial(%x: vector<16xf32>) -> vector<16xf32> {
  // CHECK-NOT: math.exp
  // CHECK: math.fma
  %0 = math.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func @sin_is_left_to_libm
func.func @sin_is_left_to_libm(%x: vector<16xf32>) -> vector<16xf32> {
  // CHECK: math.sin %{{.*}} : vector<16xf32>
  %0 = math.sin %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func @transfers_become_loads
func.func @transfers_become_loads(%m: memref<4x16xf32>, %i: index)
    -> vector<16xf32> {
  // CHECK: vector.load %{{.*}} : memref<4x16xf32>, vector<16xf32>
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %0 = vector.transfer_read %m[%i, %c0], %zero {in_bounds = [true]}
     : memref<4x16xf32>, vector<16xf32>
  return %0 : vector<16xf32>
}
