//===- Blocks.h - numbered pieces of memory that are shared -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_BLOCKS_H
#define LADLE_RUNTIME_BLOCKS_H

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

namespace ladle {

/// Which of a number of blocks are free, and how many hold each of the others.
/// Pages are blocks, and so are states.
class Blocks {
public:
  explicit Blocks(int64_t count = 0) : holders(static_cast<size_t>(count)) {
    // The lowest number is taken first, and then what was given back last.
    for (int64_t block = count; block-- > 0;)
      unused.push_back(static_cast<int32_t>(block));
  }

  int64_t count() const { return static_cast<int64_t>(holders.size()); }
  int64_t free() const { return static_cast<int64_t>(unused.size()); }
  bool isShared(int32_t block) const { return holders[block] > 1; }

  int32_t take() {
    assert(!unused.empty() && "whoever takes has looked before");
    int32_t block = unused.back();
    unused.pop_back();
    holders[block] = 1;
    return block;
  }
  void share(int32_t block) { ++holders[block]; }
  /// Whether nobody holds it any more.
  bool release(int32_t block) {
    assert(holders[block] > 0 && "nobody held it");
    if (--holders[block] > 0)
      return false;
    unused.push_back(block);
    return true;
  }

  /// How many blocks it takes to give everybody who asks one of his own.
  class Demand {
  public:
    explicit Demand(const Blocks &blocks) : blocks(blocks) {}
    /// Of somebody who holds `block`, or -1 for none.
    void add(int32_t block) {
      if (block < 0)
        ++fresh;
      else if (blocks.isShared(block))
        shared.push_back(block);
    }
    int64_t count() {
      std::sort(shared.begin(), shared.end());
      auto copies = static_cast<int64_t>(shared.size());
      // If all who hold a block ask, the last of them may keep it.
      for (auto first = shared.begin(); first != shared.end();) {
        auto last = std::upper_bound(first, shared.end(), *first);
        copies -= last - first == blocks.holders[*first];
        first = last;
      }
      return fresh + copies;
    }

  private:
    const Blocks &blocks;
    int64_t fresh = 0;
    std::vector<int32_t> shared;
  };

private:
  std::vector<int32_t> holders;
  std::vector<int32_t> unused;
};

} // namespace ladle

#endif // LADLE_RUNTIME_BLOCKS_H
