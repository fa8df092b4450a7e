//===- HostPool.cpp - a pool in the memory of the host --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/HostPool.h"
#include "runtime/KernelCaller.h"
#include "runtime/Memory.h"
#include "runtime/Text.h"

#include <cstring>

using namespace ladle;

Result<std::shared_ptr<void>> HostPool::allocate(int64_t bytes) {
  auto memory = std::make_shared<Memory>();
  if (!memory->allocate(bytes))
    return Status(ErrorCode::ResourceExhausted,
                  "the system does not give so much");
  void *data = memory->data();
  return std::shared_ptr<void>(std::move(memory), data);
}

Status HostPool::checkArray(const Array &) const { return Status(); }

Status HostPool::clear(const Array &array, int32_t slot, void *) {
  std::memset(array.slot(slot), 0, static_cast<size_t>(array.slotBytes()));
  return Status();
}

Status HostPool::read(const Array &array, int32_t slot, void *to,
                      void *) const {
  std::memcpy(to, array.slot(slot), static_cast<size_t>(array.slotBytes()));
  return Status();
}

Status HostPool::write(const Array &array, int32_t slot, const void *from,
                       void *) {
  std::memcpy(array.slot(slot), from, static_cast<size_t>(array.slotBytes()));
  return Status();
}

//===----------------------------------------------------------------------===//
// Flush
//===----------------------------------------------------------------------===//

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

/// Entries of a slot that are in no state yet, neither by a fold that its
/// drafts came with.
static int64_t entriesToFold(const HostCursors &cursors, int32_t slot) {
  return cursors.branch(slot).folds ? 0 : cursors[slot].committed;
}

Result<bool> HostPool::canFold(const Program &program,
                               std::span<const int32_t> list) const {
  for (int32_t slot : list) {
    int64_t entries = entriesToFold(positions(), slot);
    if (entries > 0 &&
        (!findFold(program, positions()[slot]) ||
         program.getImpl().fields != fieldSpecs ||
         program.capacity() != capacity || program.page() != page))
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("slot {} holds {} entries, which no route of '{}' folds",
                      slot, entries, program.signature().name));
  }
  return true;
}

Status HostPool::fold(const Program &program, std::span<const int32_t> list,
                      void *) {
  std::vector<RowTask> tasks;
  for (int32_t slot : list)
    if (entriesToFold(positions(), slot) > 0)
      tasks.push_back(taskOf(*this, findFold(program, positions()[slot])->fold,
                             /*usesBuffer=*/true, slot));
  if (tasks.empty())
    return Status();
  ThreadPool &threads = ThreadPool::shared();
  KernelCaller(program, *this, threads.size())
      .run(threads, tasks, {0, program.signature().heads});
  return Status();
}
