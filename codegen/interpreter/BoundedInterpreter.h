//===- BoundedInterpreter.h - the oracle of bounded caches ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a `ladle.attention` whose cache is bounded as it stands, one token at a
// time, in float64. Tokens are kept in lists in the order of the sequence, so
// that it shares no ring and no entry with what is compared with it. This
// header stays free of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_BOUNDEDINTERPRETER_H
#define LADLE_CODEGEN_INTERPRETER_BOUNDEDINTERPRETER_H

#include "codegen/interpreter/SpecInterpreter.h"

namespace ladle {
class AttentionOp;
} // namespace ladle

namespace ladle::interpreter {

/// When a cache folds a segment.
struct SegmentNumbers {
  int64_t sinks = 0, window = 0, segment = 0;

  /// Segments that have been folded when a sequence of so many tokens is
  /// decoded or has been a prompt.
  int64_t foldedAt(int64_t length) const;
};

/// Which token leaves a cache; ladle.evict says what they are.
struct EvictionNumbers {
  int64_t budget = 0, sinks = 0, recent = 0, queries = 0, pool = 1;
  double variance = 0;
};

class BoundedInterpreter {
public:
  /// A token that a head keeps.
  struct Kept {
    int64_t position = 0;
    std::vector<double> key, value;
    std::vector<double> weights; ///< that queries gave it, oldest first
  };
  /// A head of the cache, and what is left of the tokens that left it.
  struct Head {
    std::vector<Kept> kept; ///< in the order of the sequence
    /// Σ f(k) vᵀ and Σ f(k), or Σ k vᵀ and Σ k: [dk, dv] and [dk].
    std::vector<double> matrix, keySum;
    /// Of the terms of these sums, Σ (γ f(k) v)² and so on.
    std::vector<double> matrixSquares, keySquares;
    std::vector<double> valueSum, valueSquares; ///< [dv], of a Taylor memory
    double count = 0;                           ///< of tokens in the memory
    double spread = 0;                          ///< Σ |k − mean|²
  };
  /// A sequence.
  struct Row {
    std::vector<Head> heads;
    int64_t length = 0;
    int64_t segments = 0; ///< that have been folded
    int64_t budget = 0;   ///< of a cache that evicts
    /// What each head is to keep after the next call, in order, or nothing. By
    /// how much the salience of what goes for it exceeds that of what would
    /// have gone, over the former, becomes the regret if that is more; ∞ where
    /// it is no choice at all.
    std::vector<std::vector<int64_t>> follows;
    double regret = 0;
    /// Of each element of the newest answer what its rounding errors are in
    /// proportion to, √Σ (w v)² / Z of attention.
    std::vector<std::vector<double>> terms;

  private:
    friend class BoundedInterpreter;
    friend class BoundedCompiler;
    std::vector<double> values;
    /// (m, Z), A and Σ (w v)² of each summary.
    std::vector<std::vector<double>> summaries;
    int64_t window = 0, mostSegments = 0;
    bool isPrompt = false;
  };

  /// Fails, with an error at the operation, if `op` holds an operation that
  /// the interpreter does not know.
  static llvm::FailureOr<BoundedInterpreter> create(AttentionOp op);

  Row makeRow() const;

  using Arrays = std::vector<std::vector<double>>;
  /// Appends a token and answers it.
  void step(Row &row, const Arrays &params, const Arrays &tokens,
            Arrays &outputs) const;
  /// Appends the tokens of a prompt and answers them. A segmented cache answers
  /// the tokens of a segment before it is folded; one that evicts keeps them
  /// all until the last is answered. `terms` are those of Row of each token;
  /// of a segmented cache `answered`, if there is any, says which tokens are
  /// answered: outputs of others stay empty.
  void prefill(Row &row, const Arrays &params,
               const std::vector<Arrays> &tokens, std::vector<Arrays> &outputs,
               std::vector<Arrays> *terms = nullptr,
               const std::vector<bool> &answered = {}) const;

  llvm::ArrayRef<ValueInfo> getParams() const { return params; }
  llvm::ArrayRef<ValueInfo> getTokens() const { return tokens; }
  llvm::ArrayRef<ValueInfo> getOutputs() const { return outputs; }
  std::string name;        ///< of the attention
  SegmentNumbers segments; ///< of a segmented cache
  bool isSegmented = false;
  EvictionNumbers eviction; ///< of a cache that evicts
  bool isEvicting = false;

  /// Evicts down to a lower budget.
  void setBudget(Row &row, int64_t budget) const;

private:
  friend class BoundedCompiler;
  using Instruction = std::function<void(Row &)>;

  BoundedInterpreter() = default;
  void answer(Row &row, const Arrays &params, const Arrays &tokens,
              Arrays &outputs, bool isAnswered = true) const;

  std::vector<ValueInfo> params, tokens, outputs;
  std::vector<Instruction> instructions;
  /// What folds full segments; run once more where a prompt ends.
  Instruction fold;
  /// Those before are all that a segmented cache keeps a token by.
  size_t answersFrom = 0;
  std::vector<size_t> paramOffsets, tokenOffsets, outputOffsets, termOffsets;
  std::vector<double> initialValues;
  std::vector<size_t> summarySizes;
  size_t heads = 0, keySize = 0, valueSize = 0;
  size_t memoryKeySize = 0; ///< 0 without a memory
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_BOUNDEDINTERPRETER_H
