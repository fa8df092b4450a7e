//===- Lookup.cpp - drafts that the text itself suggests ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Lookup.h"

#include <algorithm>
#include <map>
#include <queue>

using namespace tinylm;

/// Where what followed the last `size` bytes begins, for the last `most` places
/// at which they stand before the end, the last first.
static std::vector<size_t> findPlaces(std::span<const uint8_t> text,
                                      size_t size, size_t most) {
  std::vector<size_t> places;
  if (text.size() <= size)
    return places;
  std::span<const uint8_t> end = text.last(size);
  for (size_t at = text.size() - size; at-- > 0 && places.size() < most;)
    if (std::equal(end.begin(), end.end(), text.begin() + at))
      places.push_back(at + size);
  return places;
}

static std::vector<size_t> findLongest(std::span<const uint8_t> text,
                                       size_t most,
                                       const LookupOptions &options) {
  for (int64_t size = options.longest; size >= options.shortest; --size)
    if (std::vector<size_t> places = findPlaces(text, size, most);
        !places.empty())
      return places;
  return {};
}

/// Byte `index` of what follows a place: behind the end of the text the place
/// is repeated, so that a text in a loop goes on in it.
static uint8_t following(std::span<const uint8_t> text, size_t place,
                         size_t index) {
  return text[place + index % (text.size() - place)];
}

Candidates tinylm::lookUpChain(std::span<const uint8_t> text, int64_t most,
                               const LookupOptions &options) {
  Candidates chain;
  std::vector<size_t> places = findLongest(text, 1, options);
  for (int64_t i = 0; i < most && !places.empty(); ++i) {
    chain.drafts.push_back(following(text, places.front(), i));
    chain.parents.push_back(static_cast<int32_t>(i) - 1);
  }
  return chain;
}

namespace {

/// A draft that could be added, and the places that it stands at.
struct Branch {
  double likelihood;
  int32_t parent;
  size_t depth;
  uint8_t draft;
  std::vector<size_t> places;

  bool operator<(const Branch &other) const {
    return likelihood < other.likelihood;
  }
};

} // namespace

Candidates tinylm::lookUpTree(std::span<const uint8_t> text, int64_t most,
                              const LookupOptions &options) {
  Candidates tree;
  std::priority_queue<Branch> open;
  // Each place counts alike, but for the last, which counts as all together: a
  // text repeats what it said last.
  std::vector<size_t> all = findLongest(text, options.places, options);
  if (all.empty())
    return tree;
  size_t last = all.front();
  auto weigh = [&](const std::vector<size_t> &places) {
    auto weight = static_cast<double>(places.size());
    return places.front() == last ? weight + static_cast<double>(all.size())
                                  : weight;
  };
  auto branchOut = [&](const std::vector<size_t> &places, double likelihood,
                       int32_t parent, size_t depth) {
    std::map<uint8_t, std::vector<size_t>> next;
    for (size_t place : places)
      next[following(text, place, depth)].push_back(place);
    for (auto &[draft, own] : next)
      open.push({likelihood * options.agreement * weigh(own) / weigh(places),
                 parent, depth, draft, own});
  };
  branchOut(all, 1, -1, 0);
  while (static_cast<int64_t>(tree.drafts.size()) < most && !open.empty()) {
    Branch best = open.top();
    open.pop();
    auto index = static_cast<int32_t>(tree.drafts.size());
    tree.drafts.push_back(best.draft);
    tree.parents.push_back(best.parent);
    branchOut(best.places, best.likelihood, index, best.depth + 1);
  }
  return tree;
}
