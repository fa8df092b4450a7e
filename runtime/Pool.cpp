//===- Pool.cpp - what a program keeps between tokens ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/pool.h"
#include "runtime/PoolImpl.h"
#include "runtime/Text.h"

#include <algorithm>
#include <cstring>

using namespace ladle;

Pool::Pool(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Pool::Pool(Pool &&) noexcept = default;
Pool &Pool::operator=(Pool &&) noexcept = default;
Pool::~Pool() = default;

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
static Status addArray(std::vector<Pool::Impl::Array> &arrays,
                       const TensorSpec &spec, int64_t slots,
                       int64_t stride = 0, void *memory = nullptr) {
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
  array.data = memory;
  if (!memory) {
    int64_t bytes = array.stride * slots * sizeInBytes(spec.dtype);
    if (!array.owned.allocate(bytes))
      return Status(
          ErrorCode::ResourceExhausted,
          fmt::format("no memory for {} bytes of '{}'", bytes, spec.name));
    array.data = array.owned.data();
  }
  arrays.push_back(std::move(array));
  return Status();
}

static TensorSpec slotSpec(const StateSpec &state) {
  return {
      state.name, state.dtype, {state.heads, state.valueSize, state.keySize}};
}

static Status checkOptions(const PoolOptions &options,
                           const Signature &signature) {
  if (options.slots < 1 || options.slots > INT32_MAX)
    return invalid(
        fmt::format("slots is {}, wanted 1 to {}", options.slots, INT32_MAX));
  if (options.padSlot > 0)
    return invalid(fmt::format("padSlot is {}, wanted a negative number or 0",
                               options.padSlot));
  size_t states = signature.states.size();
  if (options.slotStrides.size() > states ||
      options.stateMemory.size() > states)
    return invalid(fmt::format("{} slot strides and memory for {} states, "
                               "'{}' has {}",
                               options.slotStrides.size(),
                               options.stateMemory.size(), signature.name,
                               states));
  return Status();
}

Result<Pool> Pool::create(const Program &program, const PoolOptions &options) {
  const Signature &signature = program.signature();
  if (Status status = checkOptions(options, signature); !status)
    return status;
  Pool pool(std::make_unique<Impl>());
  Impl &impl = *pool.impl;
  impl.signature = signature;
  impl.fieldSpecs.assign(program.fields().begin(), program.fields().end());
  impl.capacity = program.capacity();
  impl.slots = options.slots;
  impl.padSlot = options.padSlot;

  Cursor initial;
  for (size_t i = 0; i < signature.states.size(); ++i) {
    int64_t stride =
        i < options.slotStrides.size() ? options.slotStrides[i] : 0;
    void *memory =
        i < options.stateMemory.size() ? options.stateMemory[i] : nullptr;
    // The caller's states count as histories that have begun.
    if (memory)
      initial.epoch = 1;
    if (Status status = addArray(impl.states, slotSpec(signature.states[i]),
                                 options.slots, stride, memory);
        !status)
      return status;
  }
  for (const TensorSpec &spec : signature.carries)
    if (Status status = addArray(impl.carries, spec, options.slots); !status)
      return status;
  for (TensorSpec spec : impl.fieldSpecs) {
    spec.shape.insert(spec.shape.begin() + 1, impl.capacity);
    if (Status status = addArray(impl.fields, spec, options.slots); !status)
      return status;
  }
  impl.cursors.resize(static_cast<size_t>(options.slots), initial);
  impl.writers.resize(static_cast<size_t>(options.slots));
  if (Status status = pool.setFoldThreshold(
          options.foldThreshold ? options.foldThreshold : impl.capacity);
      !status)
    return status;
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

TensorView Pool::Impl::Array::view(int64_t slots) const {
  TensorView view = TensorView::dense(data, spec.dtype, spec.shape);
  view.shape.insert(view.shape.begin(), slots);
  view.strides.insert(view.strides.begin(), stride);
  return view;
}

void ladle::describe(const TensorView &view, MemoryDescriptor &descriptor) {
  descriptor.allocated = descriptor.aligned = view.data;
  std::copy(view.shape.begin(), view.shape.end(), descriptor.sizesAndStrides);
  std::copy(view.strides.begin(), view.strides.end(),
            descriptor.sizesAndStrides + view.shape.size());
}

static Result<TensorView> findArray(const std::vector<Pool::Impl::Array> &all,
                                    std::string_view name, int64_t slots) {
  for (const Pool::Impl::Array &array : all)
    if (array.spec.name == name)
      return array.view(slots);
  return Status(ErrorCode::NotFound, fmt::format("the pool has no '{}'", name));
}

Result<TensorView> Pool::state(std::string_view name) const {
  return findArray(impl->states, name, impl->slots);
}

Result<TensorView> Pool::carry(std::string_view name) const {
  return findArray(impl->carries, name, impl->slots);
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

Status Pool::Impl::checkSlot(int32_t slot) const {
  if (isUsable(slot))
    return Status();
  if (isPadding(slot))
    return invalid(fmt::format("slot {} marks padding", slot));
  return invalid(
      fmt::format("slot {} is outside of the pool, which has {}", slot, slots));
}

Status Pool::Impl::checkProgram(const Program &program) const {
  const Signature &other = program.signature();
  if (other.states != signature.states || other.carries != signature.carries)
    return invalid(fmt::format("the pool of '{}' does not have the states and "
                               "carries of '{}'",
                               signature.name, other.name));
  const RouteKernels *kernels = program.getImpl().find(program.route());
  if (kernels->usesBuffer && (program.getImpl().fields != fieldSpecs ||
                              program.capacity() != capacity))
    return invalid(fmt::format(
        "the pool of '{}' was made for {} entries of {}, route '{}' wants {} "
        "of {}",
        signature.name, capacity, namesText(fieldSpecs),
        toString(program.route()), program.capacity(),
        namesText(program.fields())));
  return Status();
}

int64_t Pool::slots() const { return impl->slots; }

bool Pool::isPadding(int32_t slot) const { return impl->isPadding(slot); }

Result<Cursor> Pool::cursor(int32_t slot) const {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  return impl->cursors[slot];
}

int64_t Pool::foldThreshold() const { return impl->threshold; }

Status Pool::setFoldThreshold(int64_t m) {
  // Without a buffer nothing ever folds.
  int64_t least = std::min<int64_t>(1, impl->capacity);
  if (m < least || m > impl->capacity)
    return invalid(fmt::format("foldThreshold is {}, wanted {} to {}", m, least,
                               impl->capacity));
  impl->threshold = m;
  return Status();
}

Status Pool::reset(std::span<const int32_t> slots) {
  for (int32_t slot : slots)
    if (!impl->isPadding(slot))
      if (Status status = impl->checkSlot(slot); !status)
        return status;
  for (int32_t slot : slots) {
    if (impl->isPadding(slot))
      continue;
    for (const auto *arrays : {&impl->states, &impl->carries})
      for (const Impl::Array &array : *arrays)
        std::memset(array.slot(slot), 0,
                    static_cast<size_t>(array.slotBytes()));
    impl->cursors[slot] = Cursor();
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Export and import
//===----------------------------------------------------------------------===//

TensorView SlotContents::Item::view() const {
  return TensorView::dense(const_cast<std::byte *>(data.data()), dtype, shape);
}

static SlotContents::Item exportArray(const Pool::Impl::Array &array,
                                      int32_t slot) {
  SlotContents::Item item{
      array.spec.name, array.spec.dtype, array.spec.shape, {}};
  item.data.resize(static_cast<size_t>(array.slotBytes()));
  std::memcpy(item.data.data(), array.slot(slot), item.data.size());
  return item;
}

Result<SlotContents> Pool::exportSlot(const Program &program, int32_t slot) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  if (Status status = flush(program, std::span(&slot, 1)); !status)
    return status;
  SlotContents contents;
  for (const Impl::Array &state : impl->states)
    contents.states.push_back(exportArray(state, slot));
  for (const Impl::Array &carry : impl->carries)
    contents.carries.push_back(exportArray(carry, slot));
  return contents;
}

/// Checks that `items` can become one slot of `arrays`.
static Status checkItems(const std::vector<SlotContents::Item> &items,
                         const std::vector<Pool::Impl::Array> &arrays,
                         std::string_view what) {
  if (items.size() != arrays.size())
    return invalid(
        fmt::format("got {} {}, wanted {}", items.size(), what, arrays.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const SlotContents::Item &item = items[i];
    const TensorSpec &spec = arrays[i].spec;
    if (item.name != spec.name || item.shape != spec.shape)
      return invalid(fmt::format("got '{}' {}, wanted '{}' {}", item.name,
                                 shapeText(item.shape), spec.name,
                                 shapeText(spec.shape)));
    if (item.dtype != spec.dtype &&
        (!isFloat(item.dtype) || !isFloat(spec.dtype)))
      return invalid(fmt::format("'{}' is {}, wanted {}", item.name,
                                 toString(item.dtype), toString(spec.dtype)));
    int64_t bytes = item.view().count() * sizeInBytes(item.dtype);
    if (static_cast<int64_t>(item.data.size()) != bytes)
      return invalid(fmt::format("'{}' has {} bytes, wanted {}", item.name,
                                 item.data.size(), bytes));
  }
  return Status();
}

Status Pool::importSlot(int32_t slot, const SlotContents &contents) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  if (Status status = checkItems(contents.states, impl->states, "states");
      !status)
    return status;
  if (Status status = checkItems(contents.carries, impl->carries, "carries");
      !status)
    return status;
  auto import = [&](const auto &items, const auto &arrays) {
    for (size_t i = 0; i < items.size(); ++i) {
      Status copied = copy(items[i].view(), arrays[i].slotView(slot));
      assert(copied.ok() && "checked before");
      (void)copied;
    }
  };
  import(contents.states, impl->states);
  import(contents.carries, impl->carries);
  // What the slot holds is the state now, so kv_only must not ignore it.
  impl->cursors[slot] = Cursor{0, 0, 0, 1};
  return Status();
}
