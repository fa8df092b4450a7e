//===- Linear.cpp - matrix products and norms -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Linear.h"

#include <cblas.h>
#include <cmath>

using namespace tinylm;

Vector tinylm::multiply(const Matrix &matrix, std::span<const float> x,
                        Order order) {
  auto in = static_cast<blasint>(matrix.in);
  auto out = static_cast<blasint>(matrix.out);
  auto rows = static_cast<blasint>(x.size() / matrix.in);
  Vector y(static_cast<size_t>(rows * matrix.out));
  if (order == Order::Fastest && rows > 1) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, 1.0f,
                x.data(), in, matrix.values.data(), in, 0.0f, y.data(), out);
    return y;
  }
  for (int64_t row = 0; row < rows; ++row)
    cblas_sgemv(CblasRowMajor, CblasNoTrans, out, in, 1.0f,
                matrix.values.data(), in, x.data() + row * in, 1, 0.0f,
                y.data() + row * out, 1);
  return y;
}

Vector tinylm::rmsNorm(std::span<const float> x, std::span<const float> weight,
                       float epsilon) {
  Vector result(x.size());
  size_t width = weight.size();
  for (size_t row = 0; row < x.size(); row += width) {
    float sum = 0;
    for (size_t i = 0; i < width; ++i)
      sum += x[row + i] * x[row + i];
    float scale = 1 / std::sqrt(sum / static_cast<float>(width) + epsilon);
    for (size_t i = 0; i < width; ++i)
      result[row + i] = x[row + i] * scale * weight[i];
  }
  return result;
}

float tinylm::silu(float x) { return x / (1 + std::exp(-x)); }

Vector tinylm::feedForward(const LayerWeights &layer, std::span<const float> x,
                           Order order) {
  Vector gate = multiply(layer.gate, x, order),
         up = multiply(layer.up, x, order);
  for (size_t i = 0; i < up.size(); ++i)
    up[i] *= silu(gate[i]);
  return multiply(layer.down, up, order);
}

void tinylm::add(std::span<float> x, std::span<const float> y) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] += y[i];
}

void tinylm::setThreads(int threads) {
  openblas_set_num_threads(threads ? threads : openblas_get_num_procs());
}
