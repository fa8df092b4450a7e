//===- CudaExpressions.h - scalars as CUDA C++ ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_CUDAEXPRESSIONS_H
#define LADLE_CODEGEN_CUDA_CUDAEXPRESSIONS_H

#include "mlir/IR/Operation.h"

namespace ladle::cuda {

/// A scalar or 1-D vector type in CUDA C++; empty if there is none.
std::string typeText(mlir::Type type);

/// A literal of a scalar type that has a typeText; empty where the value does
/// not fit into it.
std::string literal(mlir::TypedAttr value);

/// An integer for an address: `long long` only if it has to be.
std::string literal(int64_t value);

/// Whether `op` has one result and computes each element of it from the same
/// elements of its operands, as elementExpression can say.
bool isElementwise(mlir::Operation *op);

/// What one element of the result of an elementwise `op` is, where `operands`
/// are identifiers, literals or elements. Empty for other operations and types.
std::string elementExpression(mlir::Operation *op,
                              llvm::ArrayRef<std::string> operands);

/// `a` and `b` combined: those of vector.reduction, by its kind's name. Empty
/// if there is no such kind.
std::string combine(llvm::StringRef kind, llvm::StringRef a, llvm::StringRef b);

/// Whether the result of `op` is its operand, in C++.
bool isSameInCuda(mlir::Operation *op);

} // namespace ladle::cuda

#endif // LADLE_CODEGEN_CUDA_CUDAEXPRESSIONS_H
