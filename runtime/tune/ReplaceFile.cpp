//===- ReplaceFile.cpp - files that appear whole --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/ReplaceFile.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>

using namespace ladle;

Status tune::replaceFile(const std::string &path, std::string_view text) {
  std::string temporary = path + ".part";
  std::ofstream file(temporary);
  file << text;
  file.close();
  std::error_code error;
  if (file)
    std::filesystem::rename(temporary, path, error);
  if (!file || error)
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("cannot write '{}'", path));
  return Status();
}
