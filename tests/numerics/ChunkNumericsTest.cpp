//===- ChunkNumericsTest.cpp - folds where chunks end ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
#include "tests/numerics/Prompts.h"
#include "tests/numerics/SerialRecurrences.h"

#include <random>

using namespace ladle;
using namespace ladle::test;

static constexpr int64_t chunk = 16;

static CompileOptions byChunk(const std::string &route) {
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.numerics = "chunk";
  options.chunk = chunk;
  return options;
}

/// What lies behind the last whole chunk is entries, and nothing else is.
static void checkCursor(const Prompts &prompts, int32_t slot, int64_t tokens) {
  Cursor cursor = prompts.cursor(slot);
  CHECK(cursor.length == tokens % chunk);
  CHECK(cursor.committed == cursor.length);
  CHECK((cursor.epoch > 0) == (tokens >= chunk));
}

TEST_CASE("a sequence folds at the same tokens however it is split") {
  std::mt19937_64 random(3);
  for (const std::string model :
       {"gated_delta_net", "kda", "mamba2", "short_conv", "rwkv7"})
    for (const std::string route : {"inner", "outer", "adjoint", "kv_only"}) {
      INFO(model << " by " << route);
      Prompts prompts(readExample(model), byChunk(route));
      constexpr int32_t all = 150;
      std::vector<Prompts::Arrays> whole = prompts.prefill({0}, {all});
      checkCursor(prompts, 0, all);
      // The same tokens in other slots: any mixture of prompts and steps.
      double between = 0;
      for (int32_t slot = 1; slot < Prompts::slots; ++slot) {
        prompts.repeat(slot, 0);
        for (int32_t done = 0; done < all;) {
          std::vector<Prompts::Arrays> part;
          if (random() % 3) {
            part = prompts.decode({slot});
          } else {
            auto count = static_cast<int32_t>(
                1 + random() % std::min<uint64_t>(all - done, 50));
            part = prompts.prefill({slot}, {count});
          }
          for (size_t i = 0; i < part.size(); ++i)
            for (size_t k = 0; k < part[i].size(); ++k)
              between = std::max(between, check::relativeError(
                                              part[i][k], whole[done + i][k]));
          done += static_cast<int32_t>(part.size());
          checkCursor(prompts, slot, done);
        }
      }
      CHECK(between < 1e-5);
      CHECK(prompts.worst < 1e-5);
      prompts.compareSlots();
      CHECK(prompts.worst < 1e-5);
    }
}

TEST_CASE("a prompt that is split where chunks end gives the same bits") {
  Prompts prompts(readExample("gated_delta_net"), byChunk("inner"));
  std::vector<Prompts::Arrays> whole = prompts.prefill({0}, {150});
  prompts.repeat(1, 0);
  std::vector<Prompts::Arrays> parts;
  for (int32_t count : {32, 16, 96, 6})
    for (Prompts::Arrays &outputs : prompts.prefill({1}, {count}))
      parts.push_back(std::move(outputs));
  CHECK(parts == whole);
}

TEST_CASE("a fork of who folds by chunks folds at the same tokens") {
  for (const std::string route : {"inner", "adjoint", "kv_only"}) {
    INFO(route);
    Prompts prompts(readExample("gated_delta_net"), byChunk(route));
    prompts.prefill({0}, {40});
    prompts.fork(0, 1);
    checkCursor(prompts, 1, 40);
    for (int32_t done = 40; done < 60; ++done)
      prompts.decode({0, 1});
    checkCursor(prompts, 0, 60);
    checkCursor(prompts, 1, 60);
    prompts.compareSlots();
    CHECK(prompts.worst < 1e-5);
  }
}

TEST_CASE("who folds by chunks folds nowhere else") {
  using Catch::Matchers::Contains;
  Prompts prompts(readExample("delta_net"), byChunk("inner"));
  CHECK(prompts.pool->foldThreshold() == chunk);
  CHECK_THAT(prompts.pool->setFoldThreshold(8).message(),
             Contains("foldThreshold is 8, wanted 16, where the chunks"));
  check::Batch batch(prompts.program->signature(), 1, /*packed=*/false);
  int32_t read = 0, write = 1;
  StepArguments arguments;
  arguments.rows = 1;
  arguments.readSlots = {&read, 1};
  arguments.writeSlots = {&write, 1};
  arguments.tensors = batch.getTensors();
  CHECK_THAT(prompts.decoder->step(arguments).message(),
             Contains("writeSlots[0] is 1, wanted the 0 of readSlots"));

  auto message = [](const CompileOptions &options) {
    return compileSource(readExample("delta_net"), "delta_net", options)
        .message();
  };
  CHECK_THAT(message(byChunk("recurrent")),
             Contains("route is 'recurrent', expected one with a buffer"));
  CompileOptions options = byChunk("inner");
  options.drafts = 2;
  CHECK_THAT(message(options), Contains("drafts is 2, expected 0 with "
                                        "numerics = chunk"));
  options = byChunk("inner");
  options.numerics = "exact";
  CHECK_THAT(message(options),
             Contains("numerics is 'exact', expected step or chunk"));
  options.numerics = "step";
  options.chunk = 257;
  CHECK_THAT(message(options),
             Contains("chunk is 257, expected 1 to 256 tokens of a prompt"));
}

TEST_CASE("the cost model chooses among the routes that fold by chunks") {
  CompileOptions options = byChunk("auto");
  options.batch = 1;
  Result<Program> program =
      compileSource(readExample("delta_net"), "delta_net", options);
  INFO(program.message());
  REQUIRE(program.ok());
  CHECK(program->route() != RouteKind::Recurrent);
  CHECK(program->capacity() == chunk);
  CHECK(program->foldsByChunk());

  Result<Program> none = compileSource(gatedByState, "none", options);
  CHECK_THAT(none.message(),
             Catch::Matchers::Contains("no route of the recurrence has a "
                                       "buffer, so that every token is "
                                       "folded"));
}
