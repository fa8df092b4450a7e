//===- ResourcesTest.cpp - what generated kernels take of a GPU -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/RegisterBounds.h"
#include "runtime/jit/GpuProgram.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>
#include <regex>

using namespace ladle;
using namespace ladle::jit;
using namespace ladle::test;

/// Static shared memory that a block may have on every architecture.
static constexpr int kSharedLimit = 48 << 10;

static void checkResources(const std::string &model, const std::string &arch,
                           const std::string &stateType = "",
                           const std::string &stateLayout = "dv_dk",
                           const GpuLayout &layout = {},
                           const std::string &route = "", int64_t drafts = 0,
                           int64_t page = 0, int64_t capacity = 16) {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  CAPTURE(model, arch, stateType, stateLayout);
  GpuRequest request;
  request.path = examplePath(model);
  request.stateType = stateType;
  request.stateLayout = stateLayout;
  request.layout = layout;
  request.route = route;
  request.capacity = capacity + drafts;
  request.drafts = drafts;
  request.page = page;
  request.answersShortRows = page && drafts;
  if (page)
    request.entryType = "bf16";
  if (drafts) {
    request.route = "inner";
    request.entryType = "bf16";
  }
  std::string messages;
  std::optional<GpuProgram> program = compileForGpu(request, messages);
  INFO(messages);
  REQUIRE(program);
  llvm::Expected<Cubin> cubin =
      compileWithinRegisters(*nvrtc, program->text, model + ".cu", {arch, {}});
  if (!cubin) {
    FAIL(llvm::toString(cubin.takeError()));
    return;
  }
  CHECK(cubin->kernels.size() >= (drafts                 ? 3
                                  : route.empty()        ? 4
                                  : route == "recurrent" ? 1
                                                         : 2));
  for (const KernelResources &kernel : cubin->kernels) {
    CAPTURE(kernel.name, kernel.registers);
    CHECK(!kernel.spills());
    // Kernels that verify may say that a few bytes cost less than a block.
    bool isVerify = kernel.name.find("_verify") != std::string::npos;
    CHECK(kernel.maySpill <= (isVerify ? 32 : 0));
    CHECK(kernel.spillLoads <= 2 * kernel.maySpill);
    CHECK(kernel.sharedBytes <= kSharedLimit);
  }
  if (!drafts)
    return;
  // Of a multiprocessor with 227 KiB.
  REQUIRE(program->verify);
  CHECK(program->verify->sharedBytes <= 113 << 10);
}

TEST_CASE("kernels that verify fit into registers", "[nvrtc]") {
  auto model =
      GENERATE(as<std::string>(), "gated_delta_net", "mamba2", "kda", "rwkv7");
  auto drafts = GENERATE(4, 8);
  auto states = GENERATE(as<std::string>(), "f32", "bf16");
  checkResources(model, "sm_90a", states, "dv_dk", {}, "", drafts);
}

TEST_CASE("kernels that verify take no more shared memory than there is") {
  auto [model, drafts, needsMore] = GENERATE(table<std::string, int64_t, bool>(
      {{"gated_delta_net", 8, false}, {"kda", 4, false}, {"kda", 8, true}}));
  GpuRequest request;
  request.path = examplePath(model);
  request.route = "inner";
  request.entryType = "bf16";
  request.capacity = 16 + drafts;
  request.drafts = drafts;
  auto sharedOf = [&](const std::string &arch) {
    int64_t bytes = jit::sharedBytesOf(arch);
    request.layout["shared"] = bytes;
    std::string messages;
    std::optional<GpuProgram> program = compileForGpu(request, messages);
    INFO(messages);
    REQUIRE(program);
    REQUIRE(program->verify);
    CHECK((bytes == 0 || program->verify->sharedBytes <= bytes));
    return program->verify->sharedBytes;
  };
  // All rows of a head where there is room.
  CHECK((sharedOf("sm_90a") > sharedOf("sm_120")) == needsMore);
  CHECK(sharedOf("sm_80") <= 163 << 10);
}

/// Threads take no more registers than others of the block give back: else they
/// wait forever.
static void checkTaken(const std::string &text, const KernelResources &kernel,
                       int64_t threads) {
  static const std::regex taken(R"(thread < \(unsigned\)(\d+)\) \{\s+)"
                                R"(set_registers<(\d+), true>)"),
      given(R"(set_registers<(\d+), false>)");
  std::smatch more, fewer;
  if (text.find("set_registers<") == std::string::npos)
    return;
  REQUIRE(std::regex_search(text, more, taken));
  REQUIRE(std::regex_search(text, fewer, given));
  int64_t ofRows = std::stoll(more[1]);
  CHECK(ofRows * std::stoll(more[2]) +
            (threads - ofRows) * std::stoll(fewer[1]) <=
        threads * kernel.registers);
}

/// The kernels that prefill alone.
static void checkPrefill(const std::string &model, const std::string &arch,
                         int64_t batch = 0) {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  CAPTURE(model, arch);
  GpuRequest request;
  request.path = examplePath(model);
  request.route = "inner";
  request.chunk = 64;
  request.layout = jit::fittingLayout({{"forms", 8}, {"batch", batch}}, arch);
  std::string messages;
  std::optional<GpuProgram> program = compileForGpu(request, messages);
  INFO(messages);
  REQUIRE(program);
  REQUIRE(program->prefill);
  // 0 stands for what Hopper has.
  int64_t ofArch = jit::sharedBytesOf(arch);
  CHECK(program->prefill->sharedBytes <= (ofArch ? ofArch : 227 << 10));
  llvm::Expected<Cubin> cubin =
      compileWithinRegisters(*nvrtc, program->text, model + ".cu", {arch, {}});
  if (!cubin) {
    FAIL(llvm::toString(cubin.takeError()));
    return;
  }
  REQUIRE(cubin->kernels.size() == (program->prepare ? 2 : 1));
  for (const KernelResources &kernel : cubin->kernels) {
    CAPTURE(kernel.name, kernel.registers);
    CHECK(!kernel.spills());
    if (kernel.name == program->prefill->name)
      checkTaken(program->text, kernel, program->prefill->threads);
    // Blocks of many threads may leave a few bytes in memory.
    CHECK(kernel.spillStores <= (arch == "sm_90a" ? 40 : 112));
  }
  if (!program->prepare)
    return;
  // Blocks of both find room in a multiprocessor of Hopper, which has as much
  // shared memory, and takes some of it for each.
  constexpr int64_t memory = 228 << 10, ofBlock = 1 << 10;
  int64_t beside = program->prepare->blocksBeside;
  CHECK(program->prefill->sharedBytes + ofBlock +
            beside * (program->prepare->sharedBytes + ofBlock) <=
        memory);
  int64_t registers = 0;
  for (const KernelResources &kernel : cubin->kernels)
    registers += kernel.registers * (kernel.name == program->prefill->name
                                         ? program->prefill->threads
                                         : beside * program->prepare->threads);
  CHECK(registers <= 64 << 10);
}

TEST_CASE("kernels that prefill fit into registers and memory", "[nvrtc]") {
  auto [model, arch] =
      GENERATE(table<std::string, std::string>({{"gated_delta_net", "sm_90a"},
                                                {"gated_delta_net", "sm_80"},
                                                {"gated_delta_net", "sm_100a"},
                                                {"gated_delta_net", "sm_120"},
                                                {"kda", "sm_90a"},
                                                {"kda", "sm_120"},
                                                {"mamba2", "sm_90a"},
                                                {"gla", "sm_90a"},
                                                {"gla", "sm_80"},
                                                {"retnet", "sm_90a"},
                                                {"delta_net", "sm_90a"},
                                                {"rwkv7_core", "sm_90a"},
                                                {"rwkv6", "sm_90a"},
                                                {"lightning", "sm_90a"},
                                                {"rwkv7", "sm_80"}}));
  checkPrefill(model, arch);
}

TEST_CASE("so do those that prefill one prompt", "[nvrtc]") {
  auto arch = GENERATE(as<std::string>(), "sm_90a", "sm_80", "sm_120");
  for (const char *model : {"gated_delta_net", "kda"})
    checkPrefill(model, arch, 1);
  if (arch == "sm_90a")
    for (const char *model : {"delta_net", "mamba2", "rwkv7_core", "gla",
                              "lightning", "mamba3", "gdn2", "retnet"})
      checkPrefill(model, arch, 1);
}

TEST_CASE("kernels over pages fit into registers", "[nvrtc]") {
  auto model = GENERATE(as<std::string>(), "gated_delta_net", "mamba2", "kda");
  auto arch = GENERATE(as<std::string>(), "sm_80", "sm_90a");
  checkResources(model, arch, "", "dv_dk", {}, "inner", 0, 8);
  checkResources(model, arch, "", "dv_dk", {}, "kv_only", 0, 16, 128);
}

TEST_CASE("and those over pages that verify rows of both kinds", "[nvrtc]") {
  auto [model, states] =
      GENERATE(table<std::string, std::string>({{"gated_delta_net", "f32"},
                                                {"gated_delta_net", "bf16"},
                                                {"mamba2", "f32"},
                                                {"kda", "bf16"},
                                                {"rwkv7", "bf16"}}));
  checkResources(model, "sm_90a", states, "dv_dk", {}, "inner", 4, 8, 20);
}

TEST_CASE("kernels of published shapes fit into registers", "[nvrtc]") {
  checkResources(GENERATE(as<std::string>(), "linear_attention", "retnet",
                          "lightning", "mamba2", "gla", "delta_net",
                          "gated_delta_net", "kda", "gdn2", "rwkv6", "rwkv7",
                          "mamba3", "short_conv", "coupled"),
                 "sm_90a");
  // Large, whatever the route.
  checkResources("mamba3_mimo", "sm_90a", "", "dv_dk", {}, "inner");
}

// Of each kind of write and of decays, one; routes take turns.
TEST_CASE("so do some of them elsewhere", "[nvrtc]") {
  auto [model, arch, route] =
      GENERATE(table<std::string, std::string, std::string>(
          {{"gla", "sm_80", "inner"},
           {"gla", "sm_120", "outer"},
           {"gla", "sm_120", "recurrent"},
           {"gated_delta_net", "sm_80", "outer"},
           {"gated_delta_net", "sm_80", "kv_only"},
           {"gated_delta_net", "sm_100a", "adjoint"},
           {"gated_delta_net", "sm_100a", "recurrent"},
           {"gated_delta_net", "sm_120", "inner"},
           {"rwkv7", "sm_120", "inner"},
           {"rwkv7", "sm_120", "adjoint"},
           {"rwkv7", "sm_120", "kv_only"}}));
  checkResources(model, arch, "", "dv_dk", {}, route);
}

TEST_CASE("so do those of short states", "[nvrtc]") {
  auto [model, states, route] =
      GENERATE(table<std::string, std::string, std::string>(
          {{"retnet", "bf16", "inner"},
           {"retnet", "bf16", "adjoint"},
           {"gla", "f16", "outer"},
           {"gla", "f16", "recurrent"},
           {"gated_delta_net", "bf16", "inner"},
           {"gated_delta_net", "bf16", "adjoint"},
           {"rwkv7", "bf16", "inner"},
           {"rwkv7", "bf16", "recurrent"},
           {"mamba3", "bf16", "outer"},
           {"mamba3", "bf16", "inner"},
           {"coupled", "bf16", "outer"},
           {"coupled", "bf16", "recurrent"}}));
  checkResources(model, "sm_90a", states, "dv_dk", {}, route);
}

TEST_CASE("and those that transpose their states", "[nvrtc]") {
  auto [model, states, route] =
      GENERATE(table<std::string, std::string, std::string>(
          {{"lightning", "f32", "inner"},
           {"lightning", "bf16", "recurrent"},
           {"lightning", "bf16", "adjoint"},
           {"gated_delta_net", "f32", "outer"},
           {"gated_delta_net", "f32", "recurrent"},
           {"gated_delta_net", "bf16", "inner"}}));
  checkResources(model, "sm_90a", states, "dk_dv", {}, route);
}

TEST_CASE("and those that copy tiles in parts", "[nvrtc]") {
  checkResources(GENERATE(as<std::string>(), "gated_delta_net", "kda"),
                 GENERATE(as<std::string>(), "sm_90a", "sm_80"),
                 GENERATE(as<std::string>(), "f32", "bf16"), "dv_dk",
                 {{"pieces", 2}, {"stages", 2}}, "inner");
}
