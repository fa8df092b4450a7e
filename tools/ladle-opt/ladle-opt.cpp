//===- ladle-opt.cpp - run passes on IR -------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LowerToLLVM.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "tools/common/RegisterDialects.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  ladle::registerDialects(registry);
  mlir::registerTransformsPasses();
  ladle::registerLadlePasses();
  ladle::registerLadlePipelines();
  ladle::registerCpuCodegen();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Ladle pass driver\n", registry));
}
