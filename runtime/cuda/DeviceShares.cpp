//===- DeviceShares.cpp - layers share a budget on a GPU ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceShares.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"

using namespace ladle;

Result<DeviceShares> DeviceShares::create(const AttentionProgramImpl &made,
                                          const LayerBudgetOptions &options,
                                          int64_t rows) {
  if (!made.gpu->prefill.selects())
    return Status(ErrorCode::Unsupported,
                  fmt::format("budgets of '{}' are lowered on the CPU alone, "
                              "as its prompts are: its answer is not that of "
                              "what is attended to, normalized",
                              made.signature.name));
  DeviceShares device;
  device.made = &made;
  device.options = options;
  device.rows = rows;
  int64_t numbers = options.layers * rows;
  for (auto [memory, bytes] : {std::pair(&device.scores, sizeof(double)),
                               {&device.exact, sizeof(double)},
                               {&device.shares, sizeof(int32_t)},
                               {&device.nextShares, sizeof(int32_t)}}) {
    Result<cuda::Memory> made = cuda::Memory::allocate(
        device.made->gpu->device, numbers * static_cast<int64_t>(bytes));
    if (!made)
      return made.status();
    if (Status status = made->fill(0); !status)
      return status;
    *memory = std::move(*made);
  }
  return device;
}

Status DeviceShares::check(const AttentionDecoder::Impl &decoder) const {
  int64_t given = decoder.preferenceParts().rows;
  if (given == rows)
    return Status();
  return Status(
      ErrorCode::InvalidArgument,
      fmt::format("the decoder has preferences of {} rows, wanted {}, of its "
                  "last prompts (AttentionDecoderOptions::preference)",
                  given, rows));
}

Status DeviceShares::add(AttentionDecoder::Impl &decoder, int64_t layer,
                         const PreferenceExponents &exponents, void *stream) {
  AttentionDecoder::Impl::PreferenceParts parts = decoder.preferenceParts();
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  uint64_t arrays[] = {parts.address, scores.address(), exact.address(),
                       shares.address(), nextShares.address()};
  double powers[] = {exponents.disturbance, exponents.entropy};
  int64_t total = options.total;
  int32_t numbers[] = {narrow(options.least), narrow(options.most),
                       narrow(rows), narrow(parts.ofRow), narrow(layer)};
  std::vector<void *> values;
  for (uint64_t &array : arrays)
    values.push_back(&array);
  for (double &power : powers)
    values.push_back(&power);
  values.push_back(&total);
  for (int32_t &number : numbers)
    values.push_back(&number);
  const cuda::Kernel &share = made->gpu->prefill.share.kernel;
  cuda::CurrentContext current(*made->gpu->device.context());
  constexpr int64_t warp = 32;
  int64_t rowsOfBlock = share.info().threads / warp;
  auto blocks = static_cast<unsigned>((rows + rowsOfBlock - 1) / rowsOfBlock);
  return share.launch({blocks, 1, 1}, {share.info().threads, 1, 1},
                      values.data(), stream);
}

std::span<const int32_t> DeviceShares::budgets(int64_t layer) const {
  auto *all = static_cast<const int32_t *>(pointerTo(shares.address()));
  return {all + layer * rows, static_cast<size_t>(rows)};
}

std::vector<int64_t> DeviceShares::read(int64_t layer) const {
  std::vector<int32_t> numbers(static_cast<size_t>(rows));
  auto bytes = static_cast<int64_t>(sizeof(int32_t)) * rows;
  if (!made->gpu->device.synchronize() ||
      !shares.read(numbers.data(), bytes, layer * bytes))
    return {};
  return {numbers.begin(), numbers.end()};
}
