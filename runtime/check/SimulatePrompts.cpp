//===- SimulatePrompts.cpp - prompts against the oracle -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Simulation.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::check;

/// Inputs of prompts are drawn at positions that no token and no draft has.
static uint64_t drawPosition(int64_t token, int64_t inPrompt) {
  constexpr uint64_t mostTokens = uint64_t(1) << 16, firstPrompt = uint64_t(1)
                                                                   << 48;
  return firstPrompt + static_cast<uint64_t>(token) * mostTokens +
         static_cast<uint64_t>(inPrompt);
}

Simulation::PromptPlan Simulation::makePromptPlan() {
  PromptPlan plan;
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
    // Around the end of a chunk, or of any length.
    std::array<int64_t, 6> counts = {
        1,
        config.chunk - 1,
        config.chunk,
        config.chunk + 1,
        config.prompts,
        1 + static_cast<int64_t>(random() % config.prompts)};
    int64_t count = std::clamp<int64_t>(counts[random() % counts.size()],
                                        isPadded ? 0 : 1, config.prompts);
    plan.starts.push_back(plan.starts.back() + static_cast<int32_t>(count));
  }
  return plan;
}

Status Simulation::comparePrompt(const PromptPlan &plan, int64_t row,
                                 const std::vector<Arrays> &tokens,
                                 const Batch &prompts) {
  int32_t first = plan.starts[row], last = plan.starts[row + 1];
  if (pool->isPadding(plan.slots[row])) {
    for (int32_t token = first; token < last; ++token)
      for (size_t i = 0; i < signature.outputs.size(); ++i)
        for (double value : prompts.getOutput(token, i))
          if (value != 0)
            return Status(ErrorCode::Internal,
                          fmt::format("padded row {} answers {} to a prompt "
                                      "after token {}",
                                      row, value, currentToken));
    return Status();
  }
  Sequence &sequence = sequences[plan.slots[row] - firstSlot];
  Result<Cursor> cursor = pool->cursor(plan.slots[row]);
  if (!cursor)
    return cursor.status();
  bool isRecurrent = config.route == RouteKind::Recurrent;
  // Before a state has been written, kv_only keeps what fits.
  bool keeps = config.route == RouteKind::KvOnly && cursor->epoch == 0;
  bool folds = !keeps && !config.byChunk;
  // Tokens that wait for those before them are decoded, as steps are.
  bool isSerial = !isRecurrent && !program.prefillsAtOnce();
  if (folds && !isSerial && sequence.length > 0)
    sequence.rounded.storeStates(oracles.rounded, sequence.exact);
  for (int32_t token = first; token < last; ++token) {
    Arrays exact(signature.outputs.size());
    bool atEnd = (config.byChunk || isSerial) &&
                 sequence.length + 1 >= limitOf(sequence);
    auto becomes = isRecurrent || atEnd ? RoundedRuns::Token::Folded
                   : folds && !isSerial ? RoundedRuns::Token::Held
                                        : RoundedRuns::Token::Kept;
    std::vector<double> rounded =
        advance(sequence, becomes, tokens[token], exact);
    for (size_t i = 0; i < exact.size(); ++i)
      add(keeps || config.byChunk ? FormKind::PrefillEntries
                                  : FormKind::PrefillFold,
          beforeRounding(prompts.getOutput(token, i), exact[i],
                         config.outputType),
          exact[i], rounded[i], row, signature.outputs[i].name,
          sequence.exact.terms[i]);
  }
  if (folds) {
    sequence.rounded.storeStates(oracles.rounded, sequence.exact);
    sequence.length = 0;
    sequence.isFresh = false;
  }
  return checkCursor(plan.slots[row], sequence.length, 0);
}

Status Simulation::prefill(int64_t token) {
  PromptPlan plan = makePromptPlan();
  int64_t all = plan.starts.back();
  if (all == 0)
    return Status();
  Batch prompts(signature, all, config.packed, alignment());
  prompts.setParams(params);
  std::vector<Arrays> tokens;
  for (int64_t row = 0; row < config.rows; ++row)
    for (int32_t i = plan.starts[row]; i < plan.starts[row + 1]; ++i) {
      tokens.push_back(inputs.draw(oracles.exact.getTokens(), row,
                                   drawPosition(token, i - plan.starts[row])));
      prompts.setTokens(i, tokens.back());
    }
  prompts.clearOutputs();
  PrefillArguments arguments;
  arguments.rows = config.rows;
  arguments.slots = plan.slots;
  arguments.cuSeqlens = plan.starts;
  arguments.tensors = prompts.getTensors();
  if (Status status = decoder->prefill(arguments); !status)
    return status;
  for (int64_t row = 0; row < config.rows; ++row)
    if (Status status = comparePrompt(plan, row, tokens, prompts); !status)
      return status;
  return Status();
}
