//===- BoundedEviction.cpp - eviction, as the oracle has it ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/BoundedEviction.h"

#include <cmath>

using namespace ladle::interpreter;
using Row = BoundedInterpreter::Row;
using Head = BoundedInterpreter::Head;
using Kept = BoundedInterpreter::Kept;

static double dot(const double *a, const double *b, size_t size) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i)
    sum += a[i] * b[i];
  return sum;
}

//===----------------------------------------------------------------------===//
// Which token leaves
//===----------------------------------------------------------------------===//

static double salienceOf(const Kept &token, const EvictionNumbers &numbers) {
  size_t count = token.weights.size();
  if (numbers.queries > 0)
    count = std::min(count, static_cast<size_t>(numbers.queries));
  double sum = 0, squares = 0;
  for (size_t i = token.weights.size() - count; i < token.weights.size(); ++i)
    sum += token.weights[i];
  if (numbers.queries == 0 || count == 0)
    return sum;
  double mean = sum / static_cast<double>(count);
  for (size_t i = token.weights.size() - count; i < token.weights.size(); ++i)
    squares += (token.weights[i] - mean) * (token.weights[i] - mean);
  return mean + numbers.variance * squares / static_cast<double>(count);
}

static std::vector<double> saliencesOf(const Head &head,
                                       const EvictionNumbers &numbers) {
  std::vector<double> raw, pooled;
  for (const Kept &token : head.kept)
    raw.push_back(salienceOf(token, numbers));
  auto half = static_cast<size_t>(numbers.pool / 2);
  for (size_t i = 0; i < raw.size(); ++i) {
    size_t begin = i - std::min(i, half);
    size_t end = std::min(raw.size(), i + half + 1);
    double sum = 0;
    for (size_t j = begin; j < end; ++j)
      sum += raw[j];
    pooled.push_back(sum / static_cast<double>(end - begin));
  }
  return pooled;
}

/// Which of the kept tokens go so that `budget` remain.
static std::vector<bool> chooseLeaving(const Row &row, const Head &head,
                                       llvm::ArrayRef<double> saliences,
                                       const EvictionNumbers &numbers) {
  std::vector<size_t> order;
  for (size_t i = 0; i < head.kept.size(); ++i) {
    int64_t position = head.kept[i].position;
    if (position >= numbers.sinks && position < row.length - numbers.recent)
      order.push_back(i);
  }
  llvm::sort(order, [&](size_t a, size_t b) {
    return saliences[a] != saliences[b] ? saliences[a] < saliences[b] : a < b;
  });
  std::vector<bool> leaves(head.kept.size(), false);
  size_t count = head.kept.size() - static_cast<size_t>(row.budget);
  for (size_t i = 0; i < std::min(count, order.size()); ++i)
    leaves[order[i]] = true;
  return leaves;
}

/// Takes over what is said to be kept, and how much less salient that is.
static void follow(Row &row, const Head &head,
                   llvm::ArrayRef<int64_t> positions,
                   llvm::ArrayRef<double> saliences,
                   const EvictionNumbers &numbers, std::vector<bool> &leaves) {
  size_t count = llvm::count(leaves, true), theirs = 0;
  std::vector<bool> says;
  double most = -INFINITY, least = INFINITY;
  for (size_t i = 0; i < head.kept.size(); ++i) {
    int64_t position = head.kept[i].position;
    says.push_back(!llvm::is_contained(positions, position));
    theirs += says[i];
    // What either would rather not have evicted.
    if (says[i] && !leaves[i])
      most = std::max(most, position < numbers.sinks ||
                                    position >= row.length - numbers.recent
                                ? INFINITY
                                : saliences[i]);
    if (!says[i] && leaves[i])
      least = std::min(least, saliences[i]);
  }
  if (theirs != count) {
    row.regret = INFINITY;
    return;
  }
  if (most > -INFINITY)
    row.regret = std::max(row.regret,
                          std::isinf(most) ? INFINITY : (most - least) / most);
  leaves = says;
}

//===----------------------------------------------------------------------===//
// What becomes of it
//===----------------------------------------------------------------------===//

static void fold(Head &head, const Kept &token) {
  if (head.matrix.empty())
    return;
  size_t valueSize = token.value.size();
  for (size_t c = 0; c < token.key.size(); ++c)
    for (size_t v = 0; v < valueSize; ++v) {
      double term = token.key[c] * token.value[v];
      head.matrix[c * valueSize + v] += term;
      head.matrixSquares[c * valueSize + v] += term * term;
    }
  for (size_t v = 0; v < valueSize; ++v) {
    head.valueSum[v] += token.value[v];
    head.valueSquares[v] += token.value[v] * token.value[v];
  }
  // Σ |k − mean|² grows by (k − mean before) · (k − mean after).
  double after = head.count + 1;
  for (size_t c = 0; c < token.key.size(); ++c) {
    double away =
        head.count > 0 ? token.key[c] - head.keySum[c] / head.count : 0;
    head.keySum[c] += token.key[c];
    head.spread += away * (token.key[c] - head.keySum[c] / after);
  }
  head.count = after;
}

void ladle::interpreter::evict(Row &row, const EvictionNumbers &numbers) {
  for (size_t h = 0; h < row.heads.size(); ++h) {
    Head &head = row.heads[h];
    if (static_cast<int64_t>(head.kept.size()) <= row.budget)
      continue;
    std::vector<double> saliences = saliencesOf(head, numbers);
    std::vector<bool> leaves = chooseLeaving(row, head, saliences, numbers);
    if (h < row.follows.size())
      follow(row, head, row.follows[h], saliences, numbers, leaves);
    std::vector<Kept> remaining;
    for (size_t i = 0; i < head.kept.size(); ++i)
      if (leaves[i])
        fold(head, head.kept[i]);
      else
        remaining.push_back(std::move(head.kept[i]));
    head.kept = std::move(remaining);
  }
}

void ladle::interpreter::observe(Row &row, const double *queries, size_t heads,
                                 double scale) {
  size_t group = heads / row.heads.size();
  for (size_t h = 0; h < row.heads.size(); ++h) {
    std::vector<Kept> &kept = row.heads[h].kept;
    std::vector<double> sums(kept.size(), 0);
    for (size_t g = 0; g < group; ++g) {
      std::vector<double> weights;
      double most = -INFINITY, sum = 0;
      for (const Kept &token : kept) {
        size_t size = token.key.size();
        weights.push_back(scale * dot(queries + (h * group + g) * size,
                                      token.key.data(), size));
        most = std::max(most, weights.back());
      }
      for (double &weight : weights)
        sum += weight = std::exp(weight - most);
      for (size_t i = 0; i < kept.size(); ++i)
        sums[i] += weights[i] / sum;
    }
    for (size_t i = 0; i < kept.size(); ++i)
      kept[i].weights.push_back(sums[i]);
  }
}

void ladle::interpreter::taylorSummary(const Head &head, const double *query,
                                       double scale, double limit,
                                       double *summary) {
  size_t size = head.keySum.size(), valueSize = head.valueSum.size();
  std::fill_n(summary, 2 + 2 * valueSize, 0.0);
  summary[0] = -INFINITY;
  if (head.count == 0)
    return;
  double mean = scale * dot(query, head.keySum.data(), size) / head.count;
  double reach = std::abs(scale) * std::sqrt(dot(query, query, size)) *
                 std::sqrt(head.spread / head.count);
  bool isFirstOrder = !(limit > 0 && reach > limit);
  summary[0] = mean;
  summary[1] = head.count;
  for (size_t v = 0; v < valueSize; ++v) {
    double answer = head.valueSum[v], squares = head.valueSquares[v];
    if (isFirstOrder) {
      answer *= 1 - mean;
      squares *= (1 - mean) * (1 - mean);
      for (size_t c = 0; c < size; ++c) {
        answer += scale * query[c] * head.matrix[c * valueSize + v];
        double weight = scale * query[c];
        squares += weight * weight * head.matrixSquares[c * valueSize + v];
      }
    }
    summary[2 + v] = answer;
    summary[2 + valueSize + v] = squares;
  }
}
