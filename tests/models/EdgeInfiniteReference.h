//===- EdgeInfiniteReference.h - Algorithm 1 in float64 ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// EdgeInfinite (Chen et al., 2025) as its Algorithm 1 has it, with what the
// printed one lacks: the length of the residual counts what has been folded.
// The cache is three lists, sink | residual | window, as the paper draws them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_EDGEINFINITEREFERENCE_H
#define LADLE_TESTS_MODELS_EDGEINFINITEREFERENCE_H

#include <cmath>
#include <deque>
#include <vector>

namespace ladle::reference {

struct EdgeInfinite {
  using Vector = std::vector<double>;

  size_t heads, cacheHeads, size, hidden;
  size_t sinks, window, segment;
  /// W1 [hidden, size], b1, W2 [size, hidden], b2, g [size].
  Vector w1, b1, w2, b2, g;

  /// One head of the cache.
  struct Head {
    std::deque<std::pair<Vector, Vector>> sink, residual, window;
    Vector matrix, sum; ///< M [size, size] and z [size]
    bool holds = false;
  };
  std::vector<Head> cache;

  void clear() {
    cache.assign(cacheHeads, Head());
    for (Head &head : cache) {
      head.matrix.assign(size * size, 0);
      head.sum.assign(size, 0);
    }
  }

  static double feature(double x) {
    return x > 0 ? x + 1 : std::exp(x); // ELU + 1
  }

  Vector part(const Vector &all, size_t head) const {
    return {all.begin() + head * size, all.begin() + (head + 1) * size};
  }

  /// What a head of the query answers, from the tokens of `lists`.
  Vector answer(
      const Vector &q,
      const std::vector<const std::deque<std::pair<Vector, Vector>> *> &lists,
      const Head &head) const {
    Vector dot(size, 0);
    double total = 0;
    for (const auto *list : lists)
      for (const auto &[k, v] : *list) {
        double score = 0;
        for (size_t c = 0; c < size; ++c)
          score += q[c] * k[c];
        double weight = std::exp(score / std::sqrt(double(size)));
        total += weight;
        for (size_t c = 0; c < size; ++c)
          dot[c] += weight * v[c];
      }
    // Without sinks and window a segment of one token leaves nothing.
    for (double &number : dot)
      number /= total > 0 ? total : 1;
    if (!head.holds)
      return dot;
    Vector recalled(size, 0);
    double weight = 0;
    for (size_t c = 0; c < size; ++c) {
      weight += feature(q[c]) * head.sum[c];
      for (size_t i = 0; i < size; ++i)
        recalled[i] += feature(q[c]) * head.matrix[c * size + i];
    }
    Vector inner(hidden, 0), result(size);
    for (size_t r = 0; r < hidden; ++r) {
      for (size_t c = 0; c < size; ++c)
        inner[r] += w1[r * size + c] * recalled[c] / weight;
      inner[r] = std::fmax(inner[r] + b1[r], 0);
    }
    for (size_t i = 0; i < size; ++i) {
      double passed = b2[i];
      for (size_t r = 0; r < hidden; ++r)
        passed += w2[i * hidden + r] * inner[r];
      double share = 1 / (1 + std::exp(-g[i]));
      result[i] = share * passed + (1 - share) * dot[i];
    }
    return result;
  }

  void fold(Head &head) const {
    for (const auto &[k, v] : head.residual)
      for (size_t c = 0; c < size; ++c) {
        head.sum[c] += feature(k[c]);
        for (size_t i = 0; i < size; ++i)
          head.matrix[c * size + i] += feature(k[c]) * v[i];
      }
    head.residual.clear();
    head.holds = true;
  }

  /// A token, [heads, size] and [cacheHeads, size]; returns [heads, size].
  Vector decode(const Vector &q, const Vector &k, const Vector &v) {
    Vector outputs;
    for (size_t h = 0; h < cacheHeads; ++h) {
      Head &head = cache[h];
      if (head.sink.size() < sinks) {
        head.sink.emplace_back(part(k, h), part(v, h));
      } else {
        head.window.emplace_back(part(k, h), part(v, h));
        if (head.window.size() > window) {
          head.residual.push_back(head.window.front());
          head.window.pop_front();
        }
      }
      if (head.residual.size() == segment)
        fold(head);
    }
    for (size_t h = 0; h < heads; ++h) {
      const Head &head = cache[h / (heads / cacheHeads)];
      Vector one =
          answer(part(q, h), {&head.sink, &head.residual, &head.window}, head);
      outputs.insert(outputs.end(), one.begin(), one.end());
    }
    return outputs;
  }

  /// A prompt, into an empty cache: each segment is answered by the sinks, its
  /// own tokens so far and the segments before it, and then folded.
  std::vector<Vector> prefill(const std::vector<Vector> &q,
                              const std::vector<Vector> &k,
                              const std::vector<Vector> &v) {
    clear();
    std::vector<Vector> outputs(q.size());
    size_t rest = q.size() > sinks + window ? q.size() - sinks - window : 0;
    size_t segments = rest / segment;
    for (size_t t = 0; t < q.size(); ++t) {
      for (size_t h = 0; h < cacheHeads; ++h) {
        Head &head = cache[h];
        if (head.residual.size() == segment &&
            t < sinks + segments * segment + 1)
          fold(head);
        (head.sink.size() < sinks ? head.sink : head.residual)
            .emplace_back(part(k[t], h), part(v[t], h));
      }
      for (size_t h = 0; h < heads; ++h) {
        const Head &head = cache[h / (heads / cacheHeads)];
        Vector one = answer(part(q[t], h), {&head.sink, &head.residual}, head);
        outputs[t].insert(outputs[t].end(), one.begin(), one.end());
      }
    }
    for (Head &head : cache) {
      if (segments && !window && head.residual.size() == segment)
        fold(head);
      // What is left is the residual and the window.
      while (head.residual.size() + head.window.size() > 0 &&
             head.window.size() < window && !head.residual.empty()) {
        head.window.push_front(head.residual.back());
        head.residual.pop_back();
      }
    }
    return outputs;
  }
};

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_EDGEINFINITEREFERENCE_H
