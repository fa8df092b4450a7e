//===- DraftLayers.h - Layers that verify in turns ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DRAFTLAYERS_H
#define LADLE_TOOLS_LADLE_DRAFTLAYERS_H

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/measure/Gpu.h"

#include <functional>

namespace ladle::tool {

/// Layers of a program that take turns, in memory of more than the L2, and
/// share cursors. Steps are launched by the calls that an engine makes.
class DraftLayers {
public:
  struct Options {
    CursorOptions cursors;
    double batchBytes = 0; ///< that a step cannot do without
    int64_t drafts = 0;    ///< of all rows, for which there are tokens
    /// Steps start before those of the layers ahead of them have ended.
    bool startsEarly = false;
    double replaySeconds = 2e-3;
    double restSeconds = 0; ///< before each that is timed
  };
  static Result<DraftLayers> create(const SourceOptions &source,
                                    const CompileOptions &compile,
                                    const measure::Gpu &gpu,
                                    const Options &options);

  int64_t count() const { return static_cast<int64_t>(layers.size()); }
  DeviceId device() const { return program.device(); }

  /// One layer after another; tensors are added to `given`.
  Status verify(VerifyArguments given, int64_t steps);
  Status verifyEach(const VerifyArguments &given) {
    return verify(given, count());
  }
  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> path);
  Status flush(std::span<const int32_t> slots);

  /// Steps of a replay, of `leastSeconds` each: `least` of them at least.
  int64_t stepsOf(double leastSeconds, int64_t least) const;
  /// A GPU that has worked for long lowers its clock to keep to its power, so
  /// that what is timed next would depend on what was timed before.
  void rest() const;
  /// Samples in seconds of one of the `steps` that `launch` launches.
  Result<std::vector<double>> time(const std::function<Status()> &launch,
                                   int64_t steps, int64_t samples) const;

  Cursors cursors;

private:
  struct Layer {
    std::unique_ptr<Pool> pool;
    Decoder decoder;
  };
  DraftLayers(Program program, Cursors cursors, DeviceInputs inputs,
              const measure::Gpu &gpu, const Options &options);

  Program program;
  DeviceInputs inputs;
  const measure::Gpu *gpu;
  Options options;
  std::vector<Layer> layers;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_DRAFTLAYERS_H
