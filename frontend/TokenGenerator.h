//===- TokenGenerator.h - expressions to operations -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_TOKENGENERATOR_H
#define LADLE_FRONTEND_TOKENGENERATOR_H

#include "frontend/Scope.h"
#include "frontend/ValueBuilder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/SourceMgr.h"

namespace ladle::frontend {

/// Emits the expressions of a token, whatever it belongs to.
class TokenGenerator : public ValueBuilder {
public:
  mlir::Value emit(const Expr &expr) override;

protected:
  TokenGenerator(mlir::MLIRContext &context,
                 const llvm::SourceMgr &sourceManager,
                 const Recurrence &recurrence, const Scope &scope)
      : ValueBuilder(mlir::OpBuilder(&context),
                     mlir::UnknownLoc::get(&context)),
        sourceManager(sourceManager), recurrence(recurrence), scope(scope) {}

  mlir::Location locate(llvm::SMLoc loc);
  mlir::Location locate(llvm::StringRef name, llvm::SMLoc loc) {
    return mlir::NameLoc::get(builder.getStringAttr(name), locate(loc));
  }
  mlir::Type getElementType(ElementType type);
  /// The type in which a param, token, carry or output is stored.
  mlir::RankedTensorType getTensorType(const Symbol &symbol);
  using ValueBuilder::getTensorType;
  /// A call of what is no function of the library.
  virtual mlir::Value emitCall(const CallExpr &call) = 0;
  /// What a name stands for, as a value.
  virtual mlir::Value emitName(const NameExpr &name) {
    return values.lookup(name.name);
  }
  /// The f32 value of what is stored as `value`.
  mlir::Value extend(mlir::Value value);
  /// `value` in `type`, in which it is stored.
  mlir::Value store(mlir::Value value, mlir::Type type);
  void emitLet(const Statement &statement);

  const llvm::SourceMgr &sourceManager;
  const Recurrence &recurrence;
  const Scope &scope;
  /// What each name stands for at this place: states and carries change.
  llvm::StringMap<mlir::Value> values;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_TOKENGENERATOR_H
