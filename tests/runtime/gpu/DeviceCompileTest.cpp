//===- DeviceCompileTest.cpp - from source text to kernels on a GPU -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/device.h"
#include "runtime/tune/Problem.h"
#include "runtime/tune/TunedTable.h"
#include "tests/numerics/AttentionSteps.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {

/// An environment variable for as long as it lives.
class Variable {
public:
  Variable(const char *name, const std::string &value) : name(name) {
    if (const char *old = std::getenv(name))
      before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before)
      ::setenv(name, before->c_str(), 1);
    else
      ::unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> before;
};

/// A cache of its own for a test.
struct Cache {
  std::string path = [] {
    std::string name =
        (std::filesystem::temp_directory_path() / "ladle-XXXXXX").string();
    return std::string(::mkdtemp(name.data()));
  }();
  Variable variable{"LADLE_CACHE_DIR", path};
  ~Cache() { std::filesystem::remove_all(path); }
};

nlohmann::json manifestOf(const Program &program) {
  return nlohmann::json::parse(program.manifest());
}

} // namespace

TEST_CASE("the second process to ask for kernels compiles nothing") {
  if (!hasGpu())
    return;
  Cache cache;
  Program first = tinyProgram();
  int compilations = emulatedGpu() ? emulatedGpu()->compilations() : 0;
  Program second = tinyProgram();
  for (const nlohmann::json &kernel : manifestOf(first)["kernels"])
    CHECK(kernel["cached"] == false);
  for (const nlohmann::json &kernel : manifestOf(second)["kernels"])
    CHECK(kernel["cached"] == true);
  if (emulatedGpu())
    CHECK(emulatedGpu()->compilations() == compilations);
  CHECK(second.signature() == first.signature());
  CHECK(second.routes() == first.routes());
  // Other code for the CPU, from the same text and options.
  CHECK(manifestOf(tinyProgram("inner", "cpu"))["kernels"][0]["cached"] ==
        false);
}

TEST_CASE("the second process to ask for an attention compiles nothing") {
  if (!hasGpu())
    return;
  Cache cache;
  for (const char *name :
       {"exact_attention", "mac", "slake", "edge_infinite/edge_infinite"}) {
    CAPTURE(name);
    AttentionCompileOptions options;
    options.target = "cuda";
    options.preset = "small";
    auto compile = [&] {
      return need(compileAttention(readExample(name), name, options));
    };
    auto isCached = [](const AttentionProgram &program) {
      return nlohmann::json::parse(program.manifest())["cached"].get<bool>();
    };
    AttentionProgram first = compile();
    int compilations = emulatedGpu() ? emulatedGpu()->compilations() : 0;
    AttentionProgram second = compile();
    CHECK_FALSE(isCached(first));
    CHECK(isCached(second));
    if (emulatedGpu())
      CHECK(emulatedGpu()->compilations() == compilations);
    CHECK(second.signature() == first.signature());
    CHECK(nlohmann::json::parse(second.manifest())["target"] ==
          need(describeDevice()).arch);
    CHECK(attend(second, 12) == attend(first, 12));
    // Other code for the CPU, from the same text and options.
    options.target = "cpu";
    CHECK_FALSE(isCached(compile()));
  }
}

TEST_CASE("a manifest says what the kernels run on") {
  if (!hasGpu())
    return;
  nlohmann::json manifest = manifestOf(tinyProgram());
  DeviceInfo info = need(describeDevice());
  CHECK(manifest["target"] == info.arch);
  CHECK(manifest["device"] == info.name);
  CHECK(manifest["driver"] == info.driverVersion);
  CHECK(manifest["milliseconds"].get<double>() > 0);
  CHECK(manifest["context_milliseconds"].get<double>() > 0);
}

TEST_CASE("a target that is not there is an error, or the CPU") {
  if (!hasGpu())
    return;
  CompileOptions options;
  options.preset = "tiny";
  options.target = "gpu";
  const char *path = "examples/gated_delta_rule.ladle";
  CHECK(compileFile(path, options).message() ==
        "target is 'gpu', expected cpu, cuda or auto");
  {
    Variable absent("LADLE_CUDA", "/absent/libcuda.so");
    options.target = "cuda";
    Result<Program> program = compileFile(path, options);
    CHECK(program.status().code() == ErrorCode::NotFound);
    CHECK_THAT(program.message(), Contains("/absent/libcuda.so"));
    options.target = "auto";
    CHECK(need(compileFile(path, options)).device() == cpu);
  }
  Variable absent("LADLE_NVRTC", "/absent/libnvrtc.so");
  CHECK_THAT(manifestOf(need(compileFile(path, options)))["warnings"]
                 .get<std::string>(),
             Contains("kernels run on the CPU: no compiler for") &&
                 Contains("/absent/libnvrtc.so"));
}

TEST_CASE("auto is the GPU where there is one") {
  if (!hasGpu())
    return;
  CHECK(tinyProgram("inner", "auto").device() == gpu);
}

TEST_CASE("a GPU folds drafts where verifying wants it") {
  if (!hasGpu())
    return;
  CompileOptions options;
  options.target = "cuda";
  options.preset = "qwen3-next";
  options.batch = 256;
  options.drafts = 4;
  for (int64_t capacity : {68, 16}) {
    options.capacity = capacity;
    Result<Program> program =
        compileFile("examples/gated_delta_rule.ladle", options);
    REQUIRE(program);
    REQUIRE(program->route() == RouteKind::Inner);
    auto manifest = manifestOf(*program);
    int64_t m = manifest["fold_threshold"];
    CHECK(m > 1);
    CHECK(m <= capacity - options.drafts);
    for (const auto &route : manifest["routes"])
      if (route["route"] == "inner")
        CHECK(m == route["fold_threshold"]);
  }
}

TEST_CASE("what was tuned for a shape and a device is compiled") {
  if (!hasGpu())
    return;
  Cache cache;
  Variable folder("LADLE_TUNE_DIR", cache.path);
  CompileOptions options;
  options.target = "cuda";
  options.preset = "tiny";
  options.batch = 4;
  const char *path = "examples/gated_delta_rule.ladle";
  Result<Program> before = compileFile(path, options);
  REQUIRE(before);
  CHECK_FALSE(manifestOf(*before).contains("tuned"));

  tune::TunedChoice choice;
  choice.device = describeDevice()->name;
  choice.shape = tune::describe(before->signature());
  choice.entryType = options.entryType;
  choice.batch = 4;
  choice.candidate = {"outer", 3, {{"threads", 64}}};
  choice.date = "today";
  REQUIRE(tune::addToTable(tune::userTable(cache.path), choice));

  Result<Program> after = compileFile(path, options);
  REQUIRE(after);
  CHECK(after->route() == RouteKind::Outer);
  CHECK(manifestOf(*after)["tuned"]["choice"] == "outer m=3 threads=64");
  CHECK(manifestOf(*after)["fold_threshold"] == 3);
  CHECK(manifestOf(*after)["kernels"][0]["cached"] == false);
  // What verifies is tuned apart, by the number of drafts.
  options.drafts = 2;
  choice.drafts = 2;
  choice.candidate = {"inner", 5, {{"verify_threads", 128}}};
  REQUIRE(tune::addToTable(tune::userTable(cache.path), choice));
  Result<Program> verifies = compileFile(path, options);
  REQUIRE(verifies);
  CHECK(verifies->route() == RouteKind::Inner);
  CHECK(manifestOf(*verifies)["tuned_for_drafts"]["choice"] ==
        "inner m=5 verify_threads=128");
  CHECK(manifestOf(*verifies)["fold_threshold"] == 5);
  // A schedule of the caller's goes before it, and is other kernels.
  options.route = "inner";
  Result<Program> tunedInner = compileFile(path, options);
  REQUIRE(tunedInner);
  CHECK(manifestOf(*tunedInner)["kernels"][0]["cached"] == true);
  options.schedule = {{"verify_threads", 256}};
  Result<Program> scheduled = compileFile(path, options);
  REQUIRE(scheduled);
  CHECK(manifestOf(*scheduled)["kernels"][0]["cached"] == false);
  options.schedule = {{"warps", 4}};
  CHECK_THAT(compileFile(path, options).message(),
             Contains("schedule: kernels have no parameter 'warps'"));
  options.schedule.clear();
  options.drafts = 0;
  // A route that the caller has chosen stays.
  options.route = "recurrent";
  Result<Program> asked = compileFile(path, options);
  REQUIRE(asked);
  CHECK(asked->route() == RouteKind::Recurrent);
}
