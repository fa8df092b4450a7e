//===- LinearAttention.h - a program written by hand ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Linear attention with a decay, a carry, a parameter and a shared input, as
// kernels in C++ that follow the interface of compiled ones:
//
//     S = a S + k vᵀ,  y = Sᵀ q + bias + prev + s,  z = a,  prev = v
//
// The kernels replay entries one by one, so that all routes and forms do the
// same arithmetic in the same order and must agree bit for bit.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_LINEARATTENTION_H
#define LADLE_TESTS_RUNTIME_LINEARATTENTION_H

#include "ladle/decode.h"

namespace ladle::test {

inline constexpr int64_t heads = 4, keySize = 3, valueSize = 5, capacity = 4;

/// Routes recurrent, inner and kv_only over one buffer of `capacity` entries.
Program linearAttention(RouteKind route = RouteKind::Inner);

struct Token {
  float q[heads][keySize], k[heads][keySize], v[heads][valueSize], a[heads];
  float s[valueSize];
};
/// The token of sequence `sequence` at `time`, the same for every call.
Token makeToken(uint32_t sequence, uint32_t time);

/// One sequence, computed without Ladle.
class Reference {
public:
  /// The output y, [heads, valueSize].
  std::vector<float> step(const Token &token);

  float state[heads][valueSize][keySize] = {};
  float previous[heads][valueSize] = {};
};

/// Dense memory for the arguments of a step.
class Batch {
public:
  explicit Batch(int64_t rows);
  Batch(const Batch &) = delete;

  void set(int64_t row, const Token &token);
  /// The output y of a row.
  std::vector<float> y(int64_t row) const;
  std::vector<float> z(int64_t row) const;

  std::vector<float> bias, qs, ks, vs, as, ss, ys, zs;
  std::vector<int32_t> reads, writes;
  StepArguments arguments;
  /// Arguments with these slots.
  const StepArguments &with(std::vector<int32_t> readSlots,
                            std::vector<int32_t> writeSlots = {});
};

/// A pool with `slots` slots of the program; fails the test if there is none.
Pool makePool(const Program &program, int64_t slots,
              PoolOptions options = PoolOptions());

/// Decodes the token of `sequence` at `time` in `slot` and returns y.
std::vector<float> decodeOne(const Program &program, Pool &pool, int32_t slot,
                             uint32_t sequence, uint32_t time,
                             int32_t writeSlot = -1);

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_LINEARATTENTION_H
