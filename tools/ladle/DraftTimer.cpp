//===- DraftTimer.cpp - steps that verify, replayed -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DraftTimer.h"

#include <cmath>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;

//===----------------------------------------------------------------------===//
// Drafts of all rows
//===----------------------------------------------------------------------===//

/// So many drafts a row, and what of them is accepted.
struct DraftTimer::Tree {
  DeviceTensor starts, parents, numAccepted, path;
  int64_t drafts, acceptedByFirst, mostAccepted;
};

Result<DraftTimer::Tree> DraftTimer::makeTree(int64_t drafts, double accepted,
                                              bool branches) const {
  std::vector<int32_t> starts{0}, parents, numAccepted, path;
  for (int64_t row = 0; row < spec.batch; ++row) {
    starts.push_back(static_cast<int32_t>((row + 1) * drafts));
    for (int64_t draft = 0; draft < drafts; ++draft)
      parents.push_back(static_cast<int32_t>(draft == 0 ? -1
                                             : branches ? (draft - 1) / 2
                                                        : draft - 1));
    // Spread over the rows, so that the mean is what was asked for.
    auto sumOver = [&](int64_t rows) {
      return std::llround(accepted * static_cast<double>(rows));
    };
    int64_t wanted = sumOver(row + 1) - sumOver(row), taken = 0;
    // The accepted path of a tree that branches in two goes down its left side.
    for (int64_t next = 0; taken < wanted && next < drafts; ++taken) {
      path.push_back(static_cast<int32_t>(next));
      next = branches ? 2 * next + 1 : next + 1;
    }
    numAccepted.push_back(static_cast<int32_t>(taken));
  }
  if (path.empty())
    path.push_back(0);
  int64_t most = *std::max_element(numAccepted.begin(), numAccepted.end());
  int64_t first = numAccepted.front();
  DeviceId device = layers->device();
  Result<DeviceTensor> all[] = {
      numbersOn(device, starts), numbersOn(device, parents),
      numbersOn(device, numAccepted), numbersOn(device, path)};
  for (const Result<DeviceTensor> &each : all)
    if (!each)
      return each.status();
  return Tree{std::move(*all[0]),
              std::move(*all[1]),
              std::move(*all[2]),
              std::move(*all[3]),
              drafts,
              first,
              most};
}

//===----------------------------------------------------------------------===//
// Layers and their inputs
//===----------------------------------------------------------------------===//

DraftTimer::DraftTimer(DraftSpec given, const measure::Gpu &device)
    : spec(std::move(given)), gpu(device) {}
DraftTimer::~DraftTimer() = default;

Result<std::unique_ptr<DraftTimer>> DraftTimer::create(const DraftSpec &spec,
                                                       const measure::Gpu &gpu,
                                                       const Options &options) {
  std::unique_ptr<DraftTimer> timer(new DraftTimer(spec, gpu));
  if (Status status = timer->prepare(options); !status)
    return status;
  // States are what tokens have left behind: bits that change take power.
  if (Status status = timer->recordCycle(/*branches=*/false,
                                         static_cast<double>(spec.drafts));
      !status)
    return status;
  return timer;
}

Status DraftTimer::prepare(const Options &options) {
  DraftLayers::Options layered;
  layered.cursors.slots = spec.batch;
  layered.cursors.foldThreshold = spec.threshold;
  layered.batchBytes = static_cast<double>(spec.batch) * options.rowBytes;
  layered.drafts = spec.batch * spec.drafts;
  layered.startsEarly = options.startsEarly;
  layered.replaySeconds = options.replaySeconds;
  layered.restSeconds = options.restSeconds;
  Result<DraftLayers> made =
      DraftLayers::create(spec.source, spec.programOptions(), gpu, layered);
  if (!made)
    return made.status();
  layers.emplace(std::move(*made));
  slotNumbers.resize(spec.batch);
  std::iota(slotNumbers.begin(), slotNumbers.end(), 0);
  Result<DeviceTensor> numbers = numbersOn(layers->device(), slotNumbers);
  if (!numbers)
    return numbers.status();
  slots.emplace(std::move(*numbers));
  modelLayers = std::max(options.modelLayers, layers->count());
  steps = layers->stepsOf(options.leastSeconds, modelLayers);
  return Status();
}

VerifyArguments DraftTimer::arguments(const Tree &tree) const {
  VerifyArguments result;
  result.rows = spec.batch;
  result.slots = numbersOf(*slots);
  result.cuSeqlens = numbersOf(tree.starts);
  result.parents = numbersOf(tree.parents);
  result.drafts = spec.batch * tree.drafts;
  return result;
}

Status DraftTimer::commit(const Tree &tree) {
  return layers->commit(numbersOf(*slots), numbersOf(tree.numAccepted),
                        numbersOf(tree.path));
}

/// All slots with so many entries behind states that are not zero.
Status DraftTimer::setFill(int64_t fill) {
  // Whatever waits is rejected.
  Result<Tree> none = makeTree(/*drafts=*/1, /*accepted=*/0,
                               /*branches=*/false);
  if (!none)
    return none.status();
  if (Status status = commit(*none); !status)
    return status;
  if (Status status = layers->flush(slotNumbers); !status)
    return status;
  for (int64_t left = fill; left > 0;) {
    int64_t count = std::min(left, spec.drafts);
    Result<Tree> chain =
        makeTree(count, static_cast<double>(count), /*branches=*/false);
    if (!chain)
      return chain.status();
    if (Status status = layers->verifyEach(arguments(*chain)); !status)
      return status;
    if (Status status = commit(*chain); !status)
      return status;
    if (Status status = gpu.device().synchronize(); !status)
      return status;
    left -= count;
  }
  return gpu.device().synchronize();
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Result<std::vector<double>> DraftTimer::timeVerify(bool branches, int64_t fill,
                                                   int64_t count) {
  if (Status status = setFill(fill); !status)
    return status;
  Result<Tree> tree = makeTree(spec.drafts, /*accepted=*/0, branches);
  if (!tree)
    return tree.status();
  return layers->time([&] { return layers->verify(arguments(*tree), steps); },
                      steps, count);
}

/// A graph verifies in all layers and commits; it is replayed until rows have
/// folded several times.
Status DraftTimer::recordCycle(bool branches, double accepted) {
  cycle.reset();
  if (Status status = setFill(0); !status)
    return status;
  Result<Tree> tree = makeTree(spec.drafts, accepted, branches);
  if (!tree)
    return tree.status();
  cycleTree = std::make_unique<Tree>(std::move(*tree));
  cycleAccepted = cycleTree->acceptedByFirst;
  cycleSteps = modelLayers;
  Result<cuda::Graph> graph =
      cuda::Graph::record(gpu.device(), [&]() -> Status {
        if (Status status = layers->verify(arguments(*cycleTree), cycleSteps);
            !status)
          return status;
        return commit(*cycleTree);
      });
  if (!graph)
    return graph.status();
  cycle.emplace(std::move(*graph));
  // Rows that accept one more fold at other times: as often as both repeat.
  auto lengthFor = [&](int64_t taken) {
    return static_cast<int64_t>(
        draftCycle(spec.drafts, taken, spec.threshold).size());
  };
  int64_t length = lengthFor(cycleTree->mostAccepted);
  if (accepted != std::floor(accepted))
    length = std::lcm(length, lengthFor(cycleTree->mostAccepted - 1));
  layers->rest();
  for (int64_t i = 0; i <= length; ++i)
    if (Status status = cycle->replay(); !status)
      return status;
  cycleReplays = length * std::max<int64_t>(1, steps / (cycleSteps * length));
  return Status();
}

Result<double> DraftTimer::sampleCycle() {
  Result<double> seconds = cycle->time(static_cast<int>(cycleReplays));
  if (!seconds)
    return seconds.status();
  return *seconds / static_cast<double>(cycleReplays * cycleSteps);
}
