//===- AttentionSema.h - what an attention means ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_ATTENTIONSEMA_H
#define LADLE_FRONTEND_ATTENTIONSEMA_H

#include "frontend/ExprChecker.h"

namespace ladle::frontend {

/// Checks what only attentions have (cache, match, softmax, complete) and fills
/// in the scheme. A check that fails has reported why.
class AttentionChecker {
public:
  AttentionChecker(Recurrence &recurrence, Scope &scope, ExprChecker &exprs,
                   Diagnostics &diagnostics)
      : recurrence(recurrence), scheme(recurrence.attention), scope(scope),
        exprs(exprs), diagnostics(diagnostics) {}

  /// `cache KV[k, v] paged(16)`, `segmented(...)` or `evicting(...)`
  void checkCache(Statement &statement);
  /// `memory M[KV] = linear(...) : f32` or `taylor(...)`
  void checkMemory(Statement &statement, std::optional<ElementType> type);
  /// A call that gives a value where the cache is bounded; nothing if it is
  /// none of these.
  std::optional<bool> checkCall(CallExpr &call);
  /// Their names.
  llvm::ArrayRef<llvm::StringRef> callNames() const;
  bool isBounded() const { return scheme.bounds.has_value(); }
  /// There is one output.
  void countOutput(const Statement &statement);
  /// Whether a let is that of a match, which has then been checked.
  bool checkMatch(Statement &statement);
  /// The value of an output that has been declared, of shape `target`.
  void checkOutput(Statement &statement, const Shape &target);
  /// What the whole has to have.
  void checkUses();

private:
  using Arguments = llvm::StringMap<Expr *>;
  /// The arguments by name; nothing after an error.
  std::optional<Arguments> bind(CallExpr &call,
                                llvm::ArrayRef<llvm::StringRef> required,
                                llvm::ArrayRef<llvm::StringRef> optional,
                                llvm::StringRef signature);
  /// A token of two dimensions, heads and features; null after an error.
  Symbol *checkToken(const Expr *expr, llvm::StringRef what);
  /// A whole number of `counted` from `least` on.
  bool checkCount(Expr *expr, llvm::StringRef what, int64_t least,
                  int64_t &result, llvm::StringRef counted = "tokens");
  bool checkShare(Expr *expr, llvm::StringRef what, double &result);
  bool checkPaged(CallExpr &call);
  /// Warns of a `max_gap` that the window does not reach.
  void checkReach(const Expr *maxGap);
  bool checkMoment(const Expr *expr, const Symbol &query);
  bool checkSoftmax(Expr &expr);
  bool checkComplete(CallExpr &call);
  bool checkWide(const Arguments &arguments, const CallExpr &call);

  //===--- BoundedSema.cpp: caches that give up tokens, memories
  //-----------===//
  void reportMatch(llvm::SMLoc loc);
  bool checkSegmented(CallExpr &call);
  bool checkEvicting(CallExpr &call);
  bool checkNumber(Expr *expr, llvm::StringRef what, double least, double most,
                   llvm::StringRef note, double &result);
  bool checkFeature(Expr &feature);
  bool checkMerge(CallExpr &call);
  bool checkExpand(CallExpr &call);
  bool checkRecall(CallExpr &call);
  bool checkOnce(CallExpr &call);
  /// The memory that an operand names, of the kind that `call` reads.
  bool checkMemoryName(const CallExpr &call, const Expr &expr, bool isTaylor);
  void reportValue(const Expr &expr);

  Recurrence &recurrence;
  AttentionScheme &scheme;
  Scope &scope;
  ExprChecker &exprs;
  Diagnostics &diagnostics;
  bool usesPrefix = false;
  unsigned outputs = 0;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_ATTENTIONSEMA_H
