//===- HostSteps.h - steps on tensors of the host ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_HOSTSTEPS_H
#define LADLE_RUNTIME_CHECK_HOSTSTEPS_H

#include "ladle/decode.h"
#include "ladle/device.h"

#include <optional>

namespace ladle::check {

/// Decodes tensors of the host wherever the program runs: on a GPU it copies
/// them there and the outputs back, in their strides. For checks.
class HostSteps {
public:
  /// `pool` must outlive it.
  static Result<HostSteps> create(const Program &program, Pool &pool,
                                  const DecoderOptions &options = {});

  /// As Decoder::step, but for memory, which is all the host's.
  Status step(const StepArguments &arguments);
  /// As Decoder::verify.
  Status verify(const VerifyArguments &arguments);
  /// As Decoder::prefill.
  Status prefill(const PrefillArguments &arguments);
  /// As Pool::commit.
  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted = {});

private:
  HostSteps(const Program &program, Pool &pool, Decoder decoder)
      : program(program), pool(&pool), decoder(std::move(decoder)) {}
  /// The decoder for these slots: on a GPU it is the caller who goes on by
  /// inner when a slot of kv_only has folded.
  Result<Decoder *> choose(std::span<const int32_t> slots);
  Status reserve(std::span<const int32_t> slots,
                 std::span<const int32_t> starts,
                 std::span<const int32_t> moved = {});
  Status reservePrompts(const PrefillArguments &arguments);
  using Tensors = std::map<std::string, TensorView, std::less<>>;
  /// Puts memory of the device, where tokens are, in place of the host's.
  Status mirrorAll(Tensors &tensors);
  Status copyOutputs(const Tensors &from, const Tensors &to) const;
  /// Memory of the device with the strides of a view.
  Result<TensorView> mirror(const std::string &name, const TensorView &view);
  Status upload(const char *name, std::span<const int32_t> slots,
                std::span<const int32_t> &on);

  Program program;
  Pool *pool;
  Decoder decoder;
  std::optional<Decoder> afterFolds;
  std::map<std::string, DeviceTensor> memory; ///< by name, on the device
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_HOSTSTEPS_H
