//===- SizesOfTokens.h - sizes from the shapes of tokens --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_SIZESOFTOKENS_H
#define LADLE_TOOLS_LADLE_SIZESOFTOKENS_H

#include "tools/ladle/Commands.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ladle::tool {

/// Sizes of a declaration of `text` from the shapes of its tokens, without the
/// dimension of tokens; `shapeOf` returns none for names that it does not know.
/// None if the text has errors, which are on stderr.
std::optional<std::map<std::string, int64_t>> sizesOfTokens(
    const SourceOptions &source, llvm::StringRef text,
    llvm::function_ref<std::optional<std::vector<int64_t>>(const std::string &)>
        shapeOf);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_SIZESOFTOKENS_H
