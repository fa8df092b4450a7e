//===- CompositeReferences.cpp - a whole mixer, coupled states --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Families.h"
#include "tests/models/ReferenceMath.h"

#include <stdexcept>

using namespace ladle::reference;

namespace {

/// The mixer of Qwen3-Next: the convolution by its definition over all past
/// inputs, then the Gated DeltaNet reference, then the gated norm.
class ShortConv : public Reference {
public:
  explicit ShortConv(const ReferenceShape &shape)
      : keyHeads(shape.size("Hk")), heads(shape.size("Hv")),
        keyWidth(shape.size("Dk")), valueWidth(shape.size("Dv")),
        taps(shape.size("W") + 1), eps(shape.option("norm_eps", 1e-6)),
        mixer(makeDelta("gated_delta_net", shape)) {}

  Tensors step(const Tensors &params, const Tensors &tokens) override {
    for (const char *name : {"q", "k", "v"})
      past[name].push_back(tokens.at(name));
    Tensors inputs = tokens;
    inputs["q"] = convolved(past["q"], params.at("conv_q"), keyHeads, keyWidth);
    inputs["k"] = convolved(past["k"], params.at("conv_k"), keyHeads, keyWidth);
    inputs["v"] = convolved(past["v"], params.at("conv_v"), heads, valueWidth);
    Vector o = mixer->step(params, inputs).at("y");

    Vector y;
    for (int64_t head = 0; head < heads; ++head) {
      Vector gate = map(headRow(tokens.at("z"), valueWidth, head, heads), silu);
      Vector row = rmsNormalised(headRow(o, valueWidth, head, heads), eps);
      append(y, product(product(row, params.at("norm")), gate));
    }
    return {{"y", y}};
  }

  std::vector<double> state(const std::string &name) const override {
    return mixer->state(name);
  }

private:
  /// silu(sum_i weight_i x_{t - (taps - 1) + i}), with zeros before the first
  /// token; `weight` is [rows, taps, width].
  Vector convolved(const std::vector<Vector> &inputs, const Vector &weight,
                   int64_t rows, int64_t width) const {
    Vector result(rows * width);
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t t = static_cast<int64_t>(inputs.size()) - taps + tap;
      if (t < 0)
        continue;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t c = 0; c < width; ++c)
          result[row * width + c] += weight[(row * taps + tap) * width + c] *
                                     inputs[t][row * width + c];
    }
    return map(result, silu);
  }

  int64_t keyHeads, heads, keyWidth, valueWidth, taps;
  double eps;
  std::unique_ptr<Reference> mixer;
  std::map<std::string, std::vector<Vector>> past;
};

/// Both memories as one state Z = [Fast | Slow] of [value, 2 key] with the
/// linear transition
///
///   Z = Z [ alpha (I - b k k^T)        0       ] + v [ b k | rate k ]^T
///         [      - b k k^T       I - rate k k^T]
class Coupled : public Reference {
public:
  explicit Coupled(const ReferenceShape &shape)
      : heads(shape.size("H")), keyWidth(shape.size("Dk")),
        valueWidth(shape.size("Dv")), rate(shape.option("rate", 0.1)),
        states(heads, Matrix(valueWidth, 2 * keyWidth)) {}

  Tensors step(const Tensors &, const Tensors &tokens) override {
    Vector y;
    for (int64_t head = 0; head < heads; ++head) {
      double alpha = sigmoid(headValue(tokens.at("a"), head, heads));
      double b = sigmoid(headValue(tokens.at("b"), head, heads));
      Vector k = l2Normalised(headRow(tokens.at("k"), keyWidth, head, heads));
      Vector q = l2Normalised(headRow(tokens.at("q"), keyWidth, head, heads));

      Matrix transition(2 * keyWidth, 2 * keyWidth);
      Vector writeKey(2 * keyWidth), query(2 * keyWidth);
      for (int64_t i = 0; i < keyWidth; ++i) {
        transition(i, i) = alpha;
        transition(keyWidth + i, keyWidth + i) = 1;
        for (int64_t j = 0; j < keyWidth; ++j) {
          transition(i, j) -= alpha * b * k[i] * k[j];
          transition(keyWidth + i, j) -= b * k[i] * k[j];
          transition(keyWidth + i, keyWidth + j) -= rate * k[i] * k[j];
        }
        writeKey[i] = b * k[i];
        writeKey[keyWidth + i] = rate * k[i];
        query[i] = query[keyWidth + i] = q[i] / std::sqrt(keyWidth);
      }
      states[head] = states[head] * transition;
      states[head].addOuter(1, headRow(tokens.at("v"), valueWidth, head, heads),
                            writeKey);
      append(y, states[head] * query);
    }
    return {{"y", y}};
  }

  std::vector<double> state(const std::string &name) const override {
    if (name != "Fast" && name != "Slow")
      throw std::out_of_range("no state " + name);
    int64_t first = name == "Fast" ? 0 : keyWidth;
    Vector result;
    for (const Matrix &state : states)
      for (int64_t i = 0; i < keyWidth; ++i)
        for (int64_t j = 0; j < valueWidth; ++j)
          result.push_back(state(j, first + i));
    return result;
  }

private:
  int64_t heads, keyWidth, valueWidth;
  double rate;
  std::vector<Matrix> states;
};

} // namespace

std::unique_ptr<Reference>
ladle::reference::makeComposite(const std::string &model,
                                const ReferenceShape &shape) {
  if (model == "short_conv")
    return std::make_unique<ShortConv>(shape);
  if (model == "coupled")
    return std::make_unique<Coupled>(shape);
  return nullptr;
}
