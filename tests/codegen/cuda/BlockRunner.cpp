//===- BlockRunner.cpp - the threads of a block in turn -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/BlockRunner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

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
  case Point::PartBarrier:
    return "a part's barrier";
  case Point::BlockBarrier:
    return "the barrier";
  case Point::Copies:
    return "its copies";
  case Point::Cluster:
    return "the cluster's barrier";
  }
  return "";
}

BlockRunner::BlockRunner(const Launch &launch, Memory shared, Cluster &cluster,
                         unsigned ofCluster)
    : launch(launch), shared(shared), cluster(cluster),
      threads(countThreads(launch.block)),
      warpBarriers((threads.size() + warpThreads - 1) / warpThreads),
      known(warpBarriers.size(), std::vector<uint32_t>(warpBarriers.size())),
      values(2 * warpThreads * warpBarriers.size(), ~0ull),
      fibers(threads.size()), races(shared.bytes) {
  blockSize = launch.block;
  gridSize = launch.grid;
  rank = ofCluster;
  wait = [](Scheduler &scheduler, Point point, int line) {
    static_cast<BlockRunner &>(scheduler).waitHere(point, line);
  };
  misaligned = [](Scheduler &scheduler, const void *address,
                  unsigned alignment) {
    auto &runner = static_cast<BlockRunner &>(scheduler);
    auto offset = reinterpret_cast<uintptr_t>(address) % alignment;
    runner.stop("misaligned: " + runner.nameOf(runner.current) +
                " accesses memory " + std::to_string(offset) +
                " bytes behind a multiple of " + std::to_string(alignment));
  };
  access = [](Scheduler &scheduler, const void *address, unsigned bytes,
              bool writes) {
    static_cast<BlockRunner &>(scheduler).noteAccess(address, bytes, writes);
  };
  copyPart = [](Scheduler &scheduler, void *to, const void *from) {
    Thread &mine = static_cast<BlockRunner &>(scheduler).running();
    mine.parts.push_back({to, from, mine.group});
  };
  endGroup = [](Scheduler &scheduler) {
    ++static_cast<BlockRunner &>(scheduler).running().group;
  };
  waitForGroups = [](Scheduler &scheduler, int pending) {
    Thread &mine = static_cast<BlockRunner &>(scheduler).running();
    std::erase_if(mine.parts, [&](const Thread::Part &part) {
      bool isDone = pending < 0 || part.group < mine.group - pending;
      if (isDone)
        std::memcpy(part.to, part.from, 16);
      return isDone;
    });
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
  thread.part = part;
  thread.partThreads = partThreads;
  fibers.suspend();
}

void BlockRunner::stop(std::string message) {
  failure = std::move(message);
  fibers.suspend();
}

/// Whether it is shared memory, of this block or of another of the cluster.
bool BlockRunner::noteShared(const void *address, size_t bytes, bool writes) {
  std::optional<size_t> owner = cluster.ownerOf(address, bytes);
  if (!owner)
    return false;
  auto race = [&](const std::string &partner, int line) {
    std::string since =
        line ? "since the barrier at line " + std::to_string(line)
             : "before any barrier";
    stop("race in shared memory: " + nameOf(current) + " " +
         (writes ? "writes" : "reads") + " what " + partner + " accessed " +
         since);
  };
  if (cluster.size() > 1)
    if (auto line = cluster.note(rank, *owner, address, bytes, writes))
      race("another block of the cluster", *line);
  if (*owner != rank)
    return true;
  size_t offset = static_cast<const char *>(address) -
                  static_cast<const char *>(shared.begin);
  uint32_t warp = current / warpThreads;
  Races::Access now = {uint32_t(current), warp, warpBarriers[warp]};
  if (auto other = races.note(offset, bytes, writes, now, known[warp]))
    race(other->thread == Races::several ? "several threads"
                                         : nameOf(other->thread),
         lastBarrier);
  return true;
}

void BlockRunner::noteAccess(const void *address, size_t bytes, bool writes) {
  const char *what = writes ? "writes" : "reads";
  if (noteShared(address, bytes, writes))
    return;
  if (Traffic *traffic = launch.traffic;
      traffic &&
      contains({const_cast<void *>(traffic->of.begin), traffic->of.bytes},
               address, bytes))
    (writes ? traffic->written : traffic->read) += static_cast<int64_t>(bytes);
  if (launch.memory.empty() ||
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
  for (size_t i = 0; i < cluster.size(); ++i)
    Scheduler::shared[i] = cluster.sharedOf(i);
  copyCount = 0;
  std::vector<size_t> all(warpBarriers.size());
  std::iota(all.begin(), all.end(), 0);
  order(all);
  lastBarrier = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = Thread();
    fibers.prepare(i, runThread, this);
  }
  do {
    for (size_t warp = 0; warp < warpBarriers.size(); ++warp)
      if (!runWarp(warp))
        return false;
  } while (passParts() || (failure.empty() && passBlock()));
  // On a GPU, where it writes is another block's by then.
  if (failure.empty() && copyCount)
    failure = "unfinished copy: the block ends before " +
              std::to_string(copies[0].bytes) +
              " bytes that it copies in bulk are there";
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
      stack = fibers.stack(i);
      stackBytes = Fibers::stackBytes;
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
           threads[i].point != Point::PartBarrier &&
           threads[i].point != Point::BlockBarrier &&
           threads[i].point != Point::Copies &&
           threads[i].point != Point::Cluster;
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
  if (met.point == Point::WarpBarrier)
    order({first / warpThreads});
  return true;
}

void BlockRunner::order(const std::vector<size_t> &warps) {
  ++barriers;
  std::vector<uint32_t> all = known[warps.front()];
  for (size_t warp : warps) {
    std::transform(all.begin(), all.end(), known[warp].begin(), all.begin(),
                   [](uint32_t a, uint32_t b) { return std::max(a, b); });
    warpBarriers[warp] = barriers;
  }
  for (size_t warp : warps)
    all[warp] = barriers;
  for (size_t warp : warps)
    known[warp] = all;
}

bool BlockRunner::passParts() {
  std::map<int, std::vector<size_t>> waiting;
  for (size_t i = 0; i < threads.size(); ++i)
    if (threads[i].state == State::Waiting &&
        threads[i].point == Point::PartBarrier)
      waiting[threads[i].part].push_back(i);
  bool goesOn = false;
  for (const auto &[part, members] : waiting) {
    std::vector<size_t> warps;
    for (size_t i : members) {
      size_t wanted = threads[i].partThreads;
      bool isWanted = wanted == size_t(threads[members.front()].partThreads);
      if (!isWanted || members.size() > wanted) {
        failure = refuse(i, members.size());
        return false;
      }
      if (members.size() < wanted)
        break;
      if (warps.empty() || warps.back() != i / warpThreads)
        warps.push_back(i / warpThreads);
      threads[i].state = State::Ready;
    }
    if (warps.empty())
      continue;
    lastBarrier = threads[members.front()].line;
    order(warps);
    goesOn = true;
  }
  // Those that are left wait for threads that never come.
  if (!goesOn && !waiting.empty()) {
    const std::vector<size_t> &members = waiting.begin()->second;
    failure = refuse(members.front(), members.size());
  }
  return goesOn;
}

std::string BlockRunner::refuse(size_t thread, size_t count) const {
  const Thread &t = threads[thread];
  return "divergent part: " + nameOf(thread) + " " + placeOf(thread) + " for " +
         std::to_string(t.partThreads) + " threads at barrier " +
         std::to_string(t.part) + ", where there are " + std::to_string(count);
}

/// False if all threads have returned, or if some wait in vain.
bool BlockRunner::passBlock() {
  auto one = std::find_if(threads.begin(), threads.end(), [](const Thread &t) {
    return t.state == State::Waiting;
  });
  if (one == threads.end())
    return false;
  for (size_t i = 0; i < threads.size(); ++i) {
    // Warps of a cluster may meet from different places.
    bool isHere = one->point == Point::Cluster
                      ? threads[i].point == Point::Cluster
                      : threads[i].line == one->line;
    if (threads[i].state == State::Waiting && isHere)
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
    if (one->point == Point::Cluster && !cluster.meet(rank, one->line)) {
      failure = cluster.failure();
      return false;
    }
    lastBarrier = one->line;
    std::vector<size_t> all(warpBarriers.size());
    std::iota(all.begin(), all.end(), 0);
    order(all);
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
