//===- Source.h - a .ladle file for a command -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_SOURCE_H
#define LADLE_TOOLS_LADLE_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "tools/ladle/Commands.h"
#include "llvm/Support/SourceMgr.h"

namespace ladle::tool {

/// A file at the spec stage, with what its diagnostics need.
class Source {
public:
  /// Reads and elaborates; errors go to stderr, and `module` stays null.
  explicit Source(const SourceOptions &options, bool showRemarks);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

private:
  llvm::SourceMgr sourceManager;
  std::unique_ptr<mlir::SourceMgrDiagnosticHandler> handler;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_SOURCE_H
