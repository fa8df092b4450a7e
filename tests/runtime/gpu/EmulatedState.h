//===- EmulatedState.h - memory, work and modules of the device -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_EMULATEDSTATE_H
#define LADLE_TESTS_RUNTIME_GPU_EMULATEDSTATE_H

#include "tests/codegen/cuda/Emulator.h"
#include "tests/runtime/gpu/EmulatedGpu.h"

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace ladle::test {

/// Results of the driver.
inline constexpr int success = 0, invalidValue = 1, outOfMemory = 2,
                     notFound = 500, launchFailed = 719,
                     captureUnsupported = 900;

using Work = std::function<int()>;

struct EmulatedStream {
  bool isCapturing = false;
  std::vector<Work> captured;
};

struct EmulatedCode {
  std::string text;
  /// None for a cubin of a real compiler, which is loaded but never run.
  std::optional<EmulatedModule> module;
};

struct EmulatedKernel {
  EmulatedCode *code;
  std::string name;
  std::vector<size_t> sizes; ///< bytes of each parameter
  int sharedLimit = 48 << 10;
};

class EmulatedState final : public EmulatedGpu {
public:
  static EmulatedState &get();

  std::vector<Launch> takeLaunches() override;
  std::vector<std::string> takeCalls() override;
  void failNext(const std::string &function, int code) override;
  int64_t liveBytes() const override;
  void watch(const void *begin, size_t bytes) override;
  Touched takeTouched() override;
  int compilations() const override { return compiled; }

  /// Counts the call; what it has to fail with, or success.
  int enter(const char *function);
  /// Queues work, or records it on a stream that is captured.
  int add(void *stream, Work work);
  /// Does all that is queued; the first error stays, as on a GPU.
  int drain();
  bool isCapturing() const;

  int allocate(uint64_t *address, size_t bytes);
  int release(uint64_t address);
  /// Bytes of an allocation, or of a part of one.
  void set(uint64_t address, unsigned char byte, size_t bytes);
  bool contains(uint64_t address, size_t bytes) const;
  int launch(const Launch &launch, EmulatedKernel &kernel, void **values);

  std::string failure; ///< of the emulator
  std::map<EmulatedStream *, std::unique_ptr<EmulatedStream>> streams;
  int compiled = 0;

private:
  /// What is so large takes memory where it is written alone, and is all zeros
  /// at first.
  static bool isSparse(size_t bytes) { return bytes > size_t(1) << 30; }
  int run(const Launch &launch, const EmulatedKernel &kernel,
          std::vector<uint64_t> values);

  std::map<uint64_t, size_t> memory;
  Traffic traffic;
  std::deque<Work> queue;
  int sticky = success;
  std::vector<Launch> launches;
  std::vector<std::string> calls;
  std::map<std::string, int> failures;
};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_EMULATEDSTATE_H
