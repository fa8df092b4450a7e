//===- DevicePrefill.cpp - the prompts of a batch on a GPU ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DevicePrefill.h"
#include "runtime/Arguments.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/Range.h"

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status ladle::withReproducer(const Status &failure, const Program &program) {
  const std::string &command = program.getImpl().reproducer;
  return command.empty()
             ? failure
             : Status(failure.code(), fmt::format("{}\nnote: repeat with: {}",
                                                  failure.message(), command));
}

/// Whether prompts stay entries while they are short.
static bool keepsEntries(const RouteKernels &route, const DevicePool &pool) {
  return route.route == RouteKind::KvOnly && route.usesBuffer && pool.page;
}

DevicePrefill::DevicePrefill(const Program &program, DevicePool &pool,
                             HeadRange heads)
    : program(program), pool(pool), heads(heads),
      route(*this->program.getImpl().find(program.route())),
      name(fmt::format("ladle {} {} prefill", program.signature().name,
                       toString(route.route))),
      kernels(this->program, pool, heads, KernelCall::Prefill),
      folding(keepsEntries(route, pool) ? *this->program.getImpl().find(
                                              this->program.getImpl().longRoute)
                                        : route),
      folds(folding, this->program.signature(), pool, heads) {
  if (keepsEntries(route, pool))
    folds.setRowKind(KernelArguments::WithState);
}

Status DevicePrefill::begin() {
  if (!kernels.prefills())
    return Status();
  if (int64_t bytes = kernels.preparedBytes()) {
    DeviceCursors &cursors = pool.positions();
    auto counterBytes =
        kernels.preparedRuns() * static_cast<int64_t>(sizeof(int32_t));
    Result<uint64_t> memory =
        cursors.reserve(cursors.prepared, heads.begin, bytes);
    Result<uint64_t> counters =
        cursors.reserve(cursors.preparedCounters, heads.begin, counterBytes);
    if (!memory || !counters)
      return memory ? counters.status() : memory.status();
    kernels.setPrepared(*memory, *counters);
  }
  for (size_t i = 0; i < pool.carries.size(); ++i) {
    const Pool::Impl::Array &array = pool.carries[i];
    Result<cuda::Memory> made = cuda::Memory::allocate(
        pool.code->device, pool.slots * array.slotBytes());
    if (!made)
      return made.status();
    int64_t count = array.spec.shape[0];
    int64_t first = heads.begin / (program.signature().heads / count);
    kernels.setNextCarry(
        i,
        made->address() +
            static_cast<uint64_t>(first * (array.slotBytes() / count)),
        array.slotBytes() / sizeInBytes(array.spec.dtype));
    nextCarries.push_back(std::move(*made));
  }
  return Status();
}

Status DevicePrefill::fill(const PrefillArguments &arguments) {
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
  if (arguments.tokens < 1 || arguments.tokens > INT32_MAX)
    return invalid(fmt::format("tokens is {}, wanted 1 to {}, the rows of the "
                               "tensors: cuSeqlens is read on the device",
                               arguments.tokens, INT32_MAX));
  for (auto [what, list] : {std::pair("slots", arguments.slots),
                            std::pair("cuSeqlens", arguments.cuSeqlens)})
    if (!list.data() || addressOf(list.data()) % alignof(int32_t))
      return invalid(fmt::format("{} is at {}, wanted int32 numbers in memory "
                                 "of {}",
                                 what, static_cast<const void *>(list.data()),
                                 toString(pool.device)));
  if (Status status = bindArguments(
          program.signature(), arguments.tokens, pool.device, arguments.tensors,
          {kernels.params(), kernels.tokens(), kernels.outputs()});
      !status)
    return status;
  if (Status status = kernels.takeDescriptors(); !status)
    return status;
  uint64_t slots = addressOf(arguments.slots.data());
  kernels.setSlots(slots, slots);
  folds.setSlots(slots, slots);
  kernels.setPrompts(addressOf(arguments.cuSeqlens.data()));
  return Status();
}

/// What the prompts have left behind becomes the carries of their slots.
Status DevicePrefill::keepCarries(const PrefillArguments &arguments,
                                  void *stream) {
  const DeviceCursors &cursors = pool.positions();
  const cuda::Kernel &keep = pool.code->keepCarries;
  constexpr int64_t part = sizeof(uint16_t);
  for (size_t i = 0; i < pool.carries.size(); ++i) {
    const Pool::Impl::Array &array = pool.carries[i];
    // The heads of the range, of a carry that has fewer.
    int64_t count = array.spec.shape[0];
    int64_t shared = program.signature().heads / count;
    int64_t first = heads.begin / shared;
    int64_t end = (heads.end + shared - 1) / shared;
    int64_t ofHead = array.slotBytes() / count;
    auto offset = static_cast<uint64_t>(first * ofHead);
    uint64_t slots = addressOf(arguments.slots.data());
    uint64_t versions = cursors.drafts ? cursors.versions.address() : 0;
    uint64_t from = nextCarries[i].address() + offset;
    uint64_t to = addressOf(array.data) + offset;
    int64_t nextStride = array.slotBytes() / part;
    int64_t stride = array.stride * sizeInBytes(array.spec.dtype) / part;
    int32_t pad = cursors.padSlot;
    auto drafts = static_cast<int32_t>(cursors.drafts);
    auto parts = static_cast<int32_t>((end - first) * ofHead / part);
    void *values[] = {&slots,  &versions, &from,   &to,   &nextStride,
                      &stride, &pad,      &drafts, &parts};
    if (Status status =
            keep.launch({static_cast<unsigned>(arguments.rows), 1, 1},
                        {keep.info().threads, 1, 1}, values, stream);
        !status)
      return status;
  }
  return Status();
}

Status DevicePrefill::notePrompts(const PrefillArguments &arguments,
                                  void *stream) {
  const DeviceCursors &cursors = pool.positions();
  const cuda::Kernel &note = pool.code->notePrompts;
  uint64_t slots = addressOf(arguments.slots.data());
  uint64_t starts = addressOf(arguments.cuSeqlens.data());
  uint64_t prompts = cursors.prompts.address();
  int32_t pad = cursors.padSlot;
  auto rows = static_cast<int32_t>(arguments.rows);
  void *values[] = {&slots, &starts, &prompts, &pad, &rows};
  unsigned threads = note.info().threads;
  return note.launch(
      {(static_cast<unsigned>(rows) + threads - 1) / threads, 1, 1},
      {threads, 1, 1}, values, stream);
}

/// What fills up the chunks that slots have begun, and then the rest.
Status DevicePrefill::launchParts(const PrefillArguments &arguments,
                                  void *stream) {
  Status status;
  for (uint64_t part : {0, 1}) {
    kernels.setPart(part);
    if (status)
      status = kernels.launchPrompts(arguments.rows, arguments.tokens, stream);
    if (status)
      status = keepCarries(arguments, stream);
  }
  return status ? notePrompts(arguments, stream) : status;
}

Status DevicePrefill::launch(const PrefillArguments &arguments, void *stream) {
  cuda::CurrentContext current(*pool.code->device.context());
  cuda::Range range(name.c_str());
  if (program.foldsByChunk())
    return launchParts(arguments, stream);
  if (folding.usesBuffer && folding.gpu->fold)
    if (Status status = folds.launch(std::span(&*folding.gpu->fold, 1),
                                     arguments.rows, stream);
        !status)
      return status;
  if (Status status =
          kernels.launchPrompts(arguments.rows, arguments.tokens, stream);
      !status)
    return status;
  if (keepsEntries(route, pool))
    if (Status status = notePrompts(arguments, stream); !status)
      return status;
  return keepCarries(arguments, stream);
}

Status DevicePrefill::run(const PrefillArguments &arguments, void *stream) {
  if (program.chunk() == 0)
    return invalid(fmt::format("'{}' was compiled without prompts; set "
                               "CompileOptions::prefill",
                               program.signature().name));
  if (!kernels.prefills())
    return Status(
        ErrorCode::Unsupported,
        fmt::format("route '{}' keeps prompts as entries {}; prefill, and "
                    "decode what follows, by withRoute(Inner)",
                    toString(route.route),
                    pool.page ? "if a GPU can answer their tokens at once, not "
                                "one after another"
                              : "in pages alone on a GPU "
                                "(CompileOptions::page)"));
  if (arguments.rows == 0)
    return Status();
  if (Status status = fill(arguments); !status)
    return status;
  DeviceCursors &cursors = pool.positions();
  if (Status status = cursors.takeFault(); !status)
    return status;
  if (cursors.isShared)
    if (Status status = cursors.takeStep(route, /*prefills=*/true); !status)
      return status;
  if (Status status = launch(arguments, stream); !status)
    return withReproducer(status, program);
  if (cursors.isShared)
    return Status();
  return cursors.move({cursors.kindOf(route, /*prefills=*/true), arguments.rows,
                       arguments.slots.data(), arguments.slots.data()},
                      stream);
}
