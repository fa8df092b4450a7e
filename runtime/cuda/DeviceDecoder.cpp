//===- DeviceDecoder.cpp - steps on a GPU ---------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is the kernels of its route and one that moves the cursors, all on one
// stream. What the host checks, it checks before the first of them.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/DecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/DevicePrefill.h"
#include "runtime/cuda/Range.h"

#include <algorithm>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {

class DeviceStep final : public BoundStep::Impl {
public:
  DeviceStep(const Program &program, DevicePool &pool, HeadRange heads)
      : program(program), pool(pool),
        route(*this->program.getImpl().find(program.route())),
        name(fmt::format("ladle {} {}", program.signature().name,
                         toString(route.route))),
        kernels(this->program, pool, heads, KernelCall::Step) {}

  /// Takes over arguments, of 1 row at least. Those that differ from the last
  /// ones in their addresses alone are not checked anew but for these.
  Status fill(const StepArguments &arguments);
  /// That the driver knows all memory as the device's.
  Status checkMemory() const;

  Status launch(int64_t count, void *stream, Start start) override {
    if (count == 0)
      return Status();
    DeviceCursors &cursors = pool.positions();
    if (Status status = cursors.takeFault(); !status)
      return status;
    if (cursors.isShared)
      if (Status status = cursors.takeStep(route); !status)
        return status;
    cuda::CurrentContext current(*pool.code->device.context());
    cuda::Range range(name.c_str());
    if (Status status = kernels.launch(count, stream, start == Start::Early);
        !status)
      return withReproducer(status, program);
    if (cursors.isShared)
      return Status();
    return cursors.move({CursorMove::kindOf(route), count, reads, writes},
                        stream);
  }
  Status setMemory(std::string_view name, void *data) override;
  Status setSlots(const int32_t *readSlots, const int32_t *writeSlots) override;

private:
  /// A tensor that has been checked.
  struct Taken {
    std::string name;
    TensorView view;
    const KernelArguments::Tensor *argument;
  };
  bool areLikeTaken(const StepArguments &arguments) const;
  Status fillAnew(const StepArguments &arguments);

  Program program;
  DevicePool &pool;
  const RouteKernels &route;
  std::string name;         ///< in a profiler
  std::vector<Taken> taken; ///< in the order of names; empty: none are valid
  CallKernels kernels;
  const int32_t *reads = nullptr, *writes = nullptr;
};

/// What answers drafts.
class DeviceVerify {
public:
  DeviceVerify(const Program &program, DevicePool &pool, HeadRange heads)
      : program(program), pool(pool),
        route(*this->program.getImpl().find(program.route())),
        name(fmt::format("ladle {} {} verify", program.signature().name,
                         toString(route.route))),
        kernels(this->program, pool, heads, KernelCall::Verify) {}

  Status run(const VerifyArguments &arguments, void *stream, Start start);

private:
  Status fill(const VerifyArguments &arguments);

  Program program;
  DevicePool &pool;
  const RouteKernels &route;
  std::string name; ///< in a profiler
  CallKernels kernels;
};

class DeviceDecoder final : public Decoder::Impl {
public:
  DeviceDecoder(const Program &program, DevicePool &pool, HeadRange heads)
      : program(program), pool(pool), heads(heads),
        unbound(program, pool, heads), drafts(program, pool, heads),
        prompts(program, pool, heads) {}

  /// What the decoder needs memory for.
  Status begin() { return prompts.begin(); }

  int threads() const override { return 0; }
  Status step(const StepArguments &arguments, void *stream) override {
    if (Status status = checkSlotCounts(arguments, INT32_MAX); !status)
      return status;
    if (arguments.rows == 0)
      return Status();
    if (Status status = unbound.fill(arguments); !status)
      return status;
    return unbound.launch(arguments.rows, stream, Start::InOrder);
  }
  Status verify(const VerifyArguments &arguments, void *stream,
                Start start) override {
    return drafts.run(arguments, stream, start);
  }
  Status prefill(const PrefillArguments &arguments, void *stream) override {
    return prompts.run(arguments, stream);
  }
  Result<BoundStep> bind(const StepArguments &arguments) override {
    if (Status status = checkSlotCounts(arguments, INT32_MAX); !status)
      return status;
    if (arguments.rows == 0)
      return invalid("rows is 0, wanted 1 at least to bind a step");
    auto step = std::make_unique<DeviceStep>(program, pool, heads);
    if (Status status = step->fill(arguments); !status)
      return status;
    if (Status status = step->checkMemory(); !status)
      return status;
    return BoundStep(std::move(step));
  }

private:
  Program program;
  DevicePool &pool;
  HeadRange heads;
  DeviceStep unbound;
  DeviceVerify drafts;
  DevicePrefill prompts;
};

} // namespace

Status DeviceStep::setSlots(const int32_t *readSlots,
                            const int32_t *writeSlots) {
  if (!writeSlots)
    writeSlots = readSlots;
  for (auto [name, slots] :
       {std::pair("readSlots", readSlots), std::pair("writeSlots", writeSlots)})
    if (!slots || addressOf(slots) % alignof(int32_t))
      return invalid(fmt::format("{} is at {}, wanted int32 numbers in memory "
                                 "of {}",
                                 name, static_cast<const void *>(slots),
                                 toString(pool.device)));
  if (program.foldsByChunk() && writeSlots != readSlots)
    return invalid("writeSlots are given, wanted none: who folds by chunks "
                   "(numerics = chunk) stays in its slot");
  reads = readSlots;
  writes = writeSlots;
  kernels.setSlots(addressOf(readSlots), addressOf(writeSlots));
  return Status();
}

bool DeviceStep::areLikeTaken(const StepArguments &arguments) const {
  if (arguments.rows != rows || arguments.tensors.size() != taken.size())
    return false;
  auto known = taken.begin();
  for (const auto &[name, view] : arguments.tensors) {
    const TensorView &before = known->view;
    if (name != known->name || !view.data || view.dtype != before.dtype ||
        view.device != before.device || view.shape != before.shape ||
        view.strides != before.strides)
      return false;
    ++known;
  }
  return true;
}

Status DeviceStep::fill(const StepArguments &arguments) {
  if (!areLikeTaken(arguments))
    return fillAnew(arguments);
  auto known = taken.begin();
  for (const auto &[name, view] : arguments.tensors) {
    if (view.data != known->view.data) {
      if (Status status = kernels.setMemory(*known->argument, view.data);
          !status)
        return status;
      known->view.data = view.data;
    }
    ++known;
  }
  return setSlots(arguments.readSlots.data(),
                  arguments.writeSlots.empty() ? nullptr
                                               : arguments.writeSlots.data());
}

Status DeviceStep::fillAnew(const StepArguments &arguments) {
  taken.clear();
  rows = arguments.rows;
  if (Status status = bindArguments(
          program.signature(), rows, pool.device, arguments.tensors,
          {kernels.params(), kernels.tokens(), kernels.outputs()});
      !status)
    return status;
  if (Status status = kernels.takeDescriptors(); !status)
    return status;
  for (const auto &[name, view] : arguments.tensors)
    for (const KernelArguments::Tensor &argument : kernels.tensors())
      if (argument.spec->name == name)
        taken.push_back({name, view, &argument});
  return setSlots(arguments.readSlots.data(),
                  arguments.writeSlots.empty() ? nullptr
                                               : arguments.writeSlots.data());
}

Status DeviceStep::checkMemory() const {
  auto check = [&](std::string what, const void *data) {
    if (pool.code->device.isReachable(data))
      return Status();
    return invalid(fmt::format("{} is at {}, which is not memory of {}", what,
                               data, toString(pool.device)));
  };
  if (Status status = check("readSlots", reads); !status)
    return status;
  if (Status status = check("writeSlots", writes); !status)
    return status;
  for (const KernelArguments::Tensor &tensor : kernels.tensors())
    if (Status status = check(fmt::format("argument '{}'", tensor.spec->name),
                              tensor.descriptor->aligned);
        !status)
      return status;
  return Status();
}

Status DeviceStep::setMemory(std::string_view name, void *data) {
  for (const KernelArguments::Tensor &tensor : kernels.tensors())
    if (tensor.spec->name == name)
      return kernels.setMemory(tensor, data);
  return Status(
      ErrorCode::NotFound,
      fmt::format("'{}' has no argument '{}'", program.signature().name, name));
}

Status DeviceVerify::fill(const VerifyArguments &arguments) {
  int64_t rows = arguments.rows;
  auto sizeOf = [](auto list) { return static_cast<int64_t>(list.size()); };
  if (rows < 0 || rows > INT32_MAX)
    return invalid(fmt::format("rows is {}, wanted 0 to {}", rows, INT32_MAX));
  if (sizeOf(arguments.slots) != rows)
    return invalid(fmt::format("slots has {} slots, wanted {}",
                               sizeOf(arguments.slots), rows));
  if (sizeOf(arguments.cuSeqlens) != rows + 1)
    return invalid(fmt::format("cuSeqlens has {} numbers, wanted {}",
                               sizeOf(arguments.cuSeqlens), rows + 1));
  int64_t all = arguments.drafts;
  if (all < 1 || all > rows * pool.drafts)
    return invalid(fmt::format("drafts is {}, wanted 1 to {}, the rows of the "
                               "tensors: cuSeqlens is read on the device",
                               all, rows * pool.drafts));
  if (!arguments.parents.empty() && sizeOf(arguments.parents) != all)
    return invalid(fmt::format("parents has {} numbers, wanted {} or none",
                               sizeOf(arguments.parents), all));
  for (auto [name, list] : {std::pair("slots", arguments.slots),
                            std::pair("cuSeqlens", arguments.cuSeqlens),
                            std::pair("parents", arguments.parents)})
    if (!list.empty() &&
        (!list.data() || addressOf(list.data()) % alignof(int32_t)))
      return invalid(fmt::format("{} is at {}, wanted int32 numbers in memory "
                                 "of {}",
                                 name, static_cast<const void *>(list.data()),
                                 toString(pool.device)));
  if (Status status = bindArguments(
          program.signature(), all, pool.device, arguments.tensors,
          {kernels.params(), kernels.tokens(), kernels.outputs()});
      !status)
    return status;
  if (Status status = kernels.takeDescriptors(); !status)
    return status;
  kernels.setSlots(addressOf(arguments.slots.data()),
                   addressOf(arguments.slots.data()));
  kernels.setDrafts(
      addressOf(arguments.cuSeqlens.data()),
      arguments.parents.empty() ? 0 : addressOf(arguments.parents.data()));
  return Status();
}

Status DeviceVerify::run(const VerifyArguments &arguments, void *stream,
                         Start start) {
  if (pool.drafts == 0 || (!program.verifiesAtOnce() && !kernels.isSerial()))
    return invalid(fmt::format("'{}' was compiled without drafts; set "
                               "CompileOptions::drafts to the most of a row",
                               program.signature().name));
  if (arguments.rows == 0)
    return Status();
  if (Status status = fill(arguments); !status)
    return status;
  DeviceCursors &cursors = pool.positions();
  if (Status status = cursors.takeFault(); !status)
    return status;
  if (cursors.isShared) {
    if (Status status = cursors.takeStep(route); !status)
      return status;
  } else {
    cursors.verifiedBy = CursorMove::kindOf(route);
  }
  cuda::CurrentContext current(*pool.code->device.context());
  cuda::Range range(name.c_str());
  // A row has as many as there is room for at most, whatever the others have.
  Status status =
      kernels.isSerial()
          ? kernels.launchDrafts(
                arguments.rows, std::min(pool.drafts, arguments.drafts), stream)
          : kernels.launch(arguments.rows, stream, start == Start::Early);
  return status ? status : withReproducer(status, program);
}

Result<std::unique_ptr<Decoder::Impl>>
ladle::makeDeviceDecoder(const Program &program, DevicePool &pool,
                         const DecoderOptions &options) {
  HeadRange heads{options.headBegin, options.headEnd < 0
                                         ? program.signature().heads
                                         : options.headEnd};
  const RouteKernels &route = *program.getImpl().find(program.route());
  if (pool.positions().states && !route.usesBuffer)
    return Status(ErrorCode::Unsupported,
                  fmt::format("route '{}' has no buffer, and knows each slot's "
                              "own state alone: make the pool without "
                              "CursorOptions::states, or decode by another",
                              toString(route.route)));
  auto decoder = std::make_unique<DeviceDecoder>(program, pool, heads);
  if (Status status = decoder->begin(); !status)
    return status;
  return std::unique_ptr<Decoder::Impl>(std::move(decoder));
}
