//===- Errors.h - what commands say of failures -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_ERRORS_H
#define LADLE_TOOLS_LADLE_ERRORS_H

#include "ladle/status.h"
#include "tools/ladle/Commands.h"

#include <initializer_list>
#include <string_view>

namespace ladle::tool {

/// Prints the message of a failure after "error: ", which diagnostics of the
/// compiler bring themselves; nothing where there is none, because it has been
/// printed.
void printError(const Status &status);

/// What options are for, and why a command has no use for them.
struct Refusal {
  std::string_view takers = "recurrences";
  std::string_view reason = "the file declares an attention";
};

/// An error if the user gave one of `flags`: they would change nothing.
Status refuse(const SourceOptions &source,
              std::initializer_list<std::string_view> flags,
              Refusal refusal = {});
/// The same of what says how states are stored, where an attention has pages
/// and no memory.
Status refuseStates(const SourceOptions &source,
                    std::string_view flag = "--state");

/// The same of what says how summaries are stored, where an attention keeps
/// none.
Status refuseEntries(const SourceOptions &source);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_ERRORS_H
