//===- OperandClasses.h - how values depend on the state --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_OPERANDCLASSES_H
#define LADLE_PASSES_ANALYSIS_OPERANDCLASSES_H

#include "dialect/LadleOps.h"

namespace ladle {

/// The classes of all values in the body of a recurrence.
///
/// A read with a token-only query is affine; sums, differences, products with
/// token-only values, broadcasts and reductions keep the class; anything else
/// that is computed from a read is other.
class OperandClasses {
public:
  explicit OperandClasses(mlir::Region &body);

  /// Token-only for a value that was added after the analysis.
  OperandClass get(mlir::Value value) const;

  /// The first read that `value` is computed from, or null.
  ReadOp findRead(mlir::Value value) const;

  /// The operation that makes `value`, whose class is other, so: none of its
  /// operands is. Null if that happens outside of the body's operations.
  mlir::Operation *findNonAffine(mlir::Value value) const;

private:
  OperandClass classify(mlir::Operation *op) const;

  llvm::DenseMap<mlir::Value, OperandClass> classes; // only affine and other
};

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_OPERANDCLASSES_H
