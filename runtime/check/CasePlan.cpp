//===- CasePlan.cpp - which cases a check runs ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CasePlan.h"

#include "runtime/check/CoveringArray.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

using namespace ladle;
using namespace ladle::check;

std::vector<CheckCase>
ladle::check::planCross(const std::vector<RouteKind> &routes,
                        const std::vector<SizeMap> &sizes, uint64_t seed) {
  std::vector<CheckCase> cases;
  for (const SizeMap &map : sizes)
    for (RouteKind route : routes) {
      CheckCase one;
      one.route = route;
      one.capacity = one.threshold = 8;
      one.rows = 3;
      one.tokens = 30;
      one.staggered = true;
      one.seed = seed;
      one.sizes = map;
      cases.push_back(one);
      // The same with drafts, whose buffers and carries lie differently.
      one.drafts = 4;
      one.capacity = 16;
      one.trees = one.resets = true;
      if (route != RouteKind::Recurrent)
        one.page = 8;
      one.forks = one.takesStates = true;
      cases.push_back(one);
      // Prompts around the ends of chunks. A reference takes its time where a
      // recurrence is large.
      bool isSmall = &map == &sizes.back();
      CheckCase prompts;
      prompts.route = route;
      prompts.prompts = isSmall ? 200 : 20;
      prompts.chunk = isSmall ? 64 : 16;
      prompts.capacity = prompts.threshold = 8;
      prompts.rows = 3;
      prompts.tokens = 8;
      prompts.staggered = prompts.pads = prompts.resets = true;
      prompts.seed = seed;
      prompts.sizes = map;
      cases.push_back(prompts);
      // Where few come, blocks of a GPU are laid out differently.
      if (!isSmall) {
        CheckCase few = prompts;
        few.batch = 1;
        cases.push_back(few);
      }
      if (route == RouteKind::Recurrent)
        continue;
      prompts.byChunk = true;
      prompts.chunk = prompts.capacity = prompts.threshold = 16;
      prompts.prompts = isSmall ? 50 : 20;
      cases.push_back(prompts);
    }
  return cases;
}

/// L, m, drafts and tokens of a prompt. 64 is longer than a case, so that
/// nothing folds before the end.
static constexpr std::array<int64_t, 4> buffers[] = {
    {1, 1, 0, 0},    {4, 4, 0, 30},  {16, 16, 0, 0},
    {16, 7, 0, 0},   {5, 3, 0, 0},   {64, 64, 0, 0},
    {32, 16, 16, 0}, {12, 5, 6, 20}, {2, 1, 1, 0}};

static CheckCase makeCase(const Combination &levels,
                          const std::vector<SizeMap> &sizes) {
  constexpr DType types[] = {DType::F32, DType::BF16, DType::F16};
  CheckCase one;
  size_t factor = 0;
  one.stateType = types[levels[factor++]];
  one.entryType = types[levels[factor++]];
  std::tie(one.capacity, one.threshold, one.drafts, one.prompts) =
      std::tuple_cat(buffers[levels[factor++]]);
  one.chunk = one.prompts ? 16 : one.chunk;
  one.trees = levels[factor++] && one.drafts;
  one.rows = levels[factor++] ? 3 : 1;
  one.staggered = levels[factor++];
  one.moves = levels[factor++];
  one.pads = levels[factor++];
  one.resets = levels[factor++];
  one.slotPadding = levels[factor++] ? 32 : 0;
  one.packed = levels[factor++];
  one.sizes = sizes[levels[factor++]];
  // What slots take and share; the last page of a slot has fewer entries where
  // there are several, and few entries lie in rings.
  size_t sharing = levels[factor++];
  one.forks = sharing > 0;
  one.takesStates = sharing > 0 && !one.slotPadding;
  if (sharing > 0)
    one.page = one.capacity % 16 == 0 ? 16 : one.capacity >= 8 ? 8 : 0;
  if (sharing > 1)
    one.crossover = one.capacity - one.drafts;
  return one;
}

std::vector<CheckCase>
ladle::check::planPairwise(const std::vector<RouteKind> &routes,
                           const std::vector<SizeMap> &sizes, uint64_t seed,
                           int rounds) {
  std::vector<size_t> levels = {3, 3, std::size(buffers), 2, 2, 2, 2, 2, 2,
                                2, 2, sizes.size(),       4};
  std::vector<CheckCase> cases;
  std::set<std::string> seen;
  for (int round = 0; round < rounds; ++round) {
    uint64_t caseSeed = seed + round;
    size_t combinations = 0;
    for (const Combination &combination : makeCoveringArray(levels, caseSeed)) {
      CheckCase one = makeCase(combination, sizes);
      // Layouts, which change no number, take turns: among the routes of a
      // combination and among the combinations of a route.
      size_t turn = combinations++;
      for (RouteKind route : routes) {
        one.layout = turn++ % 2 ? StateLayout::DkDv : StateLayout::DvDk;
        one.route = route;
        one.seed = caseSeed++;
        CheckCase kept = one;
        // These two cache nothing that depends on the state.
        if (route == RouteKind::Recurrent || route == RouteKind::Adjoint)
          kept.entryType = DType::F32;
        if (route == RouteKind::Recurrent)
          kept.page = kept.crossover = 0;
        CheckCase unseeded = kept;
        unseeded.seed = 0;
        if (seen.insert(unseeded.str()).second)
          cases.push_back(kept);
      }
    }
  }
  return cases;
}

SizeMap ladle::check::shrinkSizes(const Signature &signature,
                                  const SizeMap &given) {
  // Few and odd enough to meet the ends of vectors and tiles.
  constexpr int64_t smallKey = 12, smallValue = 20, fewHeads = 2;
  int64_t key = 1, value = 1, heads = 0;
  for (const StateSpec &state : signature.states) {
    key = std::max(key, state.keySize);
    value = std::max(value, state.valueSize);
  }
  // The largest number of heads that all heads are groups of.
  auto addHeads = [&](int64_t count) {
    heads = count > 1 ? std::gcd(heads, count) : heads;
  };
  for (const StateSpec &state : signature.states)
    addHeads(state.heads);
  for (const TensorSpec &token : signature.tokens)
    addHeads(token.shape.front());

  SizeMap result;
  for (const auto &[name, size] : given) {
    int64_t small = size;
    if (size == key)
      small = std::min(size, smallKey);
    else if (size == value)
      small = std::min(size, smallValue);
    else if (heads > fewHeads && size % heads == 0)
      small = size / heads * fewHeads;
    else if (size > smallKey)
      small = std::max<int64_t>(1, size * smallKey / key);
    if (small != size)
      result[name] = small;
  }
  return result;
}
