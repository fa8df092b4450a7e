//===- Races.cpp - accesses that no barrier orders ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Races.h"

#include <utility>

using ladle::test::Races;

using Known = std::vector<uint32_t>;

static bool isOrdered(const Races::Access &before, const Races::Access &now,
                      const Known &known) {
  return before.thread == now.thread || before.barrier < known[before.warp];
}

/// Two reads of one warp become one of `several`.
static void merge(Races::Access &read, const Races::Access &now,
                  const Known &known) {
  bool joins = !isOrdered(read, now, known);
  read = now;
  if (joins)
    read.thread = Races::several;
}

std::optional<Races::Access> Races::note(size_t offset, size_t bytes,
                                         bool writes, const Access &now,
                                         const Known &known) {
  for (size_t i = offset; i < offset + bytes && i < cells.size(); ++i) {
    Cell &cell = cells[i];
    if (!isOrdered(cell.write, now, known))
      return cell.write;
    if (writes) {
      for (const Access &read : {cell.read, cell.otherRead})
        if (!isOrdered(read, now, known))
          return read;
      cell.write = now;
    } else if (cell.read.warp == now.warp) {
      merge(cell.read, now, known);
    } else if (cell.otherRead.warp == now.warp) {
      merge(cell.otherRead, now, known);
    } else {
      cell.otherRead = std::exchange(cell.read, now);
    }
  }
  return std::nullopt;
}
