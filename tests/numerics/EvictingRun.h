//===- EvictingRun.h - a cache that evicts beside its model -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decodes slots with Ladle and with the float64 model of tests/models at once.
// The model follows which tokens are evicted, and says how much less salient
// others would have been.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_EVICTINGRUN_H
#define LADLE_TESTS_NUMERICS_EVICTINGRUN_H

#include "ladle/attention.h"
#include "tests/models/Slake.h"

#include <catch2/catch.hpp>
#include <random>

namespace ladle {

struct EvictingCase {
  reference::SlakeNumbers numbers;
  std::string type = "f32", memoryType = "f32";
  int threads = 1;
  double spread = 1; ///< of the keys
  bool observes = true;
  std::optional<PreferenceOptions> preference = {};
};

/// A declaration of such an attention.
std::string declarationOf(const EvictingCase &config);

class EvictingRun {
public:
  using Vector = std::vector<double>;
  EvictingRun(const EvictingCase &config, int64_t slots, unsigned seed = 1);

  /// Decodes a random token for each row; a negative slot is padding.
  void step(const std::vector<int32_t> &slots);
  void prefill(int32_t slot, int64_t tokens);
  void setBudget(int32_t slot, int64_t budget);
  void reset(int32_t slot);

  /// So far: the largest error relative to the largest element of an output,
  /// and the largest regret of a model.
  double error = 0;
  double regret() const;

  const reference::Slake &model(int32_t slot) const { return models[slot]; }
  const AttentionProgram &getProgram() const { return *program; }
  AttentionPool &getPool() { return *pool; }
  AttentionDecoder &getDecoder() { return *decoder; }
  const std::vector<float> &answer() const { return outputs; }

private:
  struct Tokens {
    std::vector<float> q, k, v;
  };
  Tokens draw(int64_t count);
  std::map<std::string, TensorView, std::less<>> views(Tokens &tokens,
                                                       int64_t count);
  reference::Slake::Kept keptOf(int32_t slot) const;
  void compare(int64_t row, const Vector &expected);

  EvictingCase config;
  std::mt19937 random;
  std::optional<AttentionProgram> program;
  std::optional<AttentionPool> pool;
  std::optional<AttentionDecoder> decoder;
  std::vector<reference::Slake> models;
  std::vector<float> outputs;
  std::vector<std::vector<char>> storage;
  double worstRegret = 0;
};

} // namespace ladle

#endif // LADLE_TESTS_NUMERICS_EVICTINGRUN_H
