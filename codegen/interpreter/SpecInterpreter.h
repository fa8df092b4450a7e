//===- SpecInterpreter.h - the float64 oracle -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the spec stage as it stands, one token at a time, in float64. It shares
// nothing with the routes, the lowering or the runtime, so that all of those
// can be compared with it. This header stays free of MLIR for the sake of the
// many tests that include it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_SPECINTERPRETER_H
#define LADLE_CODEGEN_INTERPRETER_SPECINTERPRETER_H

#include "codegen/interpreter/Rounding.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/LogicalResult.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ladle {
class RecurrenceOp;
class WriteOp;
} // namespace ladle

namespace ladle::interpreter {

struct InterpreterOptions {
  /// Rounds the value operand u of the writes for which `roundsWrite` holds
  /// (of all, if it is empty) and nothing else: what the entry type costs.
  Precision entryPrecision = Precision::Float64;
  std::function<bool(WriteOp)> roundsWrite;
};

/// An argument or an output: row-major, heads first.
struct ValueInfo {
  std::string name;
  std::vector<int64_t> shape;
  /// The declared type; the oracle itself never rounds to it.
  Precision precision;

  /// The number of elements.
  size_t size() const;
};

/// One recurrence, compiled to a list of instructions. Steps of different rows
/// may run on different threads.
class SpecInterpreter {
public:
  /// What one sequence keeps from token to token.
  struct Row {
    /// In declaration order. A state is [heads, dk, dv], dv contiguous.
    std::vector<std::vector<double>> carries, states;
    /// Entries that are within this part of the largest from a tie are rounded
    /// the other way, as a kernel with an error of its own may.
    double tieSlack = 0;
    /// Whether the next token leaves an entry. One that folds takes its values
    /// as they are.
    bool keepsEntry = true;
    /// Whether a token leaves the terms of its answers: of each element of an
    /// output what its rounding errors are in proportion to, √Σ (q S)² of a
    /// read of Σ q S. In place of an element of a state that only sums what
    /// tokens bring, Σ γ k v, they have √Σ (γ k v)²: that may cancel, too.
    bool keepsTerms = false;
    std::vector<std::vector<double>> terms; ///< as outputs are

  private:
    friend class SpecInterpreter;
    friend class Compiler;
    /// The values of a token, and copies of states that a token still reads
    /// after they were replaced.
    std::vector<double> values;
    std::vector<std::vector<double>> spares;
    /// Squares of the terms of states and spares; empty of those that writes
    /// correct by what they read, which leaves no more than there is.
    std::vector<std::vector<double>> squares;
  };

  /// Fails, with an error at the operation, if `op` holds an operation that
  /// the interpreter does not know.
  static llvm::FailureOr<SpecInterpreter>
  create(RecurrenceOp op, InterpreterOptions options = {});

  /// Carries and states are zero.
  Row makeRow() const;

  /// Advances `row` by one token. `params` and `tokens` hold one array an
  /// argument, of ValueInfo::size() elements, in declaration order, and
  /// `outputs` one vector an output, which is resized.
  void step(Row &row, llvm::ArrayRef<llvm::ArrayRef<double>> params,
            llvm::ArrayRef<llvm::ArrayRef<double>> tokens,
            llvm::MutableArrayRef<std::vector<double>> outputs) const;

  using Arrays = std::vector<std::vector<double>>;
  void step(Row &row, const Arrays &params, const Arrays &tokens,
            Arrays &outputs) const;

  llvm::ArrayRef<ValueInfo> getParams() const { return params; }
  llvm::ArrayRef<ValueInfo> getTokens() const { return tokens; }
  llvm::ArrayRef<ValueInfo> getCarries() const { return carries; }
  llvm::ArrayRef<ValueInfo> getStates() const { return states; }
  llvm::ArrayRef<ValueInfo> getOutputs() const { return outputs; }
  bool roundsEntries() const { return hasRoundedEntries; }

private:
  friend class Compiler;
  using Instruction = std::function<void(Row &)>;

  SpecInterpreter() = default;

  std::vector<ValueInfo> params, tokens, carries, states, outputs;
  std::vector<Instruction> instructions;
  /// Where arguments and results lie in Row::values.
  std::vector<size_t> paramOffsets, tokenOffsets, carryOffsets;
  std::vector<size_t> outputOffsets, termOffsets, nextCarryOffsets;
  /// Row::values and the sizes of Row::spares; constants are in place.
  std::vector<double> initialValues;
  std::vector<size_t> spareSizes;
  /// By state and spare: whether it is but a sum.
  std::vector<bool> isSum;
  bool hasRoundedEntries = false;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_SPECINTERPRETER_H
