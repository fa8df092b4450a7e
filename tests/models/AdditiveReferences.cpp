//===- AdditiveReferences.cpp - linear attention in sums --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The models whose writes do not depend on the state, in the parallel form of
// their papers: no state is ever updated, every output is the sum over all
// tokens so far,
//
//   y_t = sum_{i <= t} ((q_t * w_{i,t}) . k_i) v_i,
//
// where w_{i,t} is the product of the decays after token i. Quadratic in the
// length.
//
//===----------------------------------------------------------------------===//

#include "tests/models/Families.h"
#include "tests/models/ReferenceMath.h"

#include <stdexcept>

using namespace ladle::reference;

namespace {

/// The tokens of one head.
class History {
public:
  /// Appends a token: what is older is weighted by exp(logDecay) from now on,
  /// a number for every key channel.
  void push(const Vector &logDecay, const Vector &key, const Vector &value) {
    cumulative = keys.empty() ? logDecay : sum(cumulative, logDecay);
    logs.push_back(cumulative);
    keys.push_back(key);
    values.push_back(value);
  }

  /// The sum above, for a query of the newest token.
  Vector attend(const Vector &query) const {
    Vector output(values.empty() ? 0 : values[0].size());
    for (size_t i = 0; i < keys.size(); ++i)
      output = sum(output, scaled(values[i], dot(query, weightedKey(i))));
    return output;
  }

  /// Appends the sum of the weighted k v^T to `state`.
  void appendState(Vector &state) const {
    Matrix total(keys[0].size(), values[0].size());
    for (size_t i = 0; i < keys.size(); ++i)
      total.addOuter(1, weightedKey(i), values[i]);
    append(state, total.values);
  }

  size_t length() const { return keys.size(); }

  /// w_{i,t} * k_i
  Vector weightedKey(size_t i) const {
    Vector key = keys[i];
    for (size_t c = 0; c < key.size(); ++c)
      key[c] *= std::exp(cumulative[c] - logs[i][c]);
    return key;
  }

private:
  std::vector<Vector> keys, values, logs;
  Vector cumulative;
};

class Additive : public Reference {
public:
  Additive(int64_t heads, int64_t keyWidth, int64_t valueWidth)
      : heads(heads), keyWidth(keyWidth), valueWidth(valueWidth),
        histories(heads) {}

  std::vector<double> state(const std::string &name) const override {
    if (name != "S")
      throw std::out_of_range("no state " + name);
    Vector result;
    for (const History &history : histories) {
      if (history.length() == 0)
        return Vector(heads * keyWidth * valueWidth);
      history.appendState(result);
    }
    return result;
  }

  Tensors step(const Tensors &params, const Tensors &tokens) override {
    Vector y;
    for (int64_t head = 0; head < heads; ++head)
      append(y, stepHead(params, tokens, head, histories[head]));
    return {{"y", y}};
  }

protected:
  virtual Vector stepHead(const Tensors &params, const Tensors &tokens,
                          int64_t head, History &history) = 0;

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
  std::vector<History> histories;
};

/// Katharopoulos et al. 2020, eq. 8 and 9: attention whose similarity is
/// phi(q) . phi(k).
class LinearAttention : public Additive {
public:
  explicit LinearAttention(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("Dk"), shape.size("Dv")),
        eps(shape.option("eps", 1e-6)) {}

private:
  static double phi(double x) { return x > 0 ? x + 1 : std::exp(x); }

  Vector stepHead(const Tensors &, const Tensors &tokens, int64_t head,
                  History &history) override {
    history.push(Vector(keyWidth), map(keyRow(tokens, "k", head), phi),
                 valueRow(tokens, "v", head));
    Vector query = map(keyRow(tokens, "q", head), phi);
    double total = eps;
    for (size_t i = 0; i < history.length(); ++i)
      total += dot(query, history.weightedKey(i));
    return scaled(history.attend(query), 1 / total);
  }

  double eps;
};

/// RetNet, eq. 5: (Q K^T * D) V with D_nm = gamma^(n - m).
class RetNet : public Additive {
public:
  explicit RetNet(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("Dk"), shape.size("Dv")) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head,
                  History &history) override {
    Vector decay(keyWidth, std::log(number(params, "gamma", head)));
    // The scale is the key's, as in the published code.
    history.push(decay,
                 scaled(keyRow(tokens, "k", head), std::pow(keyWidth, -0.5)),
                 valueRow(tokens, "v", head));
    return history.attend(keyRow(tokens, "q", head));
  }
};

/// Lightning attention: ((Q K^T) * M) V with M_ts = exp(-slope (t - s)).
class Lightning : public Additive {
public:
  explicit Lightning(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("Dk"), shape.size("Dv")) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head,
                  History &history) override {
    history.push(Vector(keyWidth, -number(params, "slope", head)),
                 map(keyRow(tokens, "k", head), silu),
                 map(valueRow(tokens, "v", head), silu));
    return history.attend(map(keyRow(tokens, "q", head), silu));
  }
};

/// GLA, the parallel form: ((Q * B) (K / B)^T) V with B the products of alpha.
class Gla : public Additive {
public:
  explicit Gla(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("Dk"), shape.size("Dv")),
        normalizer(shape.option("gate_normalizer", 16)) {}

private:
  Vector stepHead(const Tensors &, const Tensors &tokens, int64_t head,
                  History &history) override {
    Vector decay = map(keyRow(tokens, "g", head), [&](double g) {
      return std::log(std::pow(sigmoid(g), 1 / normalizer));
    });
    history.push(decay, keyRow(tokens, "k", head), valueRow(tokens, "v", head));
    return scaled(history.attend(keyRow(tokens, "q", head)),
                  1 / std::sqrt(keyWidth));
  }

  double normalizer;
};

/// RWKV-6: wkv_t = diag(u) k_t^T v_t + sum_{i<t} diag(prod_{i<j<t} w_j) k_i^T
/// v_i
class Rwkv6 : public Additive {
public:
  explicit Rwkv6(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("Dk"), shape.size("Dv")) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head,
                  History &history) override {
    Vector r = keyRow(tokens, "r", head), k = keyRow(tokens, "k", head);
    Vector u = keyRow(params, "u", head), v = valueRow(tokens, "v", head);
    // The decays between i and t leave out the one of t: attend first.
    Vector past = history.length() ? history.attend(r) : Vector(valueWidth);
    for (int64_t i = 0; i < keyWidth; ++i)
      for (int64_t j = 0; j < valueWidth; ++j)
        past[j] += r[i] * u[i] * k[i] * v[j];
    Vector decay =
        map(keyRow(tokens, "w", head), [](double w) { return -std::exp(w); });
    history.push(decay, k, v);
    return past;
  }
};

/// Mamba, unrolled: y = sum_s C exp(sum_{s<r<=t} A dt_r) dt_s B_s x_s, plus
/// skip x, gated by silu(z); A has a number for each of a channel's.
class Mamba : public Additive {
public:
  explicit Mamba(const ReferenceShape &shape)
      : Additive(shape.size("D"), shape.size("N"), 1) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head,
                  History &history) override {
    double dt =
        softplus(number(tokens, "dt", head) + number(params, "dt_bias", head));
    double x = number(tokens, "x", head), z = number(tokens, "z", head);
    Vector decay = map(keyRow(params, "A_log", head),
                       [&](double a) { return -std::exp(a) * dt; });
    history.push(decay, keyRow(tokens, "B", head), Vector(1, x * dt));
    double y = history.attend(keyRow(tokens, "C", head))[0];
    return {(y + number(params, "skip", head) * x) * silu(z)};
  }
};

/// Mamba-2, the dual form of the paper: y = (L * C B^T) (dt x) with
/// L_ts = exp(sum_{s<r<=t} A dt_r), plus D x, gated by silu(z).
class Mamba2 : public Additive {
public:
  explicit Mamba2(const ReferenceShape &shape)
      : Additive(shape.size("H"), shape.size("N"), shape.size("P")) {}

private:
  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head,
                  History &history) override {
    double a = -std::exp(number(params, "A_log", head));
    double dt =
        softplus(number(tokens, "dt", head) + number(params, "dt_bias", head));
    Vector x = valueRow(tokens, "x", head), z = valueRow(tokens, "z", head);
    history.push(Vector(keyWidth, a * dt), keyRow(tokens, "B", head),
                 scaled(x, dt));
    Vector y = history.attend(keyRow(tokens, "C", head));
    for (int64_t p = 0; p < valueWidth; ++p)
      y[p] = (y[p] + number(params, "D", head) * x[p]) * silu(z[p]);
    return y;
  }
};

} // namespace

std::unique_ptr<Reference>
ladle::reference::makeAdditive(const std::string &model,
                               const ReferenceShape &shape) {
  if (model == "linear_attention")
    return std::make_unique<LinearAttention>(shape);
  if (model == "retnet")
    return std::make_unique<RetNet>(shape);
  if (model == "lightning")
    return std::make_unique<Lightning>(shape);
  if (model == "gla")
    return std::make_unique<Gla>(shape);
  if (model == "rwkv6")
    return std::make_unique<Rwkv6>(shape);
  if (model == "mamba")
    return std::make_unique<Mamba>(shape);
  if (model == "mamba2")
    return std::make_unique<Mamba2>(shape);
  return nullptr;
}
