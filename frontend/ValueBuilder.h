//===- ValueBuilder.h - operations on the values of a token -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_VALUEBUILDER_H
#define LADLE_FRONTEND_VALUEBUILDER_H

#include "frontend/Ast.h"
#include "mlir/IR/Builders.h"

namespace ladle::frontend {

/// Emits expressions; the functions of the library build on it. Values are
/// f32 tensors, heads first.
class ValueBuilder {
public:
  virtual ~ValueBuilder() = default;

  /// The value of an expression in its own shape.
  virtual mlir::Value emit(const Expr &expr) = 0;

  /// The value of an expression, repeated over what `shape` has more.
  mlir::Value emitAs(const Expr &expr, const Shape &shape);

  /// A number at every place of `shape`.
  mlir::Value constant(double value, const Shape &shape);
  mlir::Value broadcast(mlir::Value value, const Shape &from, const Shape &to);
  /// Sums over a feature of `value`.
  mlir::Value sum(mlir::Value value, int64_t feature);

  template <typename OpTy, typename... Args> OpTy create(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }

  mlir::Location getLoc() const { return loc; }
  void setLoc(mlir::Location newLoc) { loc = newLoc; }

protected:
  ValueBuilder(mlir::OpBuilder builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  mlir::RankedTensorType getTensorType(const Shape &shape);

  mlir::OpBuilder builder;
  /// Where the expression being emitted stands in the source.
  mlir::Location loc;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_VALUEBUILDER_H
