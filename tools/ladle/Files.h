//===- Files.h - what commands read and write ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_FILES_H
#define LADLE_TOOLS_LADLE_FILES_H

#include "ladle/status.h"

#include <string>
#include <string_view>

namespace ladle::tool {

/// All of a file, or of standard input, which is called "-". NotFound says why
/// it cannot be read.
Result<std::string> readFile(const std::string &path);

/// Replaces a file. ResourceExhausted says why it cannot be written.
Status writeFile(const std::string &path, std::string_view text);

/// Whether all that was printed has been written; an error otherwise.
Status flushOutput();

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_FILES_H
