//===- Cursors.cpp - the cursors of one or several pools ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/cursors.h"
#include "runtime/HostCursors.h"
#include "runtime/PoolImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceCursors.h"

#include <algorithm>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<Cursors::Impl>>
Cursors::Impl::make(const Program &program, const CursorOptions &options) {
  if (options.slots < 1 || options.slots > INT32_MAX)
    return invalid(
        fmt::format("slots is {}, wanted 1 to {}", options.slots, INT32_MAX));
  if (options.padSlot > 0)
    return invalid(fmt::format("padSlot is {}, wanted a negative number or 0",
                               options.padSlot));
  std::shared_ptr<Impl> impl;
  if (program.device().kind == DeviceKind::Cpu)
    impl = std::make_shared<HostCursors>();
  else
    impl = std::make_shared<DeviceCursors>(program.getImpl().gpu);
  impl->device = program.device();
  impl->slots = options.slots;
  impl->padSlot = options.padSlot;
  impl->capacity = program.capacity();
  impl->drafts = program.drafts();
  impl->fixedThreshold = program.foldsByChunk() ? program.chunk() : 0;
  return impl;
}

Status Cursors::Impl::start(int64_t foldThreshold) {
  if (Status status = begin(); !status)
    return Status(status.code(), fmt::format("no cursors for {} slots: {}",
                                             slots, status.message()));
  return setThreshold(foldThreshold ? foldThreshold : mostEntries(), nullptr);
}

Result<Cursors> Cursors::create(const Program &program,
                                const CursorOptions &options) {
  Result<std::shared_ptr<Impl>> impl = Impl::make(program, options);
  if (!impl)
    return impl.status();
  if (Status status = (*impl)->start(options.foldThreshold); !status)
    return status;
  (*impl)->isShared = true;
  return Cursors(std::move(*impl));
}

//===----------------------------------------------------------------------===//
// Slots and the threshold
//===----------------------------------------------------------------------===//

Status Cursors::Impl::checkSlot(int32_t slot) const {
  if (isUsable(slot))
    return Status();
  if (isPadding(slot))
    return invalid(fmt::format("slot {} marks padding", slot));
  return invalid(
      fmt::format("slot {} is outside of the pool, which has {}", slot, slots));
}

Status Cursors::Impl::checkSlots(std::span<const int32_t> list) const {
  for (int32_t slot : list)
    if (!isPadding(slot))
      if (Status status = checkSlot(slot); !status)
        return status;
  return Status();
}

Status Cursors::Impl::setThreshold(int64_t m, void *stream) {
  // Without a buffer nothing ever folds.
  int64_t least = std::min<int64_t>(1, capacity);
  if (m < least || m > mostEntries())
    return invalid(fmt::format("foldThreshold is {}, wanted {} to {}", m, least,
                               mostEntries()));
  if (fixedThreshold && m != fixedThreshold)
    return invalid(fmt::format("foldThreshold is {}, wanted {}, where the "
                               "chunks of the program end (numerics = chunk)",
                               m, fixedThreshold));
  threshold = m;
  return moveThreshold(stream);
}

int64_t Cursors::slots() const { return impl->slots; }
int64_t Cursors::capacity() const { return impl->capacity; }
DeviceId Cursors::device() const { return impl->device; }
int64_t Cursors::foldThreshold() const { return impl->threshold; }

Status Cursors::setFoldThreshold(int64_t m, void *stream) {
  return impl->setThreshold(m, stream);
}

Result<Cursor> Cursors::cursor(int32_t slot) const {
  if (Status status = impl->checkSlot(slot); !status)
    return status;
  return impl->read(slot);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Status Cursors::Impl::takeStep(const RouteKernels &route, bool prefills) {
  CursorMove::Kind mine =
      prefills ? CursorMove::Rewrite : CursorMove::kindOf(route);
  if (!decodedBy) {
    kind = mine;
  } else if ((kind == CursorMove::Rewrite) != (mine == CursorMove::Rewrite)) {
    return invalid(fmt::format(
        "a layer decodes by route '{}', which {}, and another has decoded by "
        "'{}' since the cursors that they share moved: advance them between",
        toString(route.route),
        mine == CursorMove::Rewrite ? "appends no entries" : "appends entries",
        toString(*decodedBy)));
  } else if (mine == CursorMove::Ignore) {
    kind = mine;
  }
  decodedBy = route.route;
  return Status();
}

CursorMove::Kind Cursors::Impl::endStep() {
  decodedBy.reset();
  return kind;
}

Status Cursors::advance(std::span<const int32_t> readSlots,
                        std::span<const int32_t> writeSlots, void *stream) {
  if (!writeSlots.empty() && writeSlots.size() != readSlots.size())
    return invalid(fmt::format("writeSlots has {} slots, wanted {} or none",
                               writeSlots.size(), readSlots.size()));
  if (!impl->isShared)
    return invalid("these cursors belong to one pool, whose steps move them");
  if (Status status = impl->takeFault(); !status)
    return status;
  if (writeSlots.empty())
    writeSlots = readSlots;
  if (impl->device.kind == DeviceKind::Cpu)
    for (size_t row = 0; row < readSlots.size(); ++row)
      if (!impl->isPadding(readSlots[row]))
        for (int32_t slot : {readSlots[row], writeSlots[row]}) {
          Status status = impl->checkSlot(slot);
          if (status)
            status = impl->checkCommitted(slot);
          if (!status)
            return invalid(fmt::format("row {}: {}", row, status.message()));
        }
  CursorMove::Kind kind = impl->endStep();
  if (readSlots.empty())
    return Status();
  return impl->move({kind, static_cast<int64_t>(readSlots.size()),
                     readSlots.data(), writeSlots.data()},
                    stream);
}

//===----------------------------------------------------------------------===//
// All layers
//===----------------------------------------------------------------------===//

Status Cursors::Impl::commit(std::span<const int32_t> list,
                             std::span<const int32_t> numAccepted,
                             std::span<const int32_t> accepted, void *stream) {
  if (numAccepted.size() != list.size())
    return invalid(fmt::format("numAccepted has {} numbers, wanted one for "
                               "each of {} slots",
                               numAccepted.size(), list.size()));
  // On a GPU they are read when the work runs.
  if (device.kind == DeviceKind::Cpu)
    if (Status status = checkSlots(list); !status)
      return status;
  return accept(list, numAccepted, accepted, stream);
}

Status Cursors::Impl::reset(std::span<const int32_t> list, void *stream) {
  if (Status status = checkSlots(list); !status)
    return status;
  for (int32_t slot : list) {
    if (isPadding(slot))
      continue;
    for (Pool::Impl *pool : pools)
      for (const auto *arrays : {&pool->states, &pool->carries})
        for (const Pool::Impl::Array &array : *arrays)
          if (Status status = pool->clear(array, slot, stream); !status)
            return status;
    if (Status status = write(slot, Cursor(), stream); !status)
      return status;
  }
  return Status();
}

Status Cursors::Impl::flush(std::span<const int32_t> wanted,
                            const Pool::Impl *of, const Program *by,
                            void *stream) {
  if (Status status = takeFault(); !status)
    return status;
  if (Status status = checkSlots(wanted); !status)
    return status;
  if (capacity == 0)
    return Status();
  std::vector<int32_t> list;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(list),
               [&](int32_t slot) { return !isPadding(slot); });
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  if (list.empty())
    return Status();
  for (int32_t slot : list)
    if (Status status = checkVerified(slot); !status)
      return status;
  for (Pool::Impl *pool : pools) {
    Result<bool> folds = pool->canFold(pool == of ? *by : *pool->program, list);
    if (!folds)
      return folds.status();
    if (!*folds)
      return Status(); // there are no entries
  }
  Result<const int32_t *> staged = stage(list, stream);
  if (!staged)
    return staged.status();
  return flushRows({*staged, list.size()}, of, by, stream);
}

Status Cursors::Impl::flushRows(std::span<const int32_t> slots,
                                const Pool::Impl *of, const Program *by,
                                void *stream) {
  for (Pool::Impl *pool : pools)
    if (Status status =
            pool->fold(pool == of ? *by : *pool->program, slots, stream);
        !status)
      return status;
  return move({CursorMove::FoldOnly, static_cast<int64_t>(slots.size()),
               slots.data(), slots.data()},
              stream);
}

Status Cursors::commit(std::span<const int32_t> slots,
                       std::span<const int32_t> numAccepted,
                       std::span<const int32_t> accepted, void *stream) {
  return impl->commit(slots, numAccepted, accepted, stream);
}

Status Cursors::reset(std::span<const int32_t> slots, void *stream) {
  return impl->reset(slots, stream);
}

Status Cursors::flush(std::span<const int32_t> slots, void *stream) {
  return impl->flush(slots, nullptr, nullptr, stream);
}
