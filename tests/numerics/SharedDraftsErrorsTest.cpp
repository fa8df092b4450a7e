//===- SharedDraftsErrorsTest.cpp - layers that do not verify alike -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "tests/numerics/Examples.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::test;
using Catch::Matchers::Contains;

static Program compile(int64_t drafts, const std::string &route,
                       std::vector<std::string> extraRoutes = {}) {
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.extraRoutes = std::move(extraRoutes);
  options.drafts = drafts;
  options.capacity = 12;
  return *compileSource(readExample("delta_net"), "delta_net", options);
}

static void refuse(const Status &status, const std::string &message) {
  REQUIRE_FALSE(status.ok());
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(status.message(), Contains(message));
}

namespace {
/// Two layers and drafts on slots 0 and 2, which the first has verified: of
/// slot 0, drafts 1 and 2 follow draft 0.
struct HalfVerified {
  Program program = compile(4, "inner", {"recurrent"});
  Program recurrent = *program.withRoute(RouteKind::Recurrent);
  Cursors cursors = *Cursors::create(program, {.slots = 4});
  Pool first = *Pool::create(program, sharing()),
       second = *Pool::create(program, sharing());
  Decoder firstLayer = *Decoder::create(program, first),
          secondLayer = *Decoder::create(program, second),
          secondRecurrent = *Decoder::create(recurrent, second);
  check::Batch batch{program.signature(), 5, /*packed=*/false};
  std::vector<int32_t> slots{0, 2}, starts{0, 3, 5}, parents{-1, 0, 0, -1, -1},
      none{0, 0};

  HalfVerified() {
    std::vector<std::vector<double>> tokens;
    for (const TensorSpec &spec : program.signature().tokens) {
      int64_t count = 1;
      for (int64_t size : spec.shape)
        count *= size;
      tokens.emplace_back(count, 0.25);
    }
    for (int64_t draft = 0; draft < 5; ++draft)
      batch.setTokens(draft, tokens);
    REQUIRE(verify(firstLayer).ok());
  }
  PoolOptions sharing() const {
    PoolOptions options;
    options.cursors = cursors;
    return options;
  }
  Status verify(Decoder &layer) {
    VerifyArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.parents = parents;
    arguments.tensors = batch.getTensors();
    return layer.verify(arguments);
  }
  /// Whatever was refused, the second layer can still verify and both commit.
  ~HalfVerified() {
    slots = {0, 2};
    starts = {0, 3, 5};
    parents = {-1, 0, 0, -1, -1};
    CHECK(cursors.cursor(0)->length == 3);
    CHECK(cursors.cursor(2)->length == 2);
    CHECK(verify(secondLayer).message().empty());
    std::vector<int32_t> numAccepted{2, 1}, path{0, 2, 1};
    CHECK(cursors.commit(slots, numAccepted, path).message().empty());
    CHECK(first.cursor(0)->committed == 2);
    CHECK(second.cursor(2)->committed == 1);
    CHECK(cursors.cursor(0)->length == 2);
  }
};
} // namespace

TEST_CASE_METHOD(HalfVerified, "a layer has yet to verify") {
  std::string message = "slot 0 has 3 drafts that the layer of a pool of "
                        "'delta_net' has not verified";
  refuse(cursors.commit(slots, none), "slots[0]: " + message);
  refuse(first.commit(slots, none), message);
  refuse(cursors.flush(slots), message);
}

TEST_CASE_METHOD(HalfVerified, "other drafts than another layer's") {
  parents[2] = 1;
  refuse(verify(secondLayer), "slots[0]: draft 2 of slot 0 has the parent 1, "
                              "and 0 by another layer");
  parents = {};
  refuse(verify(secondLayer), "draft 2 of slot 0 has the parent 1, and 0");
  starts = {0, 2, 5};
  refuse(verify(secondLayer), "slots[0]: slot 0 gets 2 drafts, and 3 by "
                              "another layer");
}

TEST_CASE_METHOD(HalfVerified, "drafts as states and as entries") {
  refuse(verify(secondRecurrent),
         "slots[0]: the drafts of slot 0 are states, and entries by another "
         "layer");
}

TEST_CASE_METHOD(HalfVerified, "a layer that verifies twice") {
  refuse(verify(firstLayer), "slots[0]: slot 0 has 3 drafts that are not "
                             "committed; commit them first, 0 to reject all");
  REQUIRE(verify(secondLayer).ok());
  refuse(verify(secondLayer), "slot 0 has 3 drafts that are not committed");
  REQUIRE(cursors.reset(slots).ok());
  REQUIRE(verify(firstLayer).ok());
}

TEST_CASE_METHOD(HalfVerified, "what waits for drafts that are shared") {
  std::string message = "slot 0 has 3 drafts that are not committed";
  refuse(cursors.advance(slots), "row 0: " + message);
  StepArguments step;
  step.rows = 1;
  step.readSlots = {slots.data(), 1};
  step.tensors = batch.getTensors();
  refuse(secondLayer.step(step), "readSlots[0]: " + message);
  refuse(second.exportSlot(program, 0).status(), message);
  SlotContents other = *second.exportSlot(program, 1);
  refuse(second.importSlot(0, other), message);
  refuse(second.state("S").status(), message);
  refuse(Pool::create(program, sharing()).status(), message);
}

TEST_CASE_METHOD(HalfVerified, "pools for other drafts, and their threshold") {
  Program other = compile(2, "inner", {"recurrent"});
  refuse(
      Pool::create(other, sharing()).status(),
      "the pool of 'delta_net' has drafts a row 2, the cursors that it would "
      "share have 4");
  CHECK(cursors.foldThreshold() == 8);
  refuse(cursors.setFoldThreshold(9), "foldThreshold is 9, wanted 1 to 8");
}

TEST_CASE("a pool that comes later finds the versions of its slots") {
  Program program = compile(4, "recurrent", {"inner"});
  Cursors cursors = *Cursors::create(program, {.slots = 1});
  PoolOptions options;
  options.cursors = cursors;
  std::optional<Pool> first = *Pool::create(program, options);
  check::Batch batch(program.signature(), 2, /*packed=*/false);
  int32_t slot = 0, starts[] = {0, 2}, both = 2;
  VerifyArguments arguments;
  arguments.rows = 1;
  arguments.slots = {&slot, 1};
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  REQUIRE(Decoder::create(program, *first)->verify(arguments).ok());
  REQUIRE(cursors.commit({&slot, 1}, {&both, 1}).ok());
  // It has room for one state a slot, and its memory is right where it starts.
  Program inner = compile(4, "inner");
  std::vector<float> memory(4096, 1.0f);
  void *aligned = memory.data();
  size_t space = memory.size() * sizeof(float);
  REQUIRE(std::align(64, 1024, aligned, space));
  options.stateMemory = {aligned};
  Pool second = *Pool::create(inner, options);
  CHECK(first->exportSlot(program, 0).status().ok());
  Result<SlotContents> contents = second.exportSlot(inner, 0);
  REQUIRE(contents.ok());
  for (double value : check::toDoubles(contents->states[0].view()))
    CHECK(value == 1);
}
