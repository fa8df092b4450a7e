//===- DecoderImpl.h - what decodes, on the host or a device ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_DECODERIMPL_H
#define LADLE_RUNTIME_DECODERIMPL_H

#include "ladle/decode.h"
#include "runtime/Kernels.h"

namespace ladle {

struct HostPool;
struct DevicePool;

struct Decoder::Impl {
  virtual ~Impl() = default;
  virtual int threads() const = 0;
  virtual Status step(const StepArguments &arguments, void *stream) = 0;
  virtual Status verify(const VerifyArguments &arguments, void *stream,
                        Start start) = 0;
  virtual Status prefill(const PrefillArguments &arguments, void *stream) = 0;
  virtual Result<BoundStep> bind(const StepArguments &arguments) = 0;
};

struct BoundStep::Impl {
  int64_t rows = 0;

  virtual ~Impl() = default;
  /// `count` is 0 to `rows`.
  virtual Status launch(int64_t count, void *stream, Start start) = 0;
  /// `data` is not null; NotFound without such a tensor.
  virtual Status setMemory(std::string_view name, void *data) = 0;
  virtual Status setSlots(const int32_t *readSlots,
                          const int32_t *writeSlots) = 0;
};

/// The program and the pool have been checked to go together.
Result<std::unique_ptr<Decoder::Impl>>
makeHostDecoder(const Program &program, HostPool &pool,
                const DecoderOptions &options);
Result<std::unique_ptr<Decoder::Impl>>
makeDeviceDecoder(const Program &program, DevicePool &pool,
                  const DecoderOptions &options);

/// That there are `rows` slots to read, and to write or none.
Status checkSlotCounts(const StepArguments &arguments, int64_t mostRows);

} // namespace ladle

#endif // LADLE_RUNTIME_DECODERIMPL_H
