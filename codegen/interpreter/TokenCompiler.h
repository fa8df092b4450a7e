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

private:
  bool compileElementwise(mlir::Operation &op);
  mlir::LogicalResult compileConstant(mlir::arith::ConstantOp constant);
  void compileBroadcast(BroadcastOp broadcast);
  void compileSum(SumOp sum);
  void compileL2Norm(L2NormOp norm);
  void compileRotate(RotateOp rotate);
  void compileShift(ShiftOp shift);
  void compileConv(ConvOp conv);

  std::vector<double> &initialValues;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_TOKENCOMPILER_H
