//===- CompileAttentionTest.cpp - attentions in the cache on disk ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/AttentionSteps.h"
#include "tests/numerics/Examples.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace ladle;
using namespace ladle::test;

namespace {

/// A cache of its own for each test.
class Cache {
public:
  Cache() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ladle-XXXXXX").string();
    path = ::mkdtemp(name.data());
    ::setenv("LADLE_CACHE_DIR", path.c_str(), 1);
  }
  ~Cache() {
    ::unsetenv("LADLE_CACHE_DIR");
    std::filesystem::remove_all(path);
  }
  std::filesystem::path path;
};

AttentionProgram compile(const std::string &name,
                         const AttentionCompileOptions &options = {}) {
  Result<AttentionProgram> program =
      compileAttention(readExample(name), name, options);
  INFO(program.message());
  REQUIRE(program.ok());
  return *program;
}

bool isCached(const AttentionProgram &program) {
  return nlohmann::json::parse(program.manifest())["cached"].get<bool>();
}

AttentionCompileOptions small() {
  AttentionCompileOptions options;
  options.preset = "small";
  return options;
}

} // namespace

TEST_CASE("the second compilation of an attention comes from the cache") {
  Cache cache;
  for (const char *name : {"exact_attention", "mac", "slake", "h2o",
                           "edge_infinite/edge_infinite"}) {
    CAPTURE(name);
    AttentionCompileOptions options = small();
    AttentionProgram first = compile(name, options);
    CHECK_FALSE(isCached(first));
    AttentionProgram second = compile(name, options);
    CHECK(isCached(second));
    CHECK(second.signature() == first.signature());
    CHECK(second.settings() == first.settings());
    CHECK(second.pageSize() == first.pageSize());
    CHECK(second.capacity() == first.capacity());
    CHECK(second.slotBytes() == first.slotBytes());
    CHECK(second.reuses() == first.reuses());
    CHECK(second.segments() == first.segments());
    CHECK(attend(second, 40) == attend(first, 40));
  }
}

TEST_CASE("whatever changes an attention changes its entry") {
  Cache cache;
  AttentionCompileOptions options = small();
  compile("mac", options);
  CHECK(isCached(compile("mac", options)));
  auto isNew = [&](auto &&change) {
    AttentionCompileOptions other = options;
    change(other);
    return !isCached(compile("mac", other)) && isCached(compile("mac", other));
  };
  CHECK(isNew([](auto &one) { one.sizes["D"] = 32; }));
  CHECK(isNew([](auto &one) { one.options["band"] = 7; }));
  CHECK(isNew([](auto &one) { one.summaryType = "bf16"; }));
  CHECK(isNew([](auto &one) { one.pageSize = 8; }));
  CHECK(isNew([](auto &one) { one.tokenTypes["o"] = "f32"; }));
  // A file by another name is the same file.
  Result<AttentionProgram> renamed =
      compileAttention(readExample("mac"), "other", options);
  REQUIRE(renamed.ok());
  CHECK(isCached(*renamed));
}

TEST_CASE("segments that are given are part of the entry") {
  Cache cache;
  std::string name = "edge_infinite/edge_infinite";
  AttentionCompileOptions options = small(), shorter = options;
  shorter.segments = SegmentSettings{.sinks = 2, .window = 4, .segment = 8};
  compile(name, options);
  CHECK_FALSE(isCached(compile(name, shorter)));
  CHECK(compile(name, shorter).segments() == *shorter.segments);
  CHECK(isCached(compile(name, shorter)));
}

TEST_CASE("a damaged entry of an attention is compiled anew") {
  Cache cache;
  AttentionCompileOptions options = small();
  compile("mac", options);
  for (const auto &file : std::filesystem::directory_iterator(cache.path))
    std::filesystem::resize_file(file, 100);
  CHECK_FALSE(isCached(compile("mac", options)));
  CHECK(isCached(compile("mac", options)));
  options.useDiskCache = false;
  CHECK_FALSE(isCached(compile("mac", options)));
}
