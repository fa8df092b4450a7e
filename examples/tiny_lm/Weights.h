//===- Weights.h - a trained model in memory ------------------ -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// config.json and the tensors of a safetensors file, widened to float.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_WEIGHTS_H
#define LADLE_EXAMPLES_TINY_LM_WEIGHTS_H

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tinylm {

/// A matrix as it is stored, [out, in] with `in` contiguous: y = W x.
struct Matrix {
  int64_t out = 0, in = 0;
  std::vector<float> values;
};

using Vector = std::vector<float>;

/// Sizes of the model, under the names that config.json gives them.
struct Config {
  int64_t vocabulary = 0, width = 0, hidden = 0;
  int64_t queryHeads = 0, keyValueHeads = 0, headSize = 0;
  int64_t deltaKeyHeads = 0, deltaValueHeads = 0;
  int64_t deltaKeySize = 0, deltaValueSize = 0;
  double ropeBase = 0;
  float epsilon = 0;
  /// For each layer: whether it is softmax attention, or Gated DeltaNet.
  std::vector<bool> isAttention;
};

struct AttentionWeights {
  Matrix query, key, value, output;
};

struct GatedDeltaWeights {
  Matrix query, key, value, gate, output;
  Matrix decay, strength;            ///< [heads, width]: a, b
  Vector mixQuery, mixKey, mixValue; ///< [width]: mu
  Vector logDecayRate, decayBias;    ///< [heads]: A_log, dt_bias
  Vector norm;                       ///< [deltaValueSize]
};

struct LayerWeights {
  Vector normBefore, normBetween; ///< [width]
  std::variant<GatedDeltaWeights, AttentionWeights> mixer;
  Matrix up, gate, down; ///< w3, w1, w2
};

struct Weights {
  Config config;
  Matrix embedding; ///< [vocabulary, width], of inputs and outputs
  std::vector<LayerWeights> layers;
  Vector norm; ///< [width]

  /// Of `folder`/config.json and the safetensors file that it names. Throws
  /// std::runtime_error: what is missing, or has another shape.
  static Weights load(const std::string &folder);
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_WEIGHTS_H
