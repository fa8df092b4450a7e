//===- Models.cpp - the model, and what it should say ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/tiny_lm/Models.h"
#include "examples/tiny_lm/Errors.h"
#include "ladle/safetensors.h"

using namespace tinylm;
using namespace ladle;

const Weights &test::getWeights() {
  static const Weights weights = Weights::load(modelFolder);
  return weights;
}

TinyLm test::makeModel(const ModelOptions &options) {
  return {getWeights(), options};
}

template <typename T, typename As>
static std::vector<As> readAll(const Safetensors &file, const char *name) {
  TensorView view = orThrow(file.view(name));
  const T *from = static_cast<const T *>(view.data);
  return {from, from + view.count()};
}

const test::Reference &test::getReference() {
  static const Reference reference = [] {
    Safetensors file =
        orThrow(Safetensors::open(modelFolder + "/reference.safetensors"));
    return Reference{readAll<uint8_t, uint8_t>(file, "tokens"),
                     readAll<uint8_t, uint8_t>(file, "greedy"),
                     readAll<int32_t, int64_t>(file, "positions"),
                     readAll<float, float>(file, "logits")};
  }();
  return reference;
}
