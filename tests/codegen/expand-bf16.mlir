// RUN: ladle-opt %s --ladle-lower-vectors-and-math | FileCheck %s
// RUN: ladle-opt %s --ladle-lower-vectors-and-math=expand-bf16 | FileCheck %s --check-prefix=EXPAND

// CHECK-LABEL: func @instructions_for_bf16
// EXPAND-LABEL: func @instructions_for_bf16
func.func @instructions_for_bf16(%x: vector<16xf32>) -> vector<16xbf16> {
  // CHECK: arith.truncf
  // EXPAND-NOT: arith.truncf
  // EXPAND: arith.shrui
  %0 = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %0 : vector<16xbf16>
}

// LLVM cannot lower a width that is no power of two.
// CHECK-LABEL: func @odd_width
func.func @odd_width(%x: vector<33xbf16>) -> vector<33xf32> {
  // CHECK-NOT: arith.extf
  // CHECK: arith.shli
  %0 = arith.extf %x : vector<33xbf16> to vector<33xf32>
  return %0 : vector<33xf32>
}

// CHECK-LABEL: func @f16_stays
// EXPAND-LABEL: func @f16_stays
func.func @f16_stays(%x: vector<33xf16>) -> vector<33xf32> {
  // CHECK: arith.extf
  // EXPAND: arith.extf
  %0 = arith.extf %x : vector<33xf16> to vector<33xf32>
  return %0 : vector<33xf32>
}
