//===- ExprChecker.h - shapes and constants of expressions --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_EXPRCHECKER_H
#define LADLE_FRONTEND_EXPRCHECKER_H

#include "frontend/Ast.h"
#include "frontend/Scope.h"

#include <functional>

namespace ladle::frontend {

/// Checks expressions against a scope and fills in their shapes and constants.
/// Each check returns false after it has reported an error; the operands of an
/// expression are all checked before it gives up.
class ExprChecker {
public:
  ExprChecker(Scope &scope, Diagnostics &diagnostics)
      : scope(scope), diagnostics(diagnostics) {}

  /// Checks calls that are no functions of the library. Returns nothing for one
  /// that it does not know, and else whether it is right.
  using CallChecker = std::function<std::optional<bool>(CallExpr &)>;
  /// `names` gives those that it knows, for suggestions.
  void setCalls(CallChecker checker,
                std::function<llvm::ArrayRef<llvm::StringRef>()> names) {
    calls = std::move(checker);
    callNames = std::move(names);
  }

  /// An expression that gives a value.
  bool checkValue(Expr &expr);
  /// A value that is known now, as sizes, presets and options need it.
  /// `what` says what it is for, in a message.
  std::optional<double> checkConstant(Expr &expr, const llvm::Twine &what);
  /// What is assigned to a state: the state itself, decayed and written.
  bool checkNextState(Expr &expr, llvm::StringRef stateName,
                      const Symbol &state);

private:
  bool checkName(NameExpr &expr);
  bool checkNegate(NegateExpr &expr);
  bool checkBinary(BinaryExpr &expr);
  bool checkCall(CallExpr &expr);
  bool checkRead(CallExpr &expr);
  bool checkDecay(CallExpr &expr, llvm::StringRef stateName,
                  const Symbol &state);
  bool checkWrite(CallExpr &expr, llvm::StringRef stateName,
                  const Symbol &state);
  /// A key or a query: [dk] or [R, dk].
  bool checkKeySide(const CallExpr &call, const Expr &expr,
                    llvm::StringRef what, llvm::StringRef stateName,
                    const Symbol &state);
  bool checkStateHeads(const Expr &expr, llvm::StringRef what,
                       llvm::StringRef stateName, const Symbol &state);
  bool checkArgumentCount(const CallExpr &call, unsigned minArgs,
                          unsigned maxArgs, llvm::StringRef signature);
  bool setConstant(Expr &expr, double value);
  void reportUnknownFunction(const CallExpr &call);

  Scope &scope;
  Diagnostics &diagnostics;
  CallChecker calls;
  std::function<llvm::ArrayRef<llvm::StringRef>()> callNames;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_EXPRCHECKER_H
