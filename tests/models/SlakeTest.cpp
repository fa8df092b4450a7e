//===- SlakeTest.cpp - what must hold of a cache that evicts ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Slake.h"
#include "tests/models/TestInputs.h"

using namespace ladle::reference;
using Vector = Slake::Vector;

namespace {
struct Stream {
  std::vector<Vector> q, k, v;
  explicit Stream(const SlakeNumbers &numbers, int64_t length,
                  unsigned seed = 1, double spread = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    auto draw = [&](int64_t count, double factor) {
      Vector drawn(count);
      for (double &element : drawn)
        element = factor * normal(random);
      return drawn;
    };
    for (int64_t t = 0; t < length; ++t) {
      q.push_back(draw(numbers.heads * numbers.keySize, 1));
      k.push_back(draw(numbers.cacheHeads * numbers.keySize, spread));
      v.push_back(draw(numbers.cacheHeads * numbers.valueSize, 1));
    }
  }
  std::vector<Vector> decode(Slake &model) const {
    std::vector<Vector> outputs;
    for (size_t t = 0; t < q.size(); ++t)
      outputs.push_back(model.step(q[t], k[t], v[t]));
    return outputs;
  }
};

const SlakeNumbers small{4, 2, 4, 3, 0.5, 12, 1, 3, 4, 200, 3, true, 0};
} // namespace

static double difference(const std::vector<Vector> &a,
                         const std::vector<Vector> &b) {
  double most = 0;
  for (size_t t = 0; t < a.size(); ++t)
    most = std::max(most, relativeError(a[t], b[t]));
  return most;
}

TEST_CASE("a budget that holds everything is exact attention") {
  SlakeNumbers large = small;
  large.budget = 40;
  Stream stream(small, 40);
  Slake model(large);
  std::vector<Vector> outputs = stream.decode(model);
  for (int64_t h = 0; h < 4; ++h) {
    Vector weights, exact(3, 0.0);
    double sum = 0;
    for (size_t t = 0; t < 40; ++t) {
      double score = 0;
      for (int64_t c = 0; c < 4; ++c)
        score += stream.q[39][h * 4 + c] * stream.k[t][h / 2 * 4 + c];
      weights.push_back(std::exp(score / 2));
      sum += weights.back();
    }
    for (size_t t = 0; t < 40; ++t)
      for (int64_t c = 0; c < 3; ++c)
        exact[c] += weights[t] / sum * stream.v[t][h / 2 * 3 + c];
    Vector mine(outputs[39].begin() + h * 3, outputs[39].begin() + h * 3 + 3);
    CHECK(relativeError(mine, exact) < 1e-12);
  }
  CHECK(model.evicted(0) == 0);
}

TEST_CASE("a prompt that fits is the same as its tokens one by one") {
  Stream stream(small, 12);
  Slake steps(small), prompt(small);
  std::vector<Vector> outputs = stream.decode(steps);
  Vector q, k, v, all;
  for (size_t t = 0; t < 12; ++t) {
    q.insert(q.end(), stream.q[t].begin(), stream.q[t].end());
    k.insert(k.end(), stream.k[t].begin(), stream.k[t].end());
    v.insert(v.end(), stream.v[t].begin(), stream.v[t].end());
    all.insert(all.end(), outputs[t].begin(), outputs[t].end());
  }
  CHECK(relativeError(prompt.prefill(q, k, v, 12), all) < 1e-12);
  Stream more(small, 20, 2);
  CHECK(difference(more.decode(prompt), more.decode(steps)) < 1e-12);
  CHECK(prompt.kept() == steps.kept());
  CHECK(prompt.evicted(1) == 20);
}

TEST_CASE("the evicted are as good as kept where their keys are one") {
  // Then the series is exact, whatever is evicted.
  SlakeNumbers large = small, memoryless = small;
  large.budget = 100;
  memoryless.remembers = false;
  Stream stream(small, 60, 3, 0);
  Slake evicts(small), keeps(large), forgets(memoryless);
  std::vector<Vector> exact = stream.decode(keeps);
  CHECK(difference(stream.decode(evicts), exact) < 1e-12);
  CHECK(difference(stream.decode(forgets), exact) > 1e-2);
  CHECK(evicts.kept() == forgets.kept());
}

TEST_CASE("the first order is better than the zeroth near the mean") {
  SlakeNumbers zeroth = small, large = small;
  zeroth.limit = 1e-9;
  large.budget = 100;
  Stream stream(small, 80, 4, 0.3);
  Slake first(small), without(zeroth), keeps(large);
  std::vector<Vector> exact = stream.decode(keeps);
  double error = difference(stream.decode(first), exact);
  CHECK(error < difference(stream.decode(without), exact) / 2);
  CHECK(error > 0);
}

TEST_CASE("sinks and recent tokens stay") {
  SlakeNumbers streaming = small;
  streaming.sinks = 4;
  streaming.recent = 8;
  Stream stream(small, 50, 5);
  Slake model(streaming);
  stream.decode(model);
  CHECK(model.kept()[0] ==
        std::vector<int64_t>{0, 1, 2, 3, 42, 43, 44, 45, 46, 47, 48, 49});
}

TEST_CASE("a preference is 0 where nothing is lost") {
  Stream stream(small, 30, 6);
  Vector q, k, v;
  for (size_t t = 0; t < 30; ++t) {
    q.insert(q.end(), stream.q[t].begin(), stream.q[t].end());
    k.insert(k.end(), stream.k[t].begin(), stream.k[t].end());
    v.insert(v.end(), stream.v[t].begin(), stream.v[t].end());
  }
  Slake model(small);
  model.prefill(q, k, v, 30);
  SlakePreference whole = model.preference(30, 8, 0.1, false);
  SlakePreference some = model.preference(20, 8, 0.1, false);
  SlakePreference few = model.preference(6, 8, 0.1, false);
  CHECK(whole.disturbance == 0);
  CHECK(some.disturbance > 0);
  CHECK(few.disturbance > some.disturbance);
  CHECK(whole.entropy == model.preference(6, 8, 0.1, true).entropy);
  CHECK(whole.entropy < std::log(30));
}
