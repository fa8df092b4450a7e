//===- SpeculationErrorsTest.cpp - drafts that are refused ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Matchers::Contains;

static PoolOptions withSlots(int64_t slots) {
  PoolOptions options;
  options.slots = slots;
  return options;
}

static Result<Program> compile(int64_t drafts, int64_t capacity = 12,
                               const std::string &route = "inner") {
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.drafts = drafts;
  options.capacity = capacity;
  return compileSource(readExample("delta_net"), "delta_net", options);
}

namespace {
/// Two rows of three and two drafts on a pool of four slots.
struct Refused {
  Program program = *compile(4);
  Pool pool = *Pool::create(program, withSlots(4));
  check::Batch batch{program.signature(), 5, /*packed=*/false};
  std::vector<int32_t> slots{0, 2}, starts{0, 3, 5}, parents;

  Refused() {
    std::vector<std::vector<double>> tokens;
    for (const TensorSpec &spec : program.signature().tokens) {
      int64_t count = 1;
      for (int64_t size : spec.shape)
        count *= size;
      tokens.emplace_back(count, 0.25);
    }
    for (int64_t draft = 0; draft < 5; ++draft)
      batch.setTokens(draft, tokens);
  }
  Status verify() {
    VerifyArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.parents = parents;
    arguments.tensors = batch.getTensors();
    return Decoder::create(program, pool)->verify(arguments);
  }
  void check(const Status &status, const std::string &message) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.code() == ErrorCode::InvalidArgument);
    CHECK_THAT(status.message(), Contains(message));
    for (int32_t slot = 0; slot < 4; ++slot)
      CHECK(pool.cursor(slot)->length == 0);
  }
};

/// The same with the drafts waiting: draft 1 and 2 follow draft 0 in slot 0.
struct Waiting : Refused {
  Waiting() {
    parents = {-1, 0, 0, -1, -1};
    REQUIRE(verify().ok());
  }
  void checkWaiting(const Status &status, const std::string &message) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.code() == ErrorCode::InvalidArgument);
    CHECK_THAT(status.message(), Contains(message));
    CHECK(pool.cursor(0)->length == 3);
    CHECK(pool.cursor(2)->length == 2);
  }
  void checkCommit(std::vector<int32_t> numAccepted,
                   std::vector<int32_t> accepted, const std::string &message) {
    checkWaiting(pool.commit(slots, numAccepted, accepted), message);
  }
};
} // namespace

TEST_CASE("drafts that a program cannot be compiled for") {
  CHECK_THAT(compile(17, 64).message(),
             Contains("drafts is 17, expected 0 to 16"));
  CHECK_THAT(
      compile(8, 15).message(),
      Contains(
          "capacity is 15, expected at least twice the drafts of a row, 16"));
}

TEST_CASE_METHOD(Refused, "a program without drafts") {
  program = *compile(0);
  pool = std::move(*Pool::create(program, withSlots(4)));
  check(verify(), "'delta_net' was compiled without drafts; set "
                  "CompileOptions::drafts");
}

TEST_CASE_METHOD(Refused, "a pool for other drafts") {
  Program other = *compile(2);
  check(Decoder::create(other, pool).status(),
        "the pool of 'delta_net' has room for 4 drafts a row, the program "
        "verifies 2");
}

TEST_CASE_METHOD(Refused, "a pool of a route with a buffer keeps one state") {
  Program other = *compile(4, 12, "recurrent");
  check(Decoder::create(other, pool).status(), "route 'recurrent' wants one "
                                               "for each draft");
}

TEST_CASE_METHOD(Refused, "memory of the caller where drafts are states") {
  Program other = *compile(4, 12, "recurrent");
  std::vector<float> memory(4096);
  PoolOptions options = withSlots(1);
  options.stateMemory = {memory.data()};
  CHECK_THAT(Pool::create(other, options).message(),
             Contains("stateMemory[0] is not null, wanted null"));
}

TEST_CASE_METHOD(Refused, "a threshold that leaves no room for drafts") {
  check(pool.setFoldThreshold(9), "foldThreshold is 9, wanted 1 to 8");
}

TEST_CASE_METHOD(Refused, "the wrong number of slots") {
  slots = {0};
  starts = {0, 3, 5};
  check(verify(), "cuSeqlens has 3 numbers, wanted 2");
}

TEST_CASE_METHOD(Refused, "drafts that do not start at 0") {
  starts = {1, 3, 5};
  check(verify(), "cuSeqlens[0] is 1, wanted 0");
}

TEST_CASE_METHOD(Refused, "a row with too many drafts, or none") {
  starts = {0, 5, 5};
  check(verify(), "cuSeqlens[1] gives row 0 5 drafts, wanted 1 to 4");
  starts = {0, 4, 4};
  check(verify(), "cuSeqlens[2] gives row 1 0 drafts, wanted 1 to 4");
}

TEST_CASE_METHOD(Refused, "a parent that is none") {
  parents = {-1, 0, 2, -1, -1};
  check(verify(), "parents[2] is 2, wanted -1 or a draft of row 0 before "
                  "draft 2");
  parents = {-1, 0};
  check(verify(), "parents has 2 numbers, wanted 5 or none");
}

TEST_CASE_METHOD(Refused, "a slot of two rows, or out of range") {
  slots = {2, 2};
  check(verify(), "slots[0] and slots[1] are both 2");
  slots = {0, 4};
  check(verify(), "slots[1]: slot 4 is outside of the pool, which has 4");
}

TEST_CASE_METHOD(Waiting, "a slot whose drafts are not committed") {
  checkWaiting(verify(),
               "slots[0]: slot 0 has 3 drafts that are not committed; commit "
               "them first, 0 to reject all");
  StepArguments step;
  step.rows = 1;
  step.readSlots = {&slots[1], 1};
  checkWaiting(Decoder::create(program, pool)->step(step),
               "readSlots[0]: slot 2 has 2 drafts that are not committed");
  checkWaiting(pool.exportSlot(program, 0).status(), "slot 0 has 3 drafts");
}

TEST_CASE_METHOD(Waiting, "more accepted than there are") {
  checkCommit({4, 0}, {},
              "numAccepted[0] is 4, wanted 0 to 3, the drafts of "
              "slot 0");
  checkCommit({0}, {},
              "numAccepted has 1 numbers, wanted one for each of 2 "
              "slots");
}

TEST_CASE_METHOD(Waiting, "accepted drafts that are no path") {
  checkCommit({3, 0}, {},
              "accepted[2] is draft 2 of slot 0, whose parent is 0, "
              "wanted a child of draft 1");
  checkCommit({1, 0}, {1},
              "accepted[0] is draft 1 of slot 0, whose parent is "
              "0, wanted one without a parent");
  checkCommit({1, 1}, {0, 5},
              "accepted[1] is 5, wanted one of the 2 drafts of "
              "slot 2");
  checkCommit({2, 1}, {0, 1},
              "accepted has 2 drafts, wanted as many as "
              "numAccepted says, 3 up to slots[1]");
}

TEST_CASE_METHOD(Waiting, "a slot that is committed twice in a call") {
  std::vector<int32_t> twice{0, 0}, none{0, 0};
  checkWaiting(pool.commit(twice, none), "slots[0] and slots[1] are both 0");
}

TEST_CASE_METHOD(Waiting, "a reset forgets drafts") {
  REQUIRE(pool.reset(slots).ok());
  REQUIRE(verify().ok());
  std::vector<int32_t> numAccepted{2, 1}, path{0, 2, 1};
  REQUIRE(pool.commit(slots, numAccepted, path).ok());
  CHECK(pool.cursor(0)->committed == 2);
  CHECK(pool.cursor(2)->committed == 1);
}
