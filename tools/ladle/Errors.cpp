//===- Errors.cpp - what commands say of failures -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Errors.h"

#include <cstdio>

using namespace ladle;

void tool::printError(const Status &status) {
  const std::string &message = status.message();
  if (message.empty())
    return;
  bool isDiagnostic = message.find("error:") != std::string::npos;
  std::fprintf(stderr, "%s%s%s", isDiagnostic ? "" : "error: ", message.c_str(),
               message.back() == '\n' ? "" : "\n");
}

Status tool::refuseStates(const SourceOptions &source, std::string_view flag) {
  return refuse(source, {flag},
                {"recurrences and memories",
                 "the file declares an attention with a paged cache"});
}

Status tool::refuseEntries(const SourceOptions &source) {
  return refuse(source, {"--entry"},
                {"recurrences and attentions that match",
                 "the file declares an attention without a match"});
}

Status tool::refuse(const SourceOptions &source,
                    std::initializer_list<std::string_view> flags,
                    Refusal refusal) {
  for (std::string_view flag : flags)
    if (source.given.contains(flag))
      return Status(ErrorCode::InvalidArgument,
                    std::string(flag) + " is for " +
                        std::string(refusal.takers) + ", and " +
                        std::string(refusal.reason) + "\nnote: leave it out");
  return Status();
}
