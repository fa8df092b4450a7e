//===- DeviceLongTest.cpp - traces and thousands of replays on a GPU ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lengths are those of a real card; the emulated one takes a part.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::test;

static const char *const tracePath =
    "examples/data/tinylm-gdn-doc1-layer5.safetensors";

static bool isShort() { return emulatedGpu() && !isFull(); }

TEST_CASE("every route gives the outputs of a trained model's trace") {
  if (!hasGpu())
    return;
  check::CheckRequest request = requestOf("gated_delta_rule", "tinylm");
  request.target = "cuda";
  check::Workbench workbench{request};
  Safetensors file = need(Safetensors::open(tracePath));
  check::Trace trace =
      need(check::Trace::load(file, need(workbench.getOracles({}))->exact,
                              /*maxTokens=*/isShort() ? 20 : 0));
  for (RouteKind route : routesOf(request)) {
    check::CheckCase config;
    config.route = route;
    // A buffer that only grows has no room for the trace.
    if (route == RouteKind::KvOnly)
      continue;
    Program program = need(workbench.getProgram(config));
    check::TraceResult result =
        check::runTrace(trace, program, /*threshold=*/0);
    INFO(toString(route) << ": " << result.failure << " outputs "
                         << result.outputs.value << ", states "
                         << result.states.value);
    CHECK(result.passed());
  }
}

namespace {
/// A program on the device beside an oracle for each slot.
struct Replays {
  static constexpr int32_t slots = 7;
  static constexpr int64_t rows = 4;

  explicit Replays(const std::string &route)
      : program(tinyProgram(route)), pool(makePool(program, slots)),
        decoder(need(Decoder::create(program, pool))), tensors(program, rows) {
    check::CheckRequest request = requestOf("gated_delta_rule");
    std::string messages;
    oracle = check::compileOracle(request.path, request.source,
                                  request.elaboration, messages);
    INFO(messages);
    REQUIRE(oracle);
    histories.assign(slots, oracle->makeRow());
    positions.assign(slots, 0);
  }

  void reset(int32_t slot) {
    need(pool.reset(std::vector<int32_t>{slot}));
    histories[slot] = oracle->makeRow();
  }

  /// One token for each row that is not padding, by the oracle, too.
  void fill(const std::vector<int32_t> &reads) {
    tensors.setSlots(reads);
    expected.assign(rows, {});
    std::map<std::string, std::vector<float>> values;
    for (int64_t row = 0; row < rows; ++row) {
      int32_t slot = std::max(reads[row], 0);
      auto inputs = random.draw(oracle->getTokens(), slot, positions[slot]++);
      for (auto [info, drawn] : llvm::zip(oracle->getTokens(), inputs))
        values[info.name].insert(values[info.name].end(), drawn.begin(),
                                 drawn.end());
      if (reads[row] >= 0)
        oracle->step(histories[slot], none, inputs, expected[row]);
    }
    for (const auto &[name, all] : values) {
      const TensorView &view = tensors.arguments.tensors[name];
      need(copy(TensorView::dense(const_cast<float *>(all.data()), DType::F32,
                                  view.shape),
                view));
    }
  }

  /// The largest error, as a part of the largest output of its row.
  double worst() const {
    double result = 0;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> got = tensors.output(row);
      if (expected[row].empty()) {
        CHECK(got == std::vector<float>(got.size(), 0.0f));
        continue;
      }
      double largest = 1e-2, error = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        largest = std::max(largest, std::abs(expected[row][0][i]));
        double mine = std::abs(got[i] - expected[row][0][i]);
        error = mine <= error ? error : mine; // NaN, too
      }
      result = error / largest <= result ? result : error / largest;
    }
    return result;
  }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;
  std::optional<interpreter::SpecInterpreter> oracle;
  check::RandomInputs random{{}, 11};
  std::vector<interpreter::SpecInterpreter::Row> histories;
  std::vector<uint64_t> positions;
  interpreter::SpecInterpreter::Arrays none;
  std::vector<std::vector<std::vector<double>>> expected;
};
} // namespace

TEST_CASE("thousands of replays of one graph, with resets and padding") {
  if (!hasGpu())
    return;
  std::string route = GENERATE("inner", "recurrent");
  CAPTURE(route);
  Replays decoding(route);
  std::vector<int32_t> order(Replays::slots);
  std::iota(order.begin(), order.end(), 0);
  decoding.fill({order.begin(), order.begin() + Replays::rows});
  BoundStep step = need(decoding.decoder.bind(decoding.tensors.arguments));
  auto device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(
      device, [&] { return step.launch(device.stream()); }));
  for (int32_t slot = 0; slot < Replays::slots; ++slot)
    decoding.reset(slot);

  std::mt19937 random(5);
  int64_t steps = isShort() ? 60 : 10000;
  double worst = 0;
  for (int64_t at = 0; at < steps; ++at) {
    // Other slots each time, so that all are at fills of their own.
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int32_t> reads(order.begin(), order.begin() + Replays::rows);
    for (int32_t &slot : reads)
      if (random() % 8 == 0)
        slot = -1;
    if (random() % 16 == 0)
      decoding.reset(static_cast<int32_t>(random() % Replays::slots));
    need(device.synchronize());
    decoding.fill(reads);
    need(graph.replay());
    need(device.synchronize());
    double error = decoding.worst();
    worst = error <= worst ? worst : error;
    CAPTURE(at, error);
    REQUIRE(error < 2e-5);
  }
  CAPTURE(worst);
  CHECK(worst > 0);
}
