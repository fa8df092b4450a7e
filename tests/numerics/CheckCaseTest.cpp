//===- CheckCaseTest.cpp - cases as text, errors and plans ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"
#include "runtime/check/BoundedCheck.h"
#include "runtime/check/CasePlan.h"
#include "runtime/check/CaseRunner.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/RoundedRuns.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

using namespace ladle;
using check::AttentionCase, check::AttentionReport, check::AttentionResult;
using check::BoundedCase, check::BoundedReport;
using check::CheckCase;

TEST_CASE("a case is read as it is written") {
  CheckCase config;
  REQUIRE(config.str() == "route=recurrent");
  config.route = RouteKind::Inner;
  config.stateType = DType::BF16;
  config.outputType = DType::F16;
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
  REQUIRE(text ==
          "route=inner,state=bf16,outputs=f16,layout=dk_dv,L=8,m=5,"
          "page=4,crossover=2,drafts=3,trees=1,pads=1,forks=1,takes_states=1,"
          "seed=7,size.Hv=3");
  Result<CheckCase> read = CheckCase::parse(text);
  REQUIRE(read.ok());
  REQUIRE(*read == config);
}

TEST_CASE("a case of an attention is read as it is written") {
  AttentionCase config;
  REQUIRE(config.str() == "type=bf16");
  config.type = "f16";
  config.summaryType = "bf16";
  config.prompt = 20;
  config.settings = {.tau = 0.3, .window = 8, .band = 3, .maxChain = 2};
  config.settings.drift = 0.125;
  config.batchInvariant = true;
  config.sizes["Hq"] = 3;
  std::string text = config.str();
  REQUIRE(text == "type=f16,summaries=bf16,prompt=20,tau=0.3,window=8,band=3,"
                  "max_chain=2,drift=0.125,batch_invariant=1,size.Hq=3");
  Result<AttentionCase> read = AttentionCase::parse(text);
  REQUIRE(read.ok());
  REQUIRE(read->str() == text);
  REQUIRE(read->settings == config.settings);
}

TEST_CASE("a case of a bounded cache is read as it is written") {
  BoundedCase config;
  REQUIRE(config.str() == "type=bf16");
  config.later = 5;
  config.segments = SegmentSettings{.sinks = 2, .window = 0, .segment = 8};
  config.seed = 3;
  std::string text = config.str();
  REQUIRE(text == "type=bf16,later=5,segments=2:0:8,seed=3");
  Result<BoundedCase> read = BoundedCase::parse(text);
  REQUIRE(read.ok());
  REQUIRE(read->segments == config.segments);
  REQUIRE(read->str() == text);
}

TEST_CASE("a case of an attention that cannot be is refused") {
  auto message = [](const char *text) {
    return AttentionCase::parse(text).message();
  };
  REQUIRE(message("type=f8") == "case key 'type' cannot be 'f8'");
  REQUIRE(message("summaries=i32") == "case key 'summaries' cannot be 'i32'");
  REQUIRE(message("tau=near") == "case key 'tau' cannot be 'near'");
  REQUIRE(
      message("page=0,guesses=-2") ==
      "tokens = 60, prompt = 0, guesses = -2, forks = 0, page = 0 and threads "
      "= 1 of a case are not 1, 0, 0, 0, 1 and 1 at least");
  REQUIRE(message("segments=1:2:3") == "a case has no key 'segments'");
  auto ofBounded = [](const char *text) {
    return BoundedCase::parse(text).message();
  };
  REQUIRE(ofBounded("segments=1:2") == "case key 'segments' cannot be '1:2'");
  REQUIRE(ofBounded("later=-1") ==
          "tokens = 60, prompt = 0, later = -1, lowered = 0 and threads = 1 of "
          "a case are not 1, 0, 0, 0 and 1 at least");
}

TEST_CASE("a report says how to repeat the case of an attention that failed") {
  AttentionReport report;
  report.name = "mac";
  report.reproducer = "ladle check mac.ladle --target cuda";
  report.cases.emplace_back();
  AttentionResult &failed = report.cases.emplace_back();
  failed.config.settings.window = 8;
  failed.failure = "head 3 is off by 2.00e-02 (bound 1.00e-05) in step 4";
  std::string text = report.table();
  REQUIRE(text.find("head 3 is off by 2.00e-02 (bound 1.00e-05) in step 4\n"
                    "  repeat with: ladle check mac.ladle --target cuda --case "
                    "'type=bf16,window=8'\n") != std::string::npos);
  REQUIRE(text.find("repeat") == text.rfind("repeat"));
  BoundedReport bounded;
  bounded.reproducer = "ladle check edge.ladle";
  bounded.cases.emplace_back().failure = "late";
  REQUIRE(bounded.table().find("repeat with: ladle check edge.ladle --case "
                               "'type=bf16'\n") != std::string::npos);
}

TEST_CASE("a form with few answers has the bound of the others") {
  check::CaseResult result;
  auto of = [&](FormKind kind) -> check::FormResult & {
    return result.forms[static_cast<size_t>(kind)];
  };
  of(FormKind::Verify).count = 300;
  of(FormKind::Verify).bound.rounded = 4e-3;
  of(FormKind::Decode).count = 100;
  of(FormKind::Decode).bound.rounded = 1e-3;
  of(FormKind::DecodeFold).count = 1;
  of(FormKind::DecodeFold).bound.rounded = 1e-3;
  of(FormKind::Fold).count = 1;
  of(FormKind::Fold).bound.rounded = 1e-3;
  of(FormKind::DecodeFold).error.add(5e-3, 0, 0, "y");
  REQUIRE(!result.passed());
  result.shareBounds();
  REQUIRE(result.passed());
  // Those of many answers, and states, keep theirs.
  REQUIRE(of(FormKind::Decode).bound.rounded == 1e-3);
  REQUIRE(of(FormKind::Fold).bound.rounded == 1e-3);
  of(FormKind::DecodeFold).error.add(9e-3, 0, 1, "y");
  REQUIRE(!result.passed());
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
  REQUIRE(message("L=12,m=4,page=-8") == "page = -8 of a case is negative");
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

TEST_CASE("an error of what cancels is relative to its terms") {
  auto error = [](double actual, std::vector<double> terms) {
    std::vector<double> given{actual, 0}, expected{1, 0};
    return check::relativeError(given, expected, terms);
  };
  REQUIRE(error(1.5, {1, 0}) == 0.5);
  REQUIRE(error(1.5, {4, 4}) == 0.5); // no more than random signs may
  REQUIRE(error(1.5, {8, 0}) == 0.25);
  REQUIRE(error(1.5, {1, 400}) == 0.005);
  REQUIRE(error(1.5, {1, std::numeric_limits<double>::infinity()}) == 0.5);
}

TEST_CASE("the first cases of segments have the numbers of the file") {
  auto plan = check::planSegments({4, 8, 16}, /*seed=*/1);
  SegmentSettings small{4, 8, 16}, large{300, 200, 2048};
  REQUIRE(plan[0].segments == small);
  REQUIRE(plan[0].prompt == 29); // one behind the first fold
  REQUIRE(plan[0].tokens * 4 / 5 > 16);
  REQUIRE(plan[1].segments == small);
  REQUIRE(plan[1].prompt == 0);
  REQUIRE(plan[1].tokens * 4 / 5 > 28);
  // What is long begins shortly ahead of a fold, and ends soon.
  plan = check::planSegments({300, 200, 2048}, 1);
  REQUIRE(plan[0].segments == large);
  REQUIRE(plan[0].prompt == 2546);
  REQUIRE(plan[0].tokens == 20);
  REQUIRE(plan[1].tokens == 20);
  // What cannot be reached in seconds is not.
  REQUIRE(check::planSegments({300, 200, 1 << 20}, 1)[0].prompt == 4096);
}

TEST_CASE("an answer of 16 bits was what it may have been rounded from") {
  using check::beforeRounding;
  // Neighbours of 1 in bf16 are 2^-7 apart above it, of 3 2^-6.
  std::vector<double> actual = {1, 1, 3, -3, 0, HUGE_VAL};
  const std::vector<double> exact = {1.003, 1.01, 2.99, -3.5, 1e-9, 5};
  std::vector<double> before = beforeRounding(actual, exact, DType::BF16);
  CHECK(before[0] == 1.003);
  CHECK(before[1] == 1 + 0x1p-8);
  CHECK(before[2] == 3 - 0x1p-7);
  CHECK(before[3] == -3 - 0x1p-7);
  CHECK(before[4] == 0x1p-134);
  CHECK(before[5] == HUGE_VAL);
  CHECK(beforeRounding({1}, exact, DType::F16)[0] == 1 + 0x1p-11);
  CHECK(beforeRounding({0}, std::vector<double>{1}, DType::F16)[0] == 0x1p-25);
  CHECK(beforeRounding({1}, exact, DType::F32)[0] == 1);
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
