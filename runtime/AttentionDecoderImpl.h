//===- AttentionDecoderImpl.h - on the host or a device ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_ATTENTIONDECODERIMPL_H
#define LADLE_RUNTIME_ATTENTIONDECODERIMPL_H

#include "runtime/AttentionPool.h"
#include "runtime/DecoderImpl.h"

namespace ladle {

struct AttentionDecoder::Impl {
  virtual ~Impl() = default;
  virtual Status step(const AttentionArguments &arguments, void *stream) = 0;
  virtual Status prefill(const PrefillArguments &arguments, void *stream) = 0;
  virtual Result<BoundStep> bind(const AttentionArguments &arguments) = 0;
  virtual std::span<const int64_t> matches() = 0;
  /// Empty where nobody has asked for them.
  virtual std::vector<AttentionHeadDiagnostics> diagnostics() const {
    return {};
  }
  /// Of caches that evict.
  virtual Status setBudget(int32_t slot, int64_t budget) {
    return Status(ErrorCode::Unsupported,
                  "only a cache that evicts has a budget");
  }
  /// That setBudgets would take them.
  virtual Status checkBudgets(std::span<const int32_t> slots,
                              std::span<const int32_t> budgets) const {
    return Status(ErrorCode::Unsupported,
                  "only a cache that evicts has a budget");
  }
  virtual Status setBudgets(std::span<const int32_t> slots,
                            std::span<const int32_t> budgets, void *stream);
  virtual std::span<const LayerPreference> preferences() { return {}; }
  /// On a GPU: what the last prompts left of them there, so many parts of each
  /// row (passes/gpu/BoundedInfo.h).
  struct PreferenceParts {
    uint64_t address = 0;
    int64_t rows = 0, ofRow = 0;
  };
  virtual PreferenceParts preferenceParts() const { return {}; }
};

/// The program, the pool and the settings have been checked to go together.
std::unique_ptr<AttentionDecoder::Impl>
makeHostAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                  const AttentionSettings &settings,
                  const AttentionDecoderOptions &options);
/// The same where the cache is bounded.
std::unique_ptr<AttentionDecoder::Impl>
makeHostBounded(const AttentionProgram &program, AttentionPoolImpl &pool,
                const AttentionDecoderOptions &options);
std::unique_ptr<AttentionDecoder::Impl>
makeHostEvicting(const AttentionProgram &program, AttentionPoolImpl &pool,
                 const AttentionDecoderOptions &options);
Result<std::unique_ptr<AttentionDecoder::Impl>>
makeDeviceAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                    const AttentionSettings &settings, int64_t rows,
                    int64_t promptTokens,
                    const AttentionDecoderOptions &options);

/// A step whose arguments have been checked, for launches by a decoder that
/// outlives it.
BoundStep bindHostAttention(AttentionDecoder::Impl &decoder,
                            const Signature &signature,
                            const AttentionArguments &arguments);

/// That slots are as many as rows.
Status checkAttentionRows(int64_t rows, size_t slots);
/// That every row of prompts has a slot, and one that is not padding tokens.
/// `mayBeEmpty`: rows that are not padded may have no tokens, too.
Status checkPrompts(const PrefillArguments &arguments, bool mayBeEmpty = false);

/// Whether rows fit, and each slot of a bounded cache is there once, and has
/// room for its tokens.
Status checkBoundedStep(const AttentionPoolImpl &pool,
                        const AttentionArguments &arguments);
Status checkBoundedPrompts(const AttentionPoolImpl &pool,
                           const PrefillArguments &arguments);
/// That a slot of a cache that evicts may have it; `name` is the argument's.
Status checkBudget(const BoundedProgram &bounded, int64_t budget,
                   const std::string &name = "budget");
/// `arguments` end with the outputs.
void zeroBoundedOutputs(const Signature &signature,
                        std::span<const MemoryDescriptor> arguments,
                        int64_t row);

} // namespace ladle

#endif // LADLE_RUNTIME_ATTENTIONDECODERIMPL_H
