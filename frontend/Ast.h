//===- Ast.h - a source file as a tree ----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parser builds the tree; the checker (Sema) fills in what stands under
// "Filled in by the checker"; IR generation only reads. Names point into the
// source buffer, which outlives the tree.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_AST_H
#define LADLE_FRONTEND_AST_H

#include "frontend/Shape.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Casting.h"
#include "llvm/Support/SMLoc.h"

#include <memory>
#include <optional>
#include <vector>

namespace ladle::frontend {

struct Function;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

struct Expr {
  enum class Kind { Number, Name, Negate, Binary, Call };

  /// Where a diagnostic about the expression points: its first character, or
  /// the operator of a binary expression.
  llvm::SMLoc loc;
  llvm::SMRange range;
  /// Levels of the tree below and including this one.
  unsigned depth = 1;

  // Filled in by the checker.
  Shape shape;
  /// The value, if it is known when the file is compiled.
  std::optional<double> constant;
  /// Whether it is a summary, which as a value is what it answers.
  bool isSummary = false;

  Kind getKind() const { return kind; }
  virtual ~Expr() = default;

protected:
  explicit Expr(Kind kind) : kind(kind) {}

private:
  Kind kind;
};

using ExprPtr = std::unique_ptr<Expr>;

template <Expr::Kind exprKind> struct ExprOf : Expr {
  ExprOf() : Expr(exprKind) {}
  static bool classof(const Expr *expr) { return expr->getKind() == exprKind; }
};

struct NumberExpr : ExprOf<Expr::Kind::Number> {
  double value = 0;
};

struct NameExpr : ExprOf<Expr::Kind::Name> {
  llvm::StringRef name;
};

struct NegateExpr : ExprOf<Expr::Kind::Negate> {
  ExprPtr operand;
};

struct BinaryExpr : ExprOf<Expr::Kind::Binary> {
  char op = '+'; // one of + - * /
  ExprPtr lhs, rhs;
};

/// `callee(args)`, the state operations included.
struct CallExpr : ExprOf<Expr::Kind::Call> {
  llvm::StringRef callee;
  std::vector<ExprPtr> args;
  /// `name = value` of an argument; empty where an argument has no name.
  std::vector<llvm::StringRef> names;

  // Filled in by the checker; null for decay, write and read.
  const Function *function = nullptr;
};

//===----------------------------------------------------------------------===//
// Declarations and statements
//===----------------------------------------------------------------------===//

/// A dimension as written: `Dk`, `1`, `W + 1` or `Dk / 2`.
struct DimExpr {
  llvm::SMLoc loc;
  /// Canonical text, by which dimensions are compared.
  std::string name;
  /// The size it refers to; empty for a number.
  llvm::StringRef size;
  /// + - * or /, or 0 for a plain name or number.
  char op = 0;
  int64_t number = 0;

  /// A compound dimension is never a head dimension.
  bool isPlainName() const { return !size.empty() && !op; }
};

/// `name[dims]`.
struct ArrayDecl {
  llvm::StringRef name;
  llvm::SMLoc loc;
  std::vector<DimExpr> dims;

  // Filled in by the checker.
  Shape shape;
  ElementType type = ElementType::F32;
  bool used = false;
};

/// `Hk = 16` inside a preset.
struct PresetEntry {
  llvm::StringRef name;
  llvm::SMLoc loc;
  ExprPtr value;
};

struct Preset {
  llvm::StringRef name;
  llvm::SMLoc loc;
  std::vector<PresetEntry> entries;
};

/// A name, and where it stands.
struct NamedPlace {
  llvm::StringRef name;
  llvm::SMLoc loc;
};

/// `let`, `option`, an assignment, the value of an output,
/// `cache name[fields] value`, or `memory name[field] = value : type`.
struct Statement {
  enum class Kind { Declare, Option, Let, Assign, Output, Cache, Memory };
  /// What `Declare` declares.
  enum class Storage { Param, Token, Carry, State };

  Kind kind = Kind::Declare;
  llvm::SMLoc loc;
  /// Declare: one or more. Output: one.
  std::vector<ArrayDecl> arrays;
  Storage storage = Storage::Param;
  /// Declare, Output and Memory: the type as written.
  llvm::StringRef typeName;
  llvm::SMLoc typeLoc;
  /// Option, Let, Assign, Cache, Memory.
  llvm::StringRef name;
  /// Of a cache and a memory: the call that says how it keeps what it holds.
  ExprPtr value;
  /// Cache: what it holds of a token. Memory: the cache.
  std::vector<NamedPlace> fields;

  // Filled in by the checker.
  bool used = false;
};

/// The name of a size parameter of a recurrence.
struct SizeParameter {
  llvm::StringRef name;
  llvm::SMLoc loc;
};

/// What the checker has found an attention to be.
struct AttentionScheme {
  /// match(query, window, tau, ...); a count of 0 stands for no limit.
  struct Match {
    llvm::SMLoc loc;
    llvm::StringRef query, moment;
    int64_t window = 0, maxGap = 0, maxChain = 0, skip = 0;
    double tau = 0;
    std::optional<double> drift;
  };
  llvm::StringRef cache, key, value;
  llvm::SMLoc cacheLoc;
  int64_t pageSize = 1;
  std::optional<Match> match;
  /// softmax(query, cache, scale)
  llvm::StringRef query;
  double scale = 1;
  llvm::SMLoc softmaxLoc;
  /// complete(prefix, all, band, ...), if there is one.
  llvm::SMLoc completeLoc;
  bool completes = false;
  int64_t band = 0, sinks = 0;
  std::optional<int64_t> wideBand, wideGap;

  /// A cache that gives up tokens: evicting(budget, ...), which each head
  /// chooses by what queries gave them, or segmented(sinks, window, segment).
  struct Bounds {
    bool evicts = false;
    int64_t sinks = 0, capacity = 0;
    int64_t window = 0, segment = 1;
    int64_t budget = 0, recent = 32, queries = 32, pool = 5;
    double variance = 200;

    /// Whether there is ever a choice.
    bool chooses() const { return budget > sinks + recent; }
  };
  std::optional<Bounds> bounds;
  /// linear(features, decay) or taylor(limit) of what leaves the cache.
  struct Memory {
    llvm::StringRef name;
    llvm::SMLoc loc;
    ExprPtr *feature = nullptr; ///< null: taylor
    double decay = 1, limit = 0;
    ElementType type = ElementType::F32;
    Shape shape; ///< [heads, key, value]
  };
  std::optional<Memory> memory;
  /// softmax was seen: its query is `query`.
  bool attends = false;
};

/// A recurrence, or an attention.
struct Recurrence {
  Recurrence() = default;
  Recurrence(Recurrence &&) = default; // and no copies: it owns a tree

  llvm::StringRef name;
  llvm::SMLoc loc;
  bool isAttention = false;
  std::vector<SizeParameter> sizes;
  std::vector<Preset> presets;
  /// In source order.
  std::vector<Statement> statements;

  // Filled in by the checker, of an attention.
  AttentionScheme attention;

  /// What it is called in a message.
  llvm::StringRef keyword() const {
    return isAttention ? "attention" : "recurrence";
  }
};

struct SourceFile {
  std::vector<Recurrence> recurrences;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_AST_H
