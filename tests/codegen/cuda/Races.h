//===- Races.h - accesses that no barrier orders ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_RACES_H
#define LADLE_TESTS_CODEGEN_CUDA_RACES_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ladle::test {

/// Remembers, for each byte of a block's shared memory, who wrote and read it
/// last. Two accesses of which one writes race unless a barrier where both
/// warps met, or others that lead from one to the other, lies in between. A
/// shuffle is none.
class Races {
public:
  /// `thread` may be `several`: all of one warp.
  static constexpr uint32_t several = ~0u;
  struct Access {
    uint32_t thread = 0, warp = 0;
    /// The last barrier of the warp.
    uint32_t barrier = 0;
  };

  explicit Races(size_t bytes) : cells(bytes) {}

  /// The access that races with this one. `known` has for each warp the barrier
  /// before which all that it did is known to the one that accesses.
  std::optional<Access> note(size_t offset, size_t bytes, bool writes,
                             const Access &now,
                             const std::vector<uint32_t> &known);

private:
  struct Cell {
    Access write, read, otherRead; // The reads are of different warps.
  };
  std::vector<Cell> cells;
};

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_RACES_H
