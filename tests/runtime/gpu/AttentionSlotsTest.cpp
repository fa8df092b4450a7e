//===- AttentionSlotsTest.cpp - what slots of an attention hold -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/runtime/gpu/OneHead.h"

#include <cmath>

using namespace ladle;
using namespace ladle::test;

static constexpr AttentionSettings near{.tau = 0.5, .window = 4, .band = 1};

//===----------------------------------------------------------------------===//
// Queries that are no numbers
//===----------------------------------------------------------------------===//

TEST_CASE("a query whose square is no number matches nothing, spoils nothing") {
  for (const std::string &target : targetsOfOneHead())
    for (float bad : {NAN, INFINITY, -INFINITY, 1e20F, -3e38F}) {
      CAPTURE(target, bad);
      OneHead head(target, near);
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 0);
      CHECK(head.step(bad) == -1);
      CHECK(head.step(bad) == -1); // nor one like it
      CHECK(head.step(1) == 1);
      // Nothing far becomes near.
      for (float far : {5.F, -50.F, 1000.F, -3e4F})
        CHECK(head.step(far) == -1);

      head.reset();
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 0);
      const std::vector<int32_t> slots{0};
      CHECK(head.step(bad) == -1);
      need(head.pool->invalidateRings(slots));
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 3);
    }
}

TEST_CASE("a query whose square is no number counts for nothing") {
  for (const std::string &target : targetsOfOneHead())
    for (float bad : {NAN, INFINITY, 1e20F}) {
      CAPTURE(target, bad);
      OneHead head(target, near);
      // √(2d) (1 − τ) is 0.71 of √d here, of one token that counts. Were the
      // others zeros, it would be less.
      CHECK(head.step(bad) == -1);
      CHECK(head.step(bad) == -1);
      CHECK(head.step(1) == -1);
      CHECK(head.step(1.6F) == 2);
      // Prompts leave the same.
      head.reset();
      need(head.prefill({0}, {0, 3}, bad));
      CHECK(head.step(1) == -1);
      CHECK(head.step(1.6F) == 3);
      head.reset();
      need(head.prefill({0}, {0, 1}, 1));
      need(head.prefill({0}, {0, 2}, bad));
      CHECK(head.step(1.6F) == 0);
    }
}

TEST_CASE("squares of a prompt may be as large as numbers are") {
  for (const std::string &target : targetsOfOneHead()) {
    CAPTURE(target);
    OneHead head(target, near);
    need(head.prefill({0}, {0, 4}, 3e18F)); // 32 squares are 2.9e38
    CHECK(head.step(3e18F) == 3);
    CHECK(head.step(5) == -1);
  }
}

//===----------------------------------------------------------------------===//
// Prompts
//===----------------------------------------------------------------------===//

TEST_CASE("a row of a prompt without tokens leaves its slot as it is") {
  for (const std::string &target : targetsOfOneHead())
    for (int32_t empty : {0, 1}) {
      CAPTURE(target, empty);
      // The row without tokens is the first one or the last one.
      const std::vector<int32_t> starts = empty == 0
                                              ? std::vector<int32_t>{0, 0, 3}
                                              : std::vector<int32_t>{0, 3, 3};
      OneHead head(target, near);
      need(head.prefill({0, 1}, starts, 1));
      CHECK(head.pool->length(empty) == 0);
      CHECK(head.pool->ringEntries(empty) == 0);
      CHECK(head.pool->length(1 - empty) == 3);
      CHECK(head.step(1, empty, 2) == -1);
      CHECK(head.answer() == Approx(2)); // of its own token alone
      CHECK(head.step(1, 1 - empty) == 2);

      CHECK(head.step(1, empty) == 0);
      need(head.prefill({0, 1}, starts, 1));
      CHECK(head.pool->length(empty) == 2);
      CHECK(head.pool->ringEntries(empty) == 2);
      CHECK(head.pool->length(1 - empty) == 7);
      CHECK(head.step(1, empty) == 1);
      CHECK(head.step(1, 1 - empty) == 6);
      // Nor does a decoder of another band drop its ring.
      AttentionSettings other = near;
      other.band = 2;
      head.decoder = std::make_unique<AttentionDecoder>(head.decoderOf(other));
      need(head.prefill({0, 1}, starts, 1));
      CHECK(head.pool->ringEntries(empty) == 3);
    }
}

//===----------------------------------------------------------------------===//
// Rings that do not hold
//===----------------------------------------------------------------------===//

/// Two bands and sinks.
static const char *const twoBands = R"(
attention two_bands(Hq, Hkv, D) {
  token q_pre[Hq, D], q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  cache KV[k, v] paged(16)
  let prefix = match(q_pre, window = 4, tau = 0.5)
  out o[Hq, D] : bf16 =
    complete(prefix, softmax(q, KV, scale = rsqrt(D)), band = 1, sinks = 1,
             wide_band = 2, wide_gap = 2)
}
)";

TEST_CASE("rings of another band, other sinks or another wide band go") {
  constexpr AttentionSettings before{.tau = 0.5,
                                     .window = 4,
                                     .band = 1,
                                     .sinks = 1,
                                     .wideBand = 2,
                                     .wideGap = 2};
  AttentionSettings band = before, sinks = before, wide = before,
                    other = before;
  band.band = 2;
  sinks.sinks = 2;
  wide.wideBand = 3;
  // These decide about matches alone.
  other.tau = 0.4;
  other.window = 3;
  other.wideGap = 1;
  other.maxChain = 9;
  for (const std::string &target : targetsOfOneHead()) {
    CAPTURE(target);
    for (const AttentionSettings &after : {band, sinks, wide}) {
      CAPTURE(after.band, after.sinks, after.wideBand);
      OneHead head(target, before, twoBands);
      for (int64_t i = 0; i < 4; ++i)
        CHECK(head.step(1) == i - 1);
      AttentionDecoder decoder = head.decoderOf(after);
      CHECK(head.stepBy(decoder, 1) == -1);
      CHECK(head.pool->ringEntries(0) == 1);
      CHECK(head.stepBy(decoder, 1) == 4);
      CHECK(head.step(1) == -1); // and back
      CHECK(head.step(1) == 6);
      // A prompt of other numbers leaves what it left itself.
      head.decoder = std::make_unique<AttentionDecoder>(head.decoderOf(after));
      need(head.prefill({0}, {0, 2}, 1));
      CHECK(head.pool->ringEntries(0) == 2);
      CHECK(head.step(1) == 9);
    }
    OneHead head(target, before, twoBands);
    head.step(1);
    AttentionDecoder decoder = head.decoderOf(other);
    CHECK(head.stepBy(decoder, 1) == 0);
    CHECK(head.step(1) == 1);
  }
}

TEST_CASE("a captured step finds rings and slots as the host has left them") {
  if (!hasGpu())
    return;
  OneHead head("cuda", near);
  const std::vector<int32_t> slots{0};
  need(head.pool->reserve(slots, 30));
  BoundStep step = need(head.decoder->bind(head.arguments));
  cuda::Device device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(
      device, [&] { return step.launch(device.stream()); }));
  auto replay = [&](float value) {
    head.fill(1, 0, value);
    need(synchronize(gpu));
    need(graph.replay());
    need(synchronize(gpu));
    return head.decoder->matches()[0];
  };
  CHECK(replay(1) == -1);
  CHECK(replay(1) == 0);
  CHECK(replay(1) == 1);
  need(head.pool->invalidateRings(slots));
  CHECK(replay(1) == -1);
  CHECK(replay(1) == 3);
  need(head.pool->truncate(0, 2));
  CHECK(head.pool->length(0) == 2);
  CHECK(replay(1) == -1);
  CHECK(replay(1) == 2);
  CHECK(replay(1) == 3);
  CHECK(head.answer() == Approx(1));
  need(head.pool->reset(slots));
  need(head.pool->reserve(slots, 5));
  CHECK(replay(3) == -1);
  CHECK(head.answer() == Approx(3)); // nothing of before
  CHECK(replay(3) == 0);
  CHECK(head.answer() == Approx(3));
}

TEST_CASE("a sequence moves between the CPU and a GPU, with its ring") {
  if (!hasGpu())
    return;
  for (bool isToGpu : {false, true}) {
    CAPTURE(isToGpu);
    OneHead from(isToGpu ? "cpu" : "cuda", near),
        to(isToGpu ? "cuda" : "cpu", near);
    for (int i = 0; i < 21; ++i) // more than a page, and the ring wraps around
      from.step(1 + 0.01F * static_cast<float>(i % 3), 0,
                static_cast<float>(i));
    need(to.pool->importSlot(1, need(from.pool->exportSlot(0))));
    CHECK(to.pool->length(1) == 21);
    CHECK(to.pool->ringEntries(1) == from.pool->ringEntries(0));
    for (int i = 21; i < 30; ++i) {
      float query = 1 + 0.01F * static_cast<float>(i % 3);
      int64_t match = from.step(query, 0, static_cast<float>(i));
      CHECK(match >= 0);
      CHECK(to.step(query, 1, static_cast<float>(i)) == match);
      CHECK(to.answer() == Approx(from.answer()));
    }
  }
}

TEST_CASE("values that a truncation took away are in no answer") {
  for (const std::string &target : targetsOfOneHead()) {
    CAPTURE(target);
    OneHead head(target, near);
    for (float value : {1.F, 2.F, NAN, INFINITY})
      head.step(1, 0, value);
    CHECK_FALSE(std::isfinite(head.answer()));
    need(head.pool->truncate(0, 2));
    head.step(1, 0, 4);
    CHECK(std::isfinite(head.answer()));
    head.step(1, 0, 5);
    CHECK(std::isfinite(head.answer()));
  }
}

TEST_CASE("what a truncation takes away is in no estimate") {
  for (const std::string &target : targetsOfOneHead())
    for (float guess : {2.F, 1e6F, NAN}) {
      CAPTURE(target, guess);
      OneHead head(target, near);
      for (int i = 0; i < 6; ++i) // the ring wraps around
        CHECK(head.step(1) == i - 1);
      head.step(guess);
      head.step(guess);
      need(head.pool->truncate(0, 6));
      CHECK(head.pool->ringEntries(0) == 2);
      CHECK(head.step(1.75F) == -1);
      CHECK(head.step(0.5F) == 5);
      // Of a ring without a token nothing is known, as after a reset.
      for (int i = 0; i < 4; ++i)
        head.step(guess);
      need(head.pool->truncate(0, 3));
      CHECK(head.pool->ringEntries(0) == 0);
      CHECK(head.step(1) == -1);
      CHECK(head.step(1.75F) == -1);
      CHECK(head.step(1.1F) == 3);
    }
}

TEST_CASE("tokens that had no page are told of, and are not there") {
  if (!hasGpu())
    return;
  OneHead head("cuda", near);
  const std::vector<int32_t> slots{0, 1};
  int64_t size = head.program->pageSize();
  // Of another sequence, whose values are still in the pages.
  need(head.pool->reserve(slots, 2 * size));
  for (int64_t i = 0; i < 2 * size; ++i)
    for (int32_t slot : slots)
      head.step(static_cast<float>(i), slot, 9);
  need(head.pool->reset(slots));
  need(head.pool->reserve(slots, size));
  BoundStep step = need(head.decoder->bind(head.arguments));
  auto run = [&](int32_t slot) {
    head.fill(1, slot, 1);
    need(step.launch());
    need(synchronize(gpu));
  };
  for (int64_t i = 0; i < size; ++i)
    run(0);
  head.fill(1, 0, 1);
  need(step.launch()); // without a page
  head.fill(1, 1, 1);
  need(synchronize(gpu));
  // Who captures a step cannot look, and leaves it to others.
  cuda::Device device = need(cuda::Device::shared());
  CHECK(
      !cuda::Graph::record(device, [&] { return step.launch(device.stream()); })
           .status()
           .ok());
  Status status = head.pool->reserve(slots, 2);
  CHECK(status.code() == ErrorCode::ResourceExhausted);
  CHECK(status.message() ==
        "earlier steps answered tokens that had no page; what has a page is "
        "left: slot 0 to " +
            std::to_string(size) +
            " tokens; take pages before (AttentionPool::reserve)");
  CHECK(head.pool->length(0) == size);
  need(head.pool->reserve(slots, 2));
  run(0);
  CHECK(head.pool->length(0) == size + 1);
  CHECK(head.answer() == Approx(1));
}

TEST_CASE("a cut where there is no page leaves the pages of branches alone") {
  if (!hasGpu())
    return;
  OneHead head("cuda", near);
  head.decoder.reset();
  head.pool = std::make_unique<AttentionPool>(need(AttentionPool::create(
      *head.program, {.slots = 3, .pages = 8, .window = 4})));
  head.decoder = std::make_unique<AttentionDecoder>(head.decoderOf(near));
  AttentionPool &pool = *head.pool;
  int64_t size = head.program->pageSize(), all = pool.freePages();
  // Slot 0 gives a page back, which two branches hold then: its table still has
  // the number, where it has no page.
  for (int64_t i = 0; i < size + 1; ++i)
    head.step(1, 0);
  need(pool.truncate(0, size));
  for (int64_t i = 0; i < size; ++i)
    head.step(1, 1);
  need(pool.fork(std::vector{1}, std::vector{2}));
  CHECK(pool.freePages() == all - 2);
  head.fill(1, 0);
  need(head.decoder->step(head.arguments)); // a token without a page
  need(synchronize(gpu));
  CHECK(pool.length(0) == size + 1);
  need(pool.truncate(0, size + 1));
  CHECK(pool.freePages() == all - 2);
  need(pool.truncate(0, size));
  need(pool.reset(std::vector{0, 1, 2}));
  CHECK(pool.freePages() == all);
}
