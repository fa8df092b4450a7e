//===- SafetensorsWriter.cpp - write tensors to a file --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/safetensors.h"
#include "runtime/Text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace ladle;
using nlohmann::json;

static std::string formatName(DType dtype) {
  std::string text(toString(dtype));
  std::transform(text.begin(), text.end(), text.begin(), [](char letter) {
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter;
  });
  return text;
}

/// A file under another name until it is complete.
namespace {
class PendingFile {
public:
  explicit PendingFile(const std::string &path)
      : path(path), pending(fmt::format("{}.{}.tmp", path, ::getpid())),
        file(std::fopen(pending.c_str(), "wb")) {}
  ~PendingFile() {
    if (file) {
      std::fclose(file);
      std::remove(pending.c_str());
    }
  }
  void write(const void *data, size_t bytes) {
    good = good && file &&
           (bytes == 0 || std::fwrite(data, 1, bytes, file) == bytes);
  }
  bool finish() {
    bool closed = file && std::fclose(std::exchange(file, nullptr)) == 0;
    good = good && closed && std::rename(pending.c_str(), path.c_str()) == 0;
    if (closed && !good)
      std::remove(pending.c_str());
    return good;
  }

private:
  const std::string &path;
  std::string pending;
  std::FILE *file;
  bool good = true;
};
} // namespace

Status Safetensors::write(const std::string &path,
                          const std::map<std::string, TensorView> &tensors,
                          const std::map<std::string, std::string> &metadata) {
  // Wide elements first, so that every tensor is aligned to its own.
  std::vector<std::pair<const std::string *, const TensorView *>> ordered;
  ordered.reserve(tensors.size());
  for (const auto &[name, tensor] : tensors)
    ordered.emplace_back(&name, &tensor);
  std::sort(ordered.begin(), ordered.end(), [](const auto &a, const auto &b) {
    int64_t sizeA = sizeInBytes(a.second->dtype);
    int64_t sizeB = sizeInBytes(b.second->dtype);
    return sizeA != sizeB ? sizeA > sizeB : *a.first < *b.first;
  });

  json header = json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  int64_t at = 0;
  for (auto [name, tensor] : ordered) {
    int64_t end = at + tensor->count() * sizeInBytes(tensor->dtype);
    header[*name] = {{"dtype", formatName(tensor->dtype)},
                     {"shape", tensor->shape},
                     {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/true,
                                 json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');

  PendingFile file(path);
  uint64_t length = text.size();
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  std::vector<char> dense;
  for (auto [name, tensor] : ordered) {
    dense.resize(
        static_cast<size_t>(tensor->count() * sizeInBytes(tensor->dtype)));
    Status status =
        copy(*tensor, TensorView::dense(dense, tensor->dtype, tensor->shape));
    if (!status)
      return status;
    file.write(dense.data(), dense.size());
  }
  if (!file.finish())
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("cannot write '{}': {}", path, strerror(errno)));
  return Status();
}
