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

Status
ladle::checkBoundedRoom(const AttentionPoolImpl &pool,
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
