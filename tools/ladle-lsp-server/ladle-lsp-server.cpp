//===- ladle-lsp-server.cpp - IR in an editor -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A language server for .mlir files with the ladle dialect: diagnostics while
// typing, go to definition, hover.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Dialect.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "tools/common/RegisterDialects.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  ladle::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
