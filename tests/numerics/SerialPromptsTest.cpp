//===- SerialPromptsTest.cpp - tokens that wait for those before ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Prompts.h"
#include "tests/numerics/SerialRecurrences.h"

using namespace ladle;
using namespace ladle::test;

static void prefill(const std::string &source, const std::string &route,
                    const std::string &numerics) {
  INFO(route << ", numerics = " << numerics);
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.numerics = numerics;
  options.chunk = 16;
  Prompts prompts(source, options);
  CHECK(!prompts.program->prefillsAtOnce());
  prompts.prefill({0, 1, -1, 2, 3}, {1, 70, 3, 16, 33});
  prompts.decode({1, 3});
  prompts.prefill({3, 4, 1}, {5, 4, 40});
  CHECK(prompts.worst < 1e-5);
  for (auto [slot, tokens] : {std::pair(0, 1), {1, 111}, {2, 16}, {3, 39}}) {
    bool byChunk = numerics == "chunk",
         isShort = route == "kv_only" && tokens < 16;
    CHECK(prompts.cursor(slot).length ==
          (byChunk || isShort ? tokens % 16 : 0));
  }
  prompts.compareSlots();
  CHECK(prompts.worst < 1e-5);
}

TEST_CASE("a value that is not affine in a read is decoded token by token") {
  for (const std::string route : {"inner", "outer", "kv_only", "recurrent"})
    for (const std::string numerics : {"step", "chunk"})
      if (route != "recurrent" || numerics == "step")
        prefill(saturating, route, numerics);
}

TEST_CASE("so is a carry that depends on a read") {
  for (const std::string route : {"inner", "recurrent"})
    prefill(feedback, route, "step");
}

TEST_CASE("and a decay that comes from a read") {
  prefill(gatedByState, "recurrent", "step");
}
