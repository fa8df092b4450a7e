//===- SafetensorsTest.cpp - files that are right and files that are not --===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/safetensors.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <unistd.h>

using namespace ladle;
using Catch::Matchers::Contains;

namespace {

/// A file with these bytes, for the length of a test.
class TemporaryFile {
public:
  explicit TemporaryFile(const std::string &bytes = "")
      : path("/tmp/ladle-safetensors-" + std::to_string(::getpid())) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
  const std::string path;
};

/// The bytes of a file with this header and `dataBytes` bytes of data.
std::string fileWith(const std::string &header, size_t dataBytes) {
  uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(dataBytes, 'x');
}

/// Checks that a file is refused with `message`.
void checkRefused(const std::string &bytes, const std::string &message) {
  TemporaryFile file(bytes);
  Result<Safetensors> opened = Safetensors::open(file.path);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().code() == ErrorCode::InvalidData);
  CHECK_THAT(opened.message(), Contains(file.path) && Contains(message));
}

const std::string oneTensor =
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

} // namespace

TEST_CASE("a written file reads back") {
  std::vector<float> floats{1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> bytes{7, 8, 9};
  TensorView whole = TensorView::dense(floats, DType::F32, {2, 3});
  TemporaryFile file;
  REQUIRE(Safetensors::write(
      file.path,
      {{"b", TensorView::dense(bytes, DType::U8, {3})},
       {"strided", whole.slice(1, 1, 3)},
       {"empty", TensorView::dense(nullptr, DType::BF16, {0, 4})}},
      {{"made", "by \"hand\""}}));
  Result<Safetensors> read = Safetensors::open(file.path);
  INFO(read.message());
  REQUIRE(read.ok());
  CHECK(read->entries().size() == 3);
  CHECK(read->metadata().at("made") == "by \"hand\"");
  CHECK(*toFloats(*read->view("strided")) == std::vector<float>{2, 3, 5, 6});
  CHECK(read->view("b")->dtype == DType::U8);
  CHECK(read->view("empty")->shape == std::vector<int64_t>{0, 4});
}

TEST_CASE("the trace among the examples opens") {
  Result<Safetensors> trace =
      Safetensors::open("examples/data/tinylm-gdn-doc1-layer5.safetensors");
  INFO(trace.message());
  REQUIRE(trace.ok());
  CHECK(toString(*trace->view("q")) == "bf16 [2048, 2, 64]");
  CHECK(toString(*trace->view("positions")) == "i32 [64]");
}

TEST_CASE("a view outlives the file it was opened as") {
  TemporaryFile file(fileWith(oneTensor + "   ", 24));
  std::optional<Safetensors> copied;
  copied.emplace(*Safetensors::open(file.path));
  CHECK(copied->view("a")->count() == 6);
}

TEST_CASE("a tensor that is not there is named with those that are") {
  TemporaryFile file(fileWith(oneTensor, 24));
  Safetensors opened = *Safetensors::open(file.path);
  CHECK_FALSE(opened.contains("b"));
  Result<TensorView> view = opened.view("b");
  CHECK(view.status().code() == ErrorCode::NotFound);
  CHECK_THAT(view.message(), Contains("has no tensor 'b'; it has 'a'"));
}

TEST_CASE("a type that Ladle does not have opens but has no view") {
  TemporaryFile file(
      fileWith(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8));
  Result<Safetensors> opened = Safetensors::open(file.path);
  REQUIRE(opened.ok());
  CHECK_THAT(opened->view("a").message(), Contains("is F64, wanted F32"));
}

TEST_CASE("a misaligned tensor has no view") {
  TemporaryFile file(fileWith(oneTensor + " ", 24));
  Result<Safetensors> opened = Safetensors::open(file.path);
  REQUIRE(opened.ok());
  REQUIRE((8 + oneTensor.size() + 1) % 4 != 0);
  CHECK(opened->view("a").status().code() == ErrorCode::Unsupported);
}

TEST_CASE("a file that cannot be read is not found") {
  for (const char *path : {"/nowhere/trace.safetensors", "/tmp"}) {
    Result<Safetensors> opened = Safetensors::open(path);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.status().code() == ErrorCode::NotFound);
    CHECK_THAT(opened.message(), Contains(path));
  }
}

TEST_CASE("a file cut at any byte is refused") {
  std::string bytes = fileWith(oneTensor, 24);
  for (size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    TemporaryFile file(bytes.substr(0, size));
    CHECK(Safetensors::open(file.path).status().code() ==
          ErrorCode::InvalidData);
  }
}

TEST_CASE("a header length beyond the file is refused") {
  checkRefused(std::string(7, '\1') + std::string(20, ' '),
               "the header claims");
  checkRefused(std::string(8, '\xff') + "{}", "the header claims");
}

TEST_CASE("a header that is no JSON object is refused") {
  for (const char *header : {"", "{", "[]", "3", "{\"a\":}", "\xff\xfe{}",
                             "{} {}", "null", "{\"a\\ud800\":1}"}) {
    CAPTURE(header);
    checkRefused(fileWith(header, 0), "");
  }
  checkRefused(fileWith(std::string(100'000, '['), 0),
               "the header is not a JSON object");
}

TEST_CASE("a name that appears twice is refused") {
  checkRefused(
      fileWith(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
               2),
      "tensor 'a' appears twice");
}

TEST_CASE("an entry of another form is refused") {
  for (const char *entry :
       {"1", "[]", "{}", R"({"dtype":"U8"})",
        R"({"dtype":1,"shape":[1],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[0]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":{"0":1,"1":1}})"}) {
    CAPTURE(entry);
    checkRefused(fileWith("{\"a\":" + std::string(entry) + "}", 1),
                 "tensor 'a' needs a dtype, a shape and two data_offsets");
  }
}

TEST_CASE("shapes and offsets that are no sizes are refused") {
  auto header = [](const char *shape, const char *offsets) {
    return R"({"a":{"dtype":"U8","shape":)" + std::string(shape) +
           R"(,"data_offsets":)" + offsets + "}}";
  };
  for (const char *shape : {"[-1]", "[1.5]", "[\"1\"]", "[[1]]", "[null]",
                            "[99999999999999999999]", "[{\"\xc3\":1}]"})
    checkRefused(fileWith(header(shape, "[0,1]"), 1), "");
  for (const char *offsets : {"[1,0]", "[-1,0]", "[0,1e3]", "[null,1]"})
    checkRefused(fileWith(header("[1]", offsets), 1),
                 "tensor 'a' has data_offsets that are no range");
  checkRefused(fileWith(header("[4294967296,4294967296]", "[0,1]"), 1),
               "tensor 'a' is too large");
}

TEST_CASE("a size that does not match the shape is refused") {
  checkRefused(
      fileWith(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})",
               20),
      "tensor 'a' takes 24 bytes as F32 [2, 3], its data_offsets span 20");
}

TEST_CASE("an unknown type is refused") {
  checkRefused(
      fileWith(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4),
      "tensor 'a' has the unknown dtype 'f32'");
}

TEST_CASE("tensors that overlap, leave holes or end outside are refused") {
  auto header = [](const char *second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
           R"("b":{"dtype":"U8","shape":[2],"data_offsets":)" +
           std::string(second) + "}}";
  };
  checkRefused(fileWith(header("[1,3]"), 3), "tensors 'a' and 'b' overlap");
  checkRefused(fileWith(header("[3,5]"), 5),
               "bytes 2 to 3 before tensor 'b' belong to no tensor");
  checkRefused(fileWith(header("[2,4]"), 3),
               "tensor 'b' ends at byte 4 of 3 bytes of data");
  checkRefused(fileWith(header("[2,4]"), 6),
               "2 bytes after the last tensor belong to no tensor");
}

TEST_CASE("metadata that is not strings is refused") {
  checkRefused(fileWith(R"({"__metadata__":[]})", 0), "'__metadata__'");
  checkRefused(fileWith(R"({"__metadata__":{"a":1}})", 0),
               "'__metadata__' has 'a', which is not a string");
}

TEST_CASE("a file that cannot be written is an error") {
  CHECK_THAT(Safetensors::write("/nowhere/a.safetensors", {}).message(),
             Contains("cannot write '/nowhere/a.safetensors'"));
}
