//===- Reference.h - independent float64 models -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every model of examples/ a second time: plain C++ in float64, one token at a
// time, written from the equations of its paper and on purpose not in the form
// of its .ladle file, so that an error in either shows as a difference.
//
// Params, tokens, outputs, states, sizes and options carry the names of the
// .ladle file. Tensors are row-major, heads first.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_REFERENCE_H
#define LADLE_TESTS_MODELS_REFERENCE_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ladle::reference {

/// What a preset of the .ladle file fixes.
struct ReferenceShape {
  /// Every size parameter, for instance {"Hk", 2}.
  std::map<std::string, int64_t> sizes;
  /// The options that differ from the defaults of the .ladle file.
  std::map<std::string, double> options;

  int64_t size(const std::string &name) const { return sizes.at(name); }
  double option(const std::string &name, double byDefault) const {
    auto it = options.find(name);
    return it == options.end() ? byDefault : it->second;
  }
};

using Tensors = std::map<std::string, std::vector<double>>;

/// One sequence of one model, from an empty history on.
class Reference {
public:
  virtual ~Reference();

  /// Takes one token and returns its outputs by name. The params are constants
  /// of the layer: pass the same ones for every token. Throws std::out_of_range
  /// if a param or token is missing.
  virtual Tensors step(const Tensors &params, const Tensors &tokens) = 0;

  /// The state `name` after the last token, laid out [heads, key, value].
  /// Throws std::out_of_range if the model has no such state.
  virtual std::vector<double> state(const std::string &name) const = 0;
};

/// The reference of examples/MODEL.ladle, or null if there is none.
std::unique_ptr<Reference> makeReference(const std::string &model,
                                         const ReferenceShape &shape);

/// All models that makeReference knows, in alphabetical order.
std::vector<std::string> modelNames();

/// Where random inputs come from: the standard normal distribution, or the
/// uniform one over [low, high).
struct InputRange {
  double low, high;
  bool normal;
};

/// The range of every param and token of `model`, such that random inputs stay
/// in the regime that the model lives in (decays within (0, 1), the delta rule
/// contracting). `shape` is needed where a range depends on a size: the keys of
/// gated_delta_rule are about of unit length. Empty for an unknown model.
std::map<std::string, InputRange> inputRanges(const std::string &model,
                                              const ReferenceShape &shape);

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_REFERENCE_H
