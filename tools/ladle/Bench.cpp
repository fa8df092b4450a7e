//===- Bench.cpp - ladle bench --------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Bench.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

int tool::bench(const BenchOptions &options) {
  if (options.drafts && options.prompts) {
    fmt::print(stderr, "error: prompts and drafts are timed apart\nnote: "
                       "leave --drafts or --prompts out\n");
    return 2;
  }
  if (options.device == "cpu" && (options.drafts || options.prompts)) {
    fmt::print(stderr,
               "error: {} are timed on a GPU\nnote: leave {} or --device cpu "
               "out\n",
               options.drafts ? "steps with drafts" : "prompts",
               options.drafts ? "--drafts" : "--prompts");
    return 2;
  }
  if (options.drafts && (!options.schedule.empty() || !options.forms.empty())) {
    fmt::print(stderr,
               "error: steps with drafts are laid out by the generator\nnote: "
               "leave --drafts out, or --schedule and --forms\n");
    return 2;
  }
  if (options.device == "cpu")
    return benchOnHost(options);
  Result<measure::Gpu> gpu = measure::Gpu::open();
  if (options.drafts || options.prompts) {
    if (gpu)
      return options.drafts ? benchDrafts(options, *gpu)
                            : benchPrompts(options, *gpu);
    fmt::print(stderr, "error: {}\n", gpu.message());
    return 1;
  }
  if (gpu)
    return benchOnGpu(options, *gpu);
  if (options.device == "gpu") {
    fmt::print(stderr, "error: {}\n", gpu.message());
    return 1;
  }
  return benchOnHost(options);
}
