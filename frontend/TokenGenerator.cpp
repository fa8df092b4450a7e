//===- TokenGenerator.cpp - expressions to operations -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/TokenGenerator.h"

#include "frontend/Functions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle::frontend;
using llvm::cast;

//===----------------------------------------------------------------------===//
// Locations and types
//===----------------------------------------------------------------------===//

Location TokenGenerator::locate(llvm::SMLoc loc) {
  auto [line, column] = sourceManager.getLineAndColumn(loc);
  llvm::StringRef file =
      sourceManager.getMemoryBuffer(sourceManager.getMainFileID())
          ->getBufferIdentifier();
  return FileLineColLoc::get(builder.getContext(), file, line, column);
}

Type TokenGenerator::getElementType(ElementType type) {
  switch (type) {
  case ElementType::F32:
    return builder.getF32Type();
  case ElementType::BF16:
    return builder.getBF16Type();
  case ElementType::F16:
    return builder.getF16Type();
  }
  return {};
}

RankedTensorType TokenGenerator::getTensorType(const Symbol &symbol) {
  return RankedTensorType::get(symbol.shape.getSizes(),
                               getElementType(symbol.type));
}

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

Value TokenGenerator::extend(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType().isF32())
    return value;
  return create<arith::ExtFOp>(type.clone(builder.getF32Type()), value);
}

Value TokenGenerator::store(Value value, Type type) {
  if (value.getType() == type)
    return value;
  // What has just been widened from this type is that value.
  if (auto extended = value.getDefiningOp<arith::ExtFOp>())
    if (extended.getIn().getType() == type)
      return extended.getIn();
  return create<arith::TruncFOp>(type, value);
}

void TokenGenerator::emitLet(const Statement &statement) {
  if (statement.value->constant)
    return;
  Value value = emit(*statement.value);
  // A plain name is another name for a value that has one.
  if (!llvm::isa<NameExpr>(*statement.value))
    value.setLoc(
        NameLoc::get(builder.getStringAttr(statement.name), value.getLoc()));
  values[statement.name] = value;
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

Value TokenGenerator::emit(const Expr &expr) {
  Location outer = loc;
  loc = locate(expr.loc);
  llvm::scope_exit restore([&] { loc = outer; });

  if (expr.constant)
    return constant(*expr.constant, expr.shape);
  switch (expr.getKind()) {
  case Expr::Kind::Number:
    break; // A constant.
  case Expr::Kind::Name:
    return emitName(cast<NameExpr>(expr));
  case Expr::Kind::Negate:
    return create<arith::NegFOp>(emit(*cast<NegateExpr>(expr).operand));
  case Expr::Kind::Binary: {
    const auto &binary = cast<BinaryExpr>(expr);
    Value lhs = emitAs(*binary.lhs, expr.shape);
    Value rhs = emitAs(*binary.rhs, expr.shape);
    switch (binary.op) {
    case '+':
      return create<arith::AddFOp>(lhs, rhs);
    case '-':
      return create<arith::SubFOp>(lhs, rhs);
    case '*':
      return create<arith::MulFOp>(lhs, rhs);
    default:
      return create<arith::DivFOp>(lhs, rhs);
    }
  }
  case Expr::Kind::Call: {
    const auto &call = cast<CallExpr>(expr);
    return call.function ? call.function->build(*this, call) : emitCall(call);
  }
  }
  llvm_unreachable("a number is a constant");
}
