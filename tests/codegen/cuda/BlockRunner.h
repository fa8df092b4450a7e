//===- BlockRunner.h - the threads of a block in turn -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_BLOCKRUNNER_H
#define LADLE_TESTS_CODEGEN_CUDA_BLOCKRUNNER_H

#include "codegen/cuda/emulation.h"
#include "tests/codegen/cuda/Cluster.h"
#include "tests/codegen/cuda/Emulator.h"
#include "tests/codegen/cuda/Fibers.h"
#include "tests/codegen/cuda/Races.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ladle::test {

/// What all blocks of a launch have in common.
struct Launch {
  dim3 grid, block;
  void (*entry)(void *const *arguments);
  void *const *arguments;
  /// Memory of the host process; if empty, anything may be touched.
  std::vector<Memory> memory;
  /// The code and the constants of the kernel.
  Memory image;
  Traffic *traffic = nullptr;
};

/// Runs one block after the other on the OS thread that made it.
class BlockRunner : private emulation::Scheduler {
public:
  /// `shared` is this thread's copy of the kernel's shared variables. The
  /// blocks that it runs have this rank in their clusters.
  BlockRunner(const Launch &launch, Memory shared, Cluster &cluster,
              unsigned ofCluster);

  emulation::Scheduler *scheduler() { return this; }

  /// False if the block did what it must not; then `message` says what, and
  /// nothing else may be run.
  bool run(uint3 block);
  const std::string &message() const { return failure; }

private:
  enum class State { Ready, Waiting, Returned };
  struct Thread {
    State state = State::Ready;
    emulation::Point point;
    int line = 0;
    int part = 0, partThreads = 0;
    unsigned shuffles = 0;
    /// Copies of 16 bytes that nobody has waited for, and their groups.
    struct Part {
      void *to;
      const void *from;
      int group;
    };
    std::vector<Part> parts;
    int group = 0;
  };

  Thread &running() { return threads[current]; }
  static void runThread(void *runner);
  void waitHere(emulation::Point point, int line);
  void noteAccess(const void *address, size_t bytes, bool writes);
  bool noteShared(const void *address, size_t bytes, bool writes);

  bool runWarp(size_t warp);
  bool passWarp(size_t first, size_t end);
  /// Barriers of parts of the block; false if nobody can go on.
  bool passParts();
  std::string refuse(size_t thread, size_t count) const;
  bool passBlock();
  /// What one of these warps has done, all know.
  void order(const std::vector<size_t> &warps);
  /// The fiber that calls this is not resumed.
  void stop(std::string message);

  uint3 indexOf(size_t thread) const;
  std::string nameOf(size_t thread) const;
  std::string placeOf(size_t thread) const;

  const Launch &launch;
  Memory shared;
  Cluster &cluster;
  std::vector<Thread> threads;
  /// The last barrier of each warp, of all that there were; and for each warp
  /// those before which it knows what others did.
  std::vector<uint32_t> warpBarriers;
  std::vector<std::vector<uint32_t>> known;
  uint32_t barriers = 0;
  int lastBarrier = 0;
  std::vector<unsigned long long> values;
  Fibers fibers;
  Races races;
  size_t current = 0;
  std::string failure;
};

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_BLOCKRUNNER_H
