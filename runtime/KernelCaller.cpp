//===- KernelCaller.cpp - kernels over rows and heads ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/KernelCaller.h"

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
      describe(array.view(pool.slots, pool.device), descriptors.emplace_back());
  size_t fieldsEnd = descriptors.size();
  size_t fieldsBegin = fieldsEnd - pool.fields.size();
  descriptors.resize(fieldsEnd + outputCount);

  workers.resize(static_cast<size_t>(workerCount));
  for (Worker &worker : workers) {
    for (int64_t &integer : worker.integers) {
      worker.withFields.push_back(&integer);
      worker.withoutFields.push_back(&integer);
    }
    for (size_t i = 0; i < descriptors.size(); ++i) {
      worker.withFields.push_back(&descriptors[i]);
      if (i < fieldsBegin || i >= fieldsEnd)
        worker.withoutFields.push_back(&descriptors[i]);
    }
  }
}

void KernelCaller::run(ThreadPool &threads, std::span<const RowTask> tasks,
                       HeadRange heads) {
  int64_t groups = (heads.end - heads.begin) / headGroup;
  // Several tasks a thread, so that a thread that is interrupted does not make
  // all others wait; whole rows where there are rows enough.
  int64_t wanted = 8 * threads.size();
  int64_t groupsPerTask = std::clamp<int64_t>(
      static_cast<int64_t>(tasks.size()) * groups / wanted, 1, groups);
  int64_t parts = (groups + groupsPerTask - 1) / groupsPerTask;
  int64_t headsPerTask = groupsPerTask * headGroup;

  threads.forEach(static_cast<int64_t>(tasks.size()) * parts, [&](int64_t index,
                                                                  int worker) {
    const RowTask &task = tasks[index / parts];
    Worker &mine = workers[worker];
    int64_t begin = heads.begin + index % parts * headsPerTask;
    int64_t end = std::min(begin + headsPerTask, heads.end);
    int64_t integers[taskIntegers] = {task.row,  task.readSlot, task.writeSlot,
                                      task.base, task.length,   begin,
                                      end};
    std::copy(std::begin(integers), std::end(integers), mine.integers);
    task.kernel(task.usesBuffer ? mine.withFields.data()
                                : mine.withoutFields.data());
  });
}
