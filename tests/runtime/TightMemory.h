//===- TightMemory.h - a process that may take no more ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_TIGHTMEMORY_H
#define LADLE_TESTS_RUNTIME_TIGHTMEMORY_H

#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace ladle::test {

/// Leaves the process so many bytes of addresses more than it has, for as long
/// as it lives.
class TightMemory {
public:
  explicit TightMemory(rlim_t spare) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlim_t taken = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    // A sanitizer takes terabytes, of which nothing is left to take.
    if (taken > rlim_t(1) << 40 || getrlimit(RLIMIT_AS, &before) != 0)
      return;
    rlimit tight{taken + spare, before.rlim_max};
    isTight = setrlimit(RLIMIT_AS, &tight) == 0;
  }
  ~TightMemory() {
    if (isTight)
      setrlimit(RLIMIT_AS, &before);
  }
  TightMemory(const TightMemory &) = delete;

  /// False where that cannot be had.
  explicit operator bool() const { return isTight; }

private:
  rlimit before{};
  bool isTight = false;
};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_TIGHTMEMORY_H
