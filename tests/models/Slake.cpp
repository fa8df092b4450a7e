//===- Slake.cpp - a cache that evicts, in float64 ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Slake.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

using namespace ladle::reference;
using Vector = Slake::Vector;

static double dot(const Vector &a, const Vector &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Slake::Slake(const SlakeNumbers &numbers)
    : numbers(numbers), heads(numbers.cacheHeads), budget(numbers.budget) {}

Vector Slake::part(const Vector &all, int64_t index, int64_t of, int64_t head,
                   int64_t size) const {
  auto begin = all.begin() + (index * of + head) * size;
  return Vector(begin, begin + size);
}

double Slake::score(const Vector &query, const Token &token) const {
  return numbers.scale * dot(query, token.key);
}

/// What Taylor's series around their mean gives tokens of such scores and keys,
/// over e^shift.
static Vector seriesOf(const Vector &scores, const std::vector<Vector> &keys,
                       double normOfQuery, double limit, double shift) {
  auto count = static_cast<double>(scores.size());
  double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / count;
  bool isFirstOrder = true;
  if (limit > 0) {
    Vector center(keys.front().size(), 0.0);
    for (const Vector &key : keys)
      for (size_t c = 0; c < key.size(); ++c)
        center[c] += key[c] / count;
    double spread = 0;
    for (const Vector &key : keys)
      for (size_t c = 0; c < key.size(); ++c)
        spread += (key[c] - center[c]) * (key[c] - center[c]) / count;
    isFirstOrder = normOfQuery * std::sqrt(spread) <= limit;
  }
  Vector weights;
  for (double each : scores)
    weights.push_back(std::exp(mean - shift) *
                      (isFirstOrder ? 1 + each - mean : 1));
  return weights;
}

/// Algorithm 1's output: what is kept by softmax and the evicted by their
/// series, under one denominator, Σ e^s + n e^μ. `weights` become the softmax
/// over the kept alone.
Vector Slake::answer(const Head &head, std::span<const Token *const> tokens,
                     const Vector &query, Vector *weights) const {
  Vector exact, series;
  double most = -INFINITY;
  for (const Token *token : tokens) {
    exact.push_back(score(query, *token));
    most = std::max(most, exact.back());
  }
  if (!head.evicted.empty() && numbers.remembers) {
    std::vector<Vector> keys;
    for (const Token &token : head.evicted) {
      series.push_back(score(query, token));
      keys.push_back(token.key);
    }
    double mean = std::accumulate(series.begin(), series.end(), 0.0) /
                  static_cast<double>(series.size());
    most = std::max(most, mean);
    series =
        seriesOf(series, keys, numbers.scale * std::sqrt(dot(query, query)),
                 numbers.limit, most);
  }
  double keptSum = 0, sum = 0;
  Vector output(numbers.valueSize, 0.0);
  auto add = [&](double weight, const Token &token) {
    sum += weight;
    for (size_t c = 0; c < output.size(); ++c)
      output[c] += weight * token.value[c];
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    exact[i] = std::exp(exact[i] - most);
    keptSum += exact[i];
    add(exact[i], *tokens[i]);
  }
  for (size_t i = 0; i < series.size(); ++i)
    add(series[i], head.evicted[i]);
  for (double &element : output)
    element /= sum;
  if (weights) {
    *weights = exact;
    for (double &weight : *weights)
      weight /= keptSum;
  }
  return output;
}

//===----------------------------------------------------------------------===//
// Eviction
//===----------------------------------------------------------------------===//

/// By the queries from `firstQuery` on, and before they are pooled by what the
/// last of them saw.
Vector Slake::saliences(const Head &head, int64_t firstQuery) const {
  Vector raw;
  for (const Token &token : head.kept) {
    Vector weights;
    for (auto [query, weight] : token.seen)
      if (numbers.queries == 0 || query >= firstQuery)
        weights.push_back(weight);
    double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (numbers.queries == 0 || weights.empty()) {
      raw.push_back(sum);
      continue;
    }
    auto count = static_cast<double>(weights.size());
    double variance = 0;
    for (double weight : weights)
      variance += (weight - sum / count) * (weight - sum / count) / count;
    raw.push_back(sum / count + numbers.variance * variance);
  }
  Vector pooled;
  auto size = static_cast<int64_t>(raw.size());
  for (int64_t i = 0; i < size; ++i) {
    int64_t begin = std::max<int64_t>(0, i - numbers.pool / 2);
    int64_t end = std::min(size, i + numbers.pool / 2 + 1);
    pooled.push_back(
        std::accumulate(raw.begin() + begin, raw.begin() + end, 0.0) /
        static_cast<double>(end - begin));
  }
  return pooled;
}

std::vector<int64_t> Slake::chooseKept(const Head &head, int64_t most,
                                       int64_t firstQuery) const {
  Vector values = saliences(head, firstQuery);
  std::vector<size_t> order; // what may go, the least salient first
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < head.kept.size(); ++i) {
    int64_t position = head.kept[i].position;
    if (position < numbers.sinks || position >= length - numbers.recent)
      chosen.push_back(position);
    else
      order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return values[a] != values[b] ? values[a] < values[b] : a < b;
  });
  size_t goes = head.kept.size() - static_cast<size_t>(most);
  for (size_t i = goes; i < order.size(); ++i)
    chosen.push_back(head.kept[order[i]].position);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void Slake::evict(size_t which, int64_t most, int64_t firstQuery,
                  const std::optional<Kept> &follows) {
  Head &head = heads[which];
  if (static_cast<int64_t>(head.kept.size()) <= most)
    return;
  std::vector<int64_t> stays = chooseKept(head, most, firstQuery);
  if (follows) {
    const std::vector<int64_t> &theirs = (*follows)[which];
    if (theirs.size() != stays.size())
      throw std::runtime_error("another number of tokens is kept");
    Vector values = saliences(head, firstQuery);
    auto valueOf = [&](int64_t position) {
      for (size_t i = 0; i < head.kept.size(); ++i)
        if (head.kept[i].position == position)
          return values[i];
      throw std::runtime_error("a token is kept that was not there");
    };
    auto lacks = [](const std::vector<int64_t> &list, int64_t position) {
      return !std::binary_search(list.begin(), list.end(), position);
    };
    for (int64_t wrong : stays)
      for (int64_t instead : theirs)
        if (lacks(theirs, wrong) && lacks(stays, instead)) {
          if (wrong < numbers.sinks || wrong >= length - numbers.recent)
            throw std::runtime_error("a sink or a recent token was evicted");
          double lost = valueOf(wrong), spared = valueOf(instead);
          regret = std::max(regret, (lost - spared) / std::max(lost, 1e-300));
        }
    stays = theirs;
  }
  std::vector<Token> remaining;
  for (Token &token : head.kept)
    if (std::binary_search(stays.begin(), stays.end(), token.position))
      remaining.push_back(std::move(token));
    else
      head.evicted.push_back(std::move(token));
  head.kept = std::move(remaining);
}

//===----------------------------------------------------------------------===//
// Tokens and prompts
//===----------------------------------------------------------------------===//

Vector Slake::step(const Vector &q, const Vector &k, const Vector &v,
                   const std::optional<Kept> &follows) {
  int64_t position = length++, group = numbers.heads / numbers.cacheHeads;
  Vector output;
  for (size_t h = 0; h < heads.size(); ++h) {
    Head &head = heads[h];
    head.kept.push_back({position,
                         part(k, 0, numbers.cacheHeads, h, numbers.keySize),
                         part(v, 0, numbers.cacheHeads, h, numbers.valueSize),
                         {}});
    evict(h, budget, std::max(firstNoted, position - numbers.queries), follows);
    std::vector<const Token *> tokens;
    for (const Token &token : head.kept)
      tokens.push_back(&token);
    for (int64_t g = 0; g < group; ++g) {
      Vector weights;
      Vector mine = answer(
          head, tokens,
          part(q, 0, numbers.heads, h * group + g, numbers.keySize), &weights);
      output.insert(output.end(), mine.begin(), mine.end());
      for (size_t i = 0; i < weights.size(); ++i)
        head.kept[i].seen[position] += weights[i];
    }
  }
  return output;
}

Vector Slake::prefill(const Vector &q, const Vector &k, const Vector &v,
                      int64_t count, const std::optional<Kept> &follows) {
  int64_t group = numbers.heads / numbers.cacheHeads, before = length;
  Vector output(count * numbers.heads * numbers.valueSize);
  promptQueries.assign(numbers.heads, {});
  promptLength = count;
  length += count;
  // What earlier prompts and steps left is not looked at any more.
  firstNoted = std::max(before, length - numbers.queries);
  for (size_t h = 0; h < heads.size(); ++h) {
    Head &head = heads[h];
    for (int64_t t = 0; t < count; ++t)
      head.kept.push_back({before + t,
                           part(k, t, numbers.cacheHeads, h, numbers.keySize),
                           part(v, t, numbers.cacheHeads, h, numbers.valueSize),
                           {}});
    std::vector<const Token *> tokens;
    for (const Token &token : head.kept)
      tokens.push_back(&token);
    for (int64_t t = 0; t < count; ++t)
      for (int64_t g = 0; g < group; ++g) {
        int64_t at = static_cast<int64_t>(h) * group + g;
        Vector query = part(q, t, numbers.heads, at, numbers.keySize);
        promptQueries[at].push_back(query);
        Vector weights;
        Vector mine =
            answer(head, std::span(tokens).first(tokens.size() - count + t + 1),
                   query, &weights);
        std::copy(mine.begin(), mine.end(),
                  output.begin() +
                      (t * numbers.heads + at) * numbers.valueSize);
        for (size_t i = 0; i < weights.size(); ++i)
          head.kept[i].seen[before + t] += weights[i];
      }
  }
  promptTokens = heads;
  for (size_t h = 0; h < heads.size(); ++h)
    evict(h, budget, firstNoted, follows);
  return output;
}

void Slake::setBudget(int64_t lower, const std::optional<Kept> &follows) {
  budget = lower;
  for (size_t h = 0; h < heads.size(); ++h)
    evict(h, budget, std::max(firstNoted, length - numbers.queries), follows);
}

Slake::Kept Slake::kept() const {
  Kept all;
  for (const Head &head : heads) {
    all.emplace_back();
    for (const Token &token : head.kept)
      all.back().push_back(token.position);
  }
  return all;
}

//===----------------------------------------------------------------------===//
// The preference of a layer
//===----------------------------------------------------------------------===//

SlakePreference Slake::preference(int64_t at, int64_t queries, double exponent,
                                  bool ofExact) const {
  SlakePreference sums;
  int64_t group = numbers.heads / numbers.cacheHeads, terms = 0;
  for (int64_t h = 0; h < numbers.heads; ++h) {
    const Head &head = promptTokens[h / group];
    std::vector<int64_t> stays;
    for (const Token &token : head.kept)
      stays.push_back(token.position);
    if (static_cast<int64_t>(stays.size()) > at)
      stays = chooseKept(head, at, firstNoted);
    for (int64_t t = queries ? std::max<int64_t>(0, promptLength - queries) : 0;
         t < promptLength; ++t, ++terms) {
      const Vector &query = promptQueries[h][t];
      Vector exact, approximate, lostScores, norms;
      std::vector<Vector> lostKeys;
      std::vector<size_t> lost;
      double most = -INFINITY;
      for (const Token &token : head.kept) {
        if (token.position > t)
          break;
        exact.push_back(score(query, token));
        most = std::max(most, exact.back());
        norms.push_back(std::sqrt(dot(token.value, token.value)));
        if (!std::binary_search(stays.begin(), stays.end(), token.position)) {
          lost.push_back(exact.size() - 1);
          lostScores.push_back(exact.back());
          lostKeys.push_back(token.key);
        }
      }
      for (double &weight : exact)
        weight = std::exp(weight - most);
      approximate = exact;
      if (!lost.empty()) {
        Vector series(lost.size(), 0.0);
        if (numbers.remembers)
          series = seriesOf(lostScores, lostKeys,
                            numbers.scale * std::sqrt(dot(query, query)),
                            numbers.limit, most);
        for (size_t i = 0; i < lost.size(); ++i)
          approximate[lost[i]] = series[i];
      }
      auto normalise = [](Vector &weights) {
        double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double &weight : weights)
          weight = sum > 0 ? weight / sum : 0;
      };
      normalise(exact);
      normalise(approximate);
      double distance = 0, valueAware = 0;
      double allNorms = std::accumulate(norms.begin(), norms.end(), 0.0);
      for (size_t i = 0; i < exact.size(); ++i) {
        double change = std::fabs(approximate[i] - exact[i]);
        distance += change / 2;
        valueAware += norms[i] / allNorms * change;
      }
      // What rounding leaves is nothing (docs/slake.md).
      if (distance > 1e-6)
        sums.disturbance += distance * std::pow(valueAware, exponent);
      Vector of = ofExact ? exact : approximate;
      for (double &weight : of)
        weight = std::max(weight, 0.0);
      normalise(of);
      for (double weight : of)
        sums.entropy -= weight > 0 ? weight * std::log(weight) : 0;
    }
  }
  sums.disturbance /= static_cast<double>(terms);
  sums.entropy /= static_cast<double>(terms);
  return sums;
}
