//===- Speculation.h - sequences, drafts and their oracle -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool and what its slots should hold, driven by random calls: drafts as
// trees, acceptance of any path, decode steps, resets, flushes, exports and
// imports, padding, and another route every time; where entries lie in pages,
// of which there are too few, also prompts, forks, prefixes, and thresholds
// that move.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_SPECULATION_H
#define LADLE_TESTS_NUMERICS_SPECULATION_H

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "runtime/check/HostSteps.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"

#include <optional>
#include <random>

namespace ladle::test {

struct SpeculationOptions {
  std::string source; ///< text of a .ladle file
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> routes; ///< that share their entries
  int64_t drafts = 4, capacity = 12, slots = 5, rows = 3;
  std::string target = "cpu"; ///< as in CompileOptions
  /// Entries of a page, and how many of them; states that slots take. With
  /// pages prompts come, slots fork, are cut, and m and the crossover move.
  int64_t page = 0, pages = 0;
  std::optional<int64_t> states = std::nullopt;
  uint64_t seed = 1;
};

class Speculation {
public:
  explicit Speculation(const SpeculationOptions &options);

  /// One random call; the largest error of any output so far is `worst`.
  void act();
  /// States and carries of all slots.
  void compareSlots();
  /// A chain of drafts on slot `slot`, of which `count` are accepted; only
  /// those are compared.
  void extend(int32_t slot, int64_t drafts, int64_t count);

  double worst = 0;
  int64_t accepted = 0, rejected = 0, folds = 0;
  int64_t exhausted = 0, prompts = 0, forks = 0, prefixes = 0, others = 0;

private:
  using Interpreter = interpreter::SpecInterpreter;
  using Arrays = Interpreter::Arrays;
  using Row = Interpreter::Row;
  /// What a slot holds, and what led there, for prefixes: the tokens of its
  /// last entries, and what it was before each of them.
  struct Sequence {
    Row now;
    std::vector<Row> before;
    std::vector<Arrays> tokens;
  };
  void decode();
  void verify();
  void readPrompt();
  void fork();
  void rebuild();
  void setLimits();
  void reset();
  void flush();
  void move();
  std::vector<int32_t> pickSlots();
  /// The sequence answers a token; the answer is row `row` of the outputs.
  void follow(Sequence &sequence, const Arrays &token, int64_t row);
  /// The sequence is about to go on, and may be cut back to what it is.
  void keep(Sequence &sequence, const Arrays &token) const;
  void clear(int32_t slot);
  /// Whether a call has done what it should: an error fails the test, unless
  /// pages or states were used up, and it has changed nothing. Then a slot is
  /// reset.
  bool succeeds(const Status &status, const std::vector<int64_t> &before);
  /// Where all slots stand, and what is free.
  std::vector<int64_t> standing() const;
  /// Another route, for which slots without a buffer are made empty of entries.
  check::HostSteps &chooseRoute(const std::vector<int32_t> &slots);
  void compare(const std::vector<double> &actual,
               const std::vector<double> &expected);
  Arrays drawTokens() {
    return inputs.draw(oracle->getTokens(), 0, position++);
  }
  uint64_t below(uint64_t bound) { return random() % bound; }

  SpeculationOptions options;
  std::mt19937_64 random;
  std::optional<Interpreter> oracle;
  check::RandomInputs inputs;
  uint64_t position = 0;
  std::vector<Program> programs; ///< one a route
  std::optional<Pool> pool;
  std::vector<check::HostSteps> decoders;
  std::optional<check::Batch> batch;
  Arrays params;
  std::vector<Sequence> sequences;
  std::optional<DeviceTensor> listed; ///< a slot in memory of the device
};

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_SPECULATION_H
