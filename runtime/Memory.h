//===- Memory.h - zeroed memory that is taken when touched ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_MEMORY_H
#define LADLE_RUNTIME_MEMORY_H

#include <cstdint>
#include <utility>

namespace ladle {

/// Pages of the operating system, zero until they are written.
class Memory {
public:
  Memory() = default;
  Memory(Memory &&other) noexcept
      : pages(std::exchange(other.pages, nullptr)), bytes(other.bytes) {}
  Memory &operator=(Memory &&other) noexcept {
    std::swap(pages, other.pages);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Memory();

  /// Returns whether there was enough. Zero bytes are some memory too.
  bool allocate(int64_t size);
  void *data() const { return pages; }

private:
  void *pages = nullptr;
  int64_t bytes = 0;
};

} // namespace ladle

#endif // LADLE_RUNTIME_MEMORY_H
