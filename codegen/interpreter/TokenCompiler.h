//===- TokenCompiler.h - token values into instructions ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Internal to the interpreter.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_TOKENCOMPILER_H
#define LADLE_CODEGEN_INTERPRETER_TOKENCOMPILER_H

#include "codegen/interpreter/SpecInterpreter.h"
#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

#include <array>

namespace ladle::interpreter {

/// The shape and type of an argument or an output.
ValueInfo describe(llvm::StringRef name, mlir::Type type);

/// What recurrences and attentions have in common: arithmetic on the values of
/// a token, which lie in one array of numbers.
class TokenCompiler {
public:
  virtual ~TokenCompiler() = default;

protected:
  /// Where a token value lies.
  struct Slice {
    size_t offset, size;
  };

  /// `initialValues` grows with every value; constants are in place.
  explicit TokenCompiler(std::vector<double> &initialValues)
      : initialValues(initialValues) {}

  /// Returns whether it knows the operation.
  mlir::FailureOr<bool> compileToken(mlir::Operation &op);
  /// Appends an instruction, which gets the array.
  virtual void emit(std::function<void(double *)> body) = 0;

  Slice allocate(mlir::Value value);
  Slice get(mlir::Value value) const { return slices.at(value); }

  llvm::DenseMap<mlir::Value, Slice> slices;

  // What cancels: the terms of a value are what its rounding errors are in
  // proportion to, to first order. Errors of terms are added up as those that
  // know nothing of each other are, by their squares: of Σ x_i the terms are
  // √Σ x_i², unless the sum is more. Values that come of a read of a memory or
  // a cache have them; of others they are the value.

  Slice allocateTerms(mlir::Value value);
  Slice reserve(mlir::Type type);
  bool hasTerms(mlir::Value value) const { return terms.contains(value); }
  /// Of values without terms of their own: signs do not matter.
  size_t termsOf(mlir::Value value) const {
    auto found = terms.find(value);
    return found == terms.end() ? get(value).offset : found->second.offset;
  }

private:
  bool compileElementwise(mlir::Operation &op);
  template <typename Function, size_t Count>
  void compileTerms(mlir::Operation &op, Function function,
                    std::array<size_t, Count> operands);
  mlir::LogicalResult compileConstant(mlir::arith::ConstantOp constant);
  void compileBroadcast(BroadcastOp broadcast);
  void compileSum(SumOp sum);
  void compileL2Norm(L2NormOp norm);
  void compileRotate(RotateOp rotate);
  void compileShift(ShiftOp shift);
  void compileConv(ConvOp conv);

  std::vector<double> &initialValues;
  llvm::DenseMap<mlir::Value, Slice> terms;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_TOKENCOMPILER_H
