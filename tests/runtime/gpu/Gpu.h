//===- Gpu.h - a device to test on ------------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_GPU_H
#define LADLE_TESTS_RUNTIME_GPU_GPU_H

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"
#include "tests/runtime/gpu/EmulatedGpu.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>

namespace ladle::test {

/// Whether there is a device and a compiler; if not, says so once a test.
bool hasGpu();
/// The emulated device, if that is what LADLE_CUDA names.
EmulatedGpu *emulatedGpu();

template <typename T> T need(Result<T> result) {
  INFO(result.message());
  REQUIRE(result.ok());
  return std::move(*result);
}
inline void need(const Status &status) {
  INFO(status.message());
  REQUIRE(status.ok());
}

/// gated_delta_rule, "tiny" but for `sizes`, with m up to `capacity` entries,
/// on the device or on the CPU. Routes: recurrent, inner, kv_only.
Program tinyProgram(const std::string &route = "inner",
                    const std::string &target = "cuda", int64_t capacity = 4,
                    const std::map<std::string, int64_t> &sizes = {});

inline constexpr DeviceId gpu{DeviceKind::Cuda, 0};
inline constexpr DeviceId cpu{};

/// Dense tensors for the steps of a program, on its device.
class Tensors {
public:
  Tensors(const Program &program, int64_t rows);

  /// Inputs that depend on the sequence of each row and on its position.
  void fill(const std::vector<int32_t> &sequences,
            const std::vector<int32_t> &positions);
  void setSlots(const std::vector<int32_t> &reads,
                const std::vector<int32_t> &writes = {});
  std::vector<float> output(int64_t row) const;

  StepArguments arguments;

private:
  Program program;
  std::map<std::string, DeviceTensor> memory;
};

Pool makePool(const Program &program, int64_t slots, PoolOptions options = {});

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_GPU_H
