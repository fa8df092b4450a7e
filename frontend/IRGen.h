//===- IRGen.h - from a checked tree to the spec stage ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_IRGEN_H
#define LADLE_FRONTEND_IRGEN_H

#include "frontend/Ast.h"
#include "frontend/Scope.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"

namespace ladle::frontend {

/// Emits a checked recurrence as a module with one `ladle.recurrence`. Cannot
/// fail: whatever could go wrong is an error of the checker.
mlir::OwningOpRef<mlir::ModuleOp>
generateSpec(mlir::MLIRContext &context, const llvm::SourceMgr &sourceManager,
             const Recurrence &recurrence, const Scope &scope);

/// Likewise an attention, as a module with one `ladle.attention`.
mlir::OwningOpRef<mlir::ModuleOp>
generateAttention(mlir::MLIRContext &context,
                  const llvm::SourceMgr &sourceManager,
                  const Recurrence &recurrence, const Scope &scope);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_IRGEN_H
