//===- ThreadPoolTest.cpp - every task once, on any number of threads -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/ThreadPool.h"
#include "tests/runtime/TightMemory.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>

using namespace ladle;
using namespace ladle::test;

TEST_CASE("every task runs once") {
  int threads = GENERATE(1, 2, 7);
  int64_t count = GENERATE(0, 1, 2, 5, 1000);
  CAPTURE(threads, count);
  ThreadPool pool(threads);
  CHECK(pool.size() == threads);
  std::vector<std::atomic<int>> runs(count);
  pool.forEach(count, [&](int64_t index, int) { ++runs[index]; });
  for (const std::atomic<int> &each : runs)
    CHECK(each.load() == 1);
}

TEST_CASE("jobs follow one another without losing a task") {
  ThreadPool pool(4);
  std::atomic<int64_t> sum = 0;
  for (int64_t job = 0; job < 2000; ++job)
    pool.forEach(job % 9, [&](int64_t index, int) { sum += index + 1; });
  int64_t expected = 0;
  for (int64_t job = 0; job < 2000; ++job)
    expected += (job % 9) * (job % 9 + 1) / 2;
  CHECK(sum.load() == expected);
}

TEST_CASE("threads that sleep wake up for the next job") {
  ThreadPool pool(3);
  for (int job = 0; job < 3; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> runs = 0;
    pool.forEach(10, [&](int64_t, int) { ++runs; });
    CHECK(runs.load() == 10);
  }
}

TEST_CASE("callers take turns") {
  ThreadPool pool(2);
  std::atomic<int> runs = 0;
  auto call = [&] {
    for (int job = 0; job < 200; ++job)
      pool.forEach(5, [&](int64_t, int) { ++runs; });
  };
  std::thread other(call);
  call();
  other.join();
  CHECK(runs.load() == 2 * 200 * 5);
}

TEST_CASE("no worker runs two tasks at once") {
  ThreadPool pool(4);
  std::vector<std::atomic<bool>> busy(4);
  std::atomic<int> collisions = 0;
  pool.forEach(5000, [&](int64_t, int worker) {
    if (busy[worker].exchange(true))
      ++collisions;
    busy[worker] = false;
  });
  CHECK(collisions.load() == 0);
}

TEST_CASE("a system that starts no more threads has those that it did work") {
  // Each thread takes megabytes of addresses for its stack.
  std::optional<TightMemory> tight(rlim_t(1) << 28);
  if (!*tight)
    return;
  ThreadPool pool(4000);
  tight.reset();
  CHECK(pool.size() < 4000);
  std::atomic<int64_t> sum = 0;
  pool.forEach(1000, [&](int64_t index, int) { sum += index; });
  CHECK(sum == 499500);
}
