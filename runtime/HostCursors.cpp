//===- HostCursors.cpp - cursors in the memory of the host ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/HostPool.h"
#include "runtime/Text.h"

#include <algorithm>

using namespace ladle;

Status HostCursors::begin() {
  // Vectors throw, and nothing here does.
  try {
    return makeTables();
  } catch (const std::exception &) {
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("there is no memory for tables of {} slots and "
                              "{} pages",
                              slots, pages));
  }
}

Status HostCursors::makeTables() {
  // More is asked for before any of it is written.
  all.reserve(static_cast<size_t>(slots));
  all.resize(static_cast<size_t>(slots));
  branches.resize(static_cast<size_t>(slots));
  writers.resize(static_cast<size_t>(slots));
  if (page) {
    freePages = Blocks(pages);
    pageTable.assign(static_cast<size_t>(slots * tableSize()), -1);
    reserved.assign(static_cast<size_t>(slots), 0);
  }
  if (states) {
    freeStates = Blocks(*states);
    stateTable.assign(static_cast<size_t>(slots), -1);
    counted.assign(static_cast<size_t>(slots), 0);
  }
  if (drafts) {
    parents.resize(static_cast<size_t>(slots * drafts));
    order.resize(static_cast<size_t>(slots * capacity));
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = static_cast<int32_t>(i % capacity);
  }
  return Status();
}

Status HostCursors::markWritten() {
  for (Cursor &cursor : all)
    cursor.epoch = std::max<int64_t>(cursor.epoch, 1);
  return Status();
}

Status HostCursors::write(int32_t slot, const Cursor &cursor, void *) {
  all[slot] = cursor;
  branches[slot] = {};
  spendReserved(slot, capacity);
  trimPages(slot);
  if (!prompts.empty())
    prompts[slot] = {};
  if (!tokens.empty())
    tokens[slot].waits = false;
  return Status();
}

Result<const int32_t *> HostCursors::stage(std::span<const int32_t> slots,
                                           void *) {
  staged.assign(slots.begin(), slots.end());
  return static_cast<const int32_t *>(staged.data());
}

void HostCursors::moveRow(CursorMove::Kind kind, int32_t readSlot,
                          int32_t writeSlot) {
  if (kind != CursorMove::FoldOnly && !tokens.empty())
    tokens[writeSlot].waits = false;
  if (kind != CursorMove::FoldOnly && !prompts.empty() &&
      prompts[writeSlot].tokens) {
    all[writeSlot] = prompts[writeSlot].after;
    prompts[writeSlot] = {};
    return trimPages(writeSlot);
  }
  const Cursor from = all[readSlot];
  Cursor &to = all[writeSlot];
  if (kind == CursorMove::FoldOnly) {
    branches[readSlot].folds = from.committed > 0;
    return land(readSlot);
  }
  bool appends =
      kind == CursorMove::Append ||
      (kind == CursorMove::Ignore && !(rewritesLong && from.epoch > 0));
  if (appends && readSlot == writeSlot && !foldsWithToken(from)) {
    to.committed = ++to.length;
    spendReserved(writeSlot, 1);
    return;
  }
  int64_t next = capacity ? (from.base + from.length) % capacity : 0;
  to = {readSlot == writeSlot ? next : 0, 0, 0, to.epoch + 1};
  spendReserved(writeSlot, capacity);
  trimPages(writeSlot);
}

Status HostCursors::move(const CursorMove &move, void *) {
  for (int64_t row = 0; row < move.rows; ++row)
    if (!isPadding(move.reads[row]))
      moveRow(move.kind, move.reads[row], move.writes[row]);
  return Status();
}

//===----------------------------------------------------------------------===//
// Tokens that layers share
//===----------------------------------------------------------------------===//

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status HostCursors::checkMoved(int32_t slot) const {
  if (Status status = checkPrompted(slot); !status)
    return status;
  if (tokens.empty() || !tokens[slot].waits)
    return Status();
  return invalid(
      fmt::format("slot {} has a token that its cursor has not moved "
                  "on; advance it first, or reset it if the step was "
                  "abandoned",
                  slot));
}

Status HostCursors::checkToken(int32_t read, int32_t write,
                               std::span<const int64_t> seen) const {
  if (tokens.empty())
    return Status();
  // What another row has written is not what it goes on from.
  if (read != write)
    if (Status status = checkMoved(read); !status)
      return status;
  const Token &token = tokens[write];
  if (!token.waits)
    return Status();
  if (!seen.empty() && seen[write] == token.round)
    return checkMoved(write);
  if (token.read != read)
    return invalid(fmt::format("slot {} goes on from slot {}, and from {} by "
                               "another layer that shares its cursor",
                               write, read, token.read));
  return Status();
}

int64_t HostCursors::takeToken(int32_t read, int32_t write) {
  tokens.resize(static_cast<size_t>(slots));
  Token &token = tokens[write];
  if (!token.waits)
    token = {true, read, ++rounds};
  return token.round;
}

Status HostCursors::checkTaken(int32_t read, int32_t write) const {
  bool hasPrompt = !prompts.empty() && prompts[write].tokens > 0;
  bool hasToken =
      !tokens.empty() && tokens[write].waits && tokens[write].read == read;
  if (!hasPrompt && !hasToken)
    return invalid(
        read == write
            ? fmt::format("no layer has decoded a token of slot {} since its "
                          "cursor moved",
                          write)
            : fmt::format("no layer has decoded a token from slot {} into {} "
                          "since its cursor moved",
                          read, write));
  int64_t round = hasPrompt ? prompts[write].round : tokens[write].round;
  for (const Pool::Impl *pool : pools)
    if (!static_cast<const HostPool *>(pool)->hasTaken(write, round))
      return invalid(fmt::format(
          "slot {} has a {} that the layer of a pool of '{}' has not decoded; "
          "all pools that share cursors decode it first",
          write, hasPrompt ? "prompt" : "token", pool->signature.name));
  return Status();
}

Status HostCursors::checkAdvance(std::span<const int32_t> reads,
                                 std::span<const int32_t> writes) {
  auto refuse = [](size_t row, const Status &status) {
    return invalid(fmt::format("row {}: {}", row, status.message()));
  };
  for (size_t row = 0; row < reads.size(); ++row)
    if (!isPadding(reads[row]))
      for (int32_t slot : {reads[row], writes[row]}) {
        if (Status status = checkSlot(slot); !status)
          return refuse(row, status);
        if (Status status = checkCommitted(slot); !status)
          return refuse(row, status);
      }
  int64_t call = ++calls;
  for (size_t row = 0; row < reads.size(); ++row) {
    if (isPadding(reads[row]))
      continue;
    if (Status status = checkTaken(reads[row], writes[row]); !status)
      return refuse(row, status);
    Writer &writer = writers[writes[row]];
    if (writer.call == call)
      return invalid(fmt::format("rows {} and {} both write slot {}, wanted a "
                                 "slot of its own for each row",
                                 writer.row, row, writes[row]));
    writer = {call, static_cast<int64_t>(row)};
  }
  return Status();
}

Status HostCursors::checkIdle() const {
  for (int32_t slot = 0; slot < slots; ++slot) {
    if (Status status = checkCommitted(slot); !status)
      return status;
    if (Status status = checkMoved(slot); !status)
      return status;
  }
  return Status();
}

void HostCursors::forget() {
  for (Token &token : tokens)
    token.waits = false;
}
