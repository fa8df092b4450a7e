//===- RunAttentionInputs.h - what an attention is run on -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_RUNATTENTIONINPUTS_H
#define LADLE_TOOLS_LADLE_RUNATTENTIONINPUTS_H

#include "ladle/status.h"
#include "ladle/types.h"
#include "tools/ladle/Commands.h"

#include <map>
#include <string>
#include <vector>

namespace ladle::tool {

int64_t elementsOf(const TensorSpec &spec);

/// Tokens of a trace and parameters of its file or another, or random ones.
struct RunAttentionInputs {
  /// By token and parameter; of a token [tokens, heads, ...].
  std::map<std::string, std::vector<float>> values;
  int64_t tokens = 0;

  /// InvalidArgument for a shape that is not the program's, numbers that are
  /// not finite, and a trace without tokens.
  static Result<RunAttentionInputs> load(const RunOptions &options,
                                         const Signature &signature);

  /// Sizes that the shapes of a trace say, under those that the user does;
  /// these alone without a trace, or where the user chose a preset.
  static Result<std::map<std::string, int64_t>>
  sizes(const RunOptions &options, const std::string &source);
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_RUNATTENTIONINPUTS_H
