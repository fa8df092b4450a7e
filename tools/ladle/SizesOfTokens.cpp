//===- SizesOfTokens.cpp - sizes from the shapes of tokens ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/SizesOfTokens.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace ladle;

std::optional<std::map<std::string, int64_t>> tool::sizesOfTokens(
    const SourceOptions &source, llvm::StringRef text,
    llvm::function_ref<std::optional<std::vector<int64_t>>(const std::string &)>
        shapeOf) {
  llvm::SourceMgr sourceManager;
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(text, source.file), llvm::SMLoc());
  frontend::printDiagnosticsInto(sourceManager, llvm::errs());
  auto infos = frontend::listRecurrences(sourceManager);
  if (!infos)
    return std::nullopt;
  std::map<std::string, int64_t> sizes;
  for (const frontend::RecurrenceInfo &info : *infos) {
    if (source.recurrence.empty() ? &info != &infos->front()
                                  : info.name != source.recurrence)
      continue;
    for (const frontend::TokenInfo &token : info.tokens) {
      std::optional<std::vector<int64_t>> shape = shapeOf(token.name);
      if (!shape || shape->size() != token.dims.size())
        continue;
      for (size_t i = 0; i < shape->size(); ++i)
        if (llvm::is_contained(info.sizes, token.dims[i]))
          sizes.emplace(token.dims[i], (*shape)[i]);
    }
  }
  return sizes;
}
