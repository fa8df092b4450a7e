//===- RunCorpus.cpp - the fuzz target without libFuzzer --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// fuzz-parser-smoke FILE...: gives each file, pieces of it and damaged copies
// of it to the fuzz target. Always the same inputs, so that a failure repeats.
//
//===----------------------------------------------------------------------===//

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer names it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void runOne(llvm::StringRef text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(text.data()),
                         text.size());
}

int main(int argc, char **argv) {
  constexpr size_t step = 13;
  // A prime step and a list of another length: all pairs turn up.
  constexpr llvm::StringRef damage("\0(){}[],:=+-*/#\"\n9z\xff", 20);
  size_t numInputs = 0;
  for (int i = 1; i < argc; ++i) {
    auto buffer = llvm::MemoryBuffer::getFile(argv[i]);
    if (!buffer) {
      llvm::errs() << argv[i] << ": " << buffer.getError().message() << '\n';
      return 1;
    }
    llvm::StringRef text = (*buffer)->getBuffer();
    runOne(text);
    for (size_t at = i % step; at < text.size(); at += step) {
      runOne(text.take_front(at));
      runOne(text.drop_front(at));
      std::string damaged = text.str();
      damaged[at] = damage[numInputs % damage.size()];
      runOne(damaged);
      damaged.erase(at, 1);
      runOne(damaged);
      ++numInputs;
    }
  }
  llvm::outs() << "4 x " << numInputs << " damaged inputs, no crash\n";
  return 0;
}
