//===- PrefillErrorsTest.cpp - prompts that are refused -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Prompts.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Matchers::Contains;

namespace {
/// Two rows of three and two tokens on a pool of four slots.
struct Refused {
  CompileOptions options;
  std::optional<Program> program;
  std::optional<Pool> pool;
  std::optional<check::Batch> batch;
  std::vector<int32_t> slots{0, 2}, starts{0, 3, 5};

  Refused() {
    options.preset = "tiny";
    options.route = "inner";
    options.drafts = 4;
    options.prefill = true;
    compile();
  }
  void compile(const std::optional<Cursors> &cursors = {}) {
    program = *compileSource(readExample("delta_net"), "delta_net", options);
    PoolOptions memory;
    memory.slots = cursors ? 0 : 4;
    memory.cursors = cursors;
    pool.emplace(std::move(*Pool::create(*program, memory)));
    batch.emplace(program->signature(), 5, /*packed=*/false);
  }
  Status prefill(Decoder *by = nullptr) {
    PrefillArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = batch->getTensors();
    return by ? by->prefill(arguments)
              : Decoder::create(*program, *pool)->prefill(arguments);
  }
  /// Whatever was refused has changed nothing.
  void refuse(const std::string &message) {
    CHECK_THAT(prefill().message(), Contains(message));
    for (int32_t slot = 0; slot < 4; ++slot) {
      CHECK(pool->cursor(slot)->epoch == 0);
      CHECK(pool->cursor(slot)->length == 0);
    }
  }
};
} // namespace

TEST_CASE_METHOD(Refused, "a program without prompts") {
  options.prefill = false;
  compile();
  refuse("'delta_net' was compiled without prompts; set "
         "CompileOptions::prefill");
}

TEST_CASE_METHOD(Refused, "rows and slots") {
  slots = {0};
  starts = {0, 3, 5};
  refuse("cuSeqlens has 3 numbers, wanted 2");
  slots = {0, 2};
  starts = {1, 3, 5};
  refuse("cuSeqlens[0] is 1, wanted 0");
  starts = {0, 5, 5};
  refuse("cuSeqlens[2] gives row 1 0 tokens, wanted 1 at least");
  starts = {0, 3, 2};
  refuse("cuSeqlens[2] gives row 1 -1 tokens, wanted 1 at least");
  starts = {0, 3, 5};
  slots = {0, 4};
  refuse("slots[1]: slot 4 is outside of the pool, which has 4");
  slots = {2, 2};
  refuse("slots[0] and slots[1] are both 2, wanted a slot of its own");
}

TEST_CASE_METHOD(Refused, "tensors of another number of tokens") {
  starts = {0, 3, 6};
  refuse("argument 'q' is bf16 [5, 3, 12], wanted bf16 [6, 3, 12]");
}

TEST_CASE_METHOD(Refused, "a slot whose drafts are not committed") {
  VerifyArguments arguments;
  arguments.rows = 2;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors = batch->getTensors();
  REQUIRE(Decoder::create(*program, *pool)->verify(arguments).ok());
  CHECK_THAT(prefill().message(),
             Contains("slots[0]: slot 0 has 3 drafts that are not committed"));
  REQUIRE(pool->commit(slots, std::vector<int32_t>{1, 0}).ok());
  CHECK(prefill().ok());
  CHECK(pool->cursor(0)->length == 0);
}

TEST_CASE_METHOD(Refused, "entries that a route does not read") {
  options.drafts = 0;
  options.extraRoutes = {"recurrent"};
  compile();
  check::Batch one(program->signature(), 1, /*packed=*/false);
  int32_t slot = 2;
  StepArguments arguments;
  arguments.rows = 1;
  arguments.readSlots = {&slot, 1};
  arguments.tensors = one.getTensors();
  REQUIRE(Decoder::create(*program, *pool)->step(arguments).ok());
  Decoder recurrent = std::move(
      *Decoder::create(*program->withRoute(RouteKind::Recurrent), *pool));
  CHECK_THAT(prefill(&recurrent).message(),
             Contains("slots[1]: slot 2 holds 1 entries, which route "
                      "'recurrent' does not read; flush the slot first"));
}

TEST_CASE_METHOD(Refused, "layers that do not take the same prompts") {
  options.drafts = 0;
  compile();
  Cursors cursors = *Cursors::create(*program, {.slots = 4});
  compile(cursors);
  PoolOptions memory;
  memory.cursors = cursors;
  Pool second = std::move(*Pool::create(*program, memory));
  Decoder one = std::move(*Decoder::create(*program, *pool)),
          two = std::move(*Decoder::create(*program, second));
  REQUIRE(prefill(&one).ok());
  CHECK(pool->cursor(0)->epoch == 0);
  CHECK_THAT(prefill(&one).message(),
             Contains("slots[0]: slot 0 has a prompt of 3 tokens that its "
                      "cursor has not moved on; advance it first"));
  starts = {0, 2, 5};
  CHECK_THAT(prefill(&two).message(),
             Contains("slots[0]: slot 0 gets a prompt of 2 tokens, and 3 by "
                      "another layer"));
  CHECK_THAT(cursors.flush(slots).message(), Contains("advance it first"));
  CHECK_THAT(pool->exportSlot(*program, 0).message(),
             Contains("advance it first"));
  check::Batch two1(program->signature(), 2, /*packed=*/false);
  StepArguments step;
  step.rows = 2;
  step.readSlots = slots;
  step.tensors = two1.getTensors();
  CHECK_THAT(two.step(step).message(), Contains("advance it first"));
  starts = {0, 3, 5};
  REQUIRE(prefill(&two).ok());
  REQUIRE(cursors.advance(slots).ok());
  for (int32_t slot : slots)
    CHECK(cursors.cursor(slot)->epoch == 1);
  CHECK(two.step(step).ok());
}
