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

Result<SlotContents> Pool::exportSlot(const Program &program, int32_t slot,
                                      void *stream) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  if (Status status = impl->shared().settle(slot); !status)
    return status;
  if (Status status = flush(program, std::span(&slot, 1), stream); !status)
    return status;
  SlotContents contents;
  auto read = [&](const auto &arrays, auto &items) {
    for (const Impl::Array &array : arrays) {
      SlotContents::Item &item = items.emplace_back();
      item.name = array.spec.name;
      item.dtype = array.spec.dtype;
      item.shape = array.spec.shape;
      item.data.resize(static_cast<size_t>(array.slotBytes()));
      if (Status status = impl->read(array, slot, item.data.data(), stream);
          !status)
        return status;
    }
    return Status();
  };
  if (Status status = read(impl->states, contents.states); !status)
    return status;
  if (Status status = read(impl->carries, contents.carries); !status)
    return status;
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

Status Pool::importSlot(int32_t slot, const SlotContents &contents,
                        void *stream) {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  if (Status status = checkItems(contents.states, impl->states, "states");
      !status)
    return status;
  if (Status status = checkItems(contents.carries, impl->carries, "carries");
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
  auto write = [&](const auto &items, const auto &arrays) {
    for (size_t i = 0; i < items.size(); ++i) {
      const TensorSpec &spec = arrays[i].spec;
      std::vector<std::byte> bytes(static_cast<size_t>(arrays[i].slotBytes()));
      Status status =
          copy(items[i].view(),
               TensorView::dense(bytes.data(), spec.dtype, spec.shape));
      assert(status.ok() && "checked before");
      status = impl->write(arrays[i], slot, bytes.data(), stream);
      if (!status)
        return status;
    }
    return Status();
  };
  if (Status status = write(contents.states, impl->states); !status)
    return status;
  if (Status status = write(contents.carries, impl->carries); !status)
    return status;
  // What the slot holds is the state now, so kv_only must not ignore it.
  return impl->shared().write(slot, Cursor{0, 0, 0, 1}, stream);
}
