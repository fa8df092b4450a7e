//===- RandomModel.h - a model that is quick ------------------ -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_TINY_LM_RANDOMMODEL_H
#define LADLE_TESTS_TINY_LM_RANDOMMODEL_H

#include "examples/tiny_lm/Linear.h"

namespace tinylm::test {

/// Two layers of random weights: no model of text, but one that is quick.
Weights makeWeights();
std::vector<uint8_t> makeText(size_t bytes, unsigned seed);

/// Logits by the attention of tiny_lm, which is written without Ladle.
Vector referenceLogits(const Weights &weights, std::span<const uint8_t> text);

/// The largest difference; infinite where sizes differ.
double distance(const Vector &a, const Vector &b);

} // namespace tinylm::test

#endif // LADLE_TESTS_TINY_LM_RANDOMMODEL_H
