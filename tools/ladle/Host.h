//===- Host.h - the machine that this runs on -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_HOST_H
#define LADLE_TOOLS_LADLE_HOST_H

#include "ladle/device.h"

#include <cstdint>
#include <memory>
#include <string>

namespace ladle {
class Memory;
class ThreadPool;
} // namespace ladle

namespace ladle::tool {

struct Host {
  std::string processor; ///< as the kernel of the system names it
  int cores = 1;         ///< that this process may use
  /// Bytes; 0 if the system does not say. The last level is what it claims: a
  /// virtual machine may own less of it.
  int64_t level1 = 0, level2 = 0, lastLevel = 0;
  int64_t memory = 0, availableMemory = 0;

  static Host describe();
  /// A GPU in the same words: its name, its L2, its memory.
  static Host describe(const DeviceInfo &device);
  /// The last-level cache, or what to take for it if the system does not say.
  int64_t cacheBytes() const {
    return lastLevel > 0 ? lastLevel : int64_t(32) << 20;
  }
};

/// Passes over memory larger than the caches, on all threads, with the access
/// pattern of the kernels: each task walks one piece from its start to its end,
/// and threads take tasks as they come.
class MemoryStream {
public:
  /// About `wanted` bytes of fresh memory. `threads` as in DecoderOptions.
  MemoryStream(int64_t wanted, int threads);
  ~MemoryStream();

  /// 0 if there is not so much memory.
  int64_t bytes() const;
  /// The seconds that reading all of it takes, in the way that was the fastest
  /// here: as processors ask for memory by themselves, or asked for ahead, from
  /// one place or two.
  double read();
  /// The seconds that updating all of it in place takes.
  double update();

private:
  using Way = uint64_t (*)(const void *piece);
  template <typename Body> double pass(const Body &body);
  double read(Way by);
  int64_t pieces;
  Way way = nullptr;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<ThreadPool> threads;
};

/// Bytes a second.
struct Bandwidth {
  double read = 0;   ///< reading only
  double update = 0; ///< in place, read and write counted
};

/// Streams over `bytes` of fresh memory, each way for about `seconds`, and
/// takes the best pass: a ceiling. Zero if there is not so much memory.
Bandwidth measureBandwidth(int64_t bytes, int threads, double seconds);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_HOST_H
