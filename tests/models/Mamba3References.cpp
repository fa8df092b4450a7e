//===- Mamba3References.cpp - Mamba-3 with a complex state ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Mamba-3 before its rotary trick: a pair of state channels is one complex
// number that turns by its own angle every token, while B and C stay where they
// are. With the drive f_t = sum_r x_{t,r} B_{t,r}^T the trapezoid over a token
// of length dt reads
//
//   h_t = e^{(A - i theta) dt} (h_{t-1} + (1 - lambda) dt f_{t-1})
//         + lambda dt f_t,            y_{t,r} = Re(conj(C_{t,r}) h_t).
//
// The state of the .ladle file, whose B and C turn instead, is h_t turned by
// the sum of all angles.
//
//===----------------------------------------------------------------------===//

#include "tests/models/Families.h"
#include "tests/models/ReferenceMath.h"

#include <complex>
#include <numbers>
#include <stdexcept>

using namespace ladle::reference;

namespace {

using Complex = std::complex<double>;
using ComplexVector = std::vector<Complex>;

class Mamba3 : public Reference {
public:
  Mamba3(const ReferenceShape &shape, bool mimo)
      : mimo(mimo), heads(shape.size("H")), groups(shape.size("G")),
        rank(mimo ? shape.size("R") : 1), keyWidth(shape.size("N")),
        valueWidth(shape.size("P")), angles(shape.size("A")),
        normEps(shape.option("norm_eps", 1e-5)),
        floor(shape.option("a_floor", 1e-4)),
        pi(shape.option("pi", std::numbers::pi)),
        states(heads, Head(valueWidth, pairs())) {}

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
    for (const Head &head : states)
      for (int64_t n = 0; n < keyWidth; ++n)
        for (int64_t p = 0; p < valueWidth; ++p) {
          Complex turned =
              std::polar(1.0, head.turn[n / 2]) * head.h[p * pairs() + n / 2];
          result.push_back(n % 2 ? turned.imag() : turned.real());
        }
    return result;
  }

private:
  struct Head {
    Head(int64_t valueWidth, int64_t pairs)
        : h(valueWidth * pairs), drive(valueWidth * pairs), turn(pairs) {}
    ComplexVector h, drive; // [value, pair]; drive is that of the last token
    Vector turn;            // the sum of the angles of each pair
  };

  /// Channels 2i and 2i + 1 are the real and imaginary part of pair i; an odd
  /// last channel has no imaginary part.
  int64_t pairs() const { return (keyWidth + 1) / 2; }

  /// Row r of B or C of a head, normed and biased, as pairs. The tensors are
  /// [groups, rank, N], the biases [heads, rank, N].
  ComplexVector projection(const Tensors &params, const Tensors &tokens,
                           const std::string &name, int64_t head,
                           int64_t r) const {
    int64_t group = head / (heads / groups);
    Vector row =
        headRow(tokens.at(name), keyWidth, group * rank + r, groups * rank);
    Vector bias = headRow(params.at(name + "_bias"), keyWidth, head * rank + r,
                          heads * rank);
    row = sum(product(rmsNormalised(row, normEps), params.at(name + "_norm")),
              bias);
    ComplexVector result(pairs());
    for (int64_t n = 0; n < keyWidth; ++n)
      result[n / 2] += n % 2 ? Complex(0, row[n]) : Complex(row[n], 0);
    return result;
  }

  /// mimo_x, mimo_z or mimo_o of a rank; ones where there is only one.
  Vector spread(const Tensors &params, const char *name, int64_t head,
                int64_t r) const {
    if (!mimo)
      return Vector(valueWidth, 1);
    return headRow(params.at(name), valueWidth, head * rank + r, heads * rank);
  }

  Vector stepHead(const Tensors &params, const Tensors &tokens, int64_t head) {
    auto number = [&](const Tensors &tensors, const char *name) {
      return headValue(tensors.at(name), head, heads);
    };
    double dt = softplus(number(tokens, "dt") + number(params, "dt_bias"));
    double a = -std::fmax(softplus(number(tokens, "da")), floor);
    double lambda = sigmoid(number(tokens, "trap"));
    Vector x = headRow(tokens.at("x"), valueWidth, head, heads);
    Vector z = headRow(tokens.at("z"), valueWidth, head, heads);
    Head &state = states[head];

    ComplexVector drive(valueWidth * pairs());
    for (int64_t r = 0; r < rank; ++r) {
      ComplexVector b = projection(params, tokens, "B", head, r);
      Vector input = product(x, spread(params, "mimo_x", head, r));
      for (int64_t p = 0; p < valueWidth; ++p)
        for (int64_t i = 0; i < pairs(); ++i)
          drive[p * pairs() + i] += input[p] * b[i];
    }
    for (int64_t i = 0; i < pairs(); ++i) {
      double angle =
          i < angles ? dt * pi * std::tanh(tokens.at("theta")[i]) : 0;
      state.turn[i] += angle;
      Complex transition = std::exp(Complex(a * dt, -angle));
      for (int64_t p = 0; p < valueWidth; ++p) {
        int64_t at = p * pairs() + i;
        state.h[at] =
            transition * (state.h[at] + (1 - lambda) * dt * state.drive[at]) +
            lambda * dt * drive[at];
      }
    }
    state.drive = drive;

    Vector y(valueWidth);
    for (int64_t r = 0; r < rank; ++r) {
      ComplexVector c = projection(params, tokens, "C", head, r);
      Vector input = product(x, spread(params, "mimo_x", head, r));
      Vector gate = product(z, spread(params, "mimo_z", head, r));
      Vector output = spread(params, "mimo_o", head, r);
      for (int64_t p = 0; p < valueWidth; ++p) {
        double read = number(params, "D") * input[p];
        for (int64_t i = 0; i < pairs(); ++i)
          read += (std::conj(c[i]) * state.h[p * pairs() + i]).real();
        y[p] += read * silu(gate[p]) * output[p];
      }
    }
    return y;
  }

  bool mimo;
  int64_t heads, groups, rank, keyWidth, valueWidth, angles;
  double normEps, floor, pi;
  std::vector<Head> states;
};

} // namespace

std::unique_ptr<Reference>
ladle::reference::makeMamba3(const std::string &model,
                             const ReferenceShape &shape) {
  if (model == "mamba3" || model == "mamba3_mimo")
    return std::make_unique<Mamba3>(shape, model == "mamba3_mimo");
  return nullptr;
}
