//===- Compiler.h - from a recurrence to instructions -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Internal to the interpreter.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_COMPILER_H
#define LADLE_CODEGEN_INTERPRETER_COMPILER_H

#include "codegen/interpreter/SpecInterpreter.h"
#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace ladle::interpreter {

/// Fills an interpreter with the instructions of one recurrence.
class Compiler {
public:
  Compiler(RecurrenceOp op, InterpreterOptions options,
           SpecInterpreter &interpreter)
      : op(op), options(std::move(options)), program(interpreter) {}

  mlir::LogicalResult run();

private:
  using Row = SpecInterpreter::Row;

  /// A token value: where it lies in Row::values.
  struct Slice {
    size_t offset, size;
  };
  /// A state value lies in Row::states (index < number of states) or in
  /// Row::spares.
  struct Buffer {
    size_t index;
    size_t heads, dk, dv;
    size_t size() const { return heads * dk * dv; }
  };

  void declareArguments();
  mlir::LogicalResult compile(mlir::Operation &op);
  mlir::LogicalResult compileYield(YieldOp yield);

  // Operations on the state.
  void compileDecay(DecayOp decay);
  void compileWrite(WriteOp write);
  void compileRead(ReadOp read);
  /// The buffer in which `user` may replace the state `value`: that of the
  /// value, or a copy of it if somebody reads the value later.
  Buffer takeState(mlir::Value value, mlir::Operation *user);
  Buffer copyState(Buffer source);
  static double *getData(Row &row, const Buffer &buffer);

  // Operations on token values.
  bool compileElementwise(mlir::Operation &op);
  mlir::LogicalResult compileConstant(mlir::arith::ConstantOp constant);
  void compileBroadcast(BroadcastOp broadcast);
  void compileSum(SumOp sum);
  void compileL2Norm(L2NormOp norm);
  void compileRotate(RotateOp rotate);
  void compileShift(ShiftOp shift);
  void compileConv(ConvOp conv);

  Slice allocate(mlir::Value value);
  Slice get(mlir::Value value) const { return slices.at(value); }
  /// `body` gets the values of the row.
  template <typename Body> void emit(Body body);

  RecurrenceOp op;
  InterpreterOptions options;
  SpecInterpreter &program;
  llvm::DenseMap<mlir::Value, Slice> slices;
  llvm::DenseMap<mlir::Value, Buffer> buffers;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_COMPILER_H
