//===- HostVerify.cpp - the drafts of each row on the CPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A route whose drafts cannot be verified at once decodes them one after
// another: a draft reads the committed entries and those of its path, which the
// order of its own puts side by side, or the state that its parent left.
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
// Checks
//===----------------------------------------------------------------------===//

Status HostDecoder::checkDrafts(const VerifyArguments &arguments) const {
  auto sizeOf = [](auto list) { return static_cast<int64_t>(list.size()); };
  if (pool.drafts == 0)
    return invalid(fmt::format("'{}' was compiled without drafts; set "
                               "CompileOptions::drafts to the most of a row",
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
    if (count < (isPadded ? 0 : 1) || count > pool.drafts)
      return invalid(fmt::format("cuSeqlens[{}] gives row {} {} drafts, wanted "
                                 "{} to {}",
                                 row + 1, row, count, isPadded ? 0 : 1,
                                 pool.drafts));
    if (isPadded)
      continue;
    if (Status status = pool.checkSlot(slot); !status)
      return invalid(fmt::format("slots[{}]: {}", row, status.message()));
    if (Status status = pool.positions().checkMoved(slot); !status)
      return invalid(fmt::format("slots[{}]: {}", row, status.message()));
    // Drafts of the same step, which another layer has verified, may wait.
    const HostCursors &cursors = pool.positions();
    bool isOthers = cursors.isShared && cursors.pending(slot) &&
                    verified[slot] != cursors.branch(slot).round;
    if (Status status = cursors.checkCommitted(slot); !status && !isOthers)
      return invalid(fmt::format("slots[{}]: {}", row, status.message()));
  }
  int64_t all = starts[rows];
  if (!arguments.parents.empty() && sizeOf(arguments.parents) != all)
    return invalid(fmt::format("parents has {} numbers, wanted {} or none",
                               sizeOf(arguments.parents), all));
  for (int64_t row = 0; !arguments.parents.empty() && row < rows; ++row)
    for (int32_t i = starts[row]; i < starts[row + 1]; ++i)
      if (int32_t parent = arguments.parents[i];
          parent < -1 || parent >= i - starts[row])
        return invalid(fmt::format("parents[{}] is {}, wanted -1 or a draft of "
                                   "row {} before draft {}",
                                   i, parent, row, i - starts[row]));
  return Status();
}

Status HostDecoder::planDrafts(const VerifyArguments &arguments) {
  draftRows.clear();
  claims.clear();
  HostCursors &cursors = pool.positions();
  int64_t call = ++cursors.calls;
  for (int64_t row = 0; row < arguments.rows; ++row) {
    DraftRow plan;
    plan.slot = arguments.slots[row];
    if (pool.isPadding(plan.slot))
      continue;
    HostCursors::Writer &writer = cursors.writers[plan.slot];
    if (writer.call == call)
      return invalid(
          fmt::format("slots[{}] and slots[{}] are both {}, wanted a "
                      "slot of its own for each row",
                      writer.row, row, plan.slot));
    writer = {call, row};
    const Cursor &cursor = cursors[plan.slot];
    plan.first = arguments.cuSeqlens[row];
    plan.drafts.count = arguments.cuSeqlens[row + 1] - plan.first;
    if (!arguments.parents.empty())
      plan.drafts.parents =
          arguments.parents.subspan(plan.first, plan.drafts.count);
    plan.kernels = &kernelsOf(cursor);
    if (!plan.kernels->usesBuffer && cursor.committed > 0)
      return invalid(fmt::format("slots[{}]: slot {} holds {} entries, which "
                                 "route '{}' does not read; "
                                 "flush the slot first",
                                 row, plan.slot, cursor.committed,
                                 toString(plan.kernels->route)));
    plan.drafts.inStates = !plan.kernels->usesBuffer;
    if (cursors.pending(plan.slot)) {
      if (Status status = cursors.checkSame(plan.slot, plan.drafts); !status)
        return invalid(fmt::format("slots[{}]: {}", row, status.message()));
      plan.drafts.folds = cursors.branch(plan.slot).folds;
    } else {
      plan.drafts.folds = plan.kernels->usesBuffer &&
                          cursors.foldsBeforeDrafts(cursor, plan.drafts.count);
    }
    // Drafts that go one by one read the state that their fold has left.
    bool folds = plan.drafts.folds || plan.drafts.inStates;
    claims.push_back({plan.slot, plan.drafts.inStates ? 0 : plan.drafts.count,
                      folds || plan.kernels->route != RouteKind::KvOnly,
                      folds});
    draftRows.push_back(plan);
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Rows whose kernels take all their drafts.
void HostDecoder::verifyAtOnce() {
  tasks.clear();
  for (const DraftRow &row : draftRows) {
    if (!row.kernels->verify)
      continue;
    RowTask &task = tasks.emplace_back(taskOf(
        pool, row.drafts.folds ? row.kernels->verifyFold : row.kernels->verify,
        /*usesBuffer=*/true, row.slot));
    task.row = row.first;
    task.writeCarry = pool.carryIndex(row.slot, 0);
    task.drafts = row.drafts.count;
    task.parents = pool.positions().parentsOf(row.slot);
  }
  if (!tasks.empty())
    caller.run(threadPool, tasks, heads);
}

/// Rows whose drafts wait for their parents.
void HostDecoder::verifySerially() {
  tasks.clear();
  int64_t most = 0;
  for (const DraftRow &row : draftRows) {
    if (row.kernels->verify)
      continue;
    most = std::max(most, row.drafts.count);
    if (row.drafts.folds)
      tasks.push_back(
          taskOf(pool, row.kernels->fold, /*usesBuffer=*/true, row.slot));
  }
  if (!tasks.empty())
    caller.run(threadPool, tasks, heads);

  int64_t capacity = pool.capacity;
  const HostCursors &cursors = pool.positions();
  pathOrders.resize(draftRows.size() * static_cast<size_t>(capacity));
  for (int64_t draft = 0; draft < most; ++draft) {
    tasks.clear();
    for (size_t i = 0; i < draftRows.size(); ++i) {
      const DraftRow &row = draftRows[i];
      if (row.kernels->verify || draft >= row.drafts.count)
        continue;
      const RouteKernels *kernels = row.kernels;
      if (row.drafts.folds && kernels->route == RouteKind::KvOnly)
        kernels = program.getImpl().find(program.getImpl().longRoute);
      RowTask task =
          taskOf(pool, kernels->decode, kernels->usesBuffer, row.slot);
      const HostCursors::Branches &branch = cursors.branch(row.slot);
      const int32_t *parents = cursors.parentsOf(row.slot);
      task.row = row.first + draft;
      task.readCarry = pool.carryIndex(
          row.slot, cursors.versionOf(parents[draft], branch.carryVersion));
      task.writeCarry = pool.carryIndex(
          row.slot, cursors.versionOf(draft, branch.carryVersion));
      if (!task.usesBuffer) {
        task.readSlot = pool.stateIndex(
            row.slot, cursors.versionOf(parents[draft], branch.stateVersion));
        task.writeSlot = pool.stateIndex(
            row.slot, cursors.versionOf(draft, branch.stateVersion));
        tasks.push_back(task);
        continue;
      }
      // The entries of the path, oldest first, and the draft's own.
      int32_t *order = pathOrders.data() + i * capacity;
      auto place = [&](int64_t entry) {
        return task.order[(task.base + entry) % capacity];
      };
      int64_t committed = row.drafts.folds ? 0 : task.length,
              length = committed;
      int64_t first = task.length; // of the drafts
      for (int64_t entry = 0; entry < committed; ++entry)
        order[entry] = place(entry);
      for (int64_t each = draft; each >= 0; each = parents[each])
        order[length++] = place(first + each);
      std::reverse(order + committed, order + length);
      task.order = order;
      task.base = 0;
      task.length = length - 1;
      tasks.push_back(task);
    }
    caller.run(threadPool, tasks, heads);
  }
}

Status HostDecoder::verify(const VerifyArguments &arguments, void *, Start) {
  verified.resize(static_cast<size_t>(pool.slots));
  if (Status status = checkDrafts(arguments); !status)
    return status;
  int64_t all = arguments.rows ? arguments.cuSeqlens[arguments.rows] : 0;
  if (all == 0)
    return Status();
  if (Status status =
          bindArguments(program.signature(), all, DeviceId(), arguments.tensors,
                        {caller.params(), caller.tokens(), caller.outputs()});
      !status)
    return status;
  if (Status status = planDrafts(arguments); !status)
    return status;

  HostCursors &cursors = pool.positions();
  if (Status status = cursors.claim(claims); !status)
    return status;
  pool.verified.resize(static_cast<size_t>(pool.slots));
  for (const DraftRow &row : draftRows) {
    cursors.append(row.slot, row.drafts);
    verified[row.slot] = pool.verified[row.slot] =
        cursors.branch(row.slot).round;
  }
  verifyAtOnce();
  verifySerially();
  for (int64_t row = 0; row < arguments.rows; ++row)
    if (pool.isPadding(arguments.slots[row]))
      for (int64_t draft = arguments.cuSeqlens[row];
           draft < arguments.cuSeqlens[row + 1]; ++draft)
        zeroOutputs(draft);
  if (!cursors.isShared)
    for (const DraftRow &row : draftRows)
      cursors.land(row.slot);
  return Status();
}
