//===- DevicePagedDraftsTest.cpp - graphs of drafts whose pages change ----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One graph of a verify and a commit, replayed while rows, trees, accepted
// paths and the pages of every slot are others, against float64.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Batch.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Drafts.h"

#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::test;

namespace {

using Interpreter = interpreter::SpecInterpreter;

class PagedDrafts {
public:
  PagedDrafts(const std::string &model, const std::string &route);

  /// A step of drafts on random slots, by a replay of the graph.
  void step();
  /// The host gives slots other pages: by a reset, a flush or a fork.
  void meddle();

  double worst = 0;
  int64_t accepted = 0, tables = 0;
  Pool &pool() { return layer->pool; }

private:
  int32_t below(size_t bound) { return static_cast<int32_t>(random() % bound); }
  void fill(const std::vector<Interpreter::Arrays> &tokens);

  std::mt19937_64 random{7};
  std::optional<Interpreter> oracle;
  std::optional<Program> program;
  std::optional<Layer> layer;
  std::optional<check::Batch> batch;
  check::RandomInputs inputs{{}, 7};
  uint64_t position = 0;
  Interpreter::Arrays params;
  std::vector<Interpreter::Row> sequences;
  std::optional<cuda::Graph> graph;
};

} // namespace

PagedDrafts::PagedDrafts(const std::string &model, const std::string &route) {
  std::string source = readExample(model), messages;
  frontend::ElaborationOptions elaboration;
  elaboration.preset = "tiny";
  oracle = check::compileOracle(model, source, elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  CompileOptions compile;
  compile.preset = "tiny";
  compile.target = "cuda";
  compile.route = route;
  compile.capacity = 32;
  compile.page = 8;
  compile.drafts = mostDrafts;
  for (const interpreter::ValueInfo &output : oracle->getOutputs())
    compile.tokenTypes[output.name] = "f32";
  program = need(compileSource(source, model, compile));
  PoolOptions options;
  options.pages = 3 * slotCount;
  options.states = slotCount;
  options.foldThreshold = 7;
  if (program->crossesOver())
    options.crossover = 18;
  layer.emplace(*program, options);
  batch.emplace(program->signature(), rows * mostDrafts, /*packed=*/false,
                check::Batch::gpuAlignment);
  params = inputs.draw(oracle->getParams(), 0, check::RandomInputs::params);
  batch->setParams(params);
  sequences.assign(slotCount, oracle->makeRow());
  auto device = need(cuda::Device::shared());
  graph = need(cuda::Graph::record(
      device, [&] { return layer->verifyAndCommit(device.stream()); }));
}

void PagedDrafts::fill(const std::vector<Interpreter::Arrays> &tokens) {
  for (size_t draft = 0; draft < tokens.size(); ++draft)
    batch->setTokens(static_cast<int64_t>(draft), tokens[draft]);
  for (const auto *specs :
       {&program->signature().params, &program->signature().tokens})
    for (const TensorSpec &spec : *specs)
      need(copy(batch->getTensors().find(spec.name)->second,
                layer->tensors.arguments.tensors.at(spec.name)));
}

void PagedDrafts::step() {
  std::vector<int32_t> slots(slotCount);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(rows);
  if (below(3) == 0)
    slots[static_cast<size_t>(below(rows))] = -1;
  Step step;
  step.slots = slots;
  std::vector<Interpreter::Arrays> tokens;
  std::vector<Interpreter::Row> nodes;
  std::vector<std::vector<std::vector<double>>> expected;
  std::vector<int32_t> starts{0};
  for (int32_t slot : slots) {
    int32_t first = starts.back(), count = 1 + below(mostDrafts);
    step.counts.push_back(count);
    starts.push_back(first + count);
    for (int32_t draft = 0; draft < count; ++draft) {
      int32_t parent = below(static_cast<size_t>(draft) + 1) - 1;
      step.parents.push_back(parent);
      tokens.push_back(inputs.draw(oracle->getTokens(), 0, position++));
      nodes.push_back(slot < 0     ? oracle->makeRow()
                      : parent < 0 ? sequences[static_cast<size_t>(slot)]
                                   : nodes[static_cast<size_t>(first) +
                                           static_cast<size_t>(parent)]);
      Interpreter::Arrays outputs(oracle->getOutputs().size());
      oracle->step(nodes.back(), params, tokens.back(), outputs);
      expected.push_back(std::move(outputs));
    }
    std::vector<int32_t> path;
    int32_t last = slot < 0 ? -1 : below(static_cast<size_t>(count) + 1) - 1;
    for (int32_t draft = last; draft >= 0;
         draft = step.parents[static_cast<size_t>(first) +
                              static_cast<size_t>(draft)])
      path.insert(path.begin(), draft);
    if (last >= 0)
      sequences[static_cast<size_t>(slot)] =
          nodes[static_cast<size_t>(first) + static_cast<size_t>(last)];
    step.numAccepted.push_back(static_cast<int32_t>(path.size()));
    step.accepted.insert(step.accepted.end(), path.begin(), path.end());
    accepted += static_cast<int64_t>(path.size());
  }
  step.fill(*layer, 0);
  fill(tokens);
  int64_t before = pool().cursors().pages().free;
  need(pool().cursors().reserve(slots, std::vector<int32_t>(rows, mostDrafts)));
  tables += pool().cursors().pages().free != before;
  need(graph->replay());
  need(synchronize(gpu));
  for (size_t row = 0; row < slots.size(); ++row)
    for (int32_t draft = starts[row]; draft < starts[row + 1]; ++draft)
      for (size_t i = 0; slots[row] >= 0 && i < oracle->getOutputs().size();
           ++i) {
        const std::string &name = oracle->getOutputs()[i].name;
        std::vector<float> floats =
            need(toFloats(layer->tensors.arguments.tensors.at(name)[draft]));
        std::vector<double> got(floats.begin(), floats.end());
        worst = std::max(
            worst,
            check::relativeError(got, expected[static_cast<size_t>(draft)][i]));
      }
}

void PagedDrafts::meddle() {
  int32_t slot = below(slotCount), other = below(slotCount);
  switch (below(4)) {
  case 0:
    sequences[static_cast<size_t>(slot)] = oracle->makeRow();
    return need(pool().reset({&slot, 1}));
  case 1:
    return need(pool().flush(*program, {&slot, 1}));
  case 2:
    if (slot == other)
      return;
    sequences[static_cast<size_t>(other)] =
        sequences[static_cast<size_t>(slot)];
    return need(pool().fork({&slot, 1}, {&other, 1}));
  default:
    return;
  }
}

static void replay(const std::string &model, const std::string &route) {
  CAPTURE(model, route);
  PagedDrafts run(model, route);
  for (int64_t step = 0; step < 60; ++step) {
    run.step();
    run.meddle();
  }
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > 60);
  CHECK(run.tables > 20);
  int64_t epochs = 0;
  for (int32_t slot = 0; slot < slotCount; ++slot)
    epochs += need(run.pool().cursor(slot)).epoch;
  CHECK(epochs > 0);
}

TEST_CASE("a graph of drafts is replayed while pages change, short and long") {
  if (hasGpu())
    replay("gated_delta_rule", "kv_only");
}

TEST_CASE("drafts of rows with a state and without are one launch") {
  if (!hasGpu())
    return;
  CompileOptions options;
  options.preset = "tiny";
  options.target = "cuda";
  options.route = "kv_only";
  options.capacity = 16;
  options.page = 8;
  options.drafts = mostDrafts;
  Program program = need(compileFile(examplePath("gated_delta_rule"), options));
  auto device = need(cuda::Device::shared());
  for (int64_t states : {0, 2}) {
    CAPTURE(states);
    PoolOptions memory;
    memory.states = states;
    Layer layer(program, memory);
    auto graph = need(cuda::Graph::record(device, [&] {
      return layer.decoder.verify(layer.arguments(), device.stream());
    }));
    CHECK(graph.nodes() == 1);
  }
}

TEST_CASE("the same of rows with states, raw entries, carries") {
  if (!hasGpu())
    return;
  replay("gated_delta_rule", "inner");
  replay("gated_delta_rule", "adjoint");
  replay("short_conv", "kv_only");
}
