//===- HostEvicting.h - steps over caches that evict ------------*- C++ -*-===//
//-*-===//
//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is a task for each row and head of the cache, whose kernel does all of
// it. A prompt is answered token by token, in any order, by what the cache
// holds and by the prompt up to the token. Then each head chooses what to keep
// by the scores that its last queries have left, folds the others, and takes
// what it keeps of the prompt into the cache.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTEVICTING_H
#define LADLE_RUNTIME_HOSTEVICTING_H

#include "runtime/Arguments.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/EvictingSlots.h"
#include "runtime/ThreadPool.h"

#include <algorithm>

namespace ladle {

/// The tokens of a prompt, and what a head's last queries gave to those before.
struct EvictingPrompt {
  int32_t slot = 0;
  int64_t begin = 0, end = 0; ///< rows
  int64_t before = 0;         ///< the length of the sequence
  int64_t count() const { return end - begin; }
};
/// Scores of the last queries of a prompt, of one head of the cache.
struct ScoreWindow {
  int64_t queries = 0, stride = 0;
  std::vector<float> scores; ///< [queries, group, stride], by candidate
};

class HostEvicting final : public AttentionDecoder::Impl {
  using Prompt = EvictingPrompt;
  using Window = ScoreWindow;

public:
  HostEvicting(const AttentionProgram &program, AttentionPoolImpl &pool,
               const AttentionDecoderOptions &options);

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override { return {}; }
  Status setBudget(int32_t slot, int64_t budget) override;
  Status checkBudgets(std::span<const int32_t> slots,
                      std::span<const int32_t> budgets) const override;
  std::span<const LayerPreference> preferences() override { return preferred; }

private:
  Status bind(int64_t rows, const NamedTensors &tensors);
  void prepare(int32_t slot);

  LayerPreference prefillSlot(const Prompt &prompt);
  void answer(const Prompt &prompt, int64_t head, int64_t row, int worker,
              Window &window, std::span<float> sums);
  LayerPreference finish(const Prompt &prompt, int64_t head,
                         const Window &window, std::span<const float> sums,
                         int worker);
  void keep(const Prompt &prompt, int64_t head, const Candidates &all,
            std::span<const int32_t> kept, int64_t seen, int worker);
  LayerPreference preferenceOfHead(const Prompt &prompt, int64_t head,
                                   const Window &window, const Candidates &all,
                                   std::span<const double> salience) const;
  /// Of a candidate: what the cache holds, and then the prompt.
  std::vector<float> vectorOf(const Prompt &prompt, int64_t head,
                              int64_t candidate, bool isValue) const;
  const char *tokenAt(const std::string &name, int64_t row, int64_t head,
                      DType &dtype) const;

  int64_t group() const { return made.signature.heads / made.cacheHeads; }

  AttentionProgram program;
  const AttentionProgramImpl &made;
  const BoundedProgram &bounded;
  AttentionPoolImpl &pool;
  EvictingSlots slots;
  std::optional<PreferenceOptions> preference;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threads;
  std::vector<MemoryDescriptor> arguments; ///< params, tokens, outputs
  std::vector<BoundedTask> tasks;
  std::vector<LayerPreference> preferred;

  /// The arguments of a worker, on cache lines of its own.
  struct alignas(64) Worker {
    BoundedTask task;
    std::vector<void *> list;
    std::vector<float> scores;
    std::vector<int32_t> leaving;
    MemoryDescriptor scoresMemory, sumsMemory, leavingMemory;
  };
  std::vector<Worker> workers;
};

inline void describeRows(MemoryDescriptor &memory, void *data,
                         std::vector<int64_t> sizes) {
  memory.allocated = memory.aligned = data;
  std::vector<int64_t> strides = denseStrides(sizes);
  std::copy(sizes.begin(), sizes.end(), memory.sizesAndStrides);
  std::copy(strides.begin(), strides.end(),
            memory.sizesAndStrides + sizes.size());
}

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTEVICTING_H
