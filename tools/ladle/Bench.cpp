//===- Bench.cpp - ladle bench --------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Bench.h"
#include "runtime/check/BoundedCheck.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/SourceChoices.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

/// Of steps on a CPU.
static Status takesHostOptions(const SourceOptions &source) {
  return refuse(source,
                {"--batch", "--schedule", "--early", "--profile", "--forms",
                 "--layers", "--context"},
                {"a GPU", "the steps are timed on the CPU"});
}

/// Whether options that would change nothing were left out, or an error.
static Status takesOptions(const BenchOptions &options, bool isAttention,
                           bool isBounded) {
  const SourceOptions &source = options.source;
  if (!isAttention) {
    Status status =
        refuse(source, {"--context", "--alike", "--batch-invariant"},
               {"attentions", "the file declares a recurrence"});
    if (status && options.prompts)
      status = refuse(source, {"--schedule"}, {"steps", "prompts are timed"});
    if (status && options.device == "cpu")
      status = takesHostOptions(source);
    for (auto [flag, count] : {std::pair{"--m", options.thresholds.size()},
                               {"--entries", options.entries.size()}})
      if (status && options.device == "cpu" && count > 1)
        return Status(ErrorCode::InvalidArgument,
                      fmt::format("{} has {} elements, and the steps are timed "
                                  "on the CPU\nnote: there it is one at a time",
                                  flag, count));
    return status;
  }
  Status status =
      refuse(source, {"--routes", "--entries", "--m", "--mixed", "--memory",
                      "--layers", "--forms", "--state-layout"});
  if (status && !isBounded)
    return refuseStates(source, "--states");
  if (status)
    status = refuse(source, {"--alike", "--batch-invariant"},
                    {"attentions with a paged cache",
                     "the file declares one with a bounded cache"});
  return status && options.device == "cpu" ? takesHostOptions(source) : status;
}

int tool::bench(const BenchOptions &options) {
  bool hasDrafts = !options.drafts.empty() || options.mixed;
  if (hasDrafts && options.prompts) {
    fmt::print(stderr, "error: prompts and drafts are timed apart\nnote: "
                       "leave --drafts or --prompts out\n");
    return 2;
  }
  if (options.device == "cpu" && (hasDrafts || options.prompts)) {
    fmt::print(stderr,
               "error: {} are timed on a GPU\nnote: leave {} or --device cpu "
               "out\n",
               options.mixed ? "mixed batches"
               : hasDrafts   ? "steps with drafts"
                             : "prompts",
               options.mixed ? "--mixed"
               : hasDrafts   ? "--drafts"
                             : "--prompts");
    return 2;
  }
  if (hasDrafts && !options.forms.empty()) {
    fmt::print(stderr, "error: kernels that verify have no forms to compare\n"
                       "note: leave --drafts or --forms out\n");
    return 2;
  }
  if (!hasDrafts && (options.memory > 0 || options.capacity > 0)) {
    fmt::print(stderr,
               "error: {} is about {} with drafts\nnote: "
               "set --drafts too, for instance --drafts 1,2,4,8\n",
               options.memory > 0 ? "--memory" : "--capacity",
               options.memory > 0 ? "requests" : "steps");
    return 2;
  }
  frontend::ElaborationOptions elaboration = elaborationOf(options.source);
  Result<std::string> read = readFile(options.source.file);
  if (!read) {
    printError(read.status());
    return 2;
  }
  const std::string &text = *read;
  // Before anything is measured.
  if (std::string wrong = check::parseErrors(options.source.file, text);
      !wrong.empty()) {
    fmt::print(stderr, "{}", wrong);
    return 1;
  }
  bool isAttention =
      check::choosesAttention(options.source.file, text, elaboration);
  bool isBounded = isAttention && check::hasBoundedCache(options.source.file,
                                                         text, elaboration)
                                      .value_or(false);
  if (Status status = takesOptions(options, isAttention, isBounded); !status) {
    printError(status);
    return 2;
  }
  if (isBounded && options.device == "cpu")
    return benchBounded(options, text);
  if (isAttention && hasDrafts) {
    fmt::print(stderr,
               "error: of an attention steps of a token are timed, or "
               "prompts\nnote: leave {} out\n",
               options.mixed ? "--mixed" : "--drafts");
    return 2;
  }
  const char *onHost = "note: ladle run times an attention with a paged cache "
                       "on a CPU, and bench those with a bounded one\n";
  if (isAttention && options.device == "cpu") {
    fmt::print(stderr,
               "error: attentions with a paged cache are timed on a "
               "GPU\n{}",
               onHost);
    return 2;
  }
  if (options.device == "cpu")
    return benchOnHost(options);
  Result<measure::Gpu> gpu = measure::Gpu::open();
  if (isAttention && gpu)
    return options.prompts ? benchAttentionPrompts(options, *gpu)
           : isBounded     ? benchBoundedOnGpu(options, *gpu)
                           : benchAttention(options, *gpu);
  if (isAttention) {
    fmt::print(stderr, "error: {}\n{}", gpu.message(), onHost);
    return 1;
  }
  if (hasDrafts || options.prompts) {
    if (gpu)
      return options.mixed ? benchMixed(options, *gpu)
             : hasDrafts   ? benchDrafts(options, *gpu)
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
  if (Status status = takesHostOptions(options.source); !status) {
    printError(status);
    return 2;
  }
  return benchOnHost(options);
}
