//===- BoundHostAttention.cpp - steps that are bound, on the CPU ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionDecoderImpl.h"

#include <algorithm>
#include <fmt/format.h>

using namespace ladle;

namespace {
/// A step with arguments that are checked when it is launched.
class BoundHostAttention final : public BoundStep::Impl {
public:
  BoundHostAttention(AttentionDecoder::Impl &decoder,
                     const Signature &signature, AttentionArguments arguments)
      : decoder(decoder), signature(signature),
        arguments(std::move(arguments)) {
    rows = this->arguments.rows;
  }
  Status launch(int64_t count, void *stream, Start) override {
    AttentionArguments fewer = arguments;
    fewer.rows = count;
    fewer.slots = arguments.slots.first(static_cast<size_t>(count));
    for (auto &[name, view] : fewer.tensors)
      if (!isParam(name))
        view.shape.front() = count;
    return decoder.step(fewer, stream);
  }
  Status setMemory(std::string_view name, void *data) override {
    auto found = arguments.tensors.find(name);
    if (found == arguments.tensors.end())
      return Status(ErrorCode::NotFound,
                    fmt::format("the step has no argument '{}'", name));
    found->second.data = data;
    return Status();
  }
  Status setSlots(const int32_t *reads, const int32_t *) override {
    if (!reads)
      return Status(ErrorCode::InvalidArgument,
                    "slots is null, wanted the slot of each row");
    arguments.slots = {reads, static_cast<size_t>(rows)};
    return Status();
  }

private:
  bool isParam(std::string_view name) const {
    return std::any_of(
        signature.params.begin(), signature.params.end(),
        [&](const TensorSpec &spec) { return spec.name == name; });
  }

  AttentionDecoder::Impl &decoder;
  const Signature &signature;
  AttentionArguments arguments;
};
} // namespace

BoundStep ladle::bindHostAttention(AttentionDecoder::Impl &decoder,
                                   const Signature &signature,
                                   const AttentionArguments &arguments) {
  return BoundStep(
      std::make_unique<BoundHostAttention>(decoder, signature, arguments));
}
