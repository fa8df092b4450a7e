//===- Cluster.h - blocks that run at the same time -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_CLUSTER_H
#define LADLE_TESTS_CODEGEN_CUDA_CLUSTER_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ladle::test {

/// Bytes that a kernel may touch.
struct Memory {
  const void *begin;
  size_t bytes;
};

inline bool contains(const Memory &memory, const void *address, size_t bytes) {
  auto offset = reinterpret_cast<uintptr_t>(address) -
                reinterpret_cast<uintptr_t>(memory.begin);
  return offset < memory.bytes && bytes <= memory.bytes - offset;
}

/// The blocks of a cluster, each on its own OS thread, and what they access of
/// one another's shared memory. Two accesses of different blocks, of which one
/// writes, race unless a barrier of the cluster lies in between.
class Cluster {
public:
  explicit Cluster(size_t blocks) : members(blocks) {}

  size_t size() const { return members.size(); }

  /// By the OS thread of a block, before any other.
  void join(size_t rank, Memory shared);
  /// Until all blocks are there: at the barrier of a line, or, at line 0, where
  /// they begin or end. False if one has failed, or is somewhere else: then
  /// `failure` says so, once.
  bool meet(size_t rank, int line);
  void fail(std::string message);
  std::string failure() {
    std::lock_guard<std::mutex> lock(mutex);
    return message;
  }

  char *sharedOf(size_t rank) const {
    return static_cast<char *>(const_cast<void *>(members[rank].shared.begin));
  }

  /// Whose shared memory this is.
  std::optional<size_t> ownerOf(const void *address, size_t bytes) const {
    for (size_t rank = 0; rank < members.size(); ++rank)
      if (contains(members[rank].shared, address, bytes))
        return rank;
    return std::nullopt;
  }
  /// The line of the barrier behind which another block accessed what this one
  /// does; 0 for the beginning.
  std::optional<int> note(size_t rank, size_t owner, const void *address,
                          size_t bytes, bool writes);

private:
  /// Barriers, from 1, behind which a byte was accessed last.
  struct Cell {
    uint32_t ownRead = 0, ownWrite = 0, theirRead = 0, theirWrite = 0;
  };
  struct Member {
    Memory shared{nullptr, 0};
    std::vector<Cell> cells;
  };

  std::vector<Member> members;
  std::mutex mutex;
  std::condition_variable changed;
  size_t arrived = 0;
  uint32_t epoch = 1;
  int met = 0, last = 0;
  std::string message;
};

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_CLUSTER_H
