//===- CompileBench.cpp - the time a program takes to compile -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ladle_compile_bench FILE [ROUTE [REPEATS]]
//
// Prints the time from a file to callable kernels, with and without the disk
// cache, in wall-clock time and in processor time, which does not count what
// other processes take. The first line of each also pays for loading code from
// disk and for what is initialised once a process.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

using namespace ladle;

/// Milliseconds of this process since it was started.
static double processorTime() { return 1e3 * std::clock() / CLOCKS_PER_SEC; }

static bool measure(const char *label, const char *path,
                    const CompileOptions &options, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    auto start = std::chrono::steady_clock::now();
    double processor = processorTime();
    Result<Program> program = compileFile(path, options);
    processor = processorTime() - processor;
    std::chrono::duration<double, std::milli> wall =
        std::chrono::steady_clock::now() - start;
    if (!program) {
      std::fprintf(stderr, "%s\n", program.message().c_str());
      return false;
    }
    std::printf("%-8s %8.1f ms wall %8.1f ms processor\n", label, wall.count(),
                processor);
    if (i + 1 == repeats)
      std::printf("%s\n", program->manifest().c_str());
  }
  return true;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ladle_compile_bench FILE [ROUTE [REPEATS]]\n");
    return 2;
  }
  std::printf("start    %8.1f ms processor until main\n", processorTime());
  CompileOptions options;
  options.route = argc > 2 ? argv[2] : "auto";
  int repeats =
      argc > 3 ? static_cast<int>(std::strtol(argv[3], nullptr, 10)) : 5;
  if (!measure("cached", argv[1], options, repeats))
    return 1;
  options.useDiskCache = false;
  return measure("compiled", argv[1], options, repeats) ? 0 : 1;
}
