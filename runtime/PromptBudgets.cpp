//===- PromptBudgets.cpp - layers share budgets as they finish ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/prompt_budgets.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceShares.h"

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

struct PromptBudgets::Impl {
  Impl(const AttentionProgram &program, const PromptBudgetOptions &options)
      : program(program), options(options) {}

  /// `decoder` is the last of `decoders`. If they fail nothing has changed.
  Status addOnHost(AttentionDecoder &decoder, std::span<const int32_t> slots);
  Status addOnDevice(AttentionDecoder &decoder, std::span<const int32_t> slots,
                     void *stream);

  AttentionProgram program;
  PromptBudgetOptions options;
  std::vector<AttentionDecoder *> decoders; ///< of the layers so far
  std::vector<LayerBudgets> ofRows;         ///< on the CPU
  std::optional<DeviceShares> device;
};

PromptBudgets::PromptBudgets(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
PromptBudgets::PromptBudgets(PromptBudgets &&) noexcept = default;
PromptBudgets &PromptBudgets::operator=(PromptBudgets &&) noexcept = default;
PromptBudgets::~PromptBudgets() = default;

Result<PromptBudgets>
PromptBudgets::create(const AttentionProgram &program,
                      const PromptBudgetOptions &options) {
  const AttentionProgramImpl &made = program.getImpl();
  if (!made.bounded || made.bounded->kind != BoundedKind::Evicting)
    return Status(ErrorCode::Unsupported,
                  "only a cache that evicts has a budget");
  if (options.rows < 1 || options.rows > INT32_MAX)
    return invalid(
        fmt::format("rows is {}, wanted 1 to {}", options.rows, INT32_MAX));
  auto impl = std::make_unique<Impl>(program, options);
  LayerBudgetOptions &layers = impl->options.layers;
  layers.most = std::min(layers.most, made.bounded->budget);
  Result<LayerBudgets> budgets = LayerBudgets::create(layers);
  if (!budgets)
    return budgets.status();
  if (Status status = checkBudget(*made.bounded, layers.least); !status)
    return status;
  if (made.gpu) {
    Result<DeviceShares> device =
        DeviceShares::create(impl->program.getImpl(), layers, options.rows);
    if (!device)
      return device.status();
    impl->device = std::move(*device);
  }
  return PromptBudgets(std::move(impl));
}

void PromptBudgets::restart() { impl->decoders.clear(); }

Status PromptBudgets::add(AttentionDecoder &decoder,
                          std::span<const int32_t> slots, void *stream) {
  auto layer = static_cast<int64_t>(impl->decoders.size());
  if (layer == impl->options.layers.layers)
    return invalid(fmt::format("all {} layers have a budget", layer));
  if (static_cast<int64_t>(slots.size()) != impl->options.rows)
    return invalid(fmt::format("slots has {} slots, wanted {}", slots.size(),
                               impl->options.rows));
  impl->decoders.push_back(&decoder);
  Status status = impl->device ? impl->addOnDevice(decoder, slots, stream)
                               : impl->addOnHost(decoder, slots);
  if (!status)
    impl->decoders.pop_back();
  return status;
}

Status PromptBudgets::Impl::addOnDevice(AttentionDecoder &decoder,
                                        std::span<const int32_t> slots,
                                        void *stream) {
  int64_t layers = static_cast<int64_t>(decoders.size());
  // Shares only ever get less, so that nothing is launched before all is right.
  if (Status status = device->check(decoder.getImpl()); !status)
    return status;
  for (int64_t layer = 0; layer < layers; ++layer)
    if (Status status = decoders[layer]->getImpl().checkBudgets(
            slots, device->budgets(layer));
        !status)
      return status;
  if (Status status =
          device->add(decoder.getImpl(), layers - 1, options.exponents, stream);
      !status)
    return status;
  for (int64_t layer = 0; layer < layers; ++layer)
    if (Status status =
            decoders[layer]->setBudgets(slots, device->budgets(layer), stream);
        !status)
      return status;
  return Status();
}

Status PromptBudgets::Impl::addOnHost(AttentionDecoder &decoder,
                                      std::span<const int32_t> slots) {
  std::span<const LayerPreference> preferences = decoder.preferences();
  if (preferences.size() != slots.size())
    return invalid(fmt::format(
        "the decoder has preferences of {} rows, wanted {}, of its last "
        "prompts (AttentionDecoderOptions::preference)",
        preferences.size(), slots.size()));
  std::vector<LayerBudgets> after = ofRows;
  if (decoders.size() == 1) {
    Result<LayerBudgets> none = LayerBudgets::create(options.layers);
    if (!none)
      return none.status();
    after.assign(slots.size(), *none);
  }
  for (size_t row = 0; row < slots.size(); ++row)
    if (Status status = after[row].add(
            preferenceScore(preferences[row], options.exponents));
        !status)
      return status;
  std::vector<std::vector<int32_t>> budgets(decoders.size());
  for (size_t layer = 0; layer < decoders.size(); ++layer) {
    for (const LayerBudgets &row : after)
      budgets[layer].push_back(static_cast<int32_t>(row.budgets()[layer]));
    if (Status status =
            decoders[layer]->getImpl().checkBudgets(slots, budgets[layer]);
        !status)
      return status;
  }
  // No layer evicts a token before all are known to take their budgets.
  for (size_t layer = 0; layer < decoders.size(); ++layer)
    if (Status status = decoders[layer]->setBudgets(slots, budgets[layer]);
        !status)
      return status;
  ofRows = std::move(after);
  return Status();
}

std::vector<int64_t> PromptBudgets::budgets(int64_t layer) const {
  std::vector<int64_t> budgets;
  if (layer < 0 || layer >= static_cast<int64_t>(impl->decoders.size()))
    return budgets;
  if (impl->device)
    return impl->device->read(layer);
  for (const LayerBudgets &row : impl->ofRows)
    budgets.push_back(row.budgets()[static_cast<size_t>(layer)]);
  return budgets;
}
