//===- GpuReference.h - what kernels should answer --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_GPUREFERENCE_H
#define LADLE_TOOLS_MEASURE_GPUREFERENCE_H

#include "frontend/Options.h"
#include "runtime/check/RandomInputs.h"
#include "tools/measure/GpuLayer.h"

#include <map>

namespace ladle::measure {

/// What a program is compiled from, as far as its answers depend on it.
struct GpuSource {
  std::string file;
  frontend::ElaborationOptions elaboration;
  std::string stateType; ///< empty: as declared
  std::string entryType = "f32";
};

/// Random inputs of a few sequences, and the float64 interpreter's answers to
/// them. Both are computed once, as far as somebody asks.
class GpuReference {
public:
  static constexpr int64_t rows = 2;
  static Result<GpuReference> create(const GpuSource &source);

  using Arrays = std::vector<std::vector<double>>;
  Arrays params() const { return drawnParams; }
  Arrays tokens(int64_t row, int64_t position) const;
  /// The answers to `row` at `position`.
  const Arrays &outputs(int64_t row, int64_t position);

  /// What a route may deviate by, as a part of the largest answer: float32
  /// arithmetic, and twice what rounding states and entries costs a float64 run
  /// over `tokens` tokens that folds every `period` (0: never).
  double bound(int64_t period, int64_t tokens);

private:
  GpuReference(interpreter::SpecInterpreter exact,
               interpreter::SpecInterpreter rounding);
  double roundedError(int64_t period, int64_t tokens);

  interpreter::SpecInterpreter exact, rounding;
  check::RandomInputs random{{}, 11};
  Arrays drawnParams;
  struct Sequence {
    interpreter::SpecInterpreter::Row row;
    std::vector<Arrays> outputs;
  };
  std::vector<Sequence> sequences;
  std::map<std::pair<int64_t, int64_t>, double> bounds;
};

struct GpuVerdict {
  double error = 0, bound = 0; ///< relative to the largest answer of a row
  bool passed() const { return error <= bound; } ///< false of NaN
};

/// Decodes a cycle and a bit by the kernels, and compares.
Result<GpuVerdict> checkKernels(const Gpu &gpu, const jit::GpuProgram &program,
                                const LoadedKernels &kernels,
                                const std::string &route, int64_t threshold,
                                GpuReference &reference);

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPUREFERENCE_H
