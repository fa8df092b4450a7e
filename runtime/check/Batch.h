//===- Batch.h - the memory of a step's arguments ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_BATCH_H
#define LADLE_RUNTIME_CHECK_BATCH_H

#include "ladle/decode.h"

#include <map>
#include <string>
#include <vector>

namespace ladle::check {

/// Params, tokens and outputs of one step, in their storage types, written and
/// read as float64.
class Batch {
public:
  /// If `packed`, the tokens of a row lie side by side, at multiples of
  /// `alignment` bytes, and so do its outputs; else each tensor is dense.
  Batch(const Signature &signature, int64_t rows, bool packed,
        int64_t alignment = hostAlignment);

  /// Any float type lies well at a multiple of four bytes. Kernels of a GPU
  /// load vectors of up to sixteen.
  static constexpr int64_t hostAlignment = 4, gpuAlignment = 16;

  void setParams(const std::vector<std::vector<double>> &values);
  void setTokens(int64_t row, const std::vector<std::vector<double>> &values);
  /// Fills the outputs with NaN, so that one that is not written shows.
  void clearOutputs();
  std::vector<double> getOutput(int64_t row, size_t index) const;

  /// The views, for StepArguments::tensors.
  const std::map<std::string, TensorView, std::less<>> &getTensors() const {
    return tensors;
  }

private:
  void add(const std::vector<TensorSpec> &specs, int64_t rows, bool packed);
  static void write(const TensorView &view, const std::vector<double> &values);

  const Signature &signature;
  int64_t alignment;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::vector<std::vector<std::byte>> memory;
};

/// Elements of a float tensor in the order of its dimensions.
std::vector<double> toDoubles(const TensorView &view);

/// A state [heads, dv, dk] of a pool as the oracle has it: [heads, dk, dv].
std::vector<double> toKeyMajor(const std::vector<double> &values,
                               const StateSpec &spec);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_BATCH_H
