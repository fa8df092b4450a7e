//===- EmulatedGpu.h - a CUDA device on the CPU -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libladle_emulated_gpu stands in for libcuda (LADLE_CUDA) and for libnvrtc
// (LADLE_NVRTC): a cubin of it is the text, and a launch runs the emulator of
// tests/codegen/cuda. Work is done when somebody waits for it, in the order of
// the calls. Device memory is all ones at first (a gigabyte is all zeros), and
// what kernels touch of other memory is an error.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_EMULATEDGPU_H
#define LADLE_TESTS_RUNTIME_GPU_EMULATEDGPU_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ladle::test {

class EmulatedGpu {
public:
  struct Launch {
    std::string kernel;
    unsigned grid[3], block[3], sharedBytes;
    void *stream;
    bool isProgrammatic;
    unsigned blocksOfCluster; ///< along x
  };
  virtual ~EmulatedGpu() = default;

  /// Since the last call, in order; not those of replays.
  virtual std::vector<Launch> takeLaunches() = 0;
  /// Calls of driver functions by name since the last call.
  virtual std::vector<std::string> takeCalls() = 0;
  /// The next call of this function of the driver fails with a code.
  virtual void failNext(const std::string &function, int code) = 0;
  virtual int64_t liveBytes() const = 0;
  /// Counts what kernels read and write of some memory from now on.
  virtual void watch(const void *begin, size_t bytes) = 0;
  /// Bytes since the last call, those that are touched twice as two.
  struct Touched {
    int64_t read, written;
  };
  virtual Touched takeTouched() = 0;
  /// How often a text was compiled.
  virtual int compilations() const = 0;
};

/// The function of the library that gives the device.
inline constexpr const char *emulatedGpuSymbol = "ladle_emulated_gpu";

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_EMULATEDGPU_H
