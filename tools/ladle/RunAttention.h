//===- RunAttention.h - ladle run, of an attention --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_RUNATTENTION_H
#define LADLE_TOOLS_LADLE_RUNATTENTION_H

#include "tools/ladle/Commands.h"
#include "tools/ladle/RunTarget.h"

namespace ladle::tool {

struct AttentionTiming {
  int64_t rows = 0, steps = 0;
  double seconds = 0; ///< a step, on average while contexts grow from nothing
  double atEnd = 0;   ///< a step, of the last eighth
};

struct AttentionRunReport : RunMachine {
  std::string file, name, inputs;
  bool isBounded = false, reuses = false;
  double readBandwidth = 0; ///< bytes a second; 0: not measured
  double compileSeconds = 0;
  int64_t tokens = 0;             ///< asked for
  int64_t rowBytes = 0, rows = 0; ///< of a cache of so many tokens
  int64_t bytesAtEnd = 0;         ///< of the caches in the last step
  int64_t comparedTokens = 0, worstToken = 0;
  int64_t hits = 0, misses = 0; ///< heads of tokens that were compared
  double error = 0, bound = 0;
  AttentionTiming batch, single;
  AttentionTiming prompt; ///< a token of it; no rows: it was not timed

  bool passed() const { return error <= bound; }
  std::string table() const;
  std::string json() const;
};

/// `ladle run` of a file that declares an attention.
int runAttention(const RunOptions &options, const std::string &source);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_RUNATTENTION_H
