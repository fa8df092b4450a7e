//===- Rwkv7Reference.cpp - RWKV-7 by its transition matrix -----*- C++ -*-===//
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

/// wkv_t = wkv_{t-1} (diag(w) - kappa^T (a * kappa)) + v^T k, wkv [value, key],
/// then a group norm a head, the bonus (r . (rho * k)) v and the gate.
class Rwkv7 : public Reference {
public:
  explicit Rwkv7(const ReferenceShape &shape)
      : heads(shape.size("H")), keyWidth(shape.size("Dk")),
        valueWidth(shape.size("Dv")), normEps(shape.option("norm_eps", 64e-5)),
        decayScale(shape.option("decay_scale", std::exp(-0.5))),
        states(heads, Matrix(valueWidth, keyWidth)) {}

  Tensors step(const Tensors &params, const Tensors &tokens) override {
    Vector y;
    for (int64_t head = 0; head < heads; ++head)
      append(y, stepHead(params, tokens, head));
    return {{"y", y}};
  }

  std::vector<double> state(const std::string &name) const override {
    if (name != "S")
      throw std::out_of_range("no state " + name);
    Vector result;
    for (const Matrix &state : states)
      append(result, state.transposed().values);
    return result;
  }

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head) {
    auto key = [&](const Tensors &tensors, const char *name) {
      return headRow(tensors.at(name), keyWidth, head, heads);
    };
    auto value = [&](const Tensors &tensors, const char *name) {
      return headRow(tensors.at(name), valueWidth, head, heads);
    };
    Vector r = key(tokens, "r"), k = key(tokens, "k"), v = value(tokens, "v");
    Vector a = map(key(tokens, "a"), sigmoid);
    Vector w = map(key(tokens, "w"), [&](double x) {
      return std::exp(-decayScale * sigmoid(x));
    });
    Vector kappa = l2Normalised(product(k, key(params, "k_k")), 1e-12);
    // The replacement key: k interpolated towards a * k by k_a.
    Vector mix = key(params, "k_a");
    for (int64_t i = 0; i < keyWidth; ++i)
      k[i] = (1 - mix[i]) * k[i] + mix[i] * (a[i] * k[i]);

    Matrix transition = Matrix::diagonal(w);
    transition.addOuter(-1, kappa, product(a, kappa));
    states[head] = states[head] * transition;
    states[head].addOuter(1, v, k);

    Vector o = states[head] * r;
    double mean = 0, squares = 0;
    for (double x : o) {
      mean += x / valueWidth;
      squares += x * x / valueWidth;
    }
    double deviation = std::sqrt(squares - mean * mean + normEps);
    double bonus = dot(product(r, key(params, "r_k")), k);
    Vector weight = value(params, "norm_w"), bias = value(params, "norm_b");
    Vector gate = value(tokens, "g");
    for (int64_t j = 0; j < valueWidth; ++j)
      o[j] = ((o[j] - mean) / deviation * weight[j] + bias[j] + bonus * v[j]) *
             gate[j];
    return o;
  }

  int64_t heads, keyWidth, valueWidth;
  double normEps, decayScale;
  std::vector<Matrix> states;
};

} // namespace

std::unique_ptr<Reference>
ladle::reference::makeRwkv7(const std::string &model,
                            const ReferenceShape &shape) {
  return model == "rwkv7" ? std::make_unique<Rwkv7>(shape) : nullptr;
}
