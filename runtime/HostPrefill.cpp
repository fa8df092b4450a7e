//===- HostPrefill.cpp - the prompt of each row on the CPU ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A prompt has up to four parts: tokens that fill a chunk which was begun
// before, a fold of the entries that there are then, tokens that are folded in
// chunks, and tokens that stay entries. Rows run each part at the same time.
// The cursors of the slots move in the end.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/HostDecoder.h"
#include "runtime/Text.h"

#include <algorithm>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// Cursors that layers share
//===----------------------------------------------------------------------===//

Status HostCursors::checkPrompted(int32_t slot) const {
  if (prompts.empty() || prompts[slot].tokens == 0)
    return Status();
  return invalid(fmt::format("slot {} has a prompt of {} tokens that its "
                             "cursor has not moved on; advance it first, or "
                             "reset it if the prompt was abandoned",
                             slot, prompts[slot].tokens));
}

Status HostCursors::checkPrompt(int32_t slot, int64_t tokens,
                                const Cursor &after, const void *by) const {
  if (prompts.empty() || prompts[slot].tokens == 0)
    return Status();
  const Prompt &prompt = prompts[slot];
  if (std::find(prompt.takenBy.begin(), prompt.takenBy.end(), by) !=
      prompt.takenBy.end())
    return checkPrompted(slot);
  if (prompt.tokens != tokens)
    return invalid(fmt::format("slot {} gets a prompt of {} tokens, and {} by "
                               "another layer that shares its cursor",
                               slot, tokens, prompt.tokens));
  if (prompt.after.length != after.length)
    return invalid(fmt::format("a prompt leaves slot {} {} entries, and {} by "
                               "another layer that shares its cursor; prefill "
                               "by routes of one kind",
                               slot, after.length, prompt.after.length));
  return Status();
}

void HostCursors::take(int32_t slot, int64_t tokens, const Cursor &after,
                       const void *by) {
  prompts.resize(static_cast<size_t>(slots));
  prompts[slot].tokens = tokens;
  prompts[slot].after = after;
  if (prompts[slot].takenBy.empty())
    prompts[slot].round = ++rounds;
  prompts[slot].takenBy.push_back(by);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Status HostDecoder::checkPrompts(const PrefillArguments &arguments) const {
  auto sizeOf = [](auto list) { return static_cast<int64_t>(list.size()); };
  if (program.chunk() == 0)
    return invalid(fmt::format("'{}' was compiled without prompts; set "
                               "CompileOptions::prefill",
                               program.signature().name));
  int64_t rows = arguments.rows;
  if (rows < 0 || rows > INT32_MAX)
    return invalid(fmt::format("rows is {}, wanted 0 to {}", rows, INT32_MAX));
  if (sizeOf(arguments.slots) != rows)
    return invalid(fmt::format("slots has {} slots, wanted {}",
                               sizeOf(arguments.slots), rows));
  std::span<const int32_t> starts = arguments.cuSeqlens;
  if (sizeOf(starts) != rows + 1)
    return invalid(fmt::format("cuSeqlens has {} numbers, wanted {}",
                               sizeOf(starts), rows + 1));
  if (starts[0] != 0)
    return invalid(fmt::format("cuSeqlens[0] is {}, wanted 0", starts[0]));
  for (int64_t row = 0; row < rows; ++row) {
    int32_t slot = arguments.slots[row];
    bool isPadded = pool.isPadding(slot);
    int64_t count = int64_t(starts[row + 1]) - starts[row];
    if (count < (isPadded ? 0 : 1))
      return invalid(fmt::format("cuSeqlens[{}] gives row {} {} tokens, wanted "
                                 "{} at least",
                                 row + 1, row, count, isPadded ? 0 : 1));
    if (isPadded)
      continue;
    if (Status status = pool.checkSlot(slot); !status)
      return invalid(fmt::format("slots[{}]: {}", row, status.message()));
    const HostCursors &cursors = pool.positions();
    Status status = cursors.checkCommitted(slot);
    // Prompts of other layers wait as this one will; tokens do not.
    if (status && cursors.checkPrompted(slot))
      status = cursors.checkMoved(slot);
    if (!status)
      return invalid(fmt::format("slots[{}]: {}", row, status.message()));
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// What each row does
//===----------------------------------------------------------------------===//

HostDecoder::PromptParts HostDecoder::partsOf(const PromptRow &row) const {
  PromptParts parts;
  int64_t held = row.cursor.committed, count = row.count;
  if (program.foldsByChunk()) {
    int64_t chunk = program.chunk();
    if (held > 0 || count < chunk) {
      parts.before = std::min(count, chunk - held);
      parts.foldsEntries = held + parts.before == chunk;
      count -= parts.before;
    }
    parts.folded = count / chunk * chunk;
    parts.after = count - parts.folded;
    return parts;
  }
  // Of kv_only while there is no state and there need be none.
  if (row.keepsEntries) {
    parts.before = count;
    return parts;
  }
  parts.foldsEntries = held > 0;
  parts.folded = count;
  return parts;
}

/// Where a prompt leaves its slot.
Cursor HostDecoder::cursorAfter(const PromptRow &row) const {
  PromptParts parts = partsOf(row);
  Cursor cursor = row.cursor;
  cursor.length += parts.before;
  if (parts.foldsEntries) {
    cursor.base = (cursor.base + cursor.length) % pool.capacity;
    cursor.length = 0;
    ++cursor.epoch;
  }
  cursor.epoch += parts.folded > 0;
  cursor.length += parts.after;
  cursor.committed = cursor.length;
  return cursor;
}

/// Whether there are kernels for the parts of a prompt.
static bool isAtOnce(const RouteKernels &kernels) {
  return kernels.prefillFold || kernels.prefillEntries;
}

/// What a prompt takes of pages and states.
Cursors::Impl::Claim HostDecoder::claimOf(const PromptRow &row) const {
  Cursors::Impl::Claim claim{row.slot, 0, true, true};
  if (isAtOnce(*row.kernels)) {
    PromptParts parts = partsOf(row);
    claim.entries = parts.before + parts.after;
    claim.writesState = parts.foldsEntries || parts.folded > 0;
  } else if (row.kernels->usesBuffer) {
    // Token by token, with folds where the buffer is full.
    claim.entries = std::min(row.count, pool.capacity);
    claim.writesState = !row.keepsEntries;
  }
  claim.readsState =
      claim.writesState || row.kernels->route != RouteKind::KvOnly;
  return claim;
}

Status HostDecoder::planPrompts(const PrefillArguments &arguments) {
  promptRows.clear();
  claims.clear();
  const ProgramImpl &impl = program.getImpl();
  HostCursors &cursors = pool.positions();
  int64_t call = ++cursors.calls;
  for (int64_t i = 0; i < arguments.rows; ++i) {
    PromptRow row;
    row.slot = arguments.slots[i];
    if (pool.isPadding(row.slot))
      continue;
    HostCursors::Writer &writer = cursors.writers[row.slot];
    if (writer.call == call)
      return invalid(
          fmt::format("slots[{}] and slots[{}] are both {}, wanted a "
                      "slot of its own for each row",
                      writer.row, i, row.slot));
    writer = {call, i};
    row.cursor = cursors[row.slot];
    row.first = arguments.cuSeqlens[i];
    row.count = arguments.cuSeqlens[i + 1] - row.first;
    row.kernels = &kernelsOf(row.cursor);
    row.keepsEntries = row.kernels->route == RouteKind::KvOnly &&
                       row.kernels->usesBuffer &&
                       cursors.keepsPrompt(row.cursor, row.count);
    if (!row.kernels->usesBuffer && row.cursor.committed > 0)
      return invalid(fmt::format("slots[{}]: slot {} holds {} entries, which "
                                 "route '{}' does not read; "
                                 "flush the slot first",
                                 i, row.slot, row.cursor.committed,
                                 toString(row.kernels->route)));
    if (Status status =
            cursors.checkPrompt(row.slot, row.count, cursorAfter(row), this);
        !status)
      return invalid(fmt::format("slots[{}]: {}", i, status.message()));
    promptRows.push_back(row);
    claims.push_back(claimOf(row));
  }
  for (const PromptRow &row : promptRows)
    for (RouteKind route : {row.kernels->route, impl.longRoute})
      if (const RouteKernels *kernels = impl.find(route))
        if (Status status = caller.reserveWorkspace(*kernels); !status)
          return status;
  return Status();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The next `tokens` of a row, where its own cursor stands.
RowTask HostDecoder::promptTask(const PromptRow &row, KernelFunction kernel,
                                bool usesBuffer, int64_t tokens) const {
  RowTask task = taskOf(pool, kernel, usesBuffer, row.slot);
  task.base = row.cursor.base;
  task.length = row.cursor.length;
  task.row = row.first;
  task.drafts = tokens;
  return task;
}

void HostDecoder::appendEntries(PromptRow &row, int64_t tokens) {
  if (tokens == 0)
    return;
  RowTask task = promptTask(row, row.kernels->prefillEntries,
                            /*usesBuffer=*/true, tokens);
  task.prefills = true;
  tasks.push_back(task);
  row.first += tokens;
  row.count -= tokens;
  row.cursor.committed = row.cursor.length += tokens;
}

void HostDecoder::foldEntries(PromptRow &row) {
  tasks.push_back(promptTask(row, row.kernels->fold, /*usesBuffer=*/true, 0));
  Cursor &cursor = row.cursor;
  cursor = {(cursor.base + cursor.length) % pool.capacity, 0, 0,
            cursor.epoch + 1};
  if (row.kernels->route == RouteKind::KvOnly)
    row.kernels = program.getImpl().find(program.getImpl().longRoute);
}

void HostDecoder::foldTokens(PromptRow &row, int64_t tokens) {
  if (tokens == 0)
    return;
  if (row.kernels->route == RouteKind::KvOnly)
    row.kernels = program.getImpl().find(program.getImpl().longRoute);
  RowTask task = promptTask(row, row.kernels->prefillFold,
                            /*usesBuffer=*/false, tokens);
  task.prefills = true;
  tasks.push_back(task);
  row.first += tokens;
  row.count -= tokens;
  ++row.cursor.epoch;
}

void HostDecoder::runTasks() {
  if (!tasks.empty())
    caller.run(threadPool, tasks, heads);
  tasks.clear();
}

void HostDecoder::prefillAtOnce() {
  tasks.clear();
  std::vector<std::pair<PromptRow *, PromptParts>> rows;
  for (PromptRow &row : promptRows)
    if (isAtOnce(*row.kernels))
      rows.emplace_back(&row, partsOf(row));
  for (auto &[row, parts] : rows)
    appendEntries(*row, parts.before);
  runTasks();
  for (auto &[row, parts] : rows)
    if (parts.foldsEntries)
      foldEntries(*row);
  runTasks();
  for (auto &[row, parts] : rows)
    foldTokens(*row, parts.folded);
  runTasks();
  for (auto &[row, parts] : rows)
    appendEntries(*row, parts.after);
  runTasks();
}

/// Rows whose tokens wait for the ones before them: by decode steps, which fold
/// as decoding does.
void HostDecoder::prefillSerially() {
  tasks.clear();
  std::vector<PromptRow *> rows;
  for (PromptRow &row : promptRows)
    if (!isAtOnce(*row.kernels))
      rows.push_back(&row);
  for (bool isLeft = !rows.empty(); isLeft;) {
    isLeft = false;
    for (PromptRow *row : rows) {
      if (row->count == 0)
        continue;
      const RouteKernels &kernels = *row->kernels;
      bool folds =
          kernels.usesBuffer && pool.positions().foldsWithToken(row->cursor);
      tasks.push_back(promptTask(*row,
                                 folds ? kernels.decodeFold : kernels.decode,
                                 kernels.usesBuffer, 0));
      ++row->first;
      isLeft |= --row->count > 0;
      Cursor &cursor = row->cursor;
      if (kernels.usesBuffer && !folds) {
        cursor.committed = ++cursor.length;
        continue;
      }
      if (pool.capacity)
        cursor.base = (cursor.base + cursor.length) % pool.capacity;
      cursor.committed = cursor.length = 0;
      ++cursor.epoch;
      if (kernels.route == RouteKind::KvOnly && kernels.usesBuffer)
        row->kernels = program.getImpl().find(program.getImpl().longRoute);
    }
    runTasks();
  }
  for (PromptRow *row : rows)
    if (row->cursor.length > 0 && !program.foldsByChunk() && !row->keepsEntries)
      foldEntries(*row);
  runTasks();
}

Status HostDecoder::prefill(const PrefillArguments &arguments, void *) {
  if (Status status = checkPrompts(arguments); !status)
    return status;
  int64_t all = arguments.rows ? arguments.cuSeqlens[arguments.rows] : 0;
  if (all == 0)
    return Status();
  if (Status status =
          bindArguments(program.signature(), all, DeviceId(), arguments.tensors,
                        {caller.params(), caller.tokens(), caller.outputs()});
      !status)
    return status;
  if (Status status = planPrompts(arguments); !status)
    return status;

  HostCursors &cursors = pool.positions();
  if (Status status = cursors.claim(claims); !status)
    return status;
  std::vector<int64_t> counts;
  for (const PromptRow &row : promptRows)
    counts.push_back(row.count);
  prefillAtOnce();
  prefillSerially();
  for (int64_t row = 0; row < arguments.rows; ++row)
    if (pool.isPadding(arguments.slots[row]))
      for (int64_t token = arguments.cuSeqlens[row];
           token < arguments.cuSeqlens[row + 1]; ++token)
        zeroOutputs(token);
  for (size_t i = 0; i < promptRows.size(); ++i) {
    const PromptRow &row = promptRows[i];
    cursors.take(row.slot, counts[i], row.cursor, this);
    pool.take(row.slot, cursors.promptRound(row.slot));
    if (!cursors.isShared)
      cursors.moveRow(CursorMove::Append, row.slot, row.slot);
  }
  return Status();
}
