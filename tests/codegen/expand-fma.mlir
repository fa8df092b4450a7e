// RUN: ladle-opt %s --ladle-lower-vectors-and-math | FileCheck %s
// RUN: ladle-opt %s --ladle-lower-vectors-and-math=expand-fma | FileCheck %s --check-prefix=EXPAND

// CHECK-LABEL: func @instructions_for_fma
// EXPAND-LABEL: func @instructions_for_fma
// EXPAND-SAME: %[[X:.*]]: vector<16xf32>, %[[Y:.*]]: vector<16xf32>
func.func @instructions_for_fma(%x: vector<16xf32>, %y: vector<16xf32>)
    -> vector<16xf32> {
  // CHECK: vector.fma
  // EXPAND-NOT: vector.fma
  // EXPAND: %[[PRODUCT:.*]] = arith.mulf %[[X]], %[[Y]]
  // EXPAND: arith.addf %[[PRODUCT]], %[[Y]]
  %0 = vector.fma %x, %y, %y : vector<16xf32>
  return %0 : vector<16xf32>
}

// Polynomials are made of them, too.
// CHECK-LABEL: func @polynomials
// EXPAND-LABEL: func @polynomials
func.func @polynomials(%x: vector<16xf32>) -> vector<16xf32> {
  // CHECK: math.fma
  // EXPAND-NOT: math.fma
  // EXPAND: return
  %0 = math.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}
