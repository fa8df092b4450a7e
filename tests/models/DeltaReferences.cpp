//===- DeltaReferences.cpp - the delta family as matrices -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The delta rule as its papers print it: the state is multiplied by a dense
// transition matrix and an outer product is added. DeltaNet and Gated DeltaNet
// write the state [value, key] and multiply from the right; KDA and GDN-2 write
// it [key, value] and multiply from the left.
//
//===----------------------------------------------------------------------===//

#include "tests/models/Families.h"
#include "tests/models/ReferenceMath.h"

#include <stdexcept>

using namespace ladle::reference;

namespace {

class Delta : public Reference {
public:
  Delta(int64_t heads, const ReferenceShape &shape)
      : heads(heads), keyWidth(shape.size("Dk")), valueWidth(shape.size("Dv")) {
  }

  Tensors step(const Tensors &params, const Tensors &tokens) override {
    Vector y;
    for (int64_t head = 0; head < heads; ++head)
      append(y, stepHead(params, tokens, head));
    return {{outputName(), y}};
  }

protected:
  virtual Vector stepHead(const Tensors &params, const Tensors &tokens,
                          int64_t head) = 0;
  virtual const char *outputName() const { return "y"; }

  Vector keyRow(const Tensors &tensors, const char *name, int64_t head) const {
    return headRow(tensors.at(name), keyWidth, head, heads);
  }
  Vector valueRow(const Tensors &tensors, const char *name,
                  int64_t head) const {
    return headRow(tensors.at(name), valueWidth, head, heads);
  }
  double number(const Tensors &tensors, const char *name, int64_t head) const {
    return headValue(tensors.at(name), head, heads);
  }

  int64_t heads, keyWidth, valueWidth;
};

/// S = S (alpha (I - beta k k^T)) + beta v k^T, o = S q / sqrt(dk), with the
/// state [value, key]: Gated DeltaNet, eq. 10, and DeltaNet with alpha = 1.
class RightDelta : public Delta {
public:
  RightDelta(int64_t heads, const ReferenceShape &shape)
      : Delta(heads, shape), states(heads, Matrix(valueWidth, keyWidth)) {}

  std::vector<double> state(const std::string &name) const override {
    if (name != "S")
      throw std::out_of_range("no state " + name);
    Vector result;
    for (const Matrix &state : states)
      append(result, state.transposed().values);
    return result;
  }

protected:
  Vector apply(int64_t head, double alpha, double beta, const Vector &q,
               const Vector &k, const Vector &v) {
    Matrix transition = Matrix::diagonal(Vector(keyWidth, alpha));
    transition.addOuter(-alpha * beta, k, k);
    states[head] = states[head] * transition;
    states[head].addOuter(beta, v, k);
    return scaled(states[head] * q, 1 / std::sqrt(keyWidth));
  }

private:
  std::vector<Matrix> states;
};

class DeltaNet : public RightDelta {
public:
  explicit DeltaNet(const ReferenceShape &shape)
      : RightDelta(shape.size("H"), shape) {}

private:
  Vector stepHead(const Tensors &, const Tensors &tokens,
                  int64_t head) override {
    return apply(head, 1, sigmoid(number(tokens, "b", head)),
                 l2Normalised(keyRow(tokens, "q", head)),
                 l2Normalised(keyRow(tokens, "k", head)),
                 valueRow(tokens, "v", head));
  }
};

class GatedDeltaRule : public RightDelta {
public:
  explicit GatedDeltaRule(const ReferenceShape &shape)
      : RightDelta(shape.size("Hv"), shape) {}

private:
  const char *outputName() const override { return "o"; }

  Vector stepHead(const Tensors &, const Tensors &tokens,
                  int64_t head) override {
    return apply(head, std::exp(number(tokens, "g", head)),
                 number(tokens, "beta", head), keyRow(tokens, "q", head),
                 keyRow(tokens, "k", head), valueRow(tokens, "v", head));
  }
};

class GatedDeltaNet : public RightDelta {
public:
  explicit GatedDeltaNet(const ReferenceShape &shape)
      : RightDelta(shape.size("Hv"), shape),
        betaMax(shape.option("beta_max", 1)) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens,
                  int64_t head) override {
    double g =
        -std::exp(number(params, "A_log", head)) *
        softplus(number(tokens, "a", head) + number(params, "dt_bias", head));
    return apply(
        head, std::exp(g), betaMax * sigmoid(number(tokens, "b", head)),
        l2Normalised(keyRow(tokens, "q", head)),
        l2Normalised(keyRow(tokens, "k", head)), valueRow(tokens, "v", head));
  }

  double betaMax;
};

/// S = (I - k erase^T) diag(exp(g)) S + k value^T, y = S^T q / sqrt(dk), with
/// the state [key, value].
class LeftDelta : public Delta {
public:
  LeftDelta(int64_t heads, const ReferenceShape &shape)
      : Delta(heads, shape), states(heads, Matrix(keyWidth, valueWidth)) {}

  std::vector<double> state(const std::string &name) const override {
    if (name != "S")
      throw std::out_of_range("no state " + name);
    Vector result;
    for (const Matrix &state : states)
      append(result, state.values);
    return result;
  }

protected:
  Vector apply(int64_t head, const Vector &g, const Vector &q, const Vector &k,
               const Vector &erase, const Vector &value) {
    Matrix householder = Matrix::diagonal(Vector(keyWidth, 1));
    householder.addOuter(-1, k, erase);
    Vector alpha = map(g, [](double x) { return std::exp(x); });
    states[head] = householder * (Matrix::diagonal(alpha) * states[head]);
    states[head].addOuter(1, k, value);
    return scaled(states[head].transposed() * q, 1 / std::sqrt(keyWidth));
  }

private:
  std::vector<Matrix> states;
};

/// Kimi Linear, eq. 1, with either gate.
class Kda : public LeftDelta {
public:
  Kda(const ReferenceShape &shape, bool bounded)
      : LeftDelta(shape.size("H"), shape), bounded(bounded),
        lowerBound(shape.option("lower_bound", -5)) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens,
                  int64_t head) override {
    double rate = std::exp(number(params, "A_log", head));
    Vector g = map(
        sum(keyRow(tokens, "a", head), keyRow(params, "dt_bias", head)),
        [&](double a) {
          return bounded ? lowerBound * sigmoid(rate * a) : -rate * softplus(a);
        });
    double beta = sigmoid(number(tokens, "b", head));
    Vector k = l2Normalised(keyRow(tokens, "k", head));
    return apply(head, g, l2Normalised(keyRow(tokens, "q", head)), k,
                 scaled(k, beta), scaled(valueRow(tokens, "v", head), beta));
  }

  bool bounded;
  double lowerBound;
};

class Gdn2 : public LeftDelta {
public:
  explicit Gdn2(const ReferenceShape &shape)
      : LeftDelta(shape.size("Hv"), shape) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens,
                  int64_t head) override {
    double rate = std::exp(number(params, "A_log", head));
    Vector g =
        map(sum(keyRow(tokens, "a", head), keyRow(params, "dt_bias", head)),
            [&](double a) { return -rate * softplus(a); });
    Vector k = l2Normalised(keyRow(tokens, "k", head));
    Vector b = map(keyRow(tokens, "b", head), sigmoid);
    Vector w = map(valueRow(tokens, "w", head), sigmoid);
    return apply(head, g, l2Normalised(keyRow(tokens, "q", head)), k,
                 product(b, k), product(w, valueRow(tokens, "v", head)));
  }
};

} // namespace

std::unique_ptr<Reference>
ladle::reference::makeDelta(const std::string &model,
                            const ReferenceShape &shape) {
  if (model == "delta_net")
    return std::make_unique<DeltaNet>(shape);
  if (model == "gated_delta_rule")
    return std::make_unique<GatedDeltaRule>(shape);
  if (model == "gated_delta_net")
    return std::make_unique<GatedDeltaNet>(shape);
  if (model == "kda")
    return std::make_unique<Kda>(shape, /*bounded=*/false);
  if (model == "kda_lower_bound")
    return std::make_unique<Kda>(shape, /*bounded=*/true);
  if (model == "gdn2")
    return std::make_unique<Gdn2>(shape);
  return nullptr;
}
