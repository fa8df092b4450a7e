//===- ThreadPool.cpp - independent tasks on all cores --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/ThreadPool.h"

#include <chrono>
#include <sched.h>

using namespace ladle;

/// Processors that the process may use; a container allows fewer than exist.
static int availableProcessors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

static void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits for `done` without giving up the processor, for about the time that
/// waking a thread takes. Returns whether it came true.
template <typename Condition> static bool spinUntil(const Condition &done) {
  using namespace std::chrono;
  auto end = steady_clock::now() + microseconds(30);
  do {
    for (int i = 0; i < 64; ++i) {
      if (done())
        return true;
      relax();
    }
  } while (steady_clock::now() < end);
  return done();
}

static constexpr uint64_t taskMask = 0xffffffff;

ThreadPool::ThreadPool(int wanted) {
  if (wanted <= 0)
    wanted = availableProcessors();
  for (int worker = 1; worker < wanted && start(worker); ++worker) {
  }
}

bool ThreadPool::start(int worker) {
  try {
    threads.emplace_back([this, worker] { workerLoop(worker); });
  } catch (const std::exception &) {
    return false; // those that began do the work
  }
  return true;
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping = true;
  ++job;
  job.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void ThreadPool::work(int worker) {
  uint64_t seen = remaining.load(std::memory_order_acquire);
  while (seen & taskMask) {
    if (!remaining.compare_exchange_weak(seen, seen - 1,
                                         std::memory_order_acq_rel,
                                         std::memory_order_acquire))
      continue;
    // The job cannot end, nor its fields change, before this task is done.
    uint32_t total = count;
    task(context, total - static_cast<uint32_t>(seen & taskMask), worker);
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == total)
      finished.notify_one();
    seen = remaining.load(std::memory_order_acquire);
  }
}

void ThreadPool::workerLoop(int worker) {
  while (true) {
    uint32_t current = job.load(std::memory_order_acquire);
    work(worker);
    if (stopping)
      return;
    auto isNew = [&] { return job.load(std::memory_order_acquire) != current; };
    if (!spinUntil(isNew))
      job.wait(current, std::memory_order_acquire);
  }
}

void ThreadPool::run(int64_t total, Task newTask, void *newContext) {
  std::lock_guard<std::mutex> lock(turn);
  if (threads.empty() || total == 1) {
    for (int64_t i = 0; i < total; ++i)
      newTask(newContext, i, /*worker=*/0);
    return;
  }
  if (total == 0)
    return;
  task = newTask;
  context = newContext;
  count = static_cast<uint32_t>(total);
  finished.store(0, std::memory_order_relaxed);
  uint64_t number = (remaining.load(std::memory_order_relaxed) >> 32) + 1;
  remaining.store(number << 32 | count, std::memory_order_release);
  ++job;
  job.notify_all();
  work(/*worker=*/0);
  auto isDone = [&] {
    return finished.load(std::memory_order_acquire) == count;
  };
  if (spinUntil(isDone))
    return;
  for (uint32_t seen = finished.load(std::memory_order_acquire); seen != count;
       seen = finished.load(std::memory_order_acquire))
    finished.wait(seen, std::memory_order_acquire);
}

ThreadPool &ThreadPool::shared() {
  static ThreadPool pool(0);
  return pool;
}
