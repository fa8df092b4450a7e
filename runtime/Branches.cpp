//===- Branches.cpp - branches and prefixes of sequences ------------------===//
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

Status Cursors::Impl::checkFork(std::span<const int32_t> from,
                                std::span<const int32_t> to) const {
  for (size_t i = 0; i < from.size(); ++i)
    for (auto [list, slot] :
         {std::pair<const char *, int32_t>("from", from[i]), {"to", to[i]}})
      for (auto check : {&Impl::checkCommitted, &Impl::checkMoved})
        if (Status status = (this->*check)(slot); !status)
          return invalid(fmt::format("{}[{}]: {}", list, i, status.message()));
  return Status();
}

Status Cursors::Impl::checkPrefix(int32_t from, int64_t entries,
                                  std::optional<int32_t> checkpoint) const {
  for (auto check : {&Impl::checkCommitted, &Impl::checkMoved})
    if (Status status = (this->*check)(from); !status)
      return status;
  Result<Cursor> cursor = read(from);
  if (!cursor)
    return cursor.status();
  int64_t held = cursor->committed;
  if (entries < 0 || entries > held)
    return invalid(fmt::format("entries is {}, wanted 0 to {}, those that slot "
                               "{} holds",
                               entries, held, from));
  for (const Pool::Impl *pool : pools)
    if (!pool->carries.empty() && entries != held)
      return invalid(fmt::format(
          "entries is {}, wanted the {} that slot {} holds: '{}' has the carry "
          "'{}', which is known of the newest entry alone; fork a sequence "
          "where it may be wanted again",
          entries, held, from, pool->signature.name,
          pool->carries.front().spec.name));
  if (!checkpoint)
    return Status();
  for (auto check : {&Impl::checkCommitted, &Impl::checkMoved})
    if (Status status = (this->*check)(*checkpoint); !status)
      return invalid(fmt::format("checkpoint: {}", status.message()));
  cursor = read(*checkpoint);
  if (!cursor)
    return cursor.status();
  if (cursor->length > 0)
    return invalid(fmt::format("checkpoint {} holds {} entries, wanted none; "
                               "flush the slot first",
                               *checkpoint, cursor->length));
  for (const Pool::Impl *pool : pools) {
    if (!pool->program->getImpl().find(RouteKind::Adjoint))
      return invalid(fmt::format(
          "checkpoint is {}, wanted none: entries of '{}' depend on the "
          "state that they followed; those of route 'adjoint' do not",
          *checkpoint, pool->signature.name));
    if (!pool->carries.empty())
      return invalid(fmt::format(
          "checkpoint is {}, wanted none: entries of '{}' depend on the carry "
          "'{}' of the history that they followed",
          *checkpoint, pool->signature.name, pool->carries.front().spec.name));
  }
  return Status();
}

Status Cursors::Impl::fork(std::span<const int32_t> from,
                           std::span<const int32_t> to) {
  Status status = checkFork(from, to);
  return status ? branchOff(from, to, /*withStates=*/true) : status;
}

Status Cursors::Impl::rebuild(int32_t from, int64_t entries, int32_t to,
                              std::optional<int32_t> checkpoint) {
  if (from != to)
    if (Status status = checkFork({&from, 1}, {&to, 1}); !status)
      return status;
  if (Status status = checkPrefix(from, entries, checkpoint); !status)
    return status;
  if (from != to)
    // The state is the checkpoint's, which `to` may be itself.
    if (Status status = branchOff({&from, 1}, {&to, 1}, !checkpoint); !status)
      return status;
  return cut(to, entries, checkpoint);
}
