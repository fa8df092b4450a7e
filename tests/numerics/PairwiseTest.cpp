//===- PairwiseTest.cpp - types, buffers, slots and sizes in pairs --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Reference.h"
#include "tests/numerics/Requests.h"

using namespace ladle;
using check::SizeMap;

/// Groupings and sizes that are no powers of two, beside those of "tiny".
static std::vector<SizeMap> sizesOf(const std::string &model) {
  std::vector<SizeMap> sizes = {{}};
  std::map<std::string, int64_t> tiny = test::tinySizes(model);
  if (tiny.count("Hv")) {
    sizes.push_back({{"Hk", 1}, {"Hv", 3}, {"Dk", 7}, {"Dv", 9}});
    sizes.push_back({{"Hk", 3}, {"Hv", 3}, {"Dk", 16}, {"Dv", 33}});
  } else if (tiny.count("G")) {
    sizes.push_back({{"H", 3}, {"G", 1}, {"N", 9}, {"P", 7}});
    sizes.push_back({{"H", 3}, {"G", 3}, {"N", 16}, {"P", 33}});
  } else {
    sizes.push_back({{"H", 1}, {"Dk", 7}, {"Dv", 9}});
    sizes.push_back({{"H", 5}, {"Dk", 16}, {"Dv", 33}});
  }
  return sizes;
}

/// Of no case in which a query is orthogonal to the only key of a sequence:
/// what is left of such an answer is rounding.
static constexpr uint64_t kSeed = 5;

static void checkPairs(const std::string &model, int rounds) {
  check::CheckRequest request = test::requestOf(model);
  test::requirePassed(request,
                      check::planPairwise(test::routesOf(request),
                                          sizesOf(model), kSeed, rounds));
}

TEST_CASE("gated delta net holds in all pairs of configurations") {
  checkPairs("gated_delta_net", 1);
}

TEST_CASE("mamba3 with a rank holds in all pairs of configurations") {
  checkPairs("mamba3_mimo", 1);
}

TEST_CASE("all examples hold in all pairs of configurations") {
  if (!test::isFull())
    return;
  for (const std::string &model : reference::modelNames()) {
    INFO(model);
    checkPairs(model, 3);
  }
}
