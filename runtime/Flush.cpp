//===- Flush.cpp - fold entries without a token ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/KernelCaller.h"
#include "runtime/Text.h"

using namespace ladle;

/// The kernels that fold a slot: those of the program's route, or of any other
/// that shares its entries. kv_only starts from nothing, so it is for slots
/// without a state.
static const RouteKernels *findFold(const Program &program,
                                    const Cursor &cursor) {
  const ProgramImpl &impl = program.getImpl();
  const RouteKernels *chosen = impl.find(program.route());
  bool mayStartEmpty = cursor.epoch == 0;
  auto suits = [&](const RouteKernels &kernels) {
    return kernels.usesBuffer &&
           (kernels.route != RouteKind::KvOnly || mayStartEmpty);
  };
  if (suits(*chosen))
    return chosen;
  for (const RouteKernels &kernels : impl.routes)
    if (suits(kernels))
      return &kernels;
  return nullptr;
}

Status Pool::flush(const Program &program, std::span<const int32_t> slots) {
  if (Status status = impl->checkProgram(program); !status)
    return status;
  std::vector<RowTask> tasks;
  int64_t step = ++impl->steps;
  for (int32_t slot : slots) {
    if (impl->isPadding(slot))
      continue;
    if (Status status = impl->checkSlot(slot); !status)
      return status;
    const Cursor &cursor = impl->cursors[slot];
    bool isRepeated = impl->writers[slot].step == step;
    if (cursor.length == 0 || isRepeated)
      continue;
    impl->writers[slot] = {step, 0};
    const RouteKernels *kernels = findFold(program, cursor);
    if (!kernels || program.getImpl().fields != impl->fieldSpecs ||
        program.capacity() != impl->capacity)
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("slot {} holds {} entries, which no route of '{}' folds",
                      slot, cursor.length, program.signature().name));
    tasks.push_back(
        {kernels->fold, true, 0, slot, slot, cursor.base, cursor.length});
  }
  if (tasks.empty())
    return Status();
  ThreadPool &threads = ThreadPool::shared();
  KernelCaller(program, *impl, threads.size())
      .run(threads, tasks, {0, program.signature().heads});
  for (const RowTask &task : tasks) {
    Cursor &cursor = impl->cursors[task.readSlot];
    cursor = {(task.base + task.length) % impl->capacity, 0, 0,
              cursor.epoch + 1};
  }
  return Status();
}
