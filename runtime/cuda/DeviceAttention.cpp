//===- DeviceAttention.cpp - steps of an attention on a GPU ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is four kernels on one stream (passes/gpu/AttentionKernels.h). All
// that they leave for one another has been allocated for the most rows.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceAttention.h"
#include "runtime/Arguments.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/Range.h"

#include <algorithm>
#include <bit>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {

/// What kernels leave for one another, for so many rows.
struct Workspace {
  static Result<Workspace> create(const AttentionProgramImpl &made,
                                  int64_t window, int64_t rows);
  Result<Workspace> allocate(const cuda::Device &device,
                             const std::map<std::string, int64_t> &sizes);
  int64_t rows = 0, sections = 0, pieces = 0;
  std::map<std::string, cuda::Memory> arrays;
};

/// The values of a form's arguments, by the names of these.
class Launcher {
public:
  Launcher(const AttentionProgramImpl &made, const GpuAttentionForm &form,
           const AttentionPoolImpl &pool, const AttentionSettings &settings,
           const Workspace &work);
  Launcher(const Launcher &) = delete;

  /// Takes over tensors; a token of each row.
  Status describe(int64_t rows, const NamedTensors &tensors);
  Status setMemory(std::string_view name, const void *data);
  void set(const std::string &argument, uint64_t value) {
    values[argument].assign(1, value);
  }
  Status launch(int64_t rows, void *stream, Start start = Start::InOrder);

private:
  Status checkAlignment(const TensorSpec &spec, uint64_t address,
                        std::span<const int64_t> strides) const;
  Status prepare();
  std::vector<const GpuAttentionKernel *> kernels() const {
    if (made.bounded)
      return {&form.attend, &form.finish};
    return {&form.first, &form.plan, &form.attend, &form.finish};
  }
  std::vector<cuda::Kernel::Extent> grids(int64_t rows) const;

  const AttentionProgramImpl &made;
  const GpuAttentionForm &form;
  const Workspace &work;
  std::string name;                          ///< in a profiler
  std::vector<MemoryDescriptor> descriptors; ///< params, tokens, output
  /// A tensor is its address and strides.
  std::map<std::string, std::vector<uint64_t>, std::less<>> values;
  /// What each kernel is launched with; empty until it is known.
  std::vector<std::vector<void *>> lists;
};

class BoundDeviceAttention final : public BoundStep::Impl {
public:
  BoundDeviceAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                       const AttentionSettings &settings, const Workspace &work)
      : program(program), memory(*pool.device),
        launcher(this->program.getImpl(), this->program.getImpl().gpu->decode,
                 pool, settings, work) {}

  Status fill(const AttentionArguments &arguments) {
    rows = arguments.rows;
    if (Status status = launcher.describe(rows, arguments.tensors); !status)
      return status;
    return setSlots(arguments.slots.data(), nullptr);
  }
  Status launch(int64_t count, void *stream, Start start) override {
    if (Status status = memory.takeFault(); !status || count == 0)
      return status;
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
  DeviceAttentionPool &memory;
  Launcher launcher;
};

class DeviceAttention final : public AttentionDecoder::Impl {
public:
  DeviceAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                  const AttentionSettings &settings, Workspace work)
      : program(program), made(this->program.getImpl()), pool(pool),
        settings(settings), work(std::move(work)),
        steps(this->program, pool, settings, this->work),
        prompts(made, made.gpu->prefill, pool, settings, this->work) {}

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override;

private:
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
  Workspace work;
  BoundDeviceAttention steps;
  Launcher prompts;
  int64_t lastRows = 0;
  std::vector<int64_t> matched;
};

} // namespace

//===----------------------------------------------------------------------===//
// Memory between kernels
//===----------------------------------------------------------------------===//

Result<Workspace> Workspace::create(const AttentionProgramImpl &made,
                                    int64_t window, int64_t rows) {
  const GpuAttentionCode &code = *made.gpu;
  Workspace work;
  work.rows = rows;
  work.sections = (window + code.section - 1) / code.section;
  int64_t heads = made.signature.heads, tasks = rows * code.tasksOfRow;
  work.pieces = tasks * code.piecesOfTask;
  constexpr int64_t numbers = 8;
  std::map<std::string, int64_t> sizes;
  if (made.bounded) {
    sizes = {{"piece_values", work.pieces * code.share * made.valueSize},
             {"piece_sums", work.pieces * code.share * 2}};
    if (made.bounded->observes)
      sizes["scores"] = rows * heads * code.stride;
    return work.allocate(code.device, sizes);
  }
  sizes = {{"row_plans", rows * numbers},
           {"piece_bounds", tasks * numbers},
           {"pieces", work.pieces * 4},
           {"piece_count", 1},
           {"piece_values", work.pieces * code.share * made.valueSize},
           {"piece_sums", work.pieces * code.share * 2}};
  if (made.hasRing) {
    sizes["hits"] = sizes["starts"] = rows * heads;
    sizes["nearest"] = sizes["nearest_entry"] = rows * heads * work.sections;
  }
  return work.allocate(code.device, sizes);
}

Result<Workspace>
Workspace::allocate(const cuda::Device &device,
                    const std::map<std::string, int64_t> &sizes) {
  for (const auto &[name, size] : sizes) {
    Result<cuda::Memory> memory = cuda::Memory::allocate(
        device, size * static_cast<int64_t>(sizeof(float)));
    if (!memory)
      return memory.status();
    if (Status status = memory->fill(0); !status)
      return status;
    arrays[name] = std::move(*memory);
  }
  return std::move(*this);
}

//===----------------------------------------------------------------------===//
// Arguments and launches
//===----------------------------------------------------------------------===//

static uint64_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }

Launcher::Launcher(const AttentionProgramImpl &made,
                   const GpuAttentionForm &form, const AttentionPoolImpl &pool,
                   const AttentionSettings &settings, const Workspace &work)
    : made(made), form(form), work(work),
      name(fmt::format("ladle {}", made.signature.name)) {
  const DeviceAttentionPool &memory = *pool.device;
  const Signature &signature = made.signature;
  descriptors.resize(signature.params.size() + signature.tokens.size() +
                     signature.outputs.size());
  for (const auto &[name, array] : work.arrays)
    set(name, array.address());
  for (const auto &[name, ring] : memory.rings)
    set(name, ring.address());
  set("cursors", memory.cursors.address());
  set("key_pages", memory.keys.address());
  set("value_pages", memory.values.address());
  set("fault", memory.fault.address());
  values["page_table"] = {memory.table.address(),
                          static_cast<uint64_t>(memory.pagesOfSlot + 1)};
  auto limit = [](double share) {
    return bitsOf(static_cast<float>(2 * (1 - share) * (1 - share)));
  };
  set("limit", limit(settings.tau));
  set("drift_limit", limit(settings.drift));
  for (auto [name, value] :
       {std::pair{"pieces_of_task", made.gpu->piecesOfTask},
        {"capacity", pool.window},
        {"sections", work.sections},
        {"spare_page", memory.sparePage},
        {"last_page", memory.pagesOfSlot},
        {"window", made.bounded ? made.bounded->window : settings.window},
        {"band", settings.band},
        {"sinks", settings.sinks},
        {"wide", settings.wideBand},
        {"wide_gap", settings.wideGap},
        {"max_gap", settings.maxGap},
        {"max_chain", settings.maxChain},
        {"skip", settings.skip}})
    set(name, static_cast<uint64_t>(value));
}

/// Kernels load 16 bytes at once.
Status Launcher::checkAlignment(const TensorSpec &spec, uint64_t address,
                                std::span<const int64_t> strides) const {
  constexpr int64_t widest = 16;
  if (spec.shape.size() < 2)
    return Status();
  if (address % widest)
    return invalid(fmt::format("argument '{}' is at {}, wanted a multiple of "
                               "{} bytes",
                               spec.name, pointerTo(address), widest));
  int64_t bytes = sizeInBytes(spec.dtype);
  for (int64_t stride : strides)
    if (stride * bytes % widest)
      return invalid(fmt::format("argument '{}' has the stride {}, wanted a "
                                 "multiple of {}",
                                 spec.name, stride, widest / bytes));
  return Status();
}

Status Launcher::describe(int64_t rows, const NamedTensors &tensors) {
  lists.clear();
  const Signature &signature = made.signature;
  std::span<MemoryDescriptor> all(descriptors);
  size_t params = signature.params.size();
  if (Status status = bindArguments(
          signature, rows, made.device, tensors,
          {all.first(params), all.subspan(params, signature.tokens.size()),
           all.last(signature.outputs.size())});
      !status)
    return status;
  size_t next = 0;
  for (const auto *specs :
       {&signature.params, &signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      const MemoryDescriptor &memory = descriptors[next];
      bool hasRows = next++ >= params;
      size_t rank = spec.shape.size() + hasRows;
      // The last dimension is dense unless it counts heads.
      size_t count = spec.shape.size() > 1 ? rank - 1 : rank;
      std::span strides(memory.sizesAndStrides + rank, count);
      uint64_t address = addressOf(memory.aligned);
      if (Status status = checkAlignment(spec, address, strides); !status)
        return status;
      std::vector<uint64_t> &value = values["tensor:" + spec.name];
      value = {address};
      value.insert(value.end(), strides.begin(), strides.end());
    }
  return Status();
}

Status Launcher::setMemory(std::string_view name, const void *data) {
  auto found = values.find("tensor:" + std::string(name));
  if (found == values.end())
    return Status(ErrorCode::NotFound, fmt::format("'{}' has no argument '{}'",
                                                   made.signature.name, name));
  for (const auto *specs : {&made.signature.params, &made.signature.tokens,
                            &made.signature.outputs})
    for (const TensorSpec &spec : *specs)
      if (spec.name == name)
        if (Status status = checkAlignment(spec, addressOf(data), {}); !status)
          return status;
  found->second.front() = addressOf(data);
  return Status();
}

/// The addresses of all values, which stay where they are until tensors are
/// described anew.
Status Launcher::prepare() {
  lists.clear();
  for (const GpuAttentionKernel *kernel : kernels()) {
    std::vector<void *> &list = lists.emplace_back();
    for (const std::string &argument : kernel->arguments) {
      auto found = values.find(argument);
      if (found == values.end())
        return Status(ErrorCode::Internal,
                      fmt::format("kernel '{}' has an argument '{}'",
                                  kernel->kernel.info().name, argument));
      for (uint64_t &value : found->second)
        list.push_back(&value);
    }
  }
  return Status();
}

Status Launcher::launch(int64_t rows, void *stream, Start start) {
  const GpuAttentionCode &code = *made.gpu;
  set("rows", static_cast<uint64_t>(rows));
  set("starts_early", start == Start::Early);
  if (lists.empty())
    if (Status status = prepare(); !status)
      return status;
  cuda::CurrentContext current(*code.device.context());
  cuda::Range range(name.c_str());
  size_t next = 0;
  std::vector<cuda::Kernel::Extent> all = grids(rows);
  for (const GpuAttentionKernel *kernel : kernels()) {
    // Those of bounded caches wait for what is ahead before they read.
    if (Status status = kernel->kernel.launch(
            all[next], {kernel->kernel.info().threads, 1, 1},
            lists[next].data(), stream, /*early=*/made.bounded.has_value());
        !status)
      return status;
    ++next;
  }
  return Status();
}

std::vector<cuda::Kernel::Extent> Launcher::grids(int64_t rows) const {
  const GpuAttentionCode &code = *made.gpu;
  auto narrow = [](int64_t value) { return static_cast<unsigned>(value); };
  unsigned ofRows = narrow(rows), heads = narrow(made.signature.heads);
  unsigned cacheHeads = narrow(made.cacheHeads);
  if (made.bounded) {
    // As many blocks as keep all multiprocessors busy, and not more: each piece
    // begins with an empty pipe.
    int64_t wanted = 2 * code.device.multiprocessors();
    int64_t tasks = rows * code.tasksOfRow;
    int64_t blocks =
        std::clamp<int64_t>((wanted + tasks - 1) / tasks, 1, code.piecesOfTask);
    return {{narrow(blocks), narrow(code.tasksOfRow), ofRows},
            {cacheHeads, ofRows, 1}};
  }
  unsigned first = form.finds ? heads * narrow(work.sections) : cacheHeads;
  // Two blocks of a multiprocessor take turns in waiting.
  int64_t blocks =
      std::min<int64_t>(2 * code.device.multiprocessors(),
                        rows * code.tasksOfRow * code.piecesOfTask);
  return {{first, ofRows, 1},
          {1, 1, 1},
          {narrow(blocks), 1, 1},
          {heads, ofRows, 1}};
}

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
  lastRows = arguments.rows;
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
  auto bound =
      std::make_unique<BoundDeviceAttention>(program, pool, settings, work);
  if (Status status = bound->fill(arguments); !status)
    return status;
  lastRows = arguments.rows;
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
  if (made.bounded && made.bounded->kind == BoundedKind::Evicting)
    return Status(ErrorCode::Unsupported,
                  fmt::format("prompts of '{}' choose the tokens that they "
                              "keep, which runs on the CPU alone: decode them "
                              "token by token",
                              made.signature.name));
  if (arguments.tokens < 1)
    return invalid(fmt::format("tokens is {}, wanted the tokens that there is "
                               "room for: cuSeqlens is read on the device",
                               arguments.tokens));
  for (auto [name, numbers] : {std::pair("slots", arguments.slots),
                               std::pair("cuSeqlens", arguments.cuSeqlens)})
    if (!numbers.data() || addressOf(numbers.data()) % alignof(int32_t))
      return invalid(fmt::format("{} is at {}, wanted int32 numbers in memory "
                                 "of {}",
                                 name,
                                 static_cast<const void *>(numbers.data()),
                                 toString(made.device)));
  if (Status status = prompts.describe(arguments.tokens, arguments.tensors);
      !status)
    return status;
  if (Status status = pool.device->takeFault(); !status)
    return status;
  prompts.set("slots", addressOf(arguments.slots.data()));
  prompts.set("cu_seqlens", addressOf(arguments.cuSeqlens.data()));
  for (int64_t token = 0; token < arguments.tokens; ++token) {
    prompts.set("prompt_step", static_cast<uint64_t>(token));
    if (Status status = prompts.launch(arguments.rows, stream); !status)
      return status;
  }
  return Status();
}

std::span<const int64_t> DeviceAttention::matches() {
  matched.clear();
  int64_t heads = made.signature.heads;
  std::vector<int32_t> hits(static_cast<size_t>(lastRows * heads), -1);
  constexpr int64_t numbers = 8;
  std::vector<int32_t> plans(static_cast<size_t>(lastRows * numbers));
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
  for (int64_t row = 0; row < lastRows; ++row)
    for (int64_t head = 0; head < heads; ++head) {
      const int32_t *plan = plans.data() + row * numbers;
      int32_t hit = hits[static_cast<size_t>(row * heads + head)];
      bool isHit = plan[0] >= 0 && hit >= 0;
      matched.push_back(isHit ? int64_t(plan[2]) - 1 - hit : -1);
    }
  return matched;
}

Result<std::unique_ptr<AttentionDecoder::Impl>>
ladle::makeDeviceAttention(const AttentionProgram &program,
                           AttentionPoolImpl &pool,
                           const AttentionSettings &settings, int64_t rows) {
  Result<Workspace> work =
      Workspace::create(program.getImpl(), pool.window, rows);
  if (!work)
    return work.status();
  return std::unique_ptr<AttentionDecoder::Impl>(
      std::make_unique<DeviceAttention>(program, pool, settings,
                                        std::move(*work)));
}
