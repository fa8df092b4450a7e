//===- Memory.cpp - zeroed memory that is taken when touched --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Memory.h"

#include <algorithm>
#include <sys/mman.h>

using namespace ladle;

Memory::~Memory() {
  if (pages)
    ::munmap(pages, static_cast<size_t>(bytes));
}

bool Memory::allocate(int64_t size) {
  bytes = std::max<int64_t>(size, 1);
  void *mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return false;
  pages = mapped;
  // A pool is streamed from end to end: small pages would miss the TLB at
  // every other row. Only a hint.
  constexpr int64_t hugePage = int64_t(2) << 20;
  if (bytes >= 2 * hugePage)
    ::madvise(pages, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return true;
}
