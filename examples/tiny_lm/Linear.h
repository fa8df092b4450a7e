//===- Linear.h - matrix products and norms ------------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Activations are dense rows of floats, [tokens, width].
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_LINEAR_H
#define LADLE_EXAMPLES_TINY_LM_LINEAR_H

#include "examples/tiny_lm/Weights.h"

#include <span>

namespace tinylm {

/// In which order a product adds up.
enum class Order {
  Fastest, ///< as BLAS likes it, which depends on the number of rows
  Fixed,   ///< row by row: the same bits, whatever rows are around
};

/// y [rows, W.out] = x [rows, W.in] Wᵀ.
Vector multiply(const Matrix &matrix, std::span<const float> x, Order order);

/// x · weight / sqrt(mean x² + epsilon), row by row of weight.size() numbers.
Vector rmsNorm(std::span<const float> x, std::span<const float> weight,
               float epsilon);

float silu(float x);

/// w2 (silu(w1 x) * (w3 x)), row by row.
Vector feedForward(const LayerWeights &layer, std::span<const float> x,
                   Order order);

/// x += y.
void add(std::span<float> x, std::span<const float> y);

/// Row `index` of `x`, [rows, width].
inline std::span<const float> rowOf(std::span<const float> x, int64_t index,
                                    int64_t width) {
  return x.subspan(static_cast<size_t>(index * width),
                   static_cast<size_t>(width));
}
inline std::span<float> rowOf(Vector &x, int64_t index, int64_t width) {
  return std::span(x).subspan(static_cast<size_t>(index * width),
                              static_cast<size_t>(width));
}

/// OpenBLAS computes on so many threads from now on; 0: one a processor.
void setThreads(int threads);

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_LINEAR_H
