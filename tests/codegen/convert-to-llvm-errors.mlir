// RUN: ladle-opt %s --ladle-lower-cpu-to-llvm --split-input-file --verify-diagnostics

func.func @dialect_of_another_stage(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ladle.sigmoid' op cannot be lowered to LLVM}}
  // expected-note @below {{run convert-ladle-to-cpu first}}
  %0 = ladle.sigmoid %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @math_that_nothing_lowers(%x: f64) -> f64 {
  // expected-error @below {{'math.erf' op cannot be lowered to LLVM}}
  // expected-note @below {{kernels are made of func, scf, vector, memref, arith, math and index}}
  %0 = math.erf %x : f64
  return %0 : f64
}
