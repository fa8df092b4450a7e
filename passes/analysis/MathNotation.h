//===- MathNotation.h - expressions for people ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Values of a recurrence as a person would write them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_MATHNOTATION_H
#define LADLE_PASSES_ANALYSIS_MATHNOTATION_H

#include "dialect/LadleOps.h"
#include "llvm/ADT/SetVector.h"

namespace ladle {

class MathNotation {
public:
  explicit MathNotation(RecurrenceOp recurrence) : recurrence(recurrence) {}

  /// The value by its name if its author gave it one, else its expression.
  std::string render(mlir::Value value);
  /// As a factor of a product: sums and products in parentheses.
  std::string renderFactor(mlir::Value value);
  /// The expression behind a named value.
  std::string define(mlir::Value value);
  /// Lines `name = expression` for every name used so far, and for the names
  /// that these use.
  llvm::SmallVector<std::string> takeDefinitions();

private:
  struct Text {
    std::string text;
    int binding; // 1 sum, 2 product, 3 atom
  };
  Text renderNamed(mlir::Value value);
  Text renderExpression(mlir::Value value);
  std::string inside(const Text &text, int binding);
  std::string call(llvm::StringRef function, mlir::Operation *op);

  RecurrenceOp recurrence;
  llvm::SetVector<mlir::Value> named;
  size_t defined = 0;
};

/// The name that the source gives a value, or "".
std::string sourceName(RecurrenceOp recurrence, mlir::Value value);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_MATHNOTATION_H
