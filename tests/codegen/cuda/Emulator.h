//===- Emulator.h - CUDA kernels without a GPU ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles the text of CUDA kernels for the CPU and runs them there: exactly,
// with all their threads, and with checks that a GPU lacks.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_EMULATOR_H
#define LADLE_TESTS_CODEGEN_CUDA_EMULATOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace ladle::test {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// An allocation of the host that a kernel may touch.
struct Allocation {
  const void *begin;
  size_t bytes;
};

/// Bytes that kernels read and write of some memory, as often as they do.
struct Traffic {
  Allocation of{};
  std::atomic<int64_t> read = 0, written = 0;
};

class EmulatedModule {
public:
  /// Of a text that includes "ladle_prelude.cuh" and has kernels like
  /// `extern "C" __global__ void step(const float *x, int n)`. They are
  /// compiled when one is first launched, and the same text once in a build
  /// folder; quickly, unless what they load twice is to be loaded once.
  explicit EmulatedModule(llvm::StringRef source, bool optimises = false);

  std::vector<std::string> kernels() const;

  /// Runs a kernel to its end. `arguments` are addresses of the arguments'
  /// values, as for cuLaunchKernel; pointers among them are the host's.
  ///
  /// Fails with what the compiler said if the text does not compile and,
  /// with the first thread and line to blame, if threads of a block wait
  /// at a barrier that others never reach, if those of a warp are not at the
  /// same shuffle, or if two race in shared memory. With `memory` it also
  /// fails if any other memory is touched. Shared memory is all ones at first.
  /// Blocks side by side along x are a cluster. `traffic`, if any, grows.
  llvm::Error launch(llvm::StringRef kernel, Extent grid, Extent block,
                     void *const *arguments,
                     llvm::ArrayRef<Allocation> memory = {},
                     unsigned blocksOfCluster = 1,
                     Traffic *traffic = nullptr) const;
  static constexpr unsigned mostBlocksOfCluster = 8;

private:
  struct Text;
  std::shared_ptr<Text> text;
};

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_EMULATOR_H
