//===- ThreadPool.h - independent tasks on all cores ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decode step at batch 1 takes tens of microseconds, so waking a thread must
// cost less: threads spin for a moment after their last task before they
// sleep, and nothing is allocated to run tasks.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_THREADPOOL_H
#define LADLE_RUNTIME_THREADPOOL_H

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ladle {

class ThreadPool {
public:
  /// A task is told its index and which worker runs it, 0 to size() - 1.
  using Task = void (*)(void *context, int64_t index, int worker);

  /// `threads` workers, of which the caller of `run` is one; 0 is one for each
  /// processor that the process may use. Fewer where the system starts no more.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;

  int size() const { return static_cast<int>(threads.size()) + 1; }

  /// Runs tasks 0 to count - 1 in any order, at most 2^32 - 1 of them, and
  /// returns when all are done. Calls from several threads take turns.
  void run(int64_t count, Task task, void *context);

  /// The same for a callable `body(index, worker)`.
  template <typename Body> void forEach(int64_t count, const Body &body) {
    run(
        count,
        [](void *context, int64_t index, int worker) {
          (*static_cast<const Body *>(context))(index, worker);
        },
        const_cast<Body *>(&body));
  }

  /// The threads of the process, started by the first call.
  static ThreadPool &shared();

private:
  /// False if the system starts no more.
  bool start(int worker);
  void stop();
  void workerLoop(int worker);
  /// Runs tasks of the current job until there are none left to take.
  void work(int worker);

  std::mutex turn; // held for the length of a run
  Task task = nullptr;
  void *context = nullptr;
  uint32_t count = 0;

  /// Number of the job, and below it the tasks that nobody took yet. One word,
  /// so that a thread that comes late cannot take a task of the next job for
  /// one of its own.
  alignas(64) std::atomic<uint64_t> remaining = 0;
  alignas(64) std::atomic<uint32_t> finished = 0;
  /// Changes with every job; sleeping threads wait for it.
  alignas(64) std::atomic<uint32_t> job = 0;
  std::atomic<bool> stopping = false;
  std::vector<std::thread> threads;
};

} // namespace ladle

#endif // LADLE_RUNTIME_THREADPOOL_H
