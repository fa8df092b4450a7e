//===- CudaPrinter.cpp - kernels as CUDA C++ ------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/KernelPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"

using namespace mlir;

namespace ladle {

/// Other operations of a gpu.module would be lost.
static LogicalResult verifyModule(gpu::GPUModuleOp module) {
  for (Operation &op : *module.getBody())
    if (!isa<gpu::GPUFuncOp>(op))
      return cuda::unsupported(&op);
  return success();
}

static LogicalResult verifyKernel(gpu::GPUFuncOp function,
                                  llvm::StringSet<> &names) {
  StringRef name = function.getName();
  if (!function.isKernel()) {
    auto diagnostic = emitError(function.getLoc())
                      << "function '" << name
                      << "' is no kernel and cannot be printed as CUDA";
    diagnostic.attachNote() << "inline it, or mark it as `kernel`";
    return diagnostic;
  }
  if (!cuda::isFreeIdentifier(name)) {
    auto diagnostic = emitError(function.getLoc())
                      << "kernel '" << name << "' cannot be called so in CUDA";
    diagnostic.attachNote() << "names are C++ identifiers that neither the "
                               "language nor the prelude uses";
    return diagnostic;
  }
  if (!names.insert(name).second) {
    auto diagnostic = emitError(function.getLoc())
                      << "kernel '" << name << "' is defined twice";
    diagnostic.attachNote() << "kernels of all modules go into one source; "
                               "rename one";
    return diagnostic;
  }
  return success();
}

LogicalResult printCuda(Operation *op, raw_ostream &os) {
  // Written at the end, so that a failure leaves no half of a source.
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::StringSet<> names;
  auto result = op->walk<WalkOrder::PreOrder>([&](Operation *inner) {
    if (auto module = dyn_cast<gpu::GPUModuleOp>(inner))
      return WalkResult(verifyModule(module));
    auto function = dyn_cast<gpu::GPUFuncOp>(inner);
    if (!function)
      return WalkResult::advance();
    if (failed(verifyKernel(function, names)))
      return WalkResult::interrupt();
    stream << '\n';
    if (failed(cuda::KernelPrinter(stream).print(function)))
      return WalkResult::interrupt();
    return WalkResult::skip();
  });
  if (result.wasInterrupted())
    return failure();
  if (names.empty()) {
    auto diagnostic = emitError(op->getLoc()) << "no kernel to print as CUDA";
    diagnostic.attachNote() << "kernels are gpu.func operations";
    return diagnostic;
  }
  os << "#include \"ladle_prelude.cuh\"\n" << text;
  return success();
}

void registerCudaPrinterDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, gpu::GPUDialect, math::MathDialect,
                  memref::MemRefDialect, nvgpu::NVGPUDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, vector::VectorDialect>();
}

} // namespace ladle
