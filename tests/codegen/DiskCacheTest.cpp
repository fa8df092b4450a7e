//===- DiskCacheTest.cpp - damage, races and bounds of the cache ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

using ladle::DiskCache;
namespace fs = std::filesystem;

namespace {

/// A directory that is removed at the end of a test.
class Directory {
public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "ladle-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Directory() { fs::remove_all(path); }

  fs::path entry(const std::string &key) const {
    return path / (key + ".ladle");
  }
  size_t files() const {
    return std::distance(fs::directory_iterator(path), {});
  }

  fs::path path;
};

bool store(const DiskCache &cache, llvm::StringRef key,
           llvm::ArrayRef<llvm::StringRef> parts) {
  llvm::Error error = cache.store(key, parts);
  bool failed = static_cast<bool>(error);
  llvm::consumeError(std::move(error));
  return !failed;
}

std::string read(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void age(const fs::path &path, int seconds) {
  fs::last_write_time(path, fs::file_time_type::clock::now() -
                                std::chrono::seconds(seconds));
}

} // namespace

TEST_CASE("what is stored is found, part by part") {
  Directory directory;
  DiskCache cache(directory.path / "made" / "on demand");
  CHECK_FALSE(cache.lookup("k"));
  REQUIRE(store(cache, "k", {"manifest", "", llvm::StringRef("o\0bj", 4)}));
  auto entry = cache.lookup("k");
  REQUIRE(entry);
  REQUIRE(entry->parts.size() == 3);
  CHECK(entry->parts[0] == "manifest");
  CHECK(entry->parts[1] == "");
  CHECK(entry->parts[2] == llvm::StringRef("o\0bj", 4));
}

TEST_CASE("keys depend on where the parts end") {
  CHECK(DiskCache::makeKey({"ab", "c"}) != DiskCache::makeKey({"a", "bc"}));
  CHECK(DiskCache::makeKey({"a", ""}) != DiskCache::makeKey({"a"}));
  CHECK(DiskCache::makeKey({"a"}) == DiskCache::makeKey({"a"}));
  CHECK(DiskCache::makeKey({"a"}).size() == 64);
}

TEST_CASE("every flipped byte and every truncation is a miss") {
  Directory directory;
  DiskCache cache(directory.path.string());
  REQUIRE(store(cache, "k", {"manifest", "object"}));
  const std::string whole = read(directory.entry("k"));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 0x40;
    write(directory.entry("k"), damaged);
    CHECK_FALSE(cache.lookup("k"));
    // What is damaged is removed, so that it is made anew.
    CHECK_FALSE(fs::exists(directory.entry("k")));
    write(directory.entry("k"), whole.substr(0, i));
    CHECK_FALSE(cache.lookup("k"));
  }
  write(directory.entry("k"), whole);
  CHECK(cache.lookup("k"));
}

TEST_CASE("a directory in the place of an entry is a miss") {
  Directory directory;
  DiskCache cache(directory.path.string());
  fs::create_directory(directory.entry("k"));
  CHECK_FALSE(cache.lookup("k"));
}

TEST_CASE("a cache that cannot be written reports it and misses") {
  Directory directory;
  write(directory.path / "file", "");
  DiskCache cache((directory.path / "file").string());
  CHECK_FALSE(store(cache, "k", {"part"}));
  CHECK_FALSE(cache.lookup("k"));
  CHECK(cache.list().empty());
  DiskCache none("");
  CHECK_FALSE(store(none, "k", {"part"}));
  CHECK_FALSE(none.lookup("k"));
}

TEST_CASE("the least recently used entries go") {
  Directory directory;
  const std::string part(1000, 'x');
  DiskCache cache(directory.path.string(), 3500);
  for (const char *key : {"a", "b", "c"})
    REQUIRE(store(cache, key, {part}));
  age(directory.entry("a"), 30);
  age(directory.entry("b"), 20);
  age(directory.entry("c"), 10);
  CHECK(cache.lookup("a")); // now the youngest
  REQUIRE(store(cache, "d", {part}));
  CHECK(cache.lookup("a"));
  CHECK_FALSE(cache.lookup("b"));
  CHECK(cache.lookup("c"));
  CHECK(cache.lookup("d"));

  std::vector<DiskCache::Item> items = cache.list();
  REQUIRE(items.size() == 3);
  CHECK(items[0].lastUse >= items[2].lastUse);
}

TEST_CASE("an entry above the limit pushes nothing out") {
  Directory directory;
  DiskCache cache(directory.path.string(), 2000);
  REQUIRE(store(cache, "a", {"small"}));
  REQUIRE(store(cache, "b", {std::string(5000, 'x')}));
  CHECK(cache.lookup("a"));
  CHECK_FALSE(cache.lookup("b"));
}

TEST_CASE("trim and clear say what they removed") {
  Directory directory;
  DiskCache cache(directory.path.string());
  for (const char *key : {"a", "b"})
    REQUIRE(store(cache, key, {std::string(1000, 'x')}));
  write(directory.path / "dead.tmp", "half an entry");
  write(directory.path / "alive.tmp", "half an entry");
  age(directory.path / "dead.tmp", 2 * 3600);
  write(directory.path / "mine.txt", "not of the cache");
  CHECK(cache.trim(DiskCache::defaultLimit).entries == 0);
  CHECK_FALSE(fs::exists(directory.path / "dead.tmp"));
  CHECK(cache.trim(1500).entries == 1);
  DiskCache::Removed removed = cache.clear();
  CHECK(removed.entries == 1);
  CHECK(removed.bytes > 1000);
  CHECK(cache.list().empty());
  CHECK(fs::exists(directory.path / "mine.txt"));
  CHECK(fs::exists(directory.path / "alive.tmp"));
}

TEST_CASE("processes that write, read and trim at once see whole entries") {
  Directory directory;
  constexpr int processes = 4, rounds = 100, keys = 3;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    pid_t child = ::fork();
    if (child == 0) {
      // Each content is one letter, so that a mixture would show.
      DiskCache cache(directory.path.string(), 100000);
      bool good = true;
      for (int i = 0; i < rounds; ++i) {
        std::string key = std::to_string(i % keys);
        std::string content(20000 + 1000 * p, static_cast<char>('a' + p));
        good &= store(cache, key, {content});
        if (auto entry = cache.lookup(key))
          good &= entry->parts.size() == 1 &&
                  entry->parts[0].find_first_not_of(entry->parts[0][0]) ==
                      llvm::StringRef::npos;
        if (i % 10 == p)
          cache.trim(30000);
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(directory.files() <= keys);
}
