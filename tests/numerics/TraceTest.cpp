//===- TraceTest.cpp - the activations of a trained model -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Requests.h"

using namespace ladle;

static const char *const tracePath =
    "examples/data/tinylm-gdn-doc1-layer5.safetensors";

namespace {
/// The gated delta rule at the sizes of the trace.
struct RealInput {
  check::CheckRequest request = test::requestOf("gated_delta_rule", "tinylm");
  check::Workbench workbench{request};
  std::optional<check::Trace> trace;

  explicit RealInput(int64_t maxTokens = 0) {
    Result<Safetensors> file = Safetensors::open(tracePath);
    INFO(file.message());
    REQUIRE(file.ok());
    Result<const check::Oracles *> oracles = workbench.getOracles({});
    INFO(oracles.message());
    REQUIRE(oracles.ok());
    Result<check::Trace> loaded =
        check::Trace::load(*file, (*oracles)->exact, maxTokens);
    INFO(loaded.message());
    REQUIRE(loaded.ok());
    trace.emplace(std::move(*loaded));
  }
};
} // namespace

TEST_CASE("the oracle gives the outputs and the state of the trace") {
  RealInput real;
  check::TraceResult result = check::compareOracle(*real.trace);
  REQUIRE(result.tokens == 2048);
  REQUIRE(real.trace->storedOutputs.size() == 64);
  // The file holds float32.
  REQUIRE(result.storedOutputs.tensor == "outputs");
  REQUIRE(result.storedOutputs.value < 1e-6);
  REQUIRE(result.storedStates.tensor == "states");
  REQUIRE(result.storedStates.value < 1e-6);
}

TEST_CASE("every route gives the outputs and the state of the trace") {
  RealInput real;
  for (RouteKind route : test::routesOf(real.request)) {
    INFO(toString(route));
    check::CheckCase config;
    config.route = route;
    Result<Program> program = real.workbench.getProgram(config);
    INFO(program.message());
    REQUIRE(program.ok());
    check::TraceResult result =
        check::runTrace(*real.trace, *program, /*threshold=*/0);
    INFO(result.failure);
    INFO("outputs " << result.outputs.value << ", states "
                    << result.states.value << ", stored outputs "
                    << result.storedOutputs.value << ", stored states "
                    << result.storedStates.value);
    CHECK(result.passed());
  }
}

TEST_CASE("a part of a trace has outputs but no final state") {
  RealInput real(/*maxTokens=*/100);
  REQUIRE(real.trace->tokens.size() == 100);
  REQUIRE(real.trace->storedStates.empty());
  check::TraceResult result = check::compareOracle(*real.trace);
  REQUIRE(result.storedOutputs.value < 1e-6);
}

TEST_CASE("a trace that does not fit is refused by name") {
  check::CheckRequest request = test::requestOf("gated_delta_rule", "tiny");
  check::Workbench workbench(request);
  Result<const check::Oracles *> oracles = workbench.getOracles({});
  REQUIRE(oracles.ok());
  Result<Safetensors> file = Safetensors::open(tracePath);
  REQUIRE(file.ok());
  Result<check::Trace> trace = check::Trace::load(*file, (*oracles)->exact);
  REQUIRE_FALSE(trace.ok());
  REQUIRE_THAT(trace.message(), Catch::StartsWith("'q' of the trace is bf16 "
                                                  "[2048, 2, 64], wanted"));
}

TEST_CASE("the trace as a prompt, and as one before it is decoded") {
  RealInput real;
  for (RouteKind route : test::routesOf(real.request))
    for (bool byChunk : {false, true}) {
      if (byChunk && route == RouteKind::Recurrent)
        continue;
      INFO(toString(route) << (byChunk ? " by chunks" : ""));
      check::CheckCase config;
      config.route = route;
      config.prompts = 1;
      config.byChunk = byChunk;
      if (byChunk)
        config.capacity = config.threshold = config.chunk;
      Result<Program> program = real.workbench.getProgram(config);
      INFO(program.message());
      REQUIRE(program.ok());
      for (int64_t prompt : {2048, 1001}) {
        check::TraceResult result =
            check::runTrace(*real.trace, *program, /*threshold=*/0, prompt);
        INFO(result.failure);
        CHECK(result.passed());
        CHECK(result.outputs.value < 1e-5);
        CHECK(result.states.value < 1e-5);
        CHECK(result.storedStates.value < 1e-5);
      }
    }
}
