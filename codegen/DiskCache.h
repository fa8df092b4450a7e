//===- DiskCache.h - compiled programs between processes --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A directory of entries that are named by the hash of what they were made
// from. Any number of processes may use it at once: an entry appears whole or
// not at all, and whatever cannot be read is not there. A cache that does not
// work (a full disk, a read-only home) makes compilations slow, never wrong.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_DISKCACHE_H
#define LADLE_CODEGEN_DISKCACHE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class MemoryBuffer;
} // namespace llvm

namespace ladle {

class DiskCache {
public:
  static constexpr uint64_t defaultLimit = uint64_t(256) << 20;

  /// In $LADLE_CACHE_DIR, $XDG_CACHE_HOME/ladle or ~/.cache/ladle, the first
  /// that is set; $LADLE_CACHE_LIMIT is the limit in bytes. Without a home
  /// directory every lookup misses.
  static DiskCache openDefault();

  /// `limit` bounds the bytes of all entries, but for what each process has
  /// written since it last looked; the least recently used go.
  explicit DiskCache(std::string directory, uint64_t limit = defaultLimit);

  /// SHA-256, in hexadecimal, over the parts with their lengths, so that
  /// {"ab", "c"} is not {"a", "bc"}.
  static std::string makeKey(llvm::ArrayRef<llvm::StringRef> parts);

  /// The parts of an entry, in memory of the file.
  struct Entry {
    std::vector<llvm::StringRef> parts;
    std::shared_ptr<llvm::MemoryBuffer> memory;
  };
  /// Nothing if there is no such entry, or if it is damaged: then it is
  /// removed. Entries of other users are not trusted, for they are run.
  std::optional<Entry> lookup(llvm::StringRef key) const;

  /// Replaces an entry, and removes old ones down to the limit once what a
  /// process has written may matter: a 64th of it.
  llvm::Error store(llvm::StringRef key,
                    llvm::ArrayRef<llvm::StringRef> parts) const;

  struct Item {
    std::string key;
    uint64_t bytes;
    std::chrono::system_clock::time_point lastUse;
  };
  /// All entries, the most recently used first.
  std::vector<Item> list() const;

  struct Removed {
    uint64_t entries = 0, bytes = 0;
  };
  /// Removes the least recently used entries until `limit` bytes are left, and
  /// what interrupted writers left behind.
  Removed trim(uint64_t limit) const;
  Removed clear() const { return trim(0); }

  llvm::StringRef getDirectory() const { return directory; }
  uint64_t getLimit() const { return limit; }

private:
  std::string pathOf(llvm::StringRef key) const;

  std::string directory;
  uint64_t limit;
};

} // namespace ladle

#endif // LADLE_CODEGEN_DISKCACHE_H
