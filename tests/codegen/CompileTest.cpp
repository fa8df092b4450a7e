//===- CompileTest.cpp - from source text to running programs -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unistd.h>

using namespace ladle;
using Catch::Contains;

namespace {

const char *linearAttention = R"(
recurrence linear_attention(H, Dk, Dv) {
  preset "small" { H = 2, Dk = 16, Dv = 32 }
  token q[H, Dk], k[H, Dk], v[H, Dv] : f32
  state S[H, Dk, Dv] : f32
  S = write(S, k, v)
  out y[H, Dv] : f32 = read(S, q)
}
)";

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
  size_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path), {});
  }
  std::filesystem::path path;
};

Program compile(const char *text, const CompileOptions &options = {}) {
  Result<Program> program = compileSource(text, "test.ladle", options);
  INFO(program.message());
  REQUIRE(program.ok());
  return *program;
}

std::string messageOf(const char *text, const CompileOptions &options = {}) {
  return compileSource(text, "test.ladle", options).message();
}

nlohmann::json manifestOf(const Program &program) {
  return nlohmann::json::parse(program.manifest());
}

bool isCached(const Program &program) {
  const nlohmann::json manifest = manifestOf(program);
  for (const auto &kernel : manifest["kernels"])
    if (!kernel["cached"].get<bool>())
      return false;
  return true;
}

/// The answers to `tokens` tokens of one row.
std::vector<float> decodeTokens(const Program &program, int64_t tokens) {
  PoolOptions poolOptions;
  poolOptions.slots = 1;
  Result<Pool> pool = Pool::create(program, poolOptions);
  REQUIRE(pool.ok());
  std::vector<float> q(2 * 16), k(2 * 16), v(2 * 32), y(2 * 32), all;
  std::vector<int32_t> slots{0};
  std::vector<int64_t> keys{1, 2, 16}, values{1, 2, 32};
  auto view = [](std::vector<float> &data, const std::vector<int64_t> &shape) {
    return TensorView::dense(data, DType::F32, shape);
  };
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < q.size(); ++i)
      q[i] = 0.01f * static_cast<float>((i * 7 + t) % 13),
      k[i] = 0.02f * static_cast<float>((i * 5 + t) % 11);
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = 0.03f * static_cast<float>((i * 3 + t) % 17);
    StepArguments step;
    step.rows = 1;
    step.readSlots = slots;
    step.tensors = {{"q", view(q, keys)},
                    {"k", view(k, keys)},
                    {"v", view(v, values)},
                    {"y", view(y, values)}};
    Status status = decode(program, *pool, step);
    INFO(status.message());
    REQUIRE(status.ok());
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

} // namespace

TEST_CASE("every route decodes to the same answers") {
  Cache cache;
  CompileOptions options;
  options.capacity = 4;
  Result<std::vector<Program>> programs =
      compileAllRoutes(linearAttention, "test.ladle", options);
  INFO(programs.message());
  REQUIRE(programs.ok());
  REQUIRE(programs->size() == 5);
  std::vector<float> expected = decodeTokens(programs->front(), 11);
  for (const Program &program : *programs) {
    INFO(toString(program.route()));
    std::vector<float> actual = decodeTokens(program, 11);
    for (size_t i = 0; i < expected.size(); ++i)
      REQUIRE(actual[i] == Approx(expected[i]).epsilon(1e-5));
  }
}

TEST_CASE("the second compilation comes from the cache and is the same") {
  Cache cache;
  Program first = compile(linearAttention);
  CHECK_FALSE(isCached(first));
  CHECK(cache.entries() == 2); // the plan and one route
  Program second = compile(linearAttention);
  CHECK(isCached(second));
  CHECK(second.signature() == first.signature());
  CHECK(second.route() == first.route());
  CHECK(second.headGroup() == first.headGroup());
  CHECK(decodeTokens(second, 5) == decodeTokens(first, 5));
}

TEST_CASE("whatever changes the code changes the entry") {
  Cache cache;
  CompileOptions options;
  options.route = "inner";
  compile(linearAttention, options);
  CHECK(isCached(compile(linearAttention, options)));
  CompileOptions sizes = options, capacity = options, types = options;
  sizes.sizes["Dk"] = 32;
  CHECK_FALSE(isCached(compile(linearAttention, sizes)));
  capacity.capacity = 8;
  CHECK_FALSE(isCached(compile(linearAttention, capacity)));
  types.stateType = "bf16";
  CompileOptions layout = options;
  layout.stateLayout = "dk_dv";
  CHECK_FALSE(isCached(compile(linearAttention, layout)));
  CHECK_FALSE(isCached(compile(linearAttention, types)));
  // The batch only matters to the choice of a route.
  options.batch = 3;
  CHECK(isCached(compile(linearAttention, options)));
}

TEST_CASE("damaged entries are compiled anew") {
  Cache cache;
  compile(linearAttention);
  for (const auto &file : std::filesystem::directory_iterator(cache.path))
    std::filesystem::resize_file(file, 100);
  CHECK_FALSE(isCached(compile(linearAttention)));
  CHECK(isCached(compile(linearAttention)));
}

TEST_CASE("without the cache nothing is written") {
  Cache cache;
  CompileOptions options;
  options.useDiskCache = false;
  CHECK_FALSE(isCached(compile(linearAttention, options)));
  CHECK_FALSE(isCached(compile(linearAttention, options)));
  CHECK(cache.entries() == 0);
}

TEST_CASE("the manifest says what was chosen and what it costs") {
  Cache cache;
  Program program = compile(linearAttention);
  nlohmann::json manifest = manifestOf(program);
  CHECK(manifest["route"] == std::string(toString(program.route())));
  CHECK(manifest["fold_threshold"].get<int64_t>() >= 1);
  CHECK(manifest["routes"].size() == 5);
  for (const auto &route : manifest["routes"]) {
    CHECK(route["bytes"].get<double>() > 0);
    CHECK(route["seconds"].get<double>() > 0);
  }
}

TEST_CASE("kv_only comes with the route that takes over after a fold") {
  Cache cache;
  CompileOptions options;
  options.route = "kv_only";
  Program program = compile(linearAttention, options);
  CHECK(program.routes().size() == 2);
  CHECK(program.withRoute(RouteKind::Inner).ok());
}

TEST_CASE("routes that cache the same entries share a program") {
  Cache cache;
  CompileOptions options;
  options.route = "inner";
  options.extraRoutes = {"recurrent", "outer"};
  CHECK(compile(linearAttention, options).routes().size() == 3);
}

TEST_CASE("errors come back with the line and a caret") {
  std::string message = messageOf(R"(recurrence r(H) {
  preset "small" { H = 2 }
  token q[H, D] : f32
})");
  CHECK_THAT(message, Contains("test.ladle:3:"));
  CHECK_THAT(message, Contains("token q[H, D] : f32"));
  CHECK_THAT(message, Contains("^"));
  CHECK(compileSource("", "empty.ladle", {}).status().code() ==
        ErrorCode::InvalidArgument);
}

TEST_CASE("a sequence moves between pools of both layouts") {
  CompileOptions options;
  options.useDiskCache = false;
  options.route = "inner";
  Program rows = compile(linearAttention, options);
  options.stateLayout = "dk_dv";
  Program columns = compile(linearAttention, options);
  CHECK(manifestOf(columns)["state_layout"] == "dk_dv");
  const StateSpec &spec = columns.signature().states[0];
  REQUIRE(spec.keySize != spec.valueSize);
  PoolOptions one;
  one.slots = 1;
  Pool from = *Pool::create(rows, one), to = *Pool::create(columns, one);
  SlotContents contents = *from.exportSlot(rows, 0);
  SlotContents::Item &item = contents.states[0];
  REQUIRE(item.shape == std::vector{spec.heads, spec.valueSize, spec.keySize});
  auto *numbers = reinterpret_cast<float *>(item.data.data());
  for (int64_t i = 0; i < item.view().count(); ++i)
    numbers[i] = static_cast<float>(i);
  REQUIRE(to.importSlot(0, contents).ok());
  std::vector<float> stored = *toFloats((*to.state("S"))[0]);
  for (int64_t h = 0; h < spec.heads; ++h)
    for (int64_t k = 0; k < spec.keySize; ++k)
      for (int64_t v = 0; v < spec.valueSize; ++v)
        REQUIRE(stored[(h * spec.keySize + k) * spec.valueSize + v] ==
                numbers[(h * spec.valueSize + v) * spec.keySize + k]);
  CHECK(to.exportSlot(columns, 0)->states[0].data == item.data);
  // A pool is of one layout.
  CHECK_THAT(Decoder::create(rows, to).message(),
             Contains("has 'S' dk_dv, the program wants it dv_dk"));
}

TEST_CASE("options out of range are named") {
  CompileOptions options;
  options.capacity = 0;
  CHECK_THAT(messageOf(linearAttention, options),
             Contains("capacity is 0, expected at least 1 entry"));
  options = {};
  options.route = "sideways";
  CHECK_THAT(messageOf(linearAttention, options), Contains("'sideways'"));
  options = {};
  options.entryType = "f8";
  CHECK_THAT(messageOf(linearAttention, options), Contains("'f8'"));
  options = {};
  options.stateLayout = "kv";
  CHECK_THAT(messageOf(linearAttention, options),
             Contains("stateLayout is 'kv', expected dv_dk or dk_dv"));
  options = {};
  options.batch = 0;
  CHECK_THAT(messageOf(linearAttention, options), Contains("batch is 0"));
  options = {};
  options.sizes["Dz"] = 3;
  CHECK_THAT(messageOf(linearAttention, options), Contains("Dz"));
}

TEST_CASE("a file that is not there is named") {
  Result<Program> program = compileFile("/nowhere/at/all.ladle");
  CHECK(program.status().code() == ErrorCode::NotFound);
  CHECK_THAT(program.message(), Contains("/nowhere/at/all.ladle"));
}

TEST_CASE("an engine asks for thresholds whatever the route") {
  Cache cache;
  CompileOptions options;
  options.route = "recurrent";
  Program program = compile(linearAttention, options);
  Result<Cursors> cursors = Cursors::create(
      program, {.slots = 2, .foldThreshold = 5, .crossover = 9});
  INFO(cursors.message());
  REQUIRE(cursors.ok());
  CHECK(cursors->setFoldThreshold(2).ok());
  CHECK(cursors->setCrossover(3).ok());
  CHECK(cursors->foldThreshold() == 0);
  CHECK(cursors->setFoldThreshold(-1).message() ==
        "foldThreshold is -1, wanted 0 at least");
}
