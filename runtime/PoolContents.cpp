//===- PoolContents.cpp - sequences leave and enter a pool ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/PoolImpl.h"
#include "runtime/Text.h"

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

TensorView SlotContents::Item::view() const {
  return TensorView::dense(const_cast<std::byte *>(data.data()), dtype, shape);
}

/// [heads, valueSize, keySize].
static std::vector<int64_t> contentsShape(const StateSpec &spec) {
  return {spec.heads, spec.valueSize, spec.keySize};
}

/// One slot of a state as its contents have it.
static TensorView contentsView(const StateSpec &spec, void *slot) {
  TensorView view = TensorView::dense(slot, spec.dtype, contentsShape(spec));
  if (spec.layout == StateLayout::DkDv)
    view.strides = {spec.keySize * spec.valueSize, 1, spec.valueSize};
  return view;
}

Result<SlotContents> Pool::exportSlot(const Program &program, int32_t slot,
                                      void *stream) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  if (Status status = impl->shared().settle(slot); !status)
    return status;
  if (Status status = flush(program, std::span(&slot, 1), stream); !status)
    return status;
  SlotContents contents;
  auto read = [&](const Impl::Array &array, int32_t index,
                  SlotContents::Item &item) {
    item.name = array.spec.name;
    item.dtype = array.spec.dtype;
    item.shape = array.spec.shape;
    item.data.resize(static_cast<size_t>(array.slotBytes()));
    // Who has no state yet has one that is zero.
    return index < 0 ? Status()
                     : impl->read(array, index, item.data.data(), stream);
  };
  int32_t state = impl->shared().stateOf(slot);
  for (size_t i = 0; i < impl->states.size(); ++i) {
    SlotContents::Item &item = contents.states.emplace_back();
    if (Status status = read(impl->states[i], state, item); !status)
      return status;
    const StateSpec &spec = impl->signature.states[i];
    item.shape = contentsShape(spec);
    if (spec.layout == StateLayout::DvDk)
      continue;
    std::vector<std::byte> stored = item.data;
    [[maybe_unused]] Status status =
        copy(contentsView(spec, stored.data()), item.view());
    assert(status.ok() && "of one shape and type");
  }
  for (const Impl::Array &array : impl->carries)
    if (Status status = read(array, slot, contents.carries.emplace_back());
        !status)
      return status;
  return contents;
}

/// Checks that `items` can become one slot of what `specs` say.
static Status checkItems(const std::vector<SlotContents::Item> &items,
                         const std::vector<TensorSpec> &specs,
                         std::string_view what) {
  if (items.size() != specs.size())
    return invalid(
        fmt::format("got {} {}, wanted {}", items.size(), what, specs.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const SlotContents::Item &item = items[i];
    const TensorSpec &spec = specs[i];
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

Status Pool::importSlot(int32_t slot, const SlotContents &contents,
                        void *stream) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  const Signature &signature = impl->signature;
  std::vector<TensorSpec> states;
  for (const StateSpec &spec : signature.states)
    states.push_back({spec.name, spec.dtype, contentsShape(spec)});
  if (Status status = checkItems(contents.states, states, "states"); !status)
    return status;
  if (Status status =
          checkItems(contents.carries, signature.carries, "carries");
      !status)
    return status;
  if (Status status = impl->shared().settle(slot); !status)
    return status;
  // The others keep what they hold of it.
  if (impl->shared().isShared) {
    Result<Cursor> before = impl->shared().read(slot);
    if (!before)
      return before.status();
    if (before->length > 0)
      if (Status status = impl->shared().flush(std::span(&slot, 1), nullptr,
                                               nullptr, stream);
          !status)
        return status;
  }
  std::vector<std::byte> bytes;
  Cursors::Impl::Claim whole{slot, 0, /*readsState=*/true,
                             /*writesState=*/true};
  if (Status status = impl->shared().claim({&whole, 1}); !status)
    return status;
  // What the slot holds is the state now, so kv_only must not ignore it. What
  // is written after waits for the stream.
  if (Status status = impl->shared().write(slot, Cursor{0, 0, 0, 1}, stream);
      !status)
    return status;
  auto write = [&](const SlotContents::Item &item, const TensorView &stored,
                   const Impl::Array &array, int32_t slot) {
    [[maybe_unused]] Status status = copy(item.view(), stored);
    assert(status.ok() && "checked before");
    return impl->write(array, slot, bytes.data(), stream);
  };
  for (size_t i = 0; i < impl->states.size(); ++i) {
    const Impl::Array &array = impl->states[i];
    bytes.resize(static_cast<size_t>(array.slotBytes()));
    if (Status status = write(contents.states[i],
                              contentsView(signature.states[i], bytes.data()),
                              array, impl->shared().stateOf(slot));
        !status)
      return status;
  }
  for (size_t i = 0; i < impl->carries.size(); ++i) {
    const Impl::Array &array = impl->carries[i];
    bytes.resize(static_cast<size_t>(array.slotBytes()));
    if (Status status = write(
            contents.carries[i],
            TensorView::dense(bytes.data(), array.spec.dtype, array.spec.shape),
            array, slot);
        !status)
      return status;
  }
  return Status();
}
