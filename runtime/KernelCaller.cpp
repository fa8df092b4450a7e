//===- KernelCaller.cpp - kernels over rows and heads ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/KernelCaller.h"
#include "runtime/HostPool.h"
#include "runtime/Text.h"

#include <algorithm>

using namespace ladle;

KernelCaller::KernelCaller(const Program &program, const Pool::Impl &pool,
                           int workerCount)
    : headGroup(program.headGroup()),
      paramCount(program.signature().params.size()),
      tokenCount(program.signature().tokens.size()),
      outputCount(program.signature().outputs.size()) {
  descriptors.resize(paramCount + tokenCount);
  for (const auto *arrays : {&pool.carries, &pool.states, &pool.fields})
    for (const Pool::Impl::Array &array : *arrays)
      describe(array.versionView(pool.device), descriptors.emplace_back());
  size_t fieldsEnd = descriptors.size();
  size_t fieldsBegin = fieldsEnd - pool.fields.size();
  descriptors.resize(fieldsEnd + outputCount);

  workers.resize(static_cast<size_t>(workerCount));
  for (Worker &worker : workers) {
    worker.order.sizesAndStrides[0] = pool.capacity;
    worker.pages.sizesAndStrides[0] = pool.shared().tableSize();
    worker.parents.sizesAndStrides[0] = pool.drafts;
    worker.order.sizesAndStrides[1] = worker.parents.sizesAndStrides[1] = 1;
    worker.pages.sizesAndStrides[1] = 1;
    worker.workspace.sizesAndStrides[1] = 1;
    for (auto *list : {&worker.withoutFields, &worker.withFields,
                       &worker.withParents, &worker.folds, &worker.appends}) {
      for (int64_t &integer : worker.integers)
        list->push_back(&integer);
      bool hasFields = list != &worker.withoutFields && list != &worker.folds;
      bool hasWorkspace = list == &worker.folds || list == &worker.appends;
      for (size_t i = 0; i < descriptors.size(); ++i) {
        if (i == fieldsBegin && hasFields && pool.drafts)
          list->push_back(&worker.order);
        if (i == fieldsBegin && hasFields && pool.page)
          list->push_back(&worker.pages);
        if (i == fieldsEnd && list == &worker.withParents)
          list->push_back(&worker.parents);
        if (i == fieldsEnd && hasWorkspace)
          list->push_back(&worker.workspace);
        if (i < fieldsBegin || i >= fieldsEnd || hasFields)
          list->push_back(&descriptors[i]);
      }
    }
  }
}

RowTask ladle::taskOf(const HostPool &pool, KernelFunction kernel,
                      bool usesBuffer, int32_t slot) {
  const HostCursors &cursors = pool.positions();
  const HostCursors::Branches &branch = cursors.branch(slot);
  RowTask task;
  task.kernel = kernel;
  task.usesBuffer = usesBuffer;
  task.base = cursors[slot].base;
  task.length = cursors[slot].committed;
  task.readSlot = task.writeSlot = pool.stateIndex(slot, branch.stateVersion);
  task.readCarry = task.writeCarry = pool.carryIndex(slot, branch.carryVersion);
  task.entrySlot = slot;
  task.order = cursors.orderOf(slot);
  task.pages = cursors.pagesOf(slot);
  return task;
}

Status KernelCaller::reserveWorkspace(const RouteKernels &kernels) {
  int64_t bytes = kernels.workspaceBytes + headGroup * kernels.workspacePerHead;
  if (bytes <= workspaceBytes)
    return Status();
  for (Worker &worker : workers) {
    Memory memory;
    if (!memory.allocate(bytes))
      return Status(ErrorCode::ResourceExhausted,
                    fmt::format("no workspace of {} bytes for each of {} "
                                "threads",
                                bytes, workers.size()));
    worker.workspaceMemory = std::move(memory);
    worker.workspace.aligned = worker.workspaceMemory.data();
    worker.workspace.sizesAndStrides[0] = bytes;
  }
  workspaceBytes = bytes;
  return Status();
}

void KernelCaller::run(ThreadPool &threads, std::span<const RowTask> tasks,
                       HeadRange heads) {
  int64_t groups = (heads.end - heads.begin) / headGroup;
  // Several tasks a thread, so that a thread that is interrupted does not make
  // all others wait; whole rows where there are rows enough.
  int64_t wanted = 8 * threads.size();
  int64_t groupsPerTask = std::clamp<int64_t>(
      static_cast<int64_t>(tasks.size()) * groups / wanted, 1, groups);
  if (!tasks.empty() && tasks.front().prefills)
    groupsPerTask = 1;
  int64_t parts = (groups + groupsPerTask - 1) / groupsPerTask;
  int64_t headsPerTask = groupsPerTask * headGroup;

  threads.forEach(static_cast<int64_t>(tasks.size()) * parts, [&](int64_t index,
                                                                  int worker) {
    const RowTask &task = tasks[index / parts];
    Worker &mine = workers[worker];
    int64_t begin = heads.begin + index % parts * headsPerTask;
    int64_t end = std::min(begin + headsPerTask, heads.end);
    int64_t integers[taskIntegers] = {task.row,
                                      task.readSlot,
                                      task.writeSlot,
                                      task.base,
                                      task.length,
                                      begin,
                                      end,
                                      task.readCarry,
                                      task.writeCarry,
                                      task.entrySlot,
                                      task.drafts};
    std::copy(std::begin(integers), std::end(integers), mine.integers);
    mine.order.aligned = const_cast<int32_t *>(task.order);
    mine.pages.aligned = const_cast<int32_t *>(task.pages);
    mine.parents.aligned = const_cast<int32_t *>(task.parents);
    if (task.prefills)
      task.kernel(task.usesBuffer ? mine.appends.data() : mine.folds.data());
    else
      task.kernel(!task.usesBuffer ? mine.withoutFields.data()
                  : task.parents   ? mine.withParents.data()
                                   : mine.withFields.data());
  });
}
