//===- Passes.td - from upstream dialects to LLVM ----------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The IR of a description is taken from the test
// tests/codegen/<pass without ladle->.mlir.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CPU_PASSES
#define LADLE_CODEGEN_CPU_PASSES

include "mlir/Pass/PassBase.td"

def AddPackedEntries : Pass<"ladle-add-packed-entries", "::mlir::ModuleOp"> {
  let summary = "give every kernel an entry point with one array of arguments";
  let description = [{
    A caller that learns the signature of a kernel at run time cannot spell its
    type. For each `_mlir_ciface_<name>` this adds `<name>__packed`, whose one
    argument is an array of pointers: to the value of a number, and to the
    descriptor of a memref.

    ```mlir
    llvm.func @_mlir_ciface_f(%arg0: i64, %arg1: !llvm.ptr) { ... }
    ```
    becomes
    ```mlir
    llvm.func internal @_mlir_ciface_f(%arg0: i64, %arg1: !llvm.ptr)
        attributes {always_inline} { ... }
    llvm.func @f__packed(%arg0: !llvm.ptr) {
      %0 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
      %1 = llvm.load %0 : !llvm.ptr -> i64
      %2 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
      %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
      llvm.call @_mlir_ciface_f(%1, %3) : (i64, !llvm.ptr) -> ()
      llvm.return
    }
    ```
    Everything but the new entries becomes internal and is inlined, so that a
    kernel is compiled once.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ConvertToLLVM : Pass<"ladle-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "convert every upstream dialect that a kernel uses to LLVM";
  let description = [{
    One conversion in place of one pass a dialect, because walking the kernel
    is most of the time of each. Reductions of a vector may be reassociated
    into a tree; scratch memory is aligned to a cache line.

    ```mlir
    %0 = arith.mulf %x, %y : vector<16xf32>
    %1 = vector.reduction <add>, %0 : vector<16xf32> into f32
    ```
    becomes
    ```mlir
    %0 = llvm.fmul %x, %y : vector<16xf32>
    %1 = llvm.mlir.constant(0.000000e+00 : f32) : f32
    %2 = "llvm.intr.vector.reduce.fadd"(%1, %0)
      <{fastmathFlags = #llvm.fastmath<reassoc>}>
      : (f32, vector<16xf32>) -> f32
    ```
    An operation that has no lowering is an error at its location. Sums of
    vectors do not keep the order of their elements.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def LowerVectorsAndMath : Pass<"ladle-lower-vectors-and-math"> {
  let summary = "bring vectors to one dimension and functions to arithmetic";
  let description = [{
    Structured vector operations (multi-dimensional reductions, transfers,
    transposes, contractions) become operations on vectors of one dimension.
    `math.exp`, `log`, `log1p`, `expm1`, `tanh` and `erf` become polynomials
    that work on whole vectors; their relative error is below 3e-7, which
    tests/codegen measures. The error of upstream's `sin` and `cos` is not
    bounded near their zeros: they stay, and become calls of libm.

    ```mlir
    %0 = vector.multi_reduction <add>, %x, %acc [1]
       : vector<2x8xf32> to vector<2xf32>
    ```
    becomes
    ```mlir
    %0 = vector.extract %x[0] : vector<8xf32> from vector<2x8xf32>
    %1 = vector.extract %acc[0] : f32 from vector<2xf32>
    %2 = vector.reduction <add>, %0, %1 : vector<8xf32> into f32
    ```
    and so on. Rounding changes.
  }];
  let options = [
    Option<"expandBF16", "expand-bf16", "bool", "false",
           "Convert from and to bf16 by integer arithmetic, for targets without "
           "instructions for it; vectors whose width is no power of two always "
           "are, because LLVM cannot lower them">,
    Option<"expandFMA", "expand-fma", "bool", "false",
           "Multiply, then add in place of both at once, for targets without "
           "instructions for it, where LLVM calls libm for every element">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::ub::UBDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // LADLE_CODEGEN_CPU_PASSES
