//===- SerialDraftsTest.cpp - drafts that wait for their parents ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
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
  speculate(R"(recurrence saturating(H, D) {
    preset "tiny" { H = 2, D = 12 }
    token q[H, D], k[H, D], v[H, D] : bf16
    token a[H] : f32
    state S[H, D, D] : f32
    S = decay(S, sigmoid(a))
    S = write(S, l2norm(k), tanh(v - read(S, l2norm(k))))
    out y[H, D] : f32 = read(S, l2norm(q))
  })",
            {"inner", "outer", "kv_only", "recurrent"});
}

TEST_CASE("a carry that depends on a read") {
  speculate(R"(recurrence feedback(H, D) {
    preset "tiny" { H = 2, D = 12 }
    token q[H, D], k[H, D], v[H, D] : bf16
    carry last[H, D] : f32
    state S[H, D, D] : f32
    let y0 = read(S, l2norm(q)) * 0.5
    S = decay(S, 0.5)
    S = write(S, l2norm(k), v + tanh(last))
    last = y0
    out y[H, D] : f32 = y0
  })",
            {"kv_only", "inner", "recurrent"});
}

TEST_CASE("a decay that comes from a read has the recurrent route alone") {
  speculate(R"(recurrence gated_by_state(H, D) {
    preset "tiny" { H = 2, D = 12 }
    token q[H, D], k[H, D], v[H, D] : bf16
    state S[H, D, D] : f32
    let seen = read(S, l2norm(k))
    S = decay(S, sigmoid(mean(seen)) * 0.9)
    S = write(S, l2norm(k), v)
    out y[H, D] : f32 = read(S, l2norm(q))
  })",
            {"recurrent"});
}
