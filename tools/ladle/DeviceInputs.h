//===- DeviceInputs.h - random tokens on a device ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DEVICEINPUTS_H
#define LADLE_TOOLS_LADLE_DEVICEINPUTS_H

#include "ladle/device.h"
#include "ladle/program.h"
#include "tools/ladle/Commands.h"

#include <map>
#include <span>

namespace ladle::tool {

/// The tokens of one step of a program, its parameters and outputs.
struct DeviceInputs {
  /// Random parameters and `tokens` tokens, of which every sixteenth is the
  /// same. An error holds the compiler's messages.
  static Result<DeviceInputs> create(const SourceOptions &source,
                                     const Program &program, int64_t tokens);

  using Tensors = std::map<std::string, TensorView, std::less<>>;
  /// Of the first `count` tokens.
  Tensors first(const Signature &signature, int64_t count) const;

  Tensors tensors;
  std::map<std::string, DeviceTensor> memory;
};

/// int32 numbers in the memory of the device, which graphs hold.
Result<DeviceTensor> numbersOn(DeviceId device, std::vector<int32_t> values);
std::span<const int32_t> numbersOf(const DeviceTensor &memory);

/// The text of a file; empty if it cannot be read, which who compiles it says.
std::string readSource(const std::string &path);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_DEVICEINPUTS_H
