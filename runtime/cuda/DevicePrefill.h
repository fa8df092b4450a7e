//===- DevicePrefill.h - the prompts of a batch on a GPU --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A call is a fixed row of launches: entries that slots hold are folded, the
// prompts are, carries go to their slots, and the cursors move. Where folds are
// by chunks, prompts and carries come twice: what fills up the chunks that
// slots have begun, which folds their entries, and the rest.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEPREFILL_H
#define LADLE_RUNTIME_CUDA_DEVICEPREFILL_H

#include "ladle/decode.h"
#include "runtime/cuda/KernelArguments.h"

namespace ladle {

class DevicePrefill {
public:
  DevicePrefill(const Program &program, DevicePool &pool, HeadRange heads);

  /// Memory for what prompts leave behind, if the program takes any.
  Status begin();
  /// As Decoder::prefill.
  Status run(const PrefillArguments &arguments, void *stream);

private:
  Status fill(const PrefillArguments &arguments);
  Status launch(const PrefillArguments &arguments, void *stream);
  Status launchParts(const PrefillArguments &arguments, void *stream);
  /// Where layers share cursors, these move when all have seen the prompts.
  Status notePrompts(const PrefillArguments &arguments, void *stream);
  Status keepCarries(const PrefillArguments &arguments, void *stream);

  Program program;
  DevicePool &pool;
  HeadRange heads;
  const RouteKernels &route;
  std::string name; ///< in a profiler
  CallKernels kernels;
  const RouteKernels &folding; ///< folds the entries of rows with a state
  KernelArguments folds;
  /// By carry, [slots, heads, ...].
  std::vector<cuda::Memory> nextCarries;
};

/// A failure with the command that runs its kernels alone.
Status withReproducer(const Status &failure, const Program &program);

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEPREFILL_H
