//===- Bench.h - where a benchmark runs -------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_BENCH_H
#define LADLE_TOOLS_LADLE_BENCH_H

#include "ladle/attention.h"
#include "tools/ladle/Commands.h"
#include "tools/measure/Gpu.h"

namespace ladle::tool {

int benchOnGpu(const BenchOptions &options, const measure::Gpu &gpu);
/// How the attention of the file is compiled for a GPU.
AttentionCompileOptions attentionOptions(const BenchOptions &options);
int benchAttention(const BenchOptions &options, const measure::Gpu &gpu);
int benchAttentionPrompts(const BenchOptions &options, const measure::Gpu &gpu);
/// An attention with a bounded cache, on a GPU.
int benchBoundedOnGpu(const BenchOptions &options, const measure::Gpu &gpu);
int benchDrafts(const BenchOptions &options, const measure::Gpu &gpu);
int benchMixed(const BenchOptions &options, const measure::Gpu &gpu);
int benchPrompts(const BenchOptions &options, const measure::Gpu &gpu);
int benchOnHost(const BenchOptions &options);
/// An attention with a bounded cache, on the CPU.
int benchBounded(const BenchOptions &options, const std::string &source);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_BENCH_H
