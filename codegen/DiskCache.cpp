//===- DiskCache.cpp - compiled programs between processes ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <limits>

#include <unistd.h>

using namespace ladle;
namespace fs = llvm::sys::fs;

// An entry is
//
//   8 bytes   magic, with the version of this format
//   32 bytes  SHA-256 of what follows
//   8 bytes   number of parts
//   then, for each part, 8 bytes of length and the part, padded to 8 bytes
//
// in little endian.
static constexpr llvm::StringLiteral kMagic = "ladle/1\n";
static constexpr llvm::StringLiteral kSuffix = ".ladle";
static constexpr size_t kHashSize = 32;
static constexpr size_t kHeaderSize = 8 + kHashSize;
/// A temporary file of this age has no writer any more.
static constexpr std::chrono::hours kStaleAge(1);

static void appendNumber(std::string &text, uint64_t number) {
  char bytes[8];
  llvm::support::endian::write64le(bytes, number);
  text.append(bytes, 8);
}

static std::string hash(llvm::StringRef text) {
  auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(text));
  return std::string(digest.begin(), digest.end());
}

static std::string serialize(llvm::ArrayRef<llvm::StringRef> parts) {
  std::string payload;
  appendNumber(payload, parts.size());
  for (llvm::StringRef part : parts) {
    appendNumber(payload, part.size());
    payload += part;
    payload.resize(llvm::alignTo(payload.size(), 8));
  }
  return (kMagic + hash(payload) + payload).str();
}

/// Nothing if the bytes are not an entry, whatever they are.
static std::optional<std::vector<llvm::StringRef>>
deserialize(llvm::StringRef bytes) {
  if (bytes.size() < kHeaderSize + 8 || !bytes.starts_with(kMagic))
    return std::nullopt;
  llvm::StringRef expected = bytes.substr(kMagic.size(), kHashSize);
  llvm::StringRef rest = bytes.substr(kHeaderSize);
  if (hash(rest) != expected)
    return std::nullopt;

  auto takeNumber = [&]() -> std::optional<uint64_t> {
    if (rest.size() < 8)
      return std::nullopt;
    uint64_t number = llvm::support::endian::read64le(rest.data());
    rest = rest.drop_front(8);
    return number;
  };
  std::optional<uint64_t> count = takeNumber();
  std::vector<llvm::StringRef> parts;
  for (uint64_t i = 0; count && i < *count; ++i) {
    std::optional<uint64_t> length = takeNumber();
    if (!length || *length > rest.size())
      return std::nullopt;
    parts.push_back(rest.take_front(*length));
    rest = rest.drop_front(
        std::min<uint64_t>(llvm::alignTo(*length, 8), rest.size()));
  }
  return parts;
}

DiskCache::DiskCache(std::string directory, uint64_t limit)
    : directory(std::move(directory)), limit(limit) {}

DiskCache DiskCache::openDefault() {
  auto variable = [](const char *name) {
    return llvm::sys::Process::GetEnv(name).value_or("");
  };
  uint64_t limit = defaultLimit;
  llvm::StringRef(variable("LADLE_CACHE_LIMIT")).getAsInteger(10, limit);

  llvm::SmallString<128> path(variable("LADLE_CACHE_DIR"));
  if (!path.empty())
    return DiskCache(path.str().str(), limit);
  path = variable("XDG_CACHE_HOME");
  // The specification of these variables says to ignore relative paths.
  if (!llvm::sys::path::is_absolute(path)) {
    path.clear();
    if (!llvm::sys::path::home_directory(path))
      return DiskCache("", limit);
    llvm::sys::path::append(path, ".cache");
  }
  llvm::sys::path::append(path, "ladle");
  return DiskCache(path.str().str(), limit);
}

std::string DiskCache::makeKey(llvm::ArrayRef<llvm::StringRef> parts) {
  return llvm::toHex(hash(serialize(parts)), /*LowerCase=*/true);
}

std::string DiskCache::pathOf(llvm::StringRef key) const {
  llvm::SmallString<128> path(directory);
  llvm::sys::path::append(path, key + kSuffix);
  return path.str().str();
}

std::optional<DiskCache::Entry> DiskCache::lookup(llvm::StringRef key) const {
  if (directory.empty())
    return std::nullopt;
  std::string path = pathOf(key);
  int descriptor;
  if (fs::openFileForRead(path, descriptor))
    return std::nullopt;
  fs::file_t file = fs::convertFDToNativeFile(descriptor);
  llvm::scope_exit close([&] { (void)fs::closeFile(file); });

  fs::file_status status;
  if (fs::status(descriptor, status) ||
      (status.getUser() != ::geteuid() && status.getUser() != 0))
    return std::nullopt;
  auto memory = llvm::MemoryBuffer::getOpenFile(
      file, path, status.getSize(), /*RequiresNullTerminator=*/false);
  if (!memory)
    return std::nullopt;
  auto parts = deserialize((*memory)->getBuffer());
  if (!parts) {
    (void)fs::remove(path);
    return std::nullopt;
  }
  // The time of the last use decides what is trimmed. Access times would do
  // the same if file systems were not mounted without them.
  (void)fs::setLastAccessAndModificationTime(descriptor,
                                             std::chrono::system_clock::now());
  return Entry{std::move(*parts), std::move(*memory)};
}

/// Whether the files that this process has written since it last said so may
/// have filled a cache. To list a large one takes longer than to compile a
/// small kernel.
static bool mayBeFull(uint64_t bytes, uint64_t limit) {
  constexpr uint64_t kShare = 64;
  static std::atomic<uint64_t> written = std::numeric_limits<uint32_t>::max();
  if (written.fetch_add(bytes) + bytes < limit / kShare)
    return false;
  written = 0;
  return true;
}

llvm::Error DiskCache::store(llvm::StringRef key,
                             llvm::ArrayRef<llvm::StringRef> parts) const {
  if (directory.empty())
    return llvm::createStringError("there is no directory for a cache");
  if (std::error_code code =
          fs::create_directories(directory, true, fs::owner_all))
    return llvm::createFileError(directory, code);
  std::string bytes = serialize(parts);
  // Larger than everything that fits: it would only push the others out.
  if (bytes.size() > limit)
    return llvm::Error::success();

  // Renaming replaces a file at once, so that readers see the old or the new.
  int descriptor;
  llvm::SmallString<128> temporary;
  if (std::error_code code = fs::createUniqueFile(
          directory + "/%%%%%%%%%%%%.tmp", descriptor, temporary, fs::OF_None,
          fs::owner_read | fs::owner_write))
    return llvm::createFileError(directory, code);
  llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
  stream << bytes;
  stream.close();
  std::error_code code = stream.error();
  stream.clear_error();
  if (!code)
    code = fs::rename(temporary, pathOf(key));
  if (code) {
    (void)fs::remove(temporary);
    return llvm::createFileError(temporary, code);
  }
  if (mayBeFull(bytes.size(), limit))
    trim(limit);
  return llvm::Error::success();
}

std::vector<DiskCache::Item> DiskCache::list() const {
  std::vector<Item> items;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; it != end && !code;
       it.increment(code)) {
    llvm::StringRef name = llvm::sys::path::filename(it->path());
    auto status = it->status();
    // Another process may have removed it just now.
    if (!status || !name.consume_back(kSuffix))
      continue;
    items.push_back(
        {name.str(), status->getSize(), status->getLastModificationTime()});
  }
  llvm::sort(items, [](const Item &a, const Item &b) {
    return std::tie(b.lastUse, a.key) < std::tie(a.lastUse, b.key);
  });
  return items;
}

DiskCache::Removed DiskCache::trim(uint64_t limit) const {
  Removed removed;
  if (directory.empty())
    return removed;
  uint64_t kept = 0;
  for (const Item &item : list()) {
    kept += item.bytes;
    // Somebody else may have been faster.
    if (kept <= limit || fs::remove(pathOf(item.key), false))
      continue;
    ++removed.entries;
    removed.bytes += item.bytes;
  }

  std::error_code code;
  auto now = std::chrono::system_clock::now();
  for (fs::directory_iterator it(directory, code), end; it != end && !code;
       it.increment(code)) {
    auto status = it->status();
    if (status && llvm::StringRef(it->path()).ends_with(".tmp") &&
        now - status->getLastModificationTime() > kStaleAge)
      (void)fs::remove(it->path());
  }
  return removed;
}
