//===- TuneAttention.h - ladle tune of an attention -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TUNEATTENTION_H
#define LADLE_TOOLS_LADLE_TUNEATTENTION_H

#include "tools/ladle/Commands.h"

#include <functional>
#include <optional>

namespace ladle::tool {

/// `ladle tune FILE --trace ...`: for each layer the cheapest tau, K and r that
/// hold a bound of the error on its traces.
int tuneAttention(const TuneRequest &request);

/// Sizes of an attention from the shapes of its tokens, without the dimension
/// of tokens; `shapeOf` returns null for names that it does not know. Nothing
/// if the file has errors, which are on stderr.
std::optional<std::map<std::string, int64_t>> sizesOfTokens(
    const SourceOptions &source,
    const std::function<const std::vector<int64_t> *(const std::string &)>
        &shapeOf);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNEATTENTION_H
