//===- Drafts.h - a layer that verifies drafts on a GPU ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_DRAFTS_H
#define LADLE_TESTS_RUNTIME_GPU_DRAFTS_H

#include "tests/runtime/gpu/Numbers.h"

namespace ladle::test {

inline constexpr int64_t mostDrafts = 4, rows = 3, slotCount = 4;

/// A layer with everything that a step of drafts takes.
struct Layer {
  explicit Layer(const Program &program, const PoolOptions &options = {})
      : program(program), pool(makePool(program, slotCount, options)),
        decoder(need(Decoder::create(program, pool))),
        tensors(program, rows * mostDrafts), slots(program, rows),
        starts(program, rows + 1), parents(program, rows * mostDrafts),
        numAccepted(program, rows), accepted(program, rows * mostDrafts) {}

  VerifyArguments arguments() const {
    VerifyArguments result;
    result.rows = rows;
    result.slots = slots.all();
    result.cuSeqlens = starts.all();
    result.parents = parents.all();
    result.drafts = rows * mostDrafts;
    result.tensors = tensors.arguments.tensors;
    return result;
  }

  Status verifyAndCommit(void *stream) {
    if (Status status = decoder.verify(arguments(), stream); !status)
      return status;
    return pool.commit(slots.all(), numAccepted.all(), accepted.all(), stream);
  }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;
  Numbers slots, starts, parents, numAccepted, accepted;
};

/// What is different from step to step.
struct Step {
  std::vector<int32_t> slots, counts, parents, numAccepted, accepted;

  void fill(Layer &layer, int32_t token, int32_t sequence = 0) const {
    std::vector<int32_t> starts{0};
    for (int32_t count : counts)
      starts.push_back(starts.back() + count);
    layer.slots.set(slots);
    layer.starts.set(starts);
    layer.parents.set(parents);
    layer.numAccepted.set(numAccepted);
    layer.accepted.set(accepted);
    std::vector<int32_t> sequences, positions;
    for (int32_t i = 0; i < rows * mostDrafts; ++i) {
      sequences.push_back(i % 5 + sequence);
      positions.push_back(token + i);
    }
    layer.tensors.fill(sequences, positions);
  }
  /// What all drafts are after, on the CPU.
  void follow(Layer &layer) const {
    std::vector<int32_t> starts{0}, path;
    for (int32_t count : counts)
      starts.push_back(starts.back() + count);
    VerifyArguments arguments;
    arguments.rows = rows;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    std::vector<int32_t> own(parents.begin(), parents.begin() + starts.back());
    arguments.parents = own;
    for (const auto &[name, view] : layer.tensors.arguments.tensors)
      arguments.tensors[name] = view.shape[0] == rows * mostDrafts
                                    ? view.slice(0, 0, starts.back())
                                    : view;
    need(layer.decoder.verify(arguments));
    need(layer.pool.commit(slots, numAccepted, accepted));
  }
};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_DRAFTS_H
