//===- GpuProgram.h - a recurrence as CUDA text -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_GPUPROGRAM_H
#define LADLE_RUNTIME_JIT_GPUPROGRAM_H

#include "ladle/types.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ladle::jit {

struct GpuRequest {
  std::string path, preset; ///< empty: the first preset
  std::string route;        ///< empty: all, for their text
  std::map<std::string, int64_t> sizes;
  std::string stateType, entryType = "f32";
  int64_t capacity = 4, threads = 128, tileRows = 0;
};

/// A tensor argument of the kernels, after the five that all have.
struct GpuArgument {
  enum class Kind { Param, Token, Carry, State, Field, Output } kind;
  size_t index; ///< among those of its kind
};

struct GpuKernelInfo {
  std::string name;
  unsigned gridBlocks = 1, threads = 1;
};

struct GpuProgram {
  Signature signature;
  std::vector<TensorSpec> fields;
  std::vector<GpuArgument> arguments;
  GpuKernelInfo decode;
  std::optional<GpuKernelInfo> decodeFold;
  std::string text;
};

/// Compiles as far as CUDA C++. Nothing, and the diagnostics in `messages`, on
/// an error.
std::optional<GpuProgram> compileForGpu(const GpuRequest &request,
                                        std::string &messages);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_GPUPROGRAM_H
