//===- AttentionInterpreter.h - the oracle of attentions --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs `ladle.attention` as it stands, one token at a time, in float64. It
// keeps every token and every summary, so that it shares neither pages, rings
// nor pieces with what is compared with it. This header stays free of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_ATTENTIONINTERPRETER_H
#define LADLE_CODEGEN_INTERPRETER_ATTENTIONINTERPRETER_H

#include "codegen/interpreter/SpecInterpreter.h"

#include <optional>

namespace ladle {
class AttentionOp;
} // namespace ladle

namespace ladle::interpreter {

/// match and complete, as numbers. Without a window nothing is matched.
struct AttentionNumbers {
  int64_t window = 0, band = 0, sinks = 0;
  int64_t maxGap = 0, maxChain = 0, skip = 0; ///< 0 is no limit
  double tau = 1, scale = 1;
  std::optional<double> drift;
  std::optional<int64_t> wideBand, wideGap;
};

class AttentionInterpreter {
public:
  /// A head's summary as it is stored: A / Z and log Z.
  struct Stored {
    std::vector<double> values;
    double logSum = 0;
    std::vector<double> squares; ///< Σ (w v)² / Z², of what is not rounded
  };
  /// What a token left, for each head.
  struct Entry {
    std::vector<double> query, rotated; ///< [heads, D]
    /// [heads]: the summary, or with a wide band its two parts.
    std::vector<Stored> outer, inner;
    std::vector<int64_t> outerEnds, depths; ///< [heads]
  };
  /// A sequence.
  struct Row {
    std::vector<std::vector<double>> keys, values;
    /// By position; nothing for tokens that left nothing.
    std::vector<std::optional<Entry>> entries;
    std::vector<double> moments;  ///< [heads]: the mean of the squares
    std::vector<int64_t> counted; ///< [heads]: of so many tokens
    /// By position, [heads]: what counted; infinite if it did not.
    std::vector<std::vector<double>> squares;
    std::vector<double> terms; ///< √Σ (w v)² / Z, of the newest answer

    /// Forgets what earlier tokens left.
    void restart();
    /// Drops the tokens from `length` on, and what they left in a ring of
    /// `window` entries: places of others, of which they have taken the place.
    void truncate(size_t length, size_t window);
  };
  /// What a head found.
  struct Found {
    int64_t position = -1;       ///< of the token that is matched, or −1
    double limit = 0;            ///< squared distances have to be less
    std::vector<double> squares; ///< of the tokens looked at, newest first
    double drift = 0, driftLimit = 0;
  };

  /// Fails, with an error at the operation, where `op` is not [truncf]
  /// normalize of a softmax or of its completion. A stored A / Z is rounded to
  /// `precision`.
  static llvm::FailureOr<AttentionInterpreter>
  create(AttentionOp op, Precision precision = Precision::Float64);

  Row makeRow() const;

  using Arrays = std::vector<std::vector<double>>;
  /// Appends a token and answers it. `matches`, if given, says what each head
  /// matches, a position or −1, whatever it would find itself. With
  /// `isPrompt` nothing is looked for; a token that does not leave a summary is
  /// none of those that are looked at later.
  std::vector<Found>
  step(Row &row, const Arrays &params, const Arrays &tokens,
       std::vector<double> &output,
       std::optional<llvm::ArrayRef<int64_t>> matches = std::nullopt,
       bool isPrompt = false, bool leaves = true) const;

  llvm::ArrayRef<ValueInfo> getParams() const { return params; }
  llvm::ArrayRef<ValueInfo> getTokens() const { return tokens; }
  const ValueInfo &getOutput() const { return output; }
  /// Those of the softmax.
  const ValueInfo &getQuery() const { return tokens[query]; }
  const ValueInfo &getKey() const { return tokens[key]; }
  const ValueInfo &getValue() const { return tokens[value]; }
  int64_t getHeads() const { return output.shape[0]; }
  bool reuses() const { return matchQuery.has_value(); }
  std::string name;     ///< of the attention
  int64_t pageSize = 0; ///< as the file has it
  AttentionNumbers numbers;

private:
  AttentionInterpreter() = default;
  struct Summary;
  Summary attend(const Row &row, llvm::ArrayRef<double> query, int64_t head,
                 int64_t begin, int64_t end) const;
  void merge(Summary &into, const Summary &other) const;
  static Summary fromStored(const Stored &stored);
  Stored toStored(const Summary &summary) const;
  Found find(const Row &row, const Arrays &params, const Arrays &tokens,
             int64_t head) const;
  Summary answer(const Row &row, const Arrays &tokens, int64_t head,
                 int64_t match, Entry *left) const;

  std::vector<ValueInfo> params, tokens;
  ValueInfo output;
  Precision precision = Precision::Float64;
  /// Which token is which.
  size_t query = 0, key = 0, value = 0;
  std::optional<size_t> matchQuery, moment;
};

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_ATTENTIONINTERPRETER_H
