//===- SizesOfTokens.cpp - sizes from the shapes of tokens ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Frontend.h"
#include "tools/ladle/TuneAttention.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle;

std::optional<std::map<std::string, int64_t>> tool::sizesOfTokens(
    const SourceOptions &source,
    const std::function<const std::vector<int64_t> *(const std::string &)>
        &shapeOf) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(source.file);
  if (!buffer) {
    llvm::errs() << "error: cannot read '" << source.file
                 << "': " << buffer.getError().message() << "\n";
    return std::nullopt;
  }
  llvm::SourceMgr sourceManager;
  sourceManager.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  auto infos = frontend::listRecurrences(sourceManager);
  if (!infos)
    return std::nullopt;
  std::map<std::string, int64_t> sizes;
  for (const frontend::RecurrenceInfo &info : *infos) {
    if (source.recurrence.empty() ? &info != &infos->front()
                                  : info.name != source.recurrence)
      continue;
    for (const frontend::TokenInfo &token : info.tokens) {
      const std::vector<int64_t> *shape = shapeOf(token.name);
      if (!shape || shape->size() != token.dims.size())
        continue;
      for (size_t i = 0; i < shape->size(); ++i)
        if (llvm::is_contained(info.sizes, token.dims[i]))
          sizes.emplace(token.dims[i], (*shape)[i]);
    }
  }
  return sizes;
}
