//===- CoveringArray.cpp - few cases that meet every pair -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CoveringArray.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace ladle::check;

namespace {

/// A level of a factor.
struct Choice {
  size_t factor, level;
};

/// The pairs of levels that no combination has yet.
class OpenPairs {
public:
  explicit OpenPairs(const std::vector<size_t> &levels) {
    for (size_t count : levels) {
      firstIndex.push_back(total);
      total += count;
    }
    isOpen.assign(total * total, false);
    for (size_t f = 0; f < levels.size(); ++f)
      for (size_t g = f + 1; g < levels.size(); ++g)
        for (size_t i = 0; i < levels[f]; ++i)
          for (size_t j = 0; j < levels[g]; ++j)
            set({f, i}, {g, j}, true);
  }

  bool contains(Choice a, Choice b) const { return isOpen[position(a, b)]; }
  bool empty() const { return count == 0; }

  void set(Choice a, Choice b, bool open) {
    if (contains(a, b) == open)
      return;
    isOpen[position(a, b)] = isOpen[position(b, a)] = open;
    count += open ? 1 : -1;
  }

  /// The `index`-th open pair in a fixed order, modulo their number.
  std::pair<size_t, size_t> pick(size_t index) const {
    index %= count;
    for (size_t i = 0; i < total; ++i)
      for (size_t j = i + 1; j < total; ++j)
        if (isOpen[i * total + j] && index-- == 0)
          return {i, j};
    return {0, 0};
  }

  Choice choice(size_t index) const {
    auto next = std::upper_bound(firstIndex.begin(), firstIndex.end(), index);
    size_t factor = next - firstIndex.begin() - 1;
    return {factor, index - firstIndex[factor]};
  }

private:
  size_t position(Choice a, Choice b) const {
    return (firstIndex[a.factor] + a.level) * total + firstIndex[b.factor] +
           b.level;
  }

  std::vector<size_t> firstIndex;
  std::vector<bool> isOpen;
  size_t total = 0, count = 0;
};

} // namespace

/// Extends a random open pair, factor by factor in random order, by the level
/// that meets most open pairs. Returns the combination and how many it closes.
static std::pair<Combination, size_t>
makeCandidate(const std::vector<size_t> &levels, const OpenPairs &open,
              std::mt19937_64 &random) {
  auto [first, second] = open.pick(random());
  std::vector<Choice> chosen = {open.choice(first), open.choice(second)};
  std::vector<size_t> order(levels.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);

  size_t closed = 1;
  for (size_t factor : order) {
    if (factor == chosen[0].factor || factor == chosen[1].factor)
      continue;
    size_t best = 0, bestCount = 0, start = random() % levels[factor];
    for (size_t i = 0; i < levels[factor]; ++i) {
      size_t level = (start + i) % levels[factor];
      size_t count =
          std::count_if(chosen.begin(), chosen.end(), [&](Choice other) {
            return open.contains({factor, level}, other);
          });
      if (i == 0 || count > bestCount) {
        best = level;
        bestCount = count;
      }
    }
    chosen.push_back({factor, best});
    closed += bestCount;
  }

  Combination combination(levels.size());
  for (Choice choice : chosen)
    combination[choice.factor] = choice.level;
  return {combination, closed};
}

std::vector<Combination>
ladle::check::makeCoveringArray(const std::vector<size_t> &levels,
                                uint64_t seed) {
  std::vector<Combination> result;
  if (levels.size() == 1)
    for (size_t level = 0; level < levels[0]; ++level)
      result.push_back({level});

  constexpr int candidates = 20;
  std::mt19937_64 random(seed);
  for (OpenPairs open(levels); !open.empty();) {
    Combination best;
    size_t bestClosed = 0;
    for (int i = 0; i < candidates; ++i) {
      auto [combination, closed] = makeCandidate(levels, open, random);
      if (closed > bestClosed) {
        best = combination;
        bestClosed = closed;
      }
    }
    for (size_t f = 0; f < levels.size(); ++f)
      for (size_t g = f + 1; g < levels.size(); ++g)
        open.set({f, best[f]}, {g, best[g]}, false);
    result.push_back(std::move(best));
  }
  return result;
}
