//===- DeviceShares.h - layers share a budget on a GPU ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICESHARES_H
#define LADLE_RUNTIME_CUDA_DEVICESHARES_H

#include "ladle/budgets.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/cuda/DeviceAttention.h"

namespace ladle {

/// LayerBudgets of rows in the memory of a GPU (runtime/jit/Budgets.cuh).
class DeviceShares {
public:
  static Result<DeviceShares> create(const AttentionProgramImpl &made,
                                     const LayerBudgetOptions &options,
                                     int64_t rows);
  /// That the last prompts of a decoder left preferences of all rows.
  Status check(const AttentionDecoder::Impl &decoder) const;
  /// A layer by what these left; the decoder has been checked.
  Status add(AttentionDecoder::Impl &decoder, int64_t layer,
             const PreferenceExponents &exponents, void *stream);
  /// [rows], there.
  std::span<const int32_t> budgets(int64_t layer) const;
  /// Waits for the device; empty if it has failed.
  std::vector<int64_t> read(int64_t layer) const;

private:
  const AttentionProgramImpl *made = nullptr;
  LayerBudgetOptions options;
  int64_t rows = 0;
  cuda::Memory scores, exact, shares, nextShares; ///< [layers, rows]
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICESHARES_H
