//===- PublishedFormsTest.cpp - what papers count, unsimplified -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bytes and flops as the papers on KVBuffer and on replayed states add them up,
// term by term, against counts on compiled steps: f32 states, bf16 inputs and
// entries, one head.
//
//
//===----------------------------------------------------------------------===//

#include "tests/analysis/LinearAttention.h"

using namespace ladle;
using test::LinearAttention;

//===----------------------------------------------------------------------===//
// KVBuffer: linear attention, a state of d x d
//===----------------------------------------------------------------------===//

TEST_CASE("a recurrent step reads and writes the state, q, k, v and o") {
  for (double d : {32.0, 64.0, 128.0}) {
    LinearAttention model(static_cast<int>(d));
    CHECK(model.route(Route::Recurrent).decode.bytes(0) ==
          4 * d * d + 4 * d * d + 3 * 2 * d + 2 * d);
  }
}

TEST_CASE(
    "a buffered step reads the state, h entries, q, k, v; writes o, k, v") {
  for (double d : {32.0, 128.0})
    for (double h : {0.0, 1.0, 7.0, 31.0}) {
      LinearAttention model(static_cast<int>(d));
      CHECK(model.route(Route::Inner).decode.bytes(h) ==
            4 * d * d + h * (2 * d + 2 * d) + 3 * 2 * d + 2 * d + 2 * 2 * d);
    }
}

TEST_CASE("a fold of m entries moves 8dd + 4md bytes") {
  for (double d : {32.0, 128.0})
    for (double m : {1.0, 4.0, 16.0}) {
      LinearAttention model(static_cast<int>(d));
      const StepCost &fold = *model.route(Route::Inner).fold;
      CHECK(fold.bytes(m) == 8 * d * d + 4 * m * d);
      // Its intensity: a product of m x d and m x d.
      CHECK(fold.flopsAt(m) / fold.bytes(m) == Approx(m / (4 + 2 * m / d)));
    }
}

TEST_CASE("a cycle is the mean of its steps and of the fold after them") {
  for (double d : {64.0, 128.0})
    for (int m : {2, 8, 16, 23}) {
      LinearAttention model(static_cast<int>(d));
      double sum = 8 * d * d + 4 * m * d;
      for (int h = 0; h < m; ++h)
        sum += 4 * d * d + 4 * h * d + 12 * d;
      CHECK(model.route(Route::Inner).separateCycleBytes(m) ==
            Approx(sum / m).epsilon(1e-14));
      CHECK(sum / m == Approx(4 * d * d + 8 * d * d / m + 2 * m * d + 14 * d)
                           .epsilon(1e-14));
    }
}

TEST_CASE("a step of m drafts has the published bytes, flops and intensity") {
  for (double d : {64.0, 128.0})
    for (double m : {1.0, 4.0, 8.0}) {
      LinearAttention model(static_cast<int>(d));
      const RouteCost &inner = model.route(Route::Inner);
      double bytes = 4 * d * d + 12 * m * d;
      double flops = 2 * m * d * d + 2 * m * (m + 1) * d;
      CHECK(inner.verifyBytes(m, 0) == bytes);
      // Papers do not count the addition that joins both parts of an output.
      CHECK(inner.verifyFlops(m, 0) == flops + m * d);
      CHECK(inner.verifyFlops(m, 0) / inner.verifyBytes(m, 0) ==
            Approx(flops / bytes).epsilon(1 / (2 * d)));
    }
}

TEST_CASE("verification by a state a draft, and from the buffer with a fold") {
  double d = 128;
  LinearAttention model(static_cast<int>(d));
  const RouteCost &inner = model.route(Route::Inner);
  const StepCost &recurrent = model.route(Route::Recurrent).decode;
  for (double m : {2.0, 4.0, 8.0}) {
    double states = 4 * d * d + m * 4 * d * d + m * 8 * d;
    double buffered = 4 * d * d + 12 * m * d + 8 * d * d + 4 * m * d;
    CHECK(recurrent.stateRead +
              m * (recurrent.bytes(0) - recurrent.stateRead) ==
          states);
    CHECK(inner.verifyBytes(m, 0) + inner.fold->bytes(m) == buffered);
    CHECK(states / buffered == Approx(((m + 1) * d + 2 * m) / (3 * d + 4 * m)));
  }
}

TEST_CASE("kv_only with L tokens moves 4Ld + 8d bytes at L/(L+2)") {
  for (double d : {64.0, 128.0})
    for (double length : {1.0, 8.0, 100.0}) {
      LinearAttention model(static_cast<int>(d));
      const RouteCost &grows = model.route(Route::KvOnly);
      CHECK(grows.cycleBytes(length) == 4 * length * d + 8 * d);
      CHECK(grows.cycleFlops(length) / grows.cycleBytes(length) ==
            Approx(length / (length + 2)).epsilon(0.26 / length));
      CHECK(grows.cycleFlops(length) <= 4 * length * d + d);
      CHECK(grows.cycleFlops(length) >= 4 * length * d);
    }
}

//===----------------------------------------------------------------------===//
// Replayed states: a decay, a state of d x n
//===----------------------------------------------------------------------===//

TEST_CASE(
    "a decayed state moves 8dn + 2(d + 2n + 1) bytes, or 4dn and entries") {
  for (auto [d, n] : {std::pair{64, 128}, std::pair{128, 32}}) {
    LinearAttention model(n, d, /*decays=*/true);
    const StepCost &recurrent = model.route(Route::Recurrent).decode;
    const StepCost &inner = model.route(Route::Inner).decode;
    // The papers leave out what is written of the output.
    CHECK(recurrent.bytes(0) - recurrent.outputWritten ==
          8 * d * n + 2 * (d + 2 * n + 1));
    for (int h : {0, 3, 15}) {
      // They cache dt in 16 bits; here an f32 decay is cached.
      int decays = 2 * (h + 1);
      CHECK(inner.bytes(h) - inner.outputWritten - decays ==
            4 * d * n + 2 * h * (d + n + 1) + 2 * (d + 2 * n + 1) +
                2 * (d + n + 1));
    }
  }
}

/// The part of a count that grows with d times n, exactly: counts are a dn + b
/// d
/// + c n + e.
template <typename Count> static double stateFlops(int n, int d, Count count) {
  auto at = [&](int each, int other) {
    return count(LinearAttention(each, other, /*decays=*/true));
  };
  return at(2 * n, 2 * d) - at(2 * n, d) - at(n, 2 * d) + at(n, d);
}

TEST_CASE("outer rebuilds the state with 2(h + 1)dn + 4dn flops") {
  // As published: with the token's own write. The step that folds does that;
  // others read the token's own part aside.
  int n = 32, d = 16;
  for (int h : {0, 3, 15}) {
    CHECK(stateFlops(n, d, [&](const LinearAttention &model) {
            return model.route(Route::Outer).decodeFold->flopsAt(h);
          }) == 2 * (h + 1) * d * n + 4 * d * n);
    CHECK(stateFlops(n, d, [&](const LinearAttention &model) {
            return model.route(Route::Outer).decode.flopsAt(h);
          }) == 2 * h * d * n + 3 * d * n);
  }
}

TEST_CASE("inner reads with 2dn + d + 2(h + 1)n + n + 2(h + 1)d flops") {
  for (auto [d, n] : {std::pair{64, 128}, std::pair{16, 32}})
    for (int h : {0, 3, 15}) {
      LinearAttention model(n, d, /*decays=*/true);
      double counted = model.route(Route::Inner).decode.flopsAt(h);
      double published = 2 * d * n + d + 2 * (h + 1) * n + n + 2 * (h + 1) * d;
      // The papers scale the query by its decay once, which takes n; here two
      // parts of the output are scaled, joined and joined with the token's own.
      // A product of decays takes one an entry.
      CHECK(counted == published - n + 2 * d + h);
    }
}
