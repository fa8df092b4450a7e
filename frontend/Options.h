//===- Options.h - how a file is elaborated ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_OPTIONS_H
#define LADLE_FRONTEND_OPTIONS_H

#include <cstdint>
#include <map>
#include <string>

namespace ladle::frontend {

/// How sizes, options and storage types are chosen.
struct ElaborationOptions {
  /// Empty: the first recurrence of the file.
  std::string recurrence;
  /// Whether the caller knows what to do with an attention; one that is chosen
  /// is an error otherwise.
  bool takesAttention = false;
  /// Empty: the first preset, if there is one.
  std::string preset;
  /// Override the preset. A name may stand in either map, whether it is a size
  /// or an option, so that `--set name=value` need not know.
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> options;
  /// Storage types f32, bf16 or f16 by the name of a state, or "*" for all.
  std::map<std::string, std::string> stateTypes;
  /// Likewise for tokens and outputs.
  std::map<std::string, std::string> tokenTypes;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_OPTIONS_H
