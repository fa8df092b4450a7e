//===- CheckOptions.cpp - what can be compiled ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/CheckOptions.h"
#include "runtime/Kernels.h"
#include "runtime/jit/GpuLayout.h"

using namespace ladle;

bool jit::foldsByChunk(const CompileOptions &options) {
  return options.numerics == "chunk";
}

CompileOptions jit::complete(const CompileOptions &options) {
  CompileOptions result = options;
  if (foldsByChunk(options)) {
    result.prefill = true;
    result.capacity = options.chunk;
  }
  return result;
}

Status jit::checkOptions(const CompileOptions &options) {
  auto invalid = [](const char *what, const std::string &got,
                    const char *wanted) {
    return Status(ErrorCode::InvalidArgument,
                  std::string(what) + " is " + got + ", expected " + wanted);
  };
  if (options.capacity < 1)
    return invalid("capacity", std::to_string(options.capacity),
                   "at least 1 entry");
  if (options.page != 0 && options.page != 8 && options.page != 16)
    return invalid("page", std::to_string(options.page),
                   "8 or 16 entries, or 0 for none");
  if (options.drafts < 0 || options.drafts > maxDrafts)
    return invalid("drafts", std::to_string(options.drafts),
                   "0 to 16 drafts a row");
  constexpr int64_t maxCapacity = 1024;
  if (options.capacity > maxCapacity)
    return invalid("capacity", std::to_string(options.capacity),
                   "1 to 1024 entries");
  if (options.capacity < 2 * options.drafts) {
    std::string wanted = "at least twice the drafts of a row, " +
                         std::to_string(2 * options.drafts) +
                         ", so that those of the next step find room";
    return invalid("capacity", std::to_string(options.capacity),
                   wanted.c_str());
  }
  if (options.chunk < 1 || options.chunk > maxChunk)
    return invalid("chunk", std::to_string(options.chunk),
                   "1 to 256 tokens of a prompt");
  if (options.numerics != "step" && options.numerics != "chunk")
    return invalid("numerics", "'" + options.numerics + "'", "step or chunk");
  if (foldsByChunk(options) && options.drafts > 0)
    return invalid("drafts", std::to_string(options.drafts),
                   "0 with numerics = chunk: what is accepted of drafts ends "
                   "anywhere, and not where chunks do");
  if (foldsByChunk(options) && options.route == "recurrent")
    return invalid("route", "'recurrent'",
                   "one with a buffer with numerics = chunk: this one folds "
                   "every token");
  if (options.longRoute != "inner" && options.longRoute != "outer" &&
      options.longRoute != "recurrent")
    return invalid("longRoute", "'" + options.longRoute + "'",
                   "inner, outer or recurrent");
  if (options.longRoute == "recurrent" &&
      (options.drafts > 0 || foldsByChunk(options)))
    return invalid("longRoute", "'recurrent'",
                   "inner or outer: drafts and chunks need a buffer");
  if (options.batch < 1)
    return invalid("batch", std::to_string(options.batch), "at least 1 row");
  if (options.context < 0)
    return invalid("context", std::to_string(options.context),
                   "0 or more tokens");
  if (options.entryType != "f32" && options.entryType != "bf16" &&
      options.entryType != "f16")
    return invalid("entryType", "'" + options.entryType + "'",
                   "f32, bf16 or f16");
  if (std::string wrong = checkLayout(options.schedule); !wrong.empty())
    return Status(ErrorCode::InvalidArgument, "schedule: " + wrong);
  if (!parseStateLayout(options.stateLayout))
    return invalid("stateLayout", "'" + options.stateLayout + "'",
                   "dv_dk or dk_dv");
  return Status();
}

Status jit::checkTarget(const CompileOptions &options, bool isGpu) {
  if (foldsByChunk(options) && options.page > 0 && isGpu)
    return Status(ErrorCode::Unsupported,
                  "page is " + std::to_string(options.page) +
                      ", expected 0 with numerics = chunk: on a GPU what "
                      "follows the last whole chunk lies in rings");
  if (options.page > 0 && options.longRoute == "recurrent" && isGpu)
    return Status(ErrorCode::Unsupported,
                  "longRoute is 'recurrent', expected inner or outer: on a GPU "
                  "rows go on in the pages that they have");
  if (options.drafts > 0 && isGpu && options.stateLayout == "dk_dv")
    return Status(ErrorCode::Unsupported,
                  "stateLayout is 'dk_dv', expected 'dv_dk': drafts of states "
                  "that lie [dk, dv] are not verified on a GPU yet");
  return Status();
}
