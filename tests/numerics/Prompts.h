//===- Prompts.h - sequences, prompts and their oracle ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool and what its slots should hold, driven by prompts and decode steps.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_PROMPTS_H
#define LADLE_TESTS_NUMERICS_PROMPTS_H

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tests/numerics/Examples.h"

#include <optional>

namespace ladle::test {

class Prompts {
public:
  using Interpreter = interpreter::SpecInterpreter;
  using Arrays = Interpreter::Arrays;
  static constexpr int64_t slots = 6;

  /// `options` needs no sizes: they are those of the preset "tiny" of `source`.
  Prompts(const std::string &source, CompileOptions options,
          const check::InputRanges &ranges = {}, PoolOptions memory = {});

  /// Rows of `counts` tokens follow what `slots` hold; a negative slot is
  /// padding. The answers, [tokens] of the outputs after one another.
  std::vector<Arrays> prefill(const std::vector<int32_t> &slots,
                              const std::vector<int32_t> &counts);
  /// One token for each of `slots`; the answers.
  std::vector<Arrays> decode(const std::vector<int32_t> &slots);
  /// One token for each of `slots`, which nobody remembers if it fails.
  Status tryDecode(const std::vector<int32_t> &slots);
  void reset(int32_t slot);
  void fork(int32_t from, int32_t to);
  /// What a slot should hold, and that it should hold something else.
  const Interpreter::Row &sequence(int32_t slot) const {
    return sequences[slot];
  }
  void setSequence(int32_t slot, Interpreter::Row row) {
    sequences[slot] = std::move(row);
  }
  /// A sequence with the tokens that a slot had at `first` to `last` - 1 after
  /// what it holds.
  Interpreter::Row follow(Interpreter::Row row, int32_t slot, uint64_t first,
                          uint64_t last);
  /// From now on an empty slot gets the tokens that another has had.
  void repeat(int32_t slot, int32_t other) { streams[slot] = streams[other]; }
  /// States and carries of all slots, after a flush of a copy.
  void compareSlots();
  Cursor cursor(int32_t slot) const { return *pool->cursor(slot); }
  Cursors cursors() const { return pool->cursors(); }

  double worst = 0; ///< error of any output or state so far
  std::optional<Program> program;
  std::optional<Pool> pool;
  std::optional<Decoder> decoder;

private:
  Status decodeInto(const std::vector<int32_t> &slots,
                    std::vector<Arrays> &answers);
  void compare(const std::vector<double> &actual,
               const std::vector<double> &expected);
  Arrays drawTokens(int32_t slot);

  std::optional<Interpreter> oracle;
  check::RandomInputs inputs;
  Arrays params;
  std::vector<Interpreter::Row> sequences;
  std::vector<uint64_t> positions; ///< tokens that each slot has had
  std::vector<uint64_t> streams;   ///< that they are drawn from
};

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_PROMPTS_H
