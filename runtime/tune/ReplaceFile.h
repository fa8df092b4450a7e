//===- ReplaceFile.h - files that appear whole ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_REPLACEFILE_H
#define LADLE_RUNTIME_TUNE_REPLACEFILE_H

#include "ladle/status.h"

#include <string>
#include <string_view>

namespace ladle::tune {

/// Makes `text` what the file at `path` holds: whoever reads it finds this or
/// what was there before. ResourceExhausted names a file that cannot be
/// written.
Status replaceFile(const std::string &path, std::string_view text);

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_REPLACEFILE_H
