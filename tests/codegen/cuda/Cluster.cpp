//===- Cluster.cpp - blocks that run at the same time ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Cluster.h"

#include <algorithm>

using ladle::test::Cluster;

void Cluster::join(size_t rank, Memory shared) {
  members[rank].shared = shared;
  members[rank].cells.assign(members.size() > 1 ? shared.bytes : 0, Cell());
}

static std::string placeOf(int line) {
  return line ? "waits at the cluster's barrier in line " + std::to_string(line)
              : "has returned";
}

bool Cluster::meet(size_t rank, int line) {
  std::unique_lock<std::mutex> lock(mutex);
  if (!message.empty())
    return false;
  if (arrived == 0)
    met = line;
  if (met != line) {
    message = "divergent cluster: a block " + placeOf(met) + ", but block " +
              std::to_string(rank) + " " + placeOf(line);
    changed.notify_all();
    return false;
  }
  uint32_t before = epoch;
  if (++arrived == members.size()) {
    arrived = 0;
    last = line;
    ++epoch;
    changed.notify_all();
    return true;
  }
  changed.wait(lock, [&] { return epoch != before || !message.empty(); });
  return message.empty();
}

void Cluster::fail(std::string text) {
  std::lock_guard<std::mutex> lock(mutex);
  if (message.empty())
    message = std::move(text);
  changed.notify_all();
}

std::optional<int> Cluster::note(size_t rank, size_t owner, const void *address,
                                 size_t bytes, bool writes) {
  std::lock_guard<std::mutex> lock(mutex);
  size_t offset = static_cast<const char *>(address) - sharedOf(owner);
  bool isOwn = rank == owner;
  for (size_t i = offset; i < offset + bytes; ++i) {
    Cell &cell = members[owner].cells[i];
    uint32_t conflict =
        isOwn ? cell.theirWrite : std::max(cell.ownWrite, cell.theirWrite);
    if (writes)
      conflict = std::max({conflict, cell.theirRead, isOwn ? 0 : cell.ownRead});
    if (conflict == epoch)
      return last;
    uint32_t &kept = isOwn ? (writes ? cell.ownWrite : cell.ownRead)
                           : (writes ? cell.theirWrite : cell.theirRead);
    kept = epoch;
  }
  return std::nullopt;
}
