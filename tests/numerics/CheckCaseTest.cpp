//===- CheckCaseTest.cpp - cases as text, errors and plans ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CasePlan.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/RoundedRuns.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

using namespace ladle;
using check::CheckCase;

TEST_CASE("a case is read as it is written") {
  CheckCase config;
  REQUIRE(config.str() == "route=recurrent");
  config.route = RouteKind::Inner;
  config.stateType = DType::BF16;
  config.layout = StateLayout::DkDv;
  config.capacity = 8;
  config.threshold = 5;
  config.page = 4;
  config.crossover = 2;
  config.drafts = 3;
  config.trees = true;
  config.pads = true;
  config.forks = config.takesStates = true;
  config.seed = 7;
  config.sizes["Hv"] = 3;
  std::string text = config.str();
  REQUIRE(text == "route=inner,state=bf16,layout=dk_dv,L=8,m=5,page=4,"
                  "crossover=2,drafts=3,trees=1,pads=1,forks=1,takes_states=1,"
                  "seed=7,size.Hv=3");
  Result<CheckCase> read = CheckCase::parse(text);
  REQUIRE(read.ok());
  REQUIRE(*read == config);
}

TEST_CASE("a case that cannot be is refused with the value that is wrong") {
  auto message = [](const char *text) {
    return CheckCase::parse(text).message();
  };
  REQUIRE(message("route") == "'route' in a case is not key=value");
  REQUIRE(message("route=fast") == "case key 'route' cannot be 'fast'");
  REQUIRE(message("rows=x") == "case key 'rows' cannot be 'x'");
  REQUIRE(message("pads=2") == "case key 'pads' cannot be '2'");
  REQUIRE(message("layout=kv") == "case key 'layout' cannot be 'kv'");
  REQUIRE(message("speed=1") == "a case has no key 'speed'");
  REQUIRE(message("rows=0") ==
          "a case needs at least one row, token and entry");
  REQUIRE(message("L=4,m=5") == "m = 5 of a case is not between 1 and L = 4");
  REQUIRE(message("L=9,m=6,drafts=4") ==
          "m = 6 of a case is not between 1 and L - drafts = 5");
  REQUIRE(message("L=12,m=4,page=8") ==
          "page = 8 of a case is no part of L = 12");
  REQUIRE(message("L=9,m=5,drafts=4,crossover=6") ==
          "crossover = 6 of a case is not between 0 and L - drafts = 5");
  REQUIRE(message("takes_states=1,padding=8") ==
          "takes_states of a case needs padding = 0: states that slots take "
          "are the pool's own");
  REQUIRE(message("L=7,m=1,drafts=4") ==
          "drafts = 4 of a case is not between 0 and half of L = 7");
}

TEST_CASE("no bound allows infinity") {
  double infinity = std::numeric_limits<double>::infinity();
  REQUIRE(check::Bound{0.5}.allows(1));
  REQUIRE_FALSE(check::Bound{0.5}.allows(1.1));
  REQUIRE_FALSE(check::Bound{infinity}.allows(infinity));
  REQUIRE_FALSE(check::Bound{infinity}.allows(std::nan("")));
}

TEST_CASE("a value near a tie is rounded away from the exact one") {
  // Neighbours of 1 in f16 are 2^-10 above and 2^-11 below.
  auto round = [](double value, double exact) {
    std::vector<double> values{value};
    check::roundAway(values, std::vector<double>{exact},
                     interpreter::Precision::Float16);
    return values.front();
  };
  double tie = 1 + 0x1p-11, above = 1 + 0x1p-10;
  REQUIRE(round(tie - 5e-6, 1.0002) == above);
  REQUIRE(round(tie + 5e-6, 1.0008) == 1);
  REQUIRE(round(tie - 5e-5, 1.0002) == 1);
  REQUIRE(round(tie + 5e-5, 1.0008) == above);
  // float32 has no neighbours further apart than its arithmetic may err.
  std::vector<double> values{0.1};
  check::roundAway(values, std::vector<double>{0.3},
                   interpreter::Precision::Float32);
  REQUIRE(values.front() == double(0.1f));
}

TEST_CASE("an error is relative to the largest element") {
  auto error = [](std::vector<double> actual, std::vector<double> expected) {
    return check::relativeError(actual, expected);
  };
  REQUIRE(error({1, -4.5}, {1, -4}) == 0.125);
  REQUIRE(error({0.5}, {0}) == 0.5);
  double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  REQUIRE(error({nan, 1}, {1, 1}) == infinity);
  REQUIRE(error({1, 1}, {nan, 1}) == infinity);
  REQUIRE(error({nan, infinity}, {nan, infinity}) == 0);
  REQUIRE(error({-infinity}, {infinity}) == infinity);
}

TEST_CASE("the worst error remembers where it was") {
  check::WorstError worst;
  worst.add(0, 1, 2, "y");
  REQUIRE(worst.row == 1);
  worst.add(3, 4, 5, "S");
  worst.add(2, 6, 7, "y");
  REQUIRE(worst.value == 3);
  REQUIRE(worst.row == 4);
  REQUIRE(worst.token == 5);
  REQUIRE(worst.tensor == "S");
}

TEST_CASE("a plan has no case twice, and routes without entries one type") {
  std::vector<CheckCase> cases = check::planPairwise(
      {RouteKind::Recurrent, RouteKind::Inner}, {{}, {{"H", 3}}}, 1, 1);
  std::set<std::string> texts;
  std::set<DType> entries;
  for (const CheckCase &config : cases) {
    REQUIRE(texts.insert(config.str()).second);
    REQUIRE(config.threshold <= config.capacity);
    if (config.route == RouteKind::Recurrent)
      REQUIRE(config.entryType == DType::F32);
    else
      entries.insert(config.entryType);
  }
  REQUIRE(entries.size() == 3);
}

TEST_CASE("shrunken sizes keep the groups of heads") {
  Signature signature;
  signature.tokens = {{"q", DType::BF16, {16, 128}},
                      {"v", DType::BF16, {48, 64}}};
  signature.states = {{"S", 48, 128, 64, DType::F32}};
  check::SizeMap small = check::shrinkSizes(
      signature, {{"Hk", 16}, {"Hv", 48}, {"Dk", 128}, {"Dv", 64}, {"A", 32}});
  REQUIRE(small == check::SizeMap{
                       {"Hk", 2}, {"Hv", 6}, {"Dk", 12}, {"Dv", 20}, {"A", 4}});
}
