//===- Cursors.cpp - the cursors of one or several pools ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/cursors.h"
#include "runtime/Arguments.h"
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

/// The last may hold fewer entries.
static int64_t pagesOfSlot(const Program &program) {
  int64_t page = program.page();
  return page ? (program.capacity() + page - 1) / page : 0;
}

/// What slots take of pools.
static Status checkBlocks(const Program &program,
                          const CursorOptions &options) {
  const std::string &name = program.signature().name;
  // Kernels count entries of all pages.
  int64_t mostPages = INT32_MAX / std::max<int64_t>(program.page(), 1);
  if (options.pages < 0 || options.pages > mostPages)
    return invalid(
        fmt::format("pages is {}, wanted 0 to {}", options.pages, mostPages));
  if (int64_t all = options.slots * pagesOfSlot(program);
      !options.pages && all > mostPages)
    return invalid(fmt::format("{} slots have {} pages, wanted {} at most; say "
                               "how many there are (CursorOptions::pages)",
                               options.slots, all, mostPages));
  if (options.pages && !program.page())
    return invalid(fmt::format(
        "pages is {}, wanted 0: '{}' {}", options.pages, name,
        program.capacity() ? "was compiled without; set CompileOptions::page"
                           : "has no entries to lie in any"));
  if (!options.states)
    return Status();
  if (program.device().kind != DeviceKind::Cpu && !program.page())
    return Status(ErrorCode::Unsupported,
                  fmt::format("states is {}, wanted none: on a GPU slots take "
                              "states where entries lie in pages "
                              "(CompileOptions::page)",
                              *options.states));
  if (*options.states < 0 || *options.states > INT32_MAX)
    return invalid(fmt::format("states is {}, wanted 0 to {}", *options.states,
                               INT32_MAX));
  if (*options.states == 0 && program.route() != RouteKind::KvOnly)
    return invalid(fmt::format("states is 0, wanted 1 at least: route '{}' of "
                               "'{}' reads states, kv_only does not",
                               toString(program.route()), name));
  return Status();
}

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
  if (Status status = checkBlocks(program, options); !status)
    return status;
  impl->name = program.signature().name;
  impl->slots = options.slots;
  impl->page = program.page();
  impl->states = options.states;
  impl->startsEmpty = program.route() == RouteKind::KvOnly;
  impl->rewritesLong = program.getImpl().rewritesLong();
  impl->padSlot = options.padSlot;
  impl->capacity = program.capacity();
  if (impl->page)
    impl->pages =
        options.pages ? options.pages : options.slots * impl->tableSize();
  impl->drafts = program.drafts();
  impl->fixedThreshold = program.foldsByChunk() ? program.chunk() : 0;
  if (program.crossesOver() && impl->hasStates())
    impl->bestCrossover = std::min(program.crossover(), impl->mostEntries());
  return impl;
}

Status Cursors::Impl::start(int64_t foldThreshold, int64_t entries) {
  if (Status status = begin(); !status)
    return Status(status.code(), fmt::format("no cursors for {} slots: {}",
                                             slots, status.message()));
  if (Status status =
          setThreshold(foldThreshold ? foldThreshold : mostEntries(), nullptr);
      !status)
    return status;
  if (!entries)
    entries = bestCrossover;
  return entries ? setCrossover(entries) : Status();
}

Result<Cursors> Cursors::create(const Program &program,
                                const CursorOptions &options) {
  Result<std::shared_ptr<Impl>> impl = Impl::make(program, options);
  if (!impl)
    return impl.status();
  if (Status status = (*impl)->start(options.foldThreshold, options.crossover);
      !status)
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
  for (size_t i = 0; i < list.size(); ++i)
    if (!isPadding(list[i]))
      if (Status status = checkSlot(list[i]); !status)
        return invalid(fmt::format("slots[{}]: {}", i, status.message()));
  return Status();
}

Status Cursors::Impl::setThreshold(int64_t m, void *stream) {
  if (!capacity && m < 0)
    return invalid(fmt::format("foldThreshold is {}, wanted 0 at least", m));
  // Without a buffer nothing ever folds, whatever an engine asks for.
  if (!capacity)
    m = 0;
  else if (m < 1 || m > mostEntries())
    return invalid(
        fmt::format("foldThreshold is {}, wanted 1 to {}", m, mostEntries()));
  if (fixedThreshold && m != fixedThreshold)
    return invalid(fmt::format("foldThreshold is {}, wanted {}, where the "
                               "chunks of the program end (numerics = chunk)",
                               m, fixedThreshold));
  if (Status status = checkAdvanced("foldThreshold"); !status)
    return status;
  int64_t before = std::exchange(threshold, m);
  Status status = moveThreshold(stream);
  if (!status)
    threshold = before;
  return status;
}

/// Whether a step has folded is asked once more when its cursors move.
Status Cursors::Impl::checkAdvanced(std::string_view what) const {
  if (!isShared)
    return Status();
  if (decodedBy)
    return invalid(fmt::format(
        "{} is set after a layer has decoded by '{}' and before the cursors "
        "have moved: advance, commit or abandon them between",
        what, toString(*decodedBy)));
  Status status = checkIdle();
  return status ? status
                : invalid(fmt::format("{}: {}", what, status.message()));
}

Status Cursors::Impl::noPages(int64_t wanted) const {
  BlockCount count = pageCount();
  return Status(
      ErrorCode::ResourceExhausted,
      fmt::format(
          "the pages of '{}' do not suffice: wanted {} of {} entries, {} "
          "of {} are free; reset or flush slots, or make more "
          "(CursorOptions::pages)",
          name, wanted, page, count.free, count.all));
}

Status Cursors::Impl::noStates(int64_t wanted) const {
  BlockCount count = stateCount();
  if (count.all == 0)
    return Status(
        ErrorCode::ResourceExhausted,
        fmt::format("'{}' has no states to fold entries into "
                    "(CursorOptions::states is 0): a sequence has {} tokens at "
                    "most",
                    name, capacity));
  return Status(
      ErrorCode::ResourceExhausted,
      fmt::format("the states of '{}' do not suffice: wanted {}, {} of {} are "
                  "free; reset slots, or make more (CursorOptions::states)",
                  name, wanted, count.free, count.all));
}

Status Cursors::Impl::setCrossover(int64_t entries) {
  if (!capacity)
    return entries >= 0 ? Status()
                        : invalid(fmt::format(
                              "crossover is {}, wanted 0 at least", entries));
  if (device.kind != DeviceKind::Cpu && !page)
    return Status(ErrorCode::Unsupported,
                  fmt::format("crossover is {}, wanted 0: on a GPU rows cross "
                              "over where entries lie in pages "
                              "(CompileOptions::page)",
                              entries));
  if (entries < 1 || entries > mostEntries())
    return invalid(
        fmt::format("crossover is {}, wanted 1 to {}", entries, mostEntries()));
  if (fixedThreshold && entries != fixedThreshold)
    return invalid(fmt::format("crossover is {}, wanted {}, where the chunks "
                               "of the program end (numerics = chunk)",
                               entries, fixedThreshold));
  if (Status status = checkAdvanced("crossover"); !status)
    return status;
  int64_t before = std::exchange(crossover, entries);
  Status status = moveThreshold(nullptr);
  if (!status)
    crossover = before;
  return status;
}

int64_t Cursors::slots() const { return impl->slots; }
int64_t Cursors::capacity() const { return impl->capacity; }
DeviceId Cursors::device() const { return impl->device; }
int64_t Cursors::foldThreshold() const { return impl->threshold; }

int64_t Cursors::crossover() const { return impl->limitOf(Cursor()); }

Status Cursors::setCrossover(int64_t entries) {
  return impl->setCrossover(entries);
}

int32_t Cursors::stateOf(int32_t slot) const {
  return impl->isUsable(slot) ? impl->stateOf(slot) : -1;
}
BlockCount Cursors::pages() const { return impl->pageCount(); }
BlockCount Cursors::states() const { return impl->stateCount(); }

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

CursorMove::Kind Cursors::Impl::kindOf(const RouteKernels &route,
                                       bool prefills) const {
  // On the CPU prompts move their own cursors.
  bool byChunk = fixedThreshold > 0 && device.kind != DeviceKind::Cpu;
  return CursorMove::kindOf(route, prefills, byChunk);
}

Status Cursors::Impl::checkStep(const RouteKernels &route,
                                bool prefills) const {
  CursorMove::Kind mine = kindOf(route, prefills);
  auto isLike = [&](CursorMove::Kind one) {
    return (kind == one) == (mine == one);
  };
  // Of rows that have folded, kv_only drops what other routes append.
  bool drops = rewritesLong && device.kind == DeviceKind::Cpu;
  if (!decodedBy ||
      (isLike(CursorMove::Rewrite) && isLike(CursorMove::Prompt) &&
       (!drops || isLike(CursorMove::Ignore))))
    return Status();
  const char *what = mine == CursorMove::Rewrite ? "appends no entries"
                     : drops && mine == CursorMove::Ignore
                         ? "appends entries until its rows fold"
                         : "appends entries";
  return invalid(fmt::format(
      "a layer decodes by route '{}', which {}, and another has decoded by "
      "'{}' since the cursors that they share moved: advance, commit or "
      "abandon them between",
      toString(route.route), what, toString(*decodedBy)));
}

Status Cursors::Impl::takeStep(const RouteKernels &route, bool prefills) {
  if (Status status = checkStep(route, prefills); !status)
    return status;
  CursorMove::Kind mine = kindOf(route, prefills);
  if (!decodedBy || mine == CursorMove::Ignore)
    kind = mine;
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
  if (Status status = impl->checkAdvance(readSlots, writeSlots); !status)
    return status;
  CursorMove::Kind kind = impl->endStep();
  if (readSlots.empty())
    return Status();
  return impl->move({kind, static_cast<int64_t>(readSlots.size()),
                     readSlots.data(), writeSlots.data()},
                    stream);
}

Status Cursors::abandon() {
  if (!impl->isShared)
    return invalid("these cursors belong to one pool, whose steps move them");
  (void)impl->endStep();
  impl->forget();
  return Status();
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
  if (page) {
    if (Status status = checkWaits(stream, "reset"); !status)
      return status;
    if (Status status = states ? hearResets() : Status(); !status)
      return status;
  }
  for (int32_t slot : list) {
    if (isPadding(slot))
      continue;
    for (Pool::Impl *pool : pools)
      for (const auto *arrays : {&pool->states, &pool->carries})
        // A state that a slot has taken is given back.
        for (const Pool::Impl::Array &array : *arrays)
          if (arrays == &pool->carries || !states)
            if (Status status = pool->clear(array, slot, stream); !status)
              return status;
    if (Status status = release(slot, stream); !status)
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
  if (states)
    if (Status status = checkWaits(stream, "flush"); !status)
      return status;
  if (Status status = claimFolds(list); !status)
    return status;
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

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

Status Cursors::fork(std::span<const int32_t> from,
                     std::span<const int32_t> to) {
  if (Status status = checkBranches(
          from, to, [&](int32_t slot) { return impl->checkSlot(slot); });
      !status)
    return status;
  return impl->fork(from, to);
}

Status Cursors::rebuild(int32_t from, int64_t entries, int32_t to,
                        std::optional<int32_t> checkpoint) {
  for (auto [name, slot] : {std::pair{"from", from},
                            {"to", to},
                            {"checkpoint", checkpoint.value_or(from)}})
    if (Status status = impl->checkSlot(slot); !status)
      return invalid(fmt::format("{}: {}", name, status.message()));
  return impl->rebuild(from, entries, to, checkpoint);
}

Status Cursors::reserve(std::span<const int32_t> slots,
                        std::span<const int32_t> entries,
                        std::span<const int32_t> writeSlots) {
  if (slots.size() != entries.size())
    return invalid(fmt::format("entries has {} numbers, wanted one for each of "
                               "{} slots",
                               entries.size(), slots.size()));
  std::vector<Impl::Claim> claims;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (impl->isPadding(slots[i]))
      continue;
    if (Status status = impl->checkSlot(slots[i]); !status)
      return invalid(fmt::format("slots[{}]: {}", i, status.message()));
    if (entries[i] < 0 || entries[i] > impl->capacity)
      return invalid(fmt::format("entries[{}] is {}, wanted 0 to {}", i,
                                 entries[i], impl->capacity));
    claims.push_back({slots[i], entries[i]});
  }
  for (int32_t slot : writeSlots) {
    if (impl->isPadding(slot))
      continue;
    if (Status status = impl->checkSlot(slot); !status)
      return invalid(fmt::format("writeSlots: {}", status.message()));
    claims.push_back({slot, 0, /*readsState=*/false, /*writesState=*/true});
  }
  // Rows may read one slot.
  std::sort(claims.begin(), claims.end(),
            [](const Impl::Claim &one, const Impl::Claim &other) {
              return one.slot < other.slot;
            });
  std::vector<Impl::Claim> merged;
  for (const Impl::Claim &claim : claims) {
    if (merged.empty() || merged.back().slot != claim.slot) {
      merged.push_back(claim);
      continue;
    }
    merged.back().entries = std::max(merged.back().entries, claim.entries);
    merged.back().writesState |= claim.writesState;
  }
  // Those of a GPU know where their cursors stand when they claim.
  if (impl->states && impl->device.kind == DeviceKind::Cpu)
    for (Impl::Claim &claim : merged)
      if (Result<Cursor> cursor = impl->read(claim.slot); claim.entries > 0) {
        claim.readsState |= !impl->startsEmpty;
        claim.writesState |= impl->foldsSoon(*cursor, claim.entries);
      }
  Status status = impl->claim(merged);
  if (status)
    impl->keepClaimed(merged);
  return status;
}

Status Cursors::commit(std::span<const int32_t> slots,
                       std::span<const int32_t> numAccepted,
                       std::span<const int32_t> accepted, void *stream) {
  return impl->commit(slots, numAccepted, accepted, stream);
}

Status Cursors::reset(std::span<const int32_t> slots, void *stream) {
  return impl->reset(slots, stream);
}

Status Cursors::resetRows(std::span<const int32_t> slots, void *stream) {
  return impl->resetRows(slots, stream);
}

Status Cursors::flush(std::span<const int32_t> slots, void *stream) {
  return impl->flush(slots, nullptr, nullptr, stream);
}
