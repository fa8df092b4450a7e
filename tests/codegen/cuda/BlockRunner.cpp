//===- BlockRunner.cpp - the threads of a block in turn -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/BlockRunner.h"

#include <algorithm>
#include <cstring>

using namespace ladle::test;
using ladle::emulation::Point;
using ladle::emulation::Scheduler;

static constexpr size_t warpThreads = 32;

static size_t countThreads(dim3 block) {
  return size_t(block.x) * block.y * block.z;
}

static std::string print(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

static const char *print(Point point) {
  switch (point) {
  case Point::Shuffle:
    return "the shuffle";
  case Point::WarpBarrier:
    return "__syncwarp";
  case Point::BlockBarrier:
    return "the barrier";
  case Point::Copies:
    return "its copies";
  }
  return "";
}

static bool contains(const Memory &memory, const void *address, size_t bytes) {
  auto offset = reinterpret_cast<uintptr_t>(address) -
                reinterpret_cast<uintptr_t>(memory.begin);
  return offset < memory.bytes && bytes <= memory.bytes - offset;
}

BlockRunner::BlockRunner(const Launch &launch, Memory shared)
    : launch(launch), shared(shared), threads(countThreads(launch.block)),
      warpEpochs((threads.size() + warpThreads - 1) / warpThreads),
      values(2 * warpThreads * warpEpochs.size(), ~0ull),
      fibers(threads.size()), races(shared.bytes) {
  blockSize = launch.block;
  gridSize = launch.grid;
  wait = [](Scheduler &scheduler, Point point, int line) {
    static_cast<BlockRunner &>(scheduler).waitHere(point, line);
  };
  access = [](Scheduler &scheduler, const void *address, unsigned bytes,
              bool writes) {
    static_cast<BlockRunner &>(scheduler).noteAccess(address, bytes, writes);
  };
}

//===----------------------------------------------------------------------===//
// Called by fibers
//===----------------------------------------------------------------------===//

void BlockRunner::runThread(void *self) {
  auto &runner = *static_cast<BlockRunner *>(self);
  runner.launch.entry(runner.launch.arguments);
  runner.threads[runner.current].state = State::Returned;
  runner.fibers.suspend();
}

void BlockRunner::waitHere(Point point, int line) {
  Thread &thread = threads[current];
  thread.state = State::Waiting;
  thread.point = point;
  thread.line = line;
  fibers.suspend();
}

void BlockRunner::stop(std::string message) {
  failure = std::move(message);
  fibers.suspend();
}

void BlockRunner::noteAccess(const void *address, size_t bytes, bool writes) {
  const char *what = writes ? "writes" : "reads";
  if (contains(shared, address, bytes)) {
    size_t offset = static_cast<const char *>(address) -
                    static_cast<const char *>(shared.begin);
    uint32_t warp = current / warpThreads;
    Races::Access now = {uint32_t(current), warp, blockEpoch, warpEpochs[warp]};
    auto other = races.note(offset, bytes, writes, now);
    if (!other)
      return;
    std::string partner = other->thread == Races::several
                              ? "several threads"
                              : nameOf(other->thread);
    std::string since =
        lastBarrier ? "since the barrier at line " + std::to_string(lastBarrier)
                    : "before any barrier";
    return stop("race in shared memory: " + nameOf(current) + " " + what +
                " what " + partner + " accessed " + since);
  }
  if (launch.memory.empty() || fibers.isOnStack(current, address) ||
      contains({static_cast<Scheduler *>(this), sizeof(Scheduler)}, address,
               bytes) ||
      contains({values.data(), values.size() * sizeof(values[0])}, address,
               bytes) ||
      contains(launch.image, address, bytes) ||
      std::any_of(launch.memory.begin(), launch.memory.end(),
                  [&](const Memory &memory) {
                    return contains(memory, address, bytes);
                  }))
    return;
  // Where it is, seen from the allocation that ends or begins nearest.
  const char *at = static_cast<const char *>(address);
  ptrdiff_t nearest = PTRDIFF_MAX;
  std::string place;
  for (size_t i = 0; i < launch.memory.size(); ++i) {
    const char *begin = static_cast<const char *>(launch.memory[i].begin);
    ptrdiff_t offset = at - begin, size = launch.memory[i].bytes;
    ptrdiff_t distance = offset < 0 ? -offset : offset - size;
    if (distance < nearest) {
      nearest = distance;
      place = "byte " + std::to_string(offset) + " of the " +
              std::to_string(size) + " bytes of allocation " +
              std::to_string(i);
    }
  }
  stop("out of bounds: " + nameOf(current) + " " + what + " " +
       std::to_string(bytes) + " bytes at " + place);
}

//===----------------------------------------------------------------------===//
// The schedule
//===----------------------------------------------------------------------===//

bool BlockRunner::run(uint3 block) {
  blockIndex = block;
  copyCount = 0;
  ++blockEpoch;
  lastBarrier = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = Thread();
    fibers.prepare(i, runThread, this);
  }
  do {
    for (size_t warp = 0; warp < warpEpochs.size(); ++warp)
      if (!runWarp(warp))
        return false;
  } while (passBlock());
  return failure.empty();
}

/// Until each thread of the warp has returned or waits for the block.
bool BlockRunner::runWarp(size_t warp) {
  size_t first = warp * warpThreads;
  size_t end = std::min(first + warpThreads, threads.size());
  do {
    for (size_t i = first; i < end; ++i) {
      if (threads[i].state != State::Ready)
        continue;
      current = i;
      threadIndex = indexOf(i);
      lane = i - first;
      // Two sets of slots: a thread may be at the next shuffle before all have
      // read what this one gave.
      slots = &values[warpThreads * (2 * warp + threads[i].shuffles % 2)];
      fibers.resume(i);
      if (!failure.empty())
        return false;
    }
  } while (passWarp(first, end));
  return failure.empty();
}

/// False if no thread can go on before the block does, or never.
bool BlockRunner::passWarp(size_t first, size_t end) {
  auto waitsForWarp = [&](size_t i) {
    return threads[i].state == State::Waiting &&
           threads[i].point != Point::BlockBarrier &&
           threads[i].point != Point::Copies;
  };
  size_t one = first;
  while (one < end && !waitsForWarp(one))
    ++one;
  if (one == end)
    return false;
  Thread met = threads[one];
  for (size_t i = first; i < end; ++i) {
    if (threads[i].state != State::Waiting || threads[i].point != met.point ||
        threads[i].line != met.line) {
      failure = "divergent warp: " + nameOf(one) + " " + placeOf(one) +
                ", but " + nameOf(i) + " " + placeOf(i);
      return false;
    }
  }
  for (size_t i = first; i < end; ++i) {
    threads[i].state = State::Ready;
    threads[i].shuffles += met.point == Point::Shuffle;
  }
  warpEpochs[first / warpThreads] += met.point == Point::WarpBarrier;
  return true;
}

/// False if all threads have returned, or if some wait in vain.
bool BlockRunner::passBlock() {
  auto one = std::find_if(threads.begin(), threads.end(), [](const Thread &t) {
    return t.state == State::Waiting;
  });
  if (one == threads.end())
    return false;
  for (size_t i = 0; i < threads.size(); ++i) {
    if (threads[i].state == State::Waiting && threads[i].line == one->line)
      continue;
    size_t waits = one - threads.begin();
    failure = "divergent block: " + nameOf(waits) + " " + placeOf(waits) +
              ", but " + nameOf(i) + " " + placeOf(i);
    return false;
  }
  if (one->point == Point::Copies) {
    ladle::emulation::Copy *end =
        std::partition(copies, copies + copyCount, [&](const auto &copy) {
          return copy.counter != waitedCopies && !copy.isWaitedFor;
        });
    for (auto *copy = end; copy != copies + copyCount; ++copy)
      std::memcpy(copy->to, copy->from, copy->bytes);
    copyCount = static_cast<int>(end - copies);
  } else {
    lastBarrier = one->line;
    ++blockEpoch;
  }
  for (Thread &thread : threads)
    thread.state = State::Ready;
  return true;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

uint3 BlockRunner::indexOf(size_t thread) const {
  dim3 size = launch.block;
  return {unsigned(thread % size.x), unsigned(thread / size.x % size.y),
          unsigned(thread / size.x / size.y)};
}

std::string BlockRunner::nameOf(size_t thread) const {
  return "thread " + print(indexOf(thread)) + " of block " + print(blockIndex);
}

std::string BlockRunner::placeOf(size_t thread) const {
  const Thread &t = threads[thread];
  if (t.state == State::Returned)
    return "has returned";
  return std::string("waits at ") + print(t.point) + " in line " +
         std::to_string(t.line);
}
