//===- Arguments.h - check the arguments of a step --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_ARGUMENTS_H
#define LADLE_RUNTIME_ARGUMENTS_H

#include "ladle/decode.h"
#include "runtime/Kernels.h"

#include <functional>

namespace ladle {

using NamedTensors = std::map<std::string, TensorView, std::less<>>;

/// Where the arguments of a step are written to.
struct ArgumentDescriptors {
  std::span<MemoryDescriptor> params, tokens, outputs;
};

/// Describes all of `tensors`, or names the first that is wrong. `rows` is not
/// 0.
Status bindArguments(const Signature &signature, int64_t rows, DeviceId device,
                     const NamedTensors &tensors,
                     ArgumentDescriptors descriptors);

/// Whether slots can become branches of others: one for each that they come
/// from, all of which `checkSlot` lets pass, and none named in `to` and
/// elsewhere.
Status checkBranches(std::span<const int32_t> from, std::span<const int32_t> to,
                     const std::function<Status(int32_t)> &checkSlot);

} // namespace ladle

#endif // LADLE_RUNTIME_ARGUMENTS_H
