//===- SharedDraftsTest.cpp - drafts of the layers of a model -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two layers whose pools share cursors, and the same two with cursors of their
// own, are driven by the same random calls: they answer the same bits, and
// stand alike. SpeculationTest.cpp compares the latter with float64.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tests/numerics/Examples.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::test;

/// Counts as an assertion only if it fails: there are many.
static void require(const Status &status) {
  if (!status)
    FAIL(status.message());
}

namespace {

constexpr int64_t slotCount = 5, mostRows = 3, layerCount = 2;

class Layers {
public:
  Layers(const std::string &model, const std::vector<std::string> &routes);

  void act();
  void compareSlots();

  int64_t accepted = 0, rejected = 0, folds = 0, inStates = 0;

private:
  enum { Shared, Own };
  struct Layer {
    std::optional<Pool> pool;
    /// For each route: those of shared cursors split the heads where they can,
    /// so that one layer verifies the same drafts twice.
    std::vector<std::vector<Decoder>> decoders;
    std::optional<check::Batch> batch;
  };
  struct Rows {
    std::vector<int32_t> slots, starts{0}, parents;
  };

  Pool &pool(int64_t kind, int64_t layer) { return *layers[kind][layer].pool; }
  std::vector<int32_t> pickSlots();
  std::vector<size_t> pickRoutes(const std::vector<int32_t> &slots);
  void setTokens(int64_t rows);
  void compareOutputs(int64_t rows);
  void compareCursors();
  void decode();
  void verify();
  void move();
  std::map<std::string, TensorView, std::less<>> views(const Layer &layer,
                                                       int64_t rows) const;
  uint64_t below(uint64_t bound) { return random() % bound; }

  static constexpr int64_t drafts = 4, capacity = 12;
  std::mt19937_64 random{7};
  check::RandomInputs inputs{{}, 7};
  std::optional<interpreter::SpecInterpreter> oracle;
  std::vector<Program> programs; ///< one a route
  std::optional<Cursors> cursors;
  Layer layers[2][layerCount];
  uint64_t position = 0;
};

Layers::Layers(const std::string &model,
               const std::vector<std::string> &routes) {
  CompileOptions options;
  options.sizes = tinySizes(model);
  options.drafts = drafts;
  options.capacity = capacity;
  options.route = routes.front();
  options.extraRoutes.assign(routes.begin() + 1, routes.end());
  std::string source = readExample(model), messages;
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = options.sizes;
  oracle = check::compileOracle(model, source, elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  Result<Program> program = compileSource(source, model, options);
  INFO(program.message());
  REQUIRE(program.ok());
  for (const std::string &route : routes)
    programs.push_back(*program->withRoute(*parseRoute(route)));

  cursors = *Cursors::create(*program, {.slots = slotCount});
  const Signature &signature = programs.front().signature();
  int64_t half = signature.heads / 2;
  bool isSplit = half % program->headGroup() == 0;
  for (int64_t kind : {Shared, Own})
    for (int64_t index = 0; index < layerCount; ++index) {
      Layer &layer = layers[kind][index];
      PoolOptions memory;
      memory.slots = slotCount;
      if (kind == Shared)
        memory.cursors = *cursors;
      layer.pool.emplace(std::move(*Pool::create(*program, memory)));
      for (const Program &each : programs) {
        std::vector<Decoder> &decoders = layer.decoders.emplace_back();
        DecoderOptions heads;
        heads.threads = 1;
        if (kind == Shared && isSplit) {
          heads.headEnd = half;
          decoders.push_back(
              std::move(*Decoder::create(each, *layer.pool, heads)));
          heads.headBegin = half;
          heads.headEnd = -1;
        }
        decoders.push_back(
            std::move(*Decoder::create(each, *layer.pool, heads)));
      }
      layer.batch.emplace(signature, mostRows * drafts, /*packed=*/false);
      layer.batch->setParams(
          inputs.draw(oracle->getParams(), index, check::RandomInputs::params));
    }
}

std::vector<int32_t> Layers::pickSlots() {
  std::vector<int32_t> slots(slotCount);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(1 + below(mostRows));
  if (below(8) == 0)
    slots.back() = -1;
  return slots;
}

/// Of each layer: all append entries, or all go without.
std::vector<size_t> Layers::pickRoutes(const std::vector<int32_t> &slots) {
  auto isRecurrent = [&](size_t route) {
    return programs[route].route() == RouteKind::Recurrent;
  };
  bool noEntries = isRecurrent(0) || below(6) == 0;
  std::vector<size_t> routes(layerCount);
  for (size_t &route : routes)
    route = below(programs.size());
  if (noEntries && isRecurrent(programs.size() - 1)) {
    std::fill(routes.begin(), routes.end(), programs.size() - 1);
    require(cursors->flush(slots));
    for (int64_t layer = 0; layer < layerCount; ++layer)
      require(pool(Own, layer).flush(programs.front(), slots));
  } else {
    for (size_t &route : routes)
      route = isRecurrent(route) ? 0 : route;
  }
  return routes;
}

/// Tokens of its own for each layer, the same for both kinds.
void Layers::setTokens(int64_t rows) {
  for (int64_t row = 0; row < rows; ++row, ++position)
    for (int64_t index = 0; index < layerCount; ++index) {
      auto tokens = inputs.draw(oracle->getTokens(), index, position);
      for (int64_t kind : {Shared, Own})
        layers[kind][index].batch->setTokens(row, tokens);
    }
  for (auto &kind : layers)
    for (Layer &layer : kind)
      layer.batch->clearOutputs();
}

std::map<std::string, TensorView, std::less<>>
Layers::views(const Layer &layer, int64_t rows) const {
  auto views = layer.batch->getTensors();
  const Signature &signature = programs.front().signature();
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = views.find(spec.name)->second;
      view = view.slice(0, 0, rows);
    }
  return views;
}

void Layers::compareOutputs(int64_t rows) {
  size_t outputs = programs.front().signature().outputs.size();
  for (int64_t index = 0; index < layerCount; ++index)
    for (int64_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < outputs; ++i)
        if (layers[Shared][index].batch->getOutput(row, i) !=
            layers[Own][index].batch->getOutput(row, i))
          FAIL("output " << i << " of row " << row << " of layer " << index
                         << " differs");
}

void Layers::compareCursors() {
  for (int32_t slot = 0; slot < slotCount; ++slot) {
    Cursor shared = *cursors->cursor(slot);
    for (int64_t index = 0; index < layerCount; ++index) {
      Cursor own = *pool(Own, index).cursor(slot);
      if (shared.base != own.base || shared.length != own.length ||
          shared.committed != own.committed || shared.epoch != own.epoch)
        FAIL("the cursor of slot "
             << slot << " is (" << shared.base << ", " << shared.length << ", "
             << shared.committed << ", " << shared.epoch << "), wanted ("
             << own.base << ", " << own.length << ", " << own.committed << ", "
             << own.epoch << ")");
    }
  }
}

void Layers::decode() {
  std::vector<int32_t> slots = pickSlots();
  std::vector<size_t> routes = pickRoutes(slots);
  auto rows = static_cast<int64_t>(slots.size());
  setTokens(rows);
  for (int64_t index = 0; index < layerCount; ++index)
    for (int64_t kind : {Shared, Own}) {
      Layer &layer = layers[kind][index];
      StepArguments arguments;
      arguments.rows = rows;
      arguments.readSlots = slots;
      arguments.tensors = views(layer, rows);
      for (Decoder &decoder : layer.decoders[routes[index]])
        require(decoder.step(arguments));
    }
  require(cursors->advance(slots));
  compareOutputs(rows);
}

void Layers::verify() {
  Rows rows;
  rows.slots = pickSlots();
  std::vector<size_t> routes = pickRoutes(rows.slots);
  std::vector<int32_t> numAccepted, path;
  std::vector<int64_t> epochs;
  for (int32_t slot : rows.slots) {
    int32_t first = rows.starts.back();
    auto count = static_cast<int32_t>(1 + below(drafts));
    for (int32_t draft = 0; draft < count; ++draft)
      rows.parents.push_back(static_cast<int32_t>(below(draft + 1)) - 1);
    rows.starts.push_back(first + count);
    std::vector<int32_t> own;
    auto last = slot < 0 ? -1 : static_cast<int32_t>(below(count + 1)) - 1;
    for (int32_t draft = last; draft >= 0; draft = rows.parents[first + draft])
      own.insert(own.begin(), draft);
    numAccepted.push_back(static_cast<int32_t>(own.size()));
    path.insert(path.end(), own.begin(), own.end());
    accepted += static_cast<int64_t>(own.size());
    rejected += count - static_cast<int64_t>(own.size());
    epochs.push_back(slot < 0 ? 0 : cursors->cursor(slot)->epoch);
  }
  int64_t all = rows.starts.back();
  setTokens(all);
  for (int64_t index = 0; index < layerCount; ++index)
    for (int64_t kind : {Shared, Own}) {
      Layer &layer = layers[kind][index];
      VerifyArguments arguments;
      arguments.rows = static_cast<int64_t>(rows.slots.size());
      arguments.slots = rows.slots;
      arguments.cuSeqlens = rows.starts;
      arguments.parents = rows.parents;
      arguments.tensors = views(layer, all);
      for (Decoder &decoder : layer.decoders[routes[index]])
        require(decoder.verify(arguments));
    }
  compareOutputs(all);
  inStates += programs[routes[0]].route() == RouteKind::Recurrent;
  // Between the last layer and commit a slot may be flushed; its drafts stay.
  if (below(6) == 0) {
    require(cursors->flush(rows.slots));
    for (int64_t index = 0; index < layerCount; ++index)
      require(pool(Own, index).flush(programs.front(), rows.slots));
    compareCursors();
  }
  if (below(2))
    require(cursors->commit(rows.slots, numAccepted, path));
  else
    require(pool(Shared, 1).commit(rows.slots, numAccepted, path));
  for (int64_t index = 0; index < layerCount; ++index)
    require(pool(Own, index).commit(rows.slots, numAccepted, path));
  for (size_t row = 0; row < rows.slots.size(); ++row)
    if (rows.slots[row] >= 0)
      folds += cursors->cursor(rows.slots[row])->epoch != epochs[row];
}

/// One layer of a shared slot after the other: the second is not disturbed.
void Layers::move() {
  auto from = static_cast<int32_t>(below(slotCount)),
       to = static_cast<int32_t>(below(slotCount));
  for (int64_t kind : {Shared, Own}) {
    std::vector<SlotContents> contents;
    for (int64_t index = 0; index < layerCount; ++index)
      contents.push_back(*pool(kind, index).exportSlot(programs.front(), from));
    for (int64_t index = 0; index < layerCount; ++index)
      require(pool(kind, index).importSlot(to, contents[index]));
  }
}

void Layers::act() {
  uint64_t choice = below(40);
  if (choice == 0) {
    auto slot = static_cast<int32_t>(below(slotCount));
    require(cursors->reset({&slot, 1}));
    for (int64_t index = 0; index < layerCount; ++index)
      require(pool(Own, index).reset({&slot, 1}));
  } else if (choice == 1) {
    move();
  } else if (choice == 2) {
    std::vector<int32_t> slots = pickSlots();
    require(pool(Shared, 0).flush(programs.front(), slots));
    for (int64_t index = 0; index < layerCount; ++index)
      require(pool(Own, index).flush(programs.front(), slots));
  } else if (choice == 3 && programs.front().capacity()) {
    auto threshold = static_cast<int64_t>(1 + below(capacity - drafts));
    require(cursors->setFoldThreshold(threshold));
    for (int64_t index = 0; index < layerCount; ++index)
      require(pool(Own, index).setFoldThreshold(threshold));
  } else if (choice < 12) {
    decode();
  } else {
    verify();
  }
  compareCursors();
}

void Layers::compareSlots() {
  for (int32_t slot = 0; slot < slotCount; ++slot)
    for (int64_t index = 0; index < layerCount; ++index) {
      SlotContents shared =
          *pool(Shared, index).exportSlot(programs.front(), slot);
      SlotContents own = *pool(Own, index).exportSlot(programs.front(), slot);
      for (size_t i = 0; i < own.states.size(); ++i)
        CHECK(shared.states[i].data == own.states[i].data);
      for (size_t i = 0; i < own.carries.size(); ++i)
        CHECK(shared.carries[i].data == own.carries[i].data);
    }
}

} // namespace

static void drive(const std::string &model,
                  const std::vector<std::string> &routes, int64_t steps) {
  INFO(model);
  Layers layers(model, routes);
  for (int64_t step = 0; step < steps; ++step)
    layers.act();
  layers.compareSlots();
  CHECK(layers.accepted > steps / 4);
  CHECK(layers.rejected > steps / 4);
  CHECK(layers.folds > steps / 32);
  CHECK((layers.inStates > steps / 32) == (routes.back() == "recurrent"));
}

TEST_CASE("layers that share cursors verify as layers that do not") {
  drive("gated_delta_rule", {"inner", "outer", "kv_only", "recurrent"}, 2000);
  drive("gated_delta_rule", {"adjoint"}, 500);
}

TEST_CASE("layers that share cursors have carries that follow one tree") {
  drive("mamba3", {"inner", "recurrent"}, 1000);
  drive("short_conv", {"outer", "inner", "recurrent"}, 1000);
}

TEST_CASE("layers without entries share the versions of their states") {
  drive("gated_delta_rule", {"recurrent"}, 500);
  drive("short_conv", {"recurrent"}, 500);
}
