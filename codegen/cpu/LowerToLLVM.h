//===- LowerToLLVM.h - kernels into the LLVM dialect ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CPU_LOWERTOLLVM_H
#define LADLE_CODEGEN_CPU_LOWERTOLLVM_H

#include "codegen/cpu/CpuTarget.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir {
class DialectRegistry;
class OpPassManager;
} // namespace mlir

namespace ladle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "codegen/cpu/Passes.h.inc"

/// What an entry of ladle-add-packed-entries is called: the kernel's name
/// followed by this.
inline constexpr llvm::StringLiteral kPackedSuffix = "__packed";

struct LowerToLLVMOptions
    : public mlir::PassPipelineOptions<LowerToLLVMOptions> {
  Option<bool> expandBF16{
      *this, "expand-bf16",
      llvm::cl::desc("Convert from and to bf16 by integer arithmetic"),
      llvm::cl::init(false)};
  Option<bool> expandFMA{
      *this, "expand-fma",
      llvm::cl::desc("Multiply, then add in place of both at once"),
      llvm::cl::init(false)};

  LowerToLLVMOptions() = default;
  /// What `target` has no instructions for is expanded.
  explicit LowerToLLVMOptions(const CpuTarget &target) {
    expandBF16 = !target.has("avx512bf16");
    expandFMA = !target.fusesProducts();
  }
};

/// From func, scf, vector, memref, arith, math and index to the LLVM dialect,
/// with packed entries.
void buildLowerToLLVMPipeline(mlir::OpPassManager &manager,
                              const LowerToLLVMOptions &options);

/// Registers the passes above and the pipeline `ladle-lower-cpu-to-llvm`.
void registerCpuCodegen();

/// The dialects of a kernel, and what translates them to LLVM IR.
void registerCpuCodegenDialects(mlir::DialectRegistry &registry);

} // namespace ladle

#endif // LADLE_CODEGEN_CPU_LOWERTOLLVM_H
