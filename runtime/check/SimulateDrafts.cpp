//===- SimulateDrafts.cpp - drafts against the oracle ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The oracle decodes the path to each draft token by token: a draft continues a
// copy of its parent's sequence. The sequence of an accepted draft becomes that
// of its slot.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Simulation.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::check;

/// Inputs of drafts are drawn at positions that no token has.
static uint64_t drawPosition(int64_t token, int64_t draft) {
  constexpr uint64_t mostDrafts = 16, firstDraft = uint64_t(1) << 32;
  return firstDraft + static_cast<uint64_t>(token) * mostDrafts +
         static_cast<uint64_t>(draft);
}

Simulation::DraftPlan Simulation::makeDraftPlan() {
  DraftPlan plan;
  std::vector<int32_t> slots(slotCount);
  std::iota(slots.begin(), slots.end(), firstSlot);
  if (config.staggered)
    std::shuffle(slots.begin(), slots.end(), random);
  plan.slots.assign(slots.begin(), slots.begin() + config.rows);
  plan.starts.push_back(0);
  for (int32_t &slot : plan.slots) {
    bool isPadded = config.pads && chance(4);
    if (isPadded)
      slot = firstSlot == 1 ? 0 : -1;
    int64_t least = isPadded ? 0 : 1;
    auto count =
        static_cast<int32_t>(least + random() % (config.drafts - least + 1));
    for (int32_t draft = 0; draft < count; ++draft)
      plan.parents.push_back(
          config.trees ? static_cast<int32_t>(random() % (draft + 1)) - 1
                       : draft - 1);
    plan.starts.push_back(plan.starts.back() + count);
  }
  return plan;
}

Status Simulation::checkCursor(int32_t slot, int64_t committed,
                               int64_t drafts) const {
  Result<Cursor> cursor = pool->cursor(slot);
  if (!cursor)
    return cursor.status();
  if (cursor->committed == committed && cursor->length == committed + drafts)
    return Status();
  return Status(
      ErrorCode::Internal,
      fmt::format("slot {} holds {} entries and {} drafts after token "
                  "{}, expected {} and {}",
                  slot, cursor->committed, cursor->length - cursor->committed,
                  currentToken, committed, drafts));
}

Status Simulation::compareDrafts(const DraftPlan &plan, int64_t row,
                                 int64_t token, std::vector<Sequence> &nodes) {
  int32_t first = plan.starts[row], count = plan.starts[row + 1] - first;
  if (pool->isPadding(plan.slots[row])) {
    for (int32_t draft = 0; draft < count; ++draft)
      for (size_t i = 0; i < signature.outputs.size(); ++i)
        for (double value : draftBatch.getOutput(first + draft, i))
          if (value != 0)
            return Status(ErrorCode::Internal,
                          fmt::format("padded row {} answers {} to draft {} at "
                                      "token {}",
                                      row, value, draft, token));
    return Status();
  }
  Sequence &base = sequences[plan.slots[row] - firstSlot];
  bool isBuffered = config.route != RouteKind::Recurrent;
  bool folds =
      isBuffered && base.length > 0 && base.length + count > limitOf(base);
  if (folds) {
    base.rounded.storeStates(oracles.rounded, base.exact);
    base.length = 0;
    base.isFresh = false;
  }
  for (int32_t draft = 0; draft < count; ++draft) {
    int32_t parent = plan.parents[first + draft];
    nodes.push_back(parent < 0 ? base : nodes[parent]);
    Arrays exact(signature.outputs.size());
    std::vector<double> rounded = advance(
        nodes.back(), RoundedRuns::decoded(/*folds=*/!isBuffered),
        inputs.draw(oracles.exact.getTokens(), row, drawPosition(token, draft)),
        exact);
    for (size_t i = 0; i < exact.size(); ++i)
      add(folds ? FormKind::VerifyFold : FormKind::Verify,
          beforeRounding(draftBatch.getOutput(first + draft, i), exact[i],
                         config.outputType),
          exact[i], rounded[i], row, signature.outputs[i].name,
          nodes.back().exact.terms[i]);
  }
  return checkCursor(plan.slots[row], base.length, count);
}

Status Simulation::commit(const DraftPlan &plan,
                          const std::vector<std::vector<Sequence>> &nodes) {
  std::vector<int32_t> numAccepted, accepted;
  // A prefix needs no path if all drafts are chains.
  bool namesPath = config.trees || chance(2);
  for (int64_t row = 0; row < config.rows; ++row) {
    int32_t first = plan.starts[row], count = plan.starts[row + 1] - first;
    if (pool->isPadding(plan.slots[row])) {
      numAccepted.push_back(-7); // never looked at
      continue;
    }
    std::vector<int32_t> path;
    int32_t last = static_cast<int32_t>(random() % (count + 1)) - 1;
    for (int32_t draft = last; draft >= 0; draft = plan.parents[first + draft])
      path.insert(path.begin(), draft);
    numAccepted.push_back(static_cast<int32_t>(path.size()));
    accepted.insert(accepted.end(), path.begin(), path.end());
    if (last >= 0)
      sequences[plan.slots[row] - firstSlot] = nodes[row][last];
  }
  if (!namesPath)
    accepted.clear();
  if (Status status = decoder->commit(plan.slots, numAccepted, accepted);
      !status)
    return status;
  for (int32_t slot : plan.slots)
    if (!pool->isPadding(slot))
      if (Status status =
              checkCursor(slot, sequences[slot - firstSlot].length, 0);
          !status)
        return status;
  return Status();
}

Status Simulation::verify(int64_t token) {
  DraftPlan plan = makeDraftPlan();
  for (int64_t row = 0; row < config.rows; ++row)
    for (int32_t i = plan.starts[row]; i < plan.starts[row + 1]; ++i)
      draftBatch.setTokens(
          i, inputs.draw(oracles.exact.getTokens(), row,
                         drawPosition(token, i - plan.starts[row])));
  draftBatch.clearOutputs();
  int64_t all = plan.starts.back();
  VerifyArguments arguments;
  arguments.rows = config.rows;
  arguments.slots = plan.slots;
  arguments.cuSeqlens = plan.starts;
  if (config.trees || chance(2))
    arguments.parents = plan.parents;
  arguments.tensors = draftBatch.getTensors();
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = arguments.tensors.find(spec.name)->second;
      view = view.slice(0, 0, all);
    }
  if (Status status = decoder->verify(arguments); !status)
    return status;
  std::vector<std::vector<Sequence>> nodes(config.rows);
  for (int64_t row = 0; row < config.rows; ++row)
    if (Status status = compareDrafts(plan, row, token, nodes[row]); !status)
      return status;
  return commit(plan, nodes);
}
