//===- Files.cpp - what commands read and write --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Files.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstdio>
#include <fmt/format.h>
#include <system_error>

using namespace ladle;

Result<std::string> tool::readFile(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return Status(
        ErrorCode::NotFound,
        fmt::format("cannot read '{}': {}", path, buffer.getError().message()));
  return (*buffer)->getBuffer().str();
}

static Status cannotWrite(std::string_view what, const std::error_code &why) {
  return Status(ErrorCode::ResourceExhausted,
                fmt::format("cannot write {}: {}", what, why.message()));
}

Status tool::writeFile(const std::string &path, std::string_view text) {
  std::error_code why;
  llvm::raw_fd_ostream stream(path, why);
  if (!why) {
    stream << llvm::StringRef(text);
    stream.close();
    why = stream.error();
    stream.clear_error();
  }
  return why ? cannotWrite(fmt::format("'{}'", path), why) : Status();
}

Status tool::flushOutput() {
  llvm::raw_fd_ostream &stream = llvm::outs();
  stream.flush();
  std::error_code why = stream.error();
  stream.clear_error();
  errno = 0;
  if (std::fflush(stdout) != 0 && !why)
    why = std::error_code(errno, std::generic_category());
  if (std::ferror(stdout) && !why)
    why = std::make_error_code(std::errc::io_error);
  return why ? cannotWrite("standard output", why) : Status();
}
