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

#include "codegen/interpreter/TokenCompiler.h"

namespace ladle::interpreter {

/// Fills an interpreter with the instructions of one recurrence.
class Compiler : TokenCompiler {
public:
  Compiler(RecurrenceOp op, InterpreterOptions options,
           SpecInterpreter &interpreter)
      : TokenCompiler(interpreter.initialValues), op(op),
        options(std::move(options)), program(interpreter) {}

  mlir::LogicalResult run();

private:
  using Row = SpecInterpreter::Row;

  /// A state value lies in Row::states (index < number of states) or in
  /// Row::spares.
  struct Buffer {
    size_t index;
    size_t heads, dk, dv;
    size_t size() const { return heads * dk * dv; }
  };

  void declareArguments();
  void findAnswers();
  void findSums();
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
  /// Of the terms; null where nobody asks, or the state is no sum.
  static double *getSquares(Row &row, const Buffer &buffer);

  void emit(std::function<void(double *)> body) override {
    program.instructions.push_back(
        [body = std::move(body)](Row &row) { body(row.values.data()); });
  }

  RecurrenceOp op;
  InterpreterOptions options;
  SpecInterpreter &program;
  llvm::DenseMap<mlir::Value, Buffer> buffers;
  /// What outputs are made of, other than by way of a state.
  llvm::DenseSet<mlir::Value> answers;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_COMPILER_H
