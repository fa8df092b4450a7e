//===- DeviceAttention.cpp - steps of an attention on a GPU ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is four kernels on one stream (passes/gpu/AttentionKernels.h), or one
// over a bounded cache (passes/gpu/BoundedKernels.h); prompts are three
// (passes/gpu/AttentionPrompts.h), up to seven of a cache that evicts, which
// lowers budgets in up to three (passes/gpu/BoundedPrompts.h), or four a round
// of a segmented one (passes/gpu/SegmentPrompts.h). All that they leave for one
// another has been allocated for the most rows. Where a decoder keeps
// diagnostics, one more looks at what a step has left.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceAttention.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/AttentionLauncher.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/DevicePrompts.h"

#include <algorithm>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {

class BoundDeviceAttention final : public BoundStep::Impl {
public:
  BoundDeviceAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                       const AttentionSettings &settings,
                       const AttentionWorkspace &work,
                       const DeviceDiagnostics *watching,
                       std::shared_ptr<int64_t> lastRows)
      : program(program), pool(pool), lastRows(std::move(lastRows)),
        launcher(this->program.getImpl(), this->program.getImpl().gpu->decode,
                 pool, settings, work, AttentionCall::Answers, watching) {}

  Status fill(const AttentionArguments &arguments) {
    rows = arguments.rows;
    if (Status status = launcher.describe(rows, arguments.tensors); !status)
      return status;
    return setSlots(arguments.slots.data(), nullptr);
  }
  Status launch(int64_t count, void *stream, Start start) override {
    if (Status status = pool.takeFault(); !status || count == 0)
      return status;
    *lastRows = count;
    return launcher.launch(count, stream, start);
  }
  Status setMemory(std::string_view name, void *data) override {
    return launcher.setMemory(name, data);
  }
  Status setSlots(const int32_t *slots, const int32_t *) override {
    if (!slots || addressOf(slots) % alignof(int32_t))
      return invalid(fmt::format("slots is at {}, wanted int32 numbers in "
                                 "memory of {}",
                                 static_cast<const void *>(slots),
                                 toString(program.device())));
    launcher.set("slots", addressOf(slots));
    return Status();
  }

private:
  AttentionProgram program;
  AttentionPoolImpl &pool;
  std::shared_ptr<int64_t> lastRows; ///< of the decoder's last step
  AttentionLauncher launcher;
};

class DeviceAttention final : public AttentionDecoder::Impl {
public:
  DeviceAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                  const AttentionSettings &settings, AttentionWorkspace work,
                  std::unique_ptr<const DeviceDiagnostics> diagnostics)
      : program(program), made(this->program.getImpl()), pool(pool),
        settings(settings), work(std::move(work)),
        watching(std::move(diagnostics)),
        steps(this->program, pool, settings, this->work, watching.get(),
              lastRows),
        prompts(made, made.gpu->prefill, pool, settings, this->work),
        budgets(made, made.gpu->prefill, pool, settings, this->work,
                AttentionCall::LowersBudgets) {}

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override;
  std::vector<AttentionHeadDiagnostics> diagnostics() const override {
    return watching ? watching->report()
                    : std::vector<AttentionHeadDiagnostics>();
  }
  Status setBudget(int32_t slot, int64_t budget) override;
  Status checkBudgets(std::span<const int32_t> slots,
                      std::span<const int32_t> budgets) const override;
  Status setBudgets(std::span<const int32_t> slots,
                    std::span<const int32_t> each, void *stream) override;
  std::span<const LayerPreference> preferences() override;
  PreferenceParts preferenceParts() const override;

private:
  Status checkEvicting() const;
  Status checkNumbers(const char *name, std::span<const int32_t> numbers) const;
  Status checkRows(int64_t rows) const {
    if (rows <= work.rows)
      return Status();
    return invalid(fmt::format("rows is {}, wanted the {} at most that the "
                               "decoder has memory for "
                               "(AttentionDecoderOptions::rows)",
                               rows, work.rows));
  }

  AttentionProgram program;
  const AttentionProgramImpl &made;
  AttentionPoolImpl &pool;
  AttentionSettings settings;
  AttentionWorkspace work;
  std::unique_ptr<const DeviceDiagnostics> watching; ///< null: nobody asks
  /// Shared with steps that are bound, which may be launched last.
  std::shared_ptr<int64_t> lastRows = std::make_shared<int64_t>(0);
  BoundDeviceAttention steps;
  AttentionLauncher prompts, budgets;
  int64_t lastPrompts = 0;
  std::vector<int64_t> matched;
  std::vector<LayerPreference> preferred;
};

} // namespace

//===----------------------------------------------------------------------===//
// Steps and prompts
//===----------------------------------------------------------------------===//

Status DeviceAttention::step(const AttentionArguments &arguments,
                             void *stream) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  if (Status status = checkRows(arguments.rows); !status)
    return status;
  if (arguments.rows == 0)
    return Status();
  if (Status status = steps.fill(arguments); !status)
    return status;
  return steps.launch(arguments.rows, stream, Start::InOrder);
}

Result<BoundStep> DeviceAttention::bind(const AttentionArguments &arguments) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  if (Status status = checkRows(arguments.rows); !status)
    return status;
  if (arguments.rows == 0)
    return invalid("rows is 0, wanted 1 at least to bind a step");
  auto bound = std::make_unique<BoundDeviceAttention>(
      program, pool, settings, work, watching.get(), lastRows);
  if (Status status = bound->fill(arguments); !status)
    return status;
  return BoundStep(std::move(bound));
}

Status DeviceAttention::prefill(const PrefillArguments &arguments,
                                void *stream) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  if (arguments.cuSeqlens.size() != static_cast<size_t>(arguments.rows) + 1)
    return invalid(fmt::format("cuSeqlens has {} numbers, wanted {}",
                               arguments.cuSeqlens.size(), arguments.rows + 1));
  if (Status status = checkRows(arguments.rows); !status)
    return status;
  if (arguments.rows == 0)
    return Status();
  bool selects = made.gpu->prefill.selects();
  if (made.bounded && made.bounded->kind == BoundedKind::Evicting && !selects)
    return Status(ErrorCode::Unsupported,
                  fmt::format("prompts of '{}' choose the tokens that they "
                              "keep, which runs on the CPU alone: decode them "
                              "token by token",
                              made.signature.name));
  if (arguments.tokens < 1)
    return invalid(fmt::format("tokens is {}, wanted the tokens that there is "
                               "room for: cuSeqlens is read on the device",
                               arguments.tokens));
  if (selects && arguments.tokens > work.tokens)
    return invalid(fmt::format("tokens is {}, wanted the {} at most that the "
                               "decoder has memory for "
                               "(AttentionDecoderOptions::promptTokens)",
                               arguments.tokens, work.tokens));
  for (auto [name, numbers] : {std::pair("slots", arguments.slots),
                               std::pair("cuSeqlens", arguments.cuSeqlens)})
    if (Status status = checkNumbers(name, numbers); !status)
      return status;
  if (Status status = prompts.describe(arguments.tokens, arguments.tensors);
      !status)
    return status;
  if (Status status = pool.takeFault(); !status)
    return status;
  prompts.set("slots", addressOf(arguments.slots.data()));
  prompts.set("cu_seqlens", addressOf(arguments.cuSeqlens.data()));
  lastPrompts = arguments.rows;
  if (!made.bounded || selects)
    return prompts.launch(arguments.rows, stream);
  if (made.gpu->prefill.scans()) {
    for (int64_t first = 0; first < arguments.tokens; first += work.tokens) {
      prompts.setRound(first, std::min(work.tokens, arguments.tokens - first));
      if (Status status = prompts.launch(arguments.rows, stream); !status)
        return status;
    }
    return Status();
  }
  for (int64_t token = 0; token < arguments.tokens; ++token) {
    prompts.set("prompt_step", static_cast<uint64_t>(token));
    if (Status status = prompts.launch(arguments.rows, stream); !status)
      return status;
  }
  return Status();
}

Status DeviceAttention::checkNumbers(const char *name,
                                     std::span<const int32_t> numbers) const {
  if (numbers.data() && addressOf(numbers.data()) % alignof(int32_t) == 0)
    return Status();
  return invalid(fmt::format("{} is at {}, wanted int32 numbers in memory of "
                             "{}",
                             name, static_cast<const void *>(numbers.data()),
                             toString(made.device)));
}

//===----------------------------------------------------------------------===//
// Budgets, and what they cost
//===----------------------------------------------------------------------===//

Status DeviceAttention::checkEvicting() const {
  if (!made.bounded || made.bounded->kind != BoundedKind::Evicting)
    return Status(ErrorCode::Unsupported,
                  "only a cache that evicts has a budget");
  if (made.gpu->prefill.selects())
    return Status();
  return Status(ErrorCode::Unsupported,
                fmt::format("budgets of '{}' are lowered on the CPU alone, as "
                            "its prompts are: its answer is not that of what "
                            "is attended to, normalized",
                            made.signature.name));
}

/// What slots and budgets are is the device's to know.
Status DeviceAttention::checkBudgets(std::span<const int32_t> slots,
                                     std::span<const int32_t> budgets) const {
  if (Status status = checkEvicting(); !status)
    return status;
  if (budgets.size() != slots.size())
    return invalid(fmt::format("budgets has {} numbers, wanted {}, one for "
                               "each slot",
                               budgets.size(), slots.size()));
  auto rows = static_cast<int64_t>(slots.size());
  if (Status status = checkRows(rows); !status || rows == 0)
    return status;
  for (auto [name, numbers] :
       {std::pair("slots", slots), std::pair("budgets", budgets)})
    if (Status status = checkNumbers(name, numbers); !status)
      return status;
  return Status();
}

Status DeviceAttention::setBudgets(std::span<const int32_t> slots,
                                   std::span<const int32_t> each,
                                   void *stream) {
  auto rows = static_cast<int64_t>(slots.size());
  if (Status status = checkBudgets(slots, each); !status || rows == 0)
    return status;
  budgets.set("slots", addressOf(slots.data()));
  budgets.set("budgets", addressOf(each.data()));
  return budgets.launch(rows, stream);
}

Status DeviceAttention::setBudget(int32_t slot, int64_t budget) {
  if (Status status = checkEvicting(); !status)
    return status;
  if (Status status = pool.checkSlot(slot); !status)
    return status;
  if (Status status = checkBudget(*made.bounded, budget); !status)
    return status;
  const cuda::Device &device = made.gpu->device;
  // Any stream may be at work in the slot, or with the numbers of a call ahead.
  if (Status status = device.synchronize(); !status)
    return status;
  const int32_t numbers[] = {slot, static_cast<int32_t>(budget)};
  std::span<const int32_t> there[2];
  for (auto [i, name] : {std::pair(0, "one_slot"), {1, "one_budget"}}) {
    cuda::Memory &memory = work.arrays.at(name);
    if (Status status = memory.write(&numbers[i], sizeof(int32_t)); !status)
      return status;
    there[i] = {static_cast<const int32_t *>(pointerTo(memory.address())), 1};
  }
  if (Status status = setBudgets(there[0], there[1], nullptr); !status)
    return status;
  return device.synchronize();
}

AttentionDecoder::Impl::PreferenceParts
DeviceAttention::preferenceParts() const {
  if (!work.preference)
    return {};
  return {work.arrays.at("preference_parts").address(), lastPrompts,
          made.cacheHeads * preferenceBlocks(made, work.preference->queries)};
}

std::span<const LayerPreference> DeviceAttention::preferences() {
  preferred.clear();
  PreferenceParts left = preferenceParts();
  if (left.rows == 0)
    return preferred;
  auto numbers = static_cast<size_t>(made.gpu->preferenceNumbers);
  size_t ofRow = static_cast<size_t>(left.ofRow) * numbers;
  std::vector<float> parts(static_cast<size_t>(left.rows) * ofRow);
  if (!made.gpu->device.synchronize() ||
      !work.arrays.at("preference_parts")
           .read(parts.data(),
                 static_cast<int64_t>(parts.size() * sizeof(float))))
    return preferred;
  for (size_t row = 0; row < parts.size(); row += ofRow) {
    double sums[3] = {};
    for (size_t i = 0; i < ofRow; ++i)
      sums[i % numbers] += parts[row + i];
    double queries = std::max(sums[2], 1.0);
    preferred.push_back({sums[0] / queries, sums[1] / queries});
  }
  return preferred;
}

std::span<const int64_t> DeviceAttention::matches() {
  matched.clear();
  int64_t heads = made.signature.heads, rows = *lastRows;
  std::vector<int32_t> hits(static_cast<size_t>(rows * heads), -1);
  constexpr int64_t numbers = 8;
  std::vector<int32_t> plans(static_cast<size_t>(rows * numbers));
  auto read = [&](const char *name, std::vector<int32_t> &to) {
    return work.arrays.at(name).read(
        to.data(), static_cast<int64_t>(to.size() * sizeof(int32_t)));
  };
  if (made.bounded)
    return matched;
  if (Status status = made.gpu->device.synchronize(); !status)
    return {};
  if (Status status = read("row_plans", plans); !status)
    return {};
  if (made.hasRing)
    if (Status status = read("hits", hits); !status)
      return {};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < heads; ++head) {
      const int32_t *plan = plans.data() + row * numbers;
      int32_t hit = hits[static_cast<size_t>(row * heads + head)];
      bool isHit = plan[0] >= 0 && hit >= 0;
      matched.push_back(isHit ? int64_t(plan[2]) - 1 - hit : -1);
    }
  return matched;
}

Result<std::unique_ptr<AttentionDecoder::Impl>> ladle::makeDeviceAttention(
    const AttentionProgram &program, AttentionPoolImpl &pool,
    const AttentionSettings &settings, int64_t rows, int64_t tokens,
    const AttentionDecoderOptions &options) {
  const AttentionProgramImpl &made = program.getImpl();
  if (options.preference && !made.gpu->prefill.selects())
    return Status(ErrorCode::Unsupported,
                  fmt::format("preferences of '{}' are found on the CPU alone, "
                              "as its prompts are answered: its answer is not "
                              "that of what is attended to, normalized",
                              made.signature.name));
  Result<AttentionWorkspace> work =
      AttentionWorkspace::create(made, pool.window, rows, tokens, options);
  if (!work)
    return work.status();
  std::unique_ptr<const DeviceDiagnostics> watching;
  if (options.diagnostics) {
    Result<DeviceDiagnostics> created = DeviceDiagnostics::create(made);
    if (!created)
      return created.status();
    watching = std::make_unique<const DeviceDiagnostics>(std::move(*created));
  }
  return std::unique_ptr<AttentionDecoder::Impl>(
      std::make_unique<DeviceAttention>(program, pool, settings,
                                        std::move(*work), std::move(watching)));
}
