//===- HostCursors.cpp - cursors in the memory of the host ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/HostCursors.h"

#include <algorithm>

using namespace ladle;

Status HostCursors::begin() {
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
  return Status();
}

Result<const int32_t *> HostCursors::stage(std::span<const int32_t> slots,
                                           void *) {
  staged.assign(slots.begin(), slots.end());
  return static_cast<const int32_t *>(staged.data());
}

void HostCursors::moveRow(CursorMove::Kind kind, int32_t readSlot,
                          int32_t writeSlot) {
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
