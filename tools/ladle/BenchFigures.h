//===- BenchFigures.h - what a benchmark measures ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_BENCHFIGURES_H
#define LADLE_TOOLS_LADLE_BENCHFIGURES_H

#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/BenchStore.h"

namespace ladle::tool {

struct BenchFigure {
  BenchKey key;
  GpuSpec spec;
};

/// Every combination of the options. The route `auto` is what was tuned on
/// `device` for a batch, or else what the model chooses.
Result<std::vector<BenchFigure>> listFigures(const BenchOptions &options,
                                             const std::string &device,
                                             GpuPlans &plans);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_BENCHFIGURES_H
