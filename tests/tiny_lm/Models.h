//===- Models.h - the model, and what it should say ----------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_TINY_LM_MODELS_H
#define LADLE_TESTS_TINY_LM_MODELS_H

#include "examples/tiny_lm/Engine.h"

namespace tinylm::test {

/// The tests run in the root of the repository.
inline const std::string modelFolder = "examples/tiny_lm/model";

const Weights &getWeights();
TinyLm makeModel(const ModelOptions &options);

/// model/README.md says what they are, and where they come from.
struct Reference {
  std::vector<uint8_t> tokens, greedy;
  std::vector<int64_t> positions;
  std::vector<float> logits; ///< [positions, vocabulary]
};
const Reference &getReference();

} // namespace tinylm::test

#endif // LADLE_TESTS_TINY_LM_MODELS_H
