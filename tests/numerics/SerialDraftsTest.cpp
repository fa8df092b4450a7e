//===- SerialDraftsTest.cpp - drafts that wait for their parents ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
#include "tests/numerics/SerialRecurrences.h"
#include "tests/numerics/Speculation.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;

static void speculate(const std::string &source,
                      std::vector<std::string> routes) {
  SpeculationOptions options;
  options.source = source;
  options.routes = std::move(routes);
  Speculation run(options);
  for (int64_t step = 0; step < 1000; ++step)
    run.act();
  run.compareSlots();
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > 250);
}

TEST_CASE("a value that is not affine in a read") {
  speculate(saturating, {"inner", "outer", "kv_only", "recurrent"});
}

TEST_CASE("a carry that depends on a read") {
  speculate(feedback, {"kv_only", "inner", "recurrent"});
}

TEST_CASE("a decay that comes from a read has the recurrent route alone") {
  speculate(gatedByState, {"recurrent"});
}
