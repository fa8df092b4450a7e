//===- BoundedRows.cpp - rows of calls to bounded caches ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"

#include <cstring>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// So many tokens for each slot.
static Status checkRoom(const AttentionPoolImpl &pool,
                        std::span<const std::pair<int32_t, int64_t>> wanted) {
  std::vector<bool> seen(static_cast<size_t>(pool.slots));
  for (auto [slot, tokens] : wanted) {
    if (Status status = pool.checkSlot(slot); !status)
      return status;
    if (seen[slot])
      return invalid(fmt::format("slot {} is named twice, wanted a slot of its "
                                 "own for each row",
                                 slot));
    seen[slot] = true;
    int64_t length = pool.cursors[slot].length;
    if (tokens > pool.maxTokens() - length)
      return invalid(fmt::format("slot {} holds {} tokens and gets {}, wanted "
                                 "{} at most",
                                 slot, length, tokens, pool.maxTokens()));
  }
  return Status();
}

Status ladle::checkBoundedStep(const AttentionPoolImpl &pool,
                               const AttentionArguments &arguments) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  std::vector<std::pair<int32_t, int64_t>> wanted;
  for (int32_t slot : arguments.slots)
    if (slot >= 0)
      wanted.emplace_back(slot, 1);
  return checkRoom(pool, wanted);
}

Status ladle::checkBoundedPrompts(const AttentionPoolImpl &pool,
                                  const PrefillArguments &arguments) {
  if (Status status = checkPrompts(arguments); !status)
    return status;
  std::vector<std::pair<int32_t, int64_t>> wanted;
  for (int64_t row = 0; row < arguments.rows; ++row)
    if (arguments.slots[row] >= 0)
      wanted.emplace_back(arguments.slots[row],
                          int64_t(arguments.cuSeqlens[row + 1]) -
                              arguments.cuSeqlens[row]);
  return checkRoom(pool, wanted);
}

Status ladle::checkBudget(const BoundedProgram &bounded, int64_t budget,
                          const std::string &name) {
  int64_t least = bounded.sinks + bounded.recent;
  if (budget >= least && budget <= bounded.budget)
    return Status();
  return invalid(fmt::format("{} is {}, wanted {} to {}", name, budget, least,
                             bounded.budget));
}

void ladle::zeroBoundedOutputs(const Signature &signature,
                               std::span<const MemoryDescriptor> arguments,
                               int64_t row) {
  const std::vector<TensorSpec> &outputs = signature.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec &spec = outputs[i];
    const MemoryDescriptor &memory =
        arguments[arguments.size() - outputs.size() + i];
    size_t rank = spec.shape.size() + 1;
    const int64_t *strides = memory.sizesAndStrides + rank;
    int64_t bytes = sizeInBytes(spec.dtype);
    int64_t width = rank > 2 ? spec.shape[1] : 1;
    for (int64_t head = 0; head < spec.shape[0]; ++head)
      std::memset(static_cast<char *>(memory.aligned) +
                      (row * strides[0] + head * strides[1]) * bytes,
                  0, static_cast<size_t>(width * bytes));
  }
}
