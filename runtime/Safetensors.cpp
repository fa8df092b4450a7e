//===- Safetensors.cpp - read tensors from a file -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/safetensors.h"
#include "runtime/Text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ladle;
using nlohmann::json;

namespace {

/// The types of the format: the bits of an element, and ours if it is one.
struct ElementType {
  std::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};

constexpr ElementType elementTypes[] = {
    {"F32", 32, DType::F32}, {"BF16", 16, DType::BF16}, {"F16", 16, DType::F16},
    {"I32", 32, DType::I32}, {"I64", 64, DType::I64},   {"U8", 8, DType::U8},
    {"F64", 64, {}},         {"U64", 64, {}},           {"U32", 32, {}},
    {"I16", 16, {}},         {"U16", 16, {}},           {"I8", 8, {}},
    {"BOOL", 8, {}},         {"F8_E4M3", 8, {}},        {"F8_E5M2", 8, {}},
    {"C64", 64, {}},
};

const ElementType *findType(std::string_view name) {
  for (const ElementType &type : elementTypes)
    if (type.name == name)
      return &type;
  return nullptr;
}

constexpr int64_t lengthBytes = 8;
// The limit of the format, so that a damaged length cannot ask for all memory.
constexpr uint64_t maxHeaderBytes = 100'000'000;

/// A read-only mapping of a file.
class Mapping {
public:
  Mapping(void *data, int64_t size) : data(data), size(size) {}
  Mapping(Mapping &&other) noexcept
      : data(std::exchange(other.data, nullptr)), size(other.size) {}
  ~Mapping() {
    if (data)
      ::munmap(data, static_cast<size_t>(size));
  }
  char *bytes() const { return static_cast<char *>(data); }

  void *data;
  int64_t size;
};

/// Names the file in every message about it.
class Reader {
public:
  explicit Reader(const std::string &path) : path(path) {}

  Result<Mapping> map();
  /// Fills `entries` and `metadata` from the header, and checks them against
  /// the size of the file.
  Status readHeader(const Mapping &mapping);

  std::vector<Safetensors::Entry> entries;
  std::map<std::string, std::string> metadata;
  int64_t dataOffset = 0;

private:
  template <typename... Args>
  Status invalid(fmt::format_string<Args...> format, Args &&...args) {
    return Status(
        ErrorCode::InvalidData,
        fmt::format("'{}': {}", path,
                    fmt::format(format, std::forward<Args>(args)...)));
  }
  Status readMetadata(const json &value);
  Status readEntry(const std::string &name, const json &value);
  Status checkLayout(int64_t dataBytes);

  const std::string &path;
};

} // namespace

Result<Mapping> Reader::map() {
  auto failed = [&] {
    return Status(ErrorCode::NotFound,
                  fmt::format("cannot read '{}': {}", path, strerror(errno)));
  };
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return failed();
  struct stat info;
  bool isRegular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  if (!isRegular || info.st_size < lengthBytes) {
    ::close(file);
    if (!isRegular)
      return Status(ErrorCode::NotFound,
                    fmt::format("cannot read '{}': not a file", path));
    return invalid("{} bytes are too short for a safetensors file",
                   info.st_size);
  }
  void *data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                      MAP_PRIVATE, file, 0);
  int error = errno;
  ::close(file);
  errno = error;
  if (data == MAP_FAILED)
    return failed();
  return Mapping(data, info.st_size);
}

Status Reader::readHeader(const Mapping &mapping) {
  uint64_t headerBytes;
  std::memcpy(&headerBytes, mapping.data, sizeof(headerBytes));
  uint64_t rest = static_cast<uint64_t>(mapping.size - lengthBytes);
  if (headerBytes > maxHeaderBytes || headerBytes > rest)
    return invalid("the header claims {} bytes, the file has {} left",
                   headerBytes, rest);

  // The parser keeps the last of equal keys; a file that has them is damaged.
  std::set<std::string> names;
  std::optional<std::string> repeated;
  auto noteKeys = [&](int depth, json::parse_event_t event, json &parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second)
      repeated = parsed.get<std::string>();
    return true;
  };
  const char *begin = mapping.bytes() + lengthBytes;
  json header = json::parse(begin, begin + headerBytes, noteKeys,
                            /*allow_exceptions=*/false);
  if (!header.is_object())
    return invalid("the header is not a JSON object");
  if (repeated)
    return invalid("tensor '{}' appears twice", *repeated);
  for (const auto &[name, value] : header.items()) {
    Status status =
        name == "__metadata__" ? readMetadata(value) : readEntry(name, value);
    if (!status)
      return status;
  }
  dataOffset = lengthBytes + static_cast<int64_t>(headerBytes);
  return checkLayout(mapping.size - dataOffset);
}

Status Reader::readMetadata(const json &value) {
  if (!value.is_object())
    return invalid("'__metadata__' is not an object of strings");
  for (const auto &[key, text] : value.items()) {
    if (!text.is_string())
      return invalid("'__metadata__' has '{}', which is not a string", key);
    metadata[key] = text.get<std::string>();
  }
  return Status();
}

/// A number of the header that fits an offset.
static std::optional<int64_t> asSize(const json &value) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  return value.get<int64_t>();
}

Status Reader::readEntry(const std::string &name, const json &value) {
  if (!value.is_object() || !value.contains("dtype") ||
      !value["dtype"].is_string() || !value.contains("shape") ||
      !value["shape"].is_array() || !value.contains("data_offsets") ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2)
    return invalid("tensor '{}' needs a dtype, a shape and two data_offsets",
                   name);
  Safetensors::Entry entry;
  entry.name = name;
  entry.type = value["dtype"].get<std::string>();
  const ElementType *type = findType(entry.type);
  if (!type)
    return invalid("tensor '{}' has the unknown dtype '{}'", name, entry.type);

  int64_t bytes = type->bits / 8;
  bool overflow = false;
  for (const json &dimension : value["shape"]) {
    std::optional<int64_t> size = asSize(dimension);
    if (!size)
      return invalid(
          "tensor '{}' has a shape with '{}'", name,
          dimension.dump(-1, ' ', false, json::error_handler_t::replace));
    overflow |= __builtin_mul_overflow(bytes, *size, &bytes);
    entry.shape.push_back(*size);
  }
  if (overflow)
    return invalid("tensor '{}' is too large", name);

  std::optional<int64_t> begin = asSize(value["data_offsets"][0]);
  std::optional<int64_t> end = asSize(value["data_offsets"][1]);
  if (!begin || !end || *begin > *end)
    return invalid("tensor '{}' has data_offsets that are no range", name);
  if (*end - *begin != bytes)
    return invalid("tensor '{}' takes {} bytes as {} {}, its data_offsets "
                   "span {}",
                   name, bytes, entry.type, shapeText(entry.shape),
                   *end - *begin);
  entry.begin = *begin;
  entry.end = *end;
  entries.push_back(std::move(entry));
  return Status();
}

Status Reader::checkLayout(int64_t dataBytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Safetensors::Entry &a, const Safetensors::Entry &b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  int64_t at = 0;
  const Safetensors::Entry *before = nullptr;
  for (const Safetensors::Entry &entry : entries) {
    if (entry.end > dataBytes)
      return invalid("tensor '{}' ends at byte {} of {} bytes of data; the "
                     "file may be truncated",
                     entry.name, entry.end, dataBytes);
    if (entry.begin < at)
      return invalid("tensors '{}' and '{}' overlap", before->name, entry.name);
    if (entry.begin > at)
      return invalid("bytes {} to {} before tensor '{}' belong to no tensor",
                     at, entry.begin, entry.name);
    at = entry.end;
    before = &entry;
  }
  if (at != dataBytes)
    return invalid("{} bytes after the last tensor belong to no tensor",
                   dataBytes - at);
  return Status();
}

//===----------------------------------------------------------------------===//
// Safetensors
//===----------------------------------------------------------------------===//

struct Safetensors::Impl {
  std::string path;
  Mapping mapping;
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  int64_t dataOffset;

  const Entry *find(std::string_view name) const {
    for (const Entry &entry : entries)
      if (entry.name == name)
        return &entry;
    return nullptr;
  }
};

Result<Safetensors> Safetensors::open(const std::string &path) {
  Reader reader(path);
  Result<Mapping> mapping = reader.map();
  if (!mapping)
    return mapping.status();
  Status status = reader.readHeader(*mapping);
  if (!status)
    return status;
  return Safetensors(std::make_shared<const Impl>(
      Impl{path, std::move(*mapping), std::move(reader.entries),
           std::move(reader.metadata), reader.dataOffset}));
}

std::span<const Safetensors::Entry> Safetensors::entries() const {
  return impl->entries;
}

bool Safetensors::contains(std::string_view name) const {
  return impl->find(name) != nullptr;
}

const std::map<std::string, std::string> &Safetensors::metadata() const {
  return impl->metadata;
}

Result<TensorView> Safetensors::view(std::string_view name) const {
  const Entry *entry = impl->find(name);
  if (!entry)
    return Status(ErrorCode::NotFound,
                  fmt::format("'{}' has no tensor '{}'; it has {}", impl->path,
                              name, namesText(impl->entries)));
  std::optional<DType> dtype = findType(entry->type)->dtype;
  if (!dtype)
    return Status(ErrorCode::Unsupported,
                  fmt::format("tensor '{}' of '{}' is {}, wanted F32, BF16, "
                              "F16, I32, I64 or U8",
                              name, impl->path, entry->type));
  char *data = impl->mapping.bytes() + impl->dataOffset + entry->begin;
  if (reinterpret_cast<uintptr_t>(data) %
      static_cast<size_t>(sizeInBytes(*dtype)))
    return Status(ErrorCode::Unsupported,
                  fmt::format("tensor '{}' of '{}' starts at byte {} of the "
                              "file, which is not a multiple of its element",
                              name, impl->path,
                              impl->dataOffset + entry->begin));
  return TensorView::dense(data, *dtype, entry->shape);
}
