//===- ScalarFunctions.h - elementwise operations by name -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_SCALARFUNCTIONS_H
#define LADLE_CODEGEN_INTERPRETER_SCALARFUNCTIONS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace ladle::interpreter {

using Unary = double (*)(double);
using Binary = double (*)(double, double);
using Ternary = double (*)(double, double, double);

/// The function of an elementwise operation such as "math.exp", or null.
/// Booleans are 0 and 1.
Unary getUnary(llvm::StringRef operation);
Binary getBinary(llvm::StringRef operation);
Ternary getTernary(llvm::StringRef operation);

/// The comparison of an arith.cmpf.
Binary getComparison(mlir::arith::CmpFPredicate predicate);

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_SCALARFUNCTIONS_H
