//===- Pool.cpp - what a program keeps between tokens ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/pool.h"
#include "runtime/HostPool.h"
#include "runtime/Text.h"
#include "runtime/cuda/DevicePool.h"

#include <algorithm>

using namespace ladle;

Pool::Pool(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Pool::Pool(Pool &&) noexcept = default;
Pool &Pool::operator=(Pool &&) noexcept = default;
Pool::~Pool() = default;
Pool::Impl::~Impl() {
  if (cursors)
    std::erase(shared().pools, this);
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// The elements of `shape`, or nothing if `slots` of them overflow.
static std::optional<int64_t> countElements(std::span<const int64_t> shape,
                                            int64_t stride, int64_t slots,
                                            DType dtype) {
  int64_t count = 1, bytes;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(count, size, &count))
      return std::nullopt;
  if (__builtin_mul_overflow(std::max(count, stride), slots, &bytes) ||
      __builtin_mul_overflow(bytes, sizeInBytes(dtype), &bytes))
    return std::nullopt;
  return count;
}

/// Lays out one array of slots; `stride` 0 is dense, `memory` null is owned.
static Status addArray(Pool::Impl &pool, std::vector<Pool::Impl::Array> &arrays,
                       const TensorSpec &spec, int64_t count,
                       int64_t versions = 1, int64_t stride = 0,
                       void *memory = nullptr) {
  int64_t slots = count * versions;
  std::optional<int64_t> dense =
      countElements(spec.shape, stride, slots, spec.dtype);
  if (!dense)
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("'{}' {} in {} slots is larger than any memory",
                              spec.name, shapeText(spec.shape), slots));
  if (stride != 0 && stride < *dense)
    return invalid(fmt::format("'{}' has the slot stride {}, wanted 0 or at "
                               "least {}",
                               spec.name, stride, *dense));
  if (reinterpret_cast<uintptr_t>(memory) % 64 != 0)
    return invalid(
        fmt::format("memory of '{}' is not aligned to 64 bytes", spec.name));
  Pool::Impl::Array array;
  array.spec = spec;
  array.stride = stride ? stride : *dense;
  array.versions = versions;
  array.count = count;
  array.data = memory;
  if (Status status = pool.checkArray(array); !status)
    return status;
  if (!memory) {
    int64_t bytes = array.stride * slots * sizeInBytes(spec.dtype);
    Result<std::shared_ptr<void>> owned = pool.allocate(bytes);
    if (!owned)
      return Status(owned.status().code(),
                    fmt::format("no memory for {} bytes of '{}': {}", bytes,
                                spec.name, owned.message()));
    array.owned = std::move(*owned);
    array.data = array.owned.get();
  }
  arrays.push_back(std::move(array));
  return Status();
}

static TensorSpec slotSpec(const StateSpec &state) {
  return {state.name, state.dtype, state.shape()};
}

static Status checkOptions(const PoolOptions &options,
                           const Signature &signature) {
  size_t states = signature.states.size();
  for (auto [name, count] :
       {std::pair{"slotStrides", options.slotStrides.size()},
        {"stateMemory", options.stateMemory.size()}})
    if (count > states)
      return invalid(fmt::format("{} has {} elements, wanted {} at most, one "
                                 "for each state of '{}'",
                                 name, count, states, signature.name));
  return Status();
}

/// Cursors of the pool's own, or those of the options, if they go with it.
static Result<Cursors> takeCursors(const Program &program,
                                   const PoolOptions &options) {
  if (!options.cursors) {
    Result<std::shared_ptr<Cursors::Impl>> own =
        Cursors::Impl::make(program, {.slots = options.slots,
                                      .pages = options.pages,
                                      .states = options.states,
                                      .padSlot = options.padSlot,
                                      .foldThreshold = options.foldThreshold,
                                      .crossover = options.crossover});
    if (!own)
      return own.status();
    return Cursors(std::move(*own));
  }
  const Cursors::Impl &shared = options.cursors->getImpl();
  const std::string &name = program.signature().name;
  if (!shared.isShared)
    return invalid(fmt::format("the cursors for '{}' are another pool's own; "
                               "Cursors::create makes some that are shared",
                               name));
  if (shared.device != program.device())
    return invalid(fmt::format("'{}' runs on {}, the cursors that its pool "
                               "would share are in memory of {}",
                               name, toString(program.device()),
                               toString(shared.device)));
  auto check = [&](const char *what, int64_t got, int64_t wanted) {
    return got == wanted
               ? Status()
               : invalid(fmt::format("the pool of '{}' has {} {}, the cursors "
                                     "that it would share have {}",
                                     name, what, got, wanted));
  };
  if (Status status =
          check("the capacity", program.capacity(), shared.capacity);
      !status)
    return status;
  if (Status status = check("entries a page", program.page(), shared.page);
      !status)
    return status;
  if (Status status = check(
          "pages", options.pages ? options.pages : shared.pages, shared.pages);
      !status)
    return status;
  if (Status status =
          check("states", options.states.value_or(shared.stateSlots()),
                shared.stateSlots());
      !status)
    return status;
  if (Status status = check(
          "crossover", options.crossover ? options.crossover : shared.crossover,
          shared.crossover);
      !status)
    return status;
  if (Status status = check("drafts a row", program.drafts(), shared.drafts);
      !status)
    return status;
  if (Status status = check(
          "slots", options.slots ? options.slots : shared.slots, shared.slots);
      !status)
    return status;
  if (Status status = check("padSlot", options.padSlot, shared.padSlot);
      !status)
    return status;
  if (Status status = check("foldThreshold",
                            options.foldThreshold ? options.foldThreshold
                                                  : shared.threshold,
                            shared.threshold);
      !status)
    return status;
  return *options.cursors;
}

Result<Pool> Pool::create(const Program &program, const PoolOptions &options) {
  const Signature &signature = program.signature();
  if (Status status = checkOptions(options, signature); !status)
    return status;
  Result<Cursors> cursors = takeCursors(program, options);
  if (!cursors)
    return cursors.status();
  DeviceId device = program.device();
  Pool pool(device.kind == DeviceKind::Cpu
                ? std::unique_ptr<Impl>(std::make_unique<HostPool>())
                : std::make_unique<DevicePool>(program.getImpl().gpu));
  Impl &impl = *pool.impl;
  impl.device = device;
  impl.signature = signature;
  impl.fieldSpecs.assign(program.fields().begin(), program.fields().end());
  impl.capacity = program.capacity();
  impl.page = program.page();
  impl.drafts = program.drafts();
  impl.slots = cursors->slots();
  impl.program = program;

  // A draft that no entry can hold needs a state of its own.
  int64_t versions = impl.drafts + 1, stateVersions = 1;
  for (const RouteKernels &kernels : program.getImpl().routes)
    if (!kernels.usesBuffer)
      stateVersions = versions;

  bool hasHistories = false;
  for (size_t i = 0; i < signature.states.size(); ++i) {
    int64_t stride =
        i < options.slotStrides.size() ? options.slotStrides[i] : 0;
    void *memory =
        i < options.stateMemory.size() ? options.stateMemory[i] : nullptr;
    // The caller's states count as histories that have begun.
    hasHistories |= memory != nullptr;
    if (memory && cursors->getImpl().states)
      return invalid(fmt::format("stateMemory[{}] is not null, wanted null: "
                                 "slots take states, which are zero before",
                                 i));
    if (memory && stateVersions > 1)
      return invalid(fmt::format("stateMemory[{}] is not null, wanted null: "
                                 "'{}' has a route without a "
                                 "buffer, for which a slot holds {} states",
                                 i, signature.name, stateVersions));
    if (Status status = addArray(
            impl, impl.states, slotSpec(signature.states[i]),
            cursors->getImpl().stateSlots(), stateVersions, stride, memory);
        !status)
      return status;
  }
  for (const TensorSpec &spec : signature.carries)
    if (Status status =
            addArray(impl, impl.carries, spec, impl.slots, versions);
        !status)
      return status;
  // On a GPU, where nobody looks, a slot without pages has one that none reads.
  int64_t sparePages = device.kind == DeviceKind::Cpu ? 0 : 1;
  for (TensorSpec spec : impl.fieldSpecs) {
    spec.shape.insert(spec.shape.begin() + 1,
                      impl.page ? impl.page : impl.capacity);
    if (Status status = addArray(
            impl, impl.fields, spec,
            impl.page ? cursors->getImpl().pages + sparePages : impl.slots);
        !status)
      return status;
  }
  if (!options.cursors) {
    if (Status status =
            cursors->getImpl().start(options.foldThreshold, options.crossover);
        !status)
      return status;
  } else if (impl.drafts) {
    // Versions that others have come to may be more than this pool has.
    for (int32_t slot = 0; slot < impl.slots; ++slot)
      if (Status status = cursors->getImpl().settle(slot); !status)
        return status;
  }
  if (hasHistories)
    if (Status status = cursors->getImpl().markWritten(); !status)
      return status;
  impl.cursors = std::move(*cursors);
  impl.shared().pools.push_back(&impl);
  return pool;
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

int64_t Pool::Impl::Array::slotBytes() const {
  int64_t bytes = sizeInBytes(spec.dtype);
  for (int64_t size : spec.shape)
    bytes *= size;
  return bytes;
}

TensorView Pool::Impl::Array::view(DeviceId device) const {
  TensorView view = TensorView::dense(data, spec.dtype, spec.shape, device);
  view.shape.insert(view.shape.begin(), count);
  view.strides.insert(view.strides.begin(), stride * versions);
  return view;
}

TensorView Pool::Impl::Array::versionView(DeviceId device) const {
  TensorView all = view(device);
  all.shape[0] *= versions;
  all.strides[0] = stride;
  return all;
}

void ladle::describe(const TensorView &view, MemoryDescriptor &descriptor) {
  descriptor.allocated = descriptor.aligned = view.data;
  std::copy(view.shape.begin(), view.shape.end(), descriptor.sizesAndStrides);
  std::copy(view.strides.begin(), view.strides.end(),
            descriptor.sizesAndStrides + view.shape.size());
}

static Result<TensorView> findArray(const Pool::Impl &pool,
                                    const std::vector<Pool::Impl::Array> &all,
                                    std::string_view name) {
  for (const Pool::Impl::Array &array : all) {
    if (array.spec.name != name)
      continue;
    for (int32_t slot = 0; slot < pool.slots; ++slot)
      if (Status status = array.versions > 1
                              ? pool.shared().settle(slot)
                              : pool.shared().checkCommitted(slot);
          !status)
        return status;
    return array.view(pool.device);
  }
  return Status(ErrorCode::NotFound, fmt::format("the pool has no '{}'", name));
}

Result<TensorView> Pool::state(std::string_view name) const {
  return findArray(*impl, impl->states, name);
}

Result<TensorView> Pool::carry(std::string_view name) const {
  return findArray(*impl, impl->carries, name);
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

Status Pool::Impl::checkProgram(const Program &program) const {
  const Signature &other = program.signature();
  if (program.device() != device)
    return invalid(fmt::format("the pool of '{}' is in memory of {}, the "
                               "program runs on {}",
                               signature.name, toString(device),
                               toString(program.device())));
  if (other.states.size() == signature.states.size())
    for (size_t i = 0; i < signature.states.size(); ++i)
      if (StateLayout layout = other.states[i].layout;
          layout != signature.states[i].layout)
        return invalid(fmt::format(
            "the pool of '{}' has '{}' {}, the program wants it {}",
            signature.name, signature.states[i].name,
            toString(signature.states[i].layout), toString(layout)));
  if (other.states != signature.states || other.carries != signature.carries)
    return invalid(fmt::format("the pool of '{}' does not have the states and "
                               "carries of '{}'",
                               signature.name, other.name));
  if (program.drafts() != drafts)
    return invalid(fmt::format("the pool of '{}' has room for {} drafts a row, "
                               "the program verifies {}",
                               signature.name, drafts, program.drafts()));
  const RouteKernels *kernels = program.getImpl().find(program.route());
  if (!kernels->usesBuffer && drafts && !states.empty() &&
      states.front().versions == 1)
    return invalid(fmt::format(
        "the pool of '{}' has one state a slot, route '{}' wants one for each "
        "draft; make the pool by a program that has the route",
        signature.name, toString(program.route())));
  if (kernels->usesBuffer && (program.getImpl().fields != fieldSpecs ||
                              program.capacity() != capacity))
    return invalid(fmt::format(
        "the pool of '{}' was made for {} entries of {}, route '{}' wants {} "
        "of {}",
        signature.name, capacity, namesText(fieldSpecs),
        toString(program.route()), program.capacity(),
        namesText(program.fields())));
  if (kernels->usesBuffer && program.page() != page)
    return invalid(fmt::format(
        "the pool of '{}' was made for pages of {} entries, route '{}' wants "
        "{}, where 0 is none",
        signature.name, page, toString(program.route()), program.page()));
  return Status();
}

int64_t Pool::slots() const { return impl->slots; }

DeviceId Pool::device() const { return impl->device; }

bool Pool::isPadding(int32_t slot) const { return impl->isPadding(slot); }

Cursors Pool::cursors() const { return *impl->cursors; }

Result<Cursor> Pool::cursor(int32_t slot) const {
  return impl->cursors->cursor(slot);
}

int64_t Pool::foldThreshold() const { return impl->shared().threshold; }

Status Pool::setFoldThreshold(int64_t m, void *stream) {
  return impl->shared().setThreshold(m, stream);
}

Status Pool::reset(std::span<const int32_t> slots, void *stream) {
  return impl->shared().reset(slots, stream);
}

Status Pool::resetRows(std::span<const int32_t> slots, void *stream) {
  return impl->shared().resetRows(slots, stream);
}

Status Pool::fork(std::span<const int32_t> from, std::span<const int32_t> to) {
  return impl->cursors->fork(from, to);
}

Status Pool::rebuild(int32_t from, int64_t entries, int32_t to,
                     std::optional<int32_t> checkpoint) {
  return impl->cursors->rebuild(from, entries, to, checkpoint);
}

Status Pool::commit(std::span<const int32_t> slots,
                    std::span<const int32_t> numAccepted,
                    std::span<const int32_t> accepted, void *stream) {
  return impl->shared().commit(slots, numAccepted, accepted, stream);
}

Status Pool::flush(const Program &program, std::span<const int32_t> slots,
                   void *stream) {
  if (Status status = impl->checkProgram(program); !status)
    return status;
  return impl->shared().flush(slots, impl.get(), &program, stream);
}

Status Pool::flushRows(const Program &program, std::span<const int32_t> slots,
                       void *stream) {
  if (Status status = impl->checkProgram(program); !status)
    return status;
  // On the CPU they can be looked at.
  if (impl->device.kind == DeviceKind::Cpu)
    return impl->shared().flush(slots, impl.get(), &program, stream);
  if (slots.empty() || impl->capacity == 0)
    return Status();
  if (Status status = impl->shared().takeFault(); !status)
    return status;
  Result<bool> folds = impl->canFold(program, {});
  if (!folds)
    return folds.status();
  if (!*folds)
    return invalid(fmt::format("no route of '{}' folds the entries of the pool",
                               program.signature().name));
  return impl->shared().flushRows(slots, impl.get(), &program, stream);
}
