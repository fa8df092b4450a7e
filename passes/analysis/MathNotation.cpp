//===- MathNotation.cpp - expressions for people --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/MathNotation.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace ladle;

std::string ladle::sourceName(RecurrenceOp recurrence, Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return recurrence.getArgumentName(argument.getArgNumber()).str();
  if (auto name = dyn_cast<NameLoc>(value.getLoc()))
    return name.getName().str();
  return "";
}

/// The value that a person thinks of: broadcasts and widenings go unseen.
static Value strip(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    bool isInput =
        isa<arith::ExtFOp>(op) && isa<BlockArgument>(op->getOperand(0));
    if ((isa<NameLoc>(op->getLoc()) && !isInput) ||
        !isa<BroadcastOp, arith::ExtFOp, arith::TruncFOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

std::string MathNotation::inside(const Text &text, int binding) {
  return text.binding < binding ? "(" + text.text + ")" : text.text;
}

std::string MathNotation::call(StringRef function, Operation *op) {
  std::string result = (function + "(").str();
  llvm::raw_string_ostream stream(result);
  llvm::interleaveComma(op->getOperands(), stream, [&](Value operand) {
    stream << renderNamed(operand).text;
  });
  return result + ")";
}

MathNotation::Text MathNotation::renderNamed(Value value) {
  value = strip(value);
  std::string name = sourceName(recurrence, value);
  if (name.empty())
    return renderExpression(value);
  if (!isa<BlockArgument>(value))
    named.insert(value);
  return {name, 3};
}

MathNotation::Text MathNotation::renderExpression(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {sourceName(recurrence, value), 3};
  auto infix = [&](StringRef sign, int binding, bool associative) -> Text {
    std::string left = inside(renderNamed(op->getOperand(0)), binding);
    Text right = renderNamed(op->getOperand(1));
    // A sign behind another one would be read as a difference.
    if (StringRef(right.text).starts_with("−") ||
        StringRef(right.text).starts_with("-"))
      right = {"(" + right.text + ")", 3};
    return {left + sign.str() +
                inside(right, associative ? binding : binding + 1),
            binding};
  };
  SplatElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant))) {
    std::string digits;
    llvm::raw_string_ostream(digits) << llvm::format(
        "%g", constant.getSplatValue<APFloat>().convertToDouble());
    return {digits, 3};
  }
  return TypeSwitch<Operation *, Text>(op)
      .Case([&](arith::AddFOp) { return infix(" + ", 1, true); })
      .Case([&](arith::SubFOp) { return infix(" − ", 1, false); })
      .Case([&](arith::MulFOp) { return infix(" ", 2, true); })
      .Case([&](arith::DivFOp) { return infix(" / ", 2, false); })
      .Case([&](arith::NegFOp) -> Text {
        return {"−" + inside(renderNamed(op->getOperand(0)), 2), 2};
      })
      .Case([&](ReadOp read) -> Text {
        return {inside(renderNamed(read.getState()), 3) + "ᵀ " +
                    inside(renderNamed(read.getQuery()), 3),
                2};
      })
      .Case([&](SumOp sum) -> Text {
        auto product = strip(sum.getInput()).getDefiningOp<arith::MulFOp>();
        bool last =
            int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank();
        if (product && last)
          return {"(" + inside(renderNamed(product.getLhs()), 2) + " · " +
                      inside(renderNamed(product.getRhs()), 2) + ")",
                  3};
        return {call("sum", op), 3};
      })
      .Case<BroadcastOp, arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *each) { return renderNamed(each->getOperand(0)); })
      .Default([&](Operation *each) -> Text {
        StringRef name = each->getName().stripDialect();
        StringRef inSource = llvm::StringSwitch<StringRef>(name)
                                 .Case("maximumf", "max")
                                 .Case("minimumf", "min")
                                 .Case("absf", "abs")
                                 .Default(name);
        return {call(inSource, each), 3};
      });
}

std::string MathNotation::render(Value value) {
  return renderNamed(value).text;
}

std::string MathNotation::renderFactor(Value value) {
  return inside(renderNamed(value), 3);
}

std::string MathNotation::define(Value value) {
  return renderExpression(value).text;
}

SmallVector<std::string> MathNotation::takeDefinitions() {
  SmallVector<std::string> lines;
  // Rendering a definition may name more values.
  for (; defined < named.size(); ++defined) {
    Value value = named[defined];
    lines.push_back(sourceName(recurrence, value) + " = " + define(value));
  }
  return lines;
}
