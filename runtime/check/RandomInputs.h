//===- RandomInputs.h - inputs in the regime of a model ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_RANDOMINPUTS_H
#define LADLE_RUNTIME_CHECK_RANDOMINPUTS_H

#include "codegen/interpreter/SpecInterpreter.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ladle::check {

/// Where the elements of a param or token are drawn from.
struct InputRange {
  enum class Kind {
    Normal,  ///< standard normal
    Uniform, ///< uniform over [low, high)
    Unit,    ///< vectors of unit length along the last dimension
  };
  Kind kind = Kind::Normal;
  double low = 0, high = 0;

  /// `normal`, `unit`, or `low:high`; nothing if the text is neither, or if
  /// low is not below high.
  static std::optional<InputRange> parse(std::string_view text);
  std::string str() const;
};

/// Ranges by the name of a param or token.
using InputRanges = std::map<std::string, InputRange, std::less<>>;

/// What the field calls its inputs, in the regime that its models live in:
/// keys and queries of unit length, so that a delta rule contracts, log decays
/// below 0, gates as at initialisation. Names that are not here are normal.
const InputRanges &defaultRanges();

/// Draws inputs. An input depends on the seed, the sequence and the position
/// alone, not on what was drawn before.
class RandomInputs {
public:
  /// `overrides` go before the defaults.
  RandomInputs(InputRanges overrides, uint64_t seed)
      : overrides(std::move(overrides)), seed(seed) {}

  /// One array for each of `infos`, rounded to its declared type, so that the
  /// oracle and a compiled step see the same numbers.
  std::vector<std::vector<double>>
  draw(llvm::ArrayRef<interpreter::ValueInfo> infos, uint64_t sequence,
       uint64_t position) const;

  /// The position to draw params with; tokens count from 0.
  static constexpr uint64_t params = ~uint64_t(0);

  InputRange rangeOf(std::string_view name) const;

private:
  InputRanges overrides;
  uint64_t seed;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_RANDOMINPUTS_H
