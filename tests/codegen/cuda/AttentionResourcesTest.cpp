//===- AttentionResourcesTest.cpp - what attention kernels take -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/RegisterBounds.h"
#include "frontend/Frontend.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines.h"
#include "runtime/jit/AttentionDiagnostics.h"
#include "runtime/jit/Cursors.h"
#include "runtime/jit/GpuAttention.h"
#include "runtime/jit/GpuLayout.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;

/// That a text has so many kernels, none of which spills. Gives their PTX.
static std::string checkCubin(const Nvrtc &nvrtc, llvm::StringRef text,
                              const std::string &name, const std::string &arch,
                              size_t kernels, bool splits) {
  llvm::Expected<Cubin> cubin =
      compileWithinRegisters(nvrtc, text, name + ".cu", {arch, {}, splits});
  if (!cubin) {
    FAIL(llvm::toString(cubin.takeError()));
    return "";
  }
  CHECK(cubin->kernels.size() == kernels);
  for (const KernelResources &kernel : cubin->kernels) {
    CAPTURE(kernel.name, kernel.registers);
    CHECK(kernel.spillStores + kernel.spillLoads == 0);
    CHECK(kernel.stackBytes == 0);
    // As many as leave room for blocks beside those of `_few`.
    constexpr int besideFew = 102;
    if (llvm::StringRef(kernel.name).ends_with("_finish_slices"))
      CHECK(kernel.registers <= besideFew);
  }
  return cubin->ptx;
}

/// That PTX says of nothing that a kernel reads behind a wait for the one ahead
/// that nobody writes it: such loads move above the wait.
static void checkWaits(llvm::StringRef ptx) {
  llvm::SmallVector<llvm::StringRef> kernels;
  ptx.split(kernels, ".visible .entry ");
  int64_t waiting = 0;
  for (llvm::StringRef kernel : llvm::drop_begin(kernels)) {
    auto [before, behind] = kernel.split("griddepcontrol.wait;");
    CAPTURE(kernel.take_until([](char c) { return c == '('; }).str());
    CHECK(!behind.contains("ld.global.nc"));
    waiting += !behind.empty();
  }
  CHECK(waiting > 0);
}

/// Kernels of a file for a device, none of which spills.
static std::vector<jit::GpuAttentionStep>
compileFor(const std::string &name, const frontend::ElaborationOptions &given,
           const std::string &arch, size_t kernels) {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return {};
  }
  CAPTURE(name, given.sizes, arch);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(readExample(name), name + ".ladle"),
      llvm::SMLoc());
  frontend::ElaborationOptions elaboration = given;
  elaboration.takesAttention = true;
  auto module = frontend::compileToSpec(context, sources, elaboration);
  REQUIRE(module);
  mlir::PassManager manager(&context);
  buildAttentionPipeline(manager, {});
  REQUIRE(succeeded(manager.run(*module)));
  std::vector<jit::GpuAttentionStep> steps;
  int64_t shared = jit::sharedBytesOf(arch);
  Result<std::string> text = jit::buildGpuAttention(*module, arch, steps);
  INFO(text.message());
  REQUIRE(text.ok());
  for (const jit::GpuAttentionStep &step : steps) {
    // Two blocks of a multiprocessor with 227 KiB, or what there is; one that
    // answers prompts takes nearly all, and so may one that is alone.
    const auto *attend = step.find("_attend");
    bool isTiled = attend && (step.find("_scan") ||
                              (step.find("_append") && !step.find("_plan")));
    bool isAlone = !step.find("_plan") && step.blocksAtOnce == 1;
    if (!attend)
      attend = step.find("");
    unsigned most = (isTiled ? 200 : isAlone ? 227 : 113) << 10;
    if (shared)
      most = std::min(most, static_cast<unsigned>(shared));
    REQUIRE(attend);
    CHECK(attend->info.sharedBytes <= most);
    CHECK(attend->info.threads >= 32);
    if (const auto *few = step.find("_few"))
      CHECK(few->info.sharedBytes <= most);
  }
  std::string ptx =
      checkCubin(*nvrtc, *text, name, arch, kernels, /*splits=*/true);
  if (arch == "sm_90a" && given.sizes.empty())
    checkWaits(ptx);
  return steps;
}

/// Of `mac`: clusters finish slices of heads where there are any.
static size_t kernelsOfMac(const std::string &arch) {
  return arch == "sm_80" ? 8 : 9;
}

/// Where there are clusters, they have so many blocks.
static void checkAttention(const std::map<std::string, int64_t> &sizes,
                           const std::string &type, const std::string &arch,
                           unsigned slices) {
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = sizes;
  elaboration.tokenTypes["*"] = type;
  auto steps = compileFor("mac", elaboration, arch, kernelsOfMac(arch));
  CHECK((steps.empty() || steps.size() == 2));
  for (const jit::GpuAttentionStep &step : steps)
    if (const auto *sliced = step.find("_finish_slices"))
      CHECK(sliced->info.cluster == slices);
}

TEST_CASE("attentions fit into registers", "[nvrtc][attention]") {
  checkAttention({}, "bf16",
                 GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_120"),
                 /*slices=*/4);
}

TEST_CASE("attentions of other shapes fit into registers",
          "[nvrtc][attention]") {
  using Sizes = std::map<std::string, int64_t>;
  checkAttention({{"Hq", 8}, {"Hkv", 1}, {"D", 256}}, "bf16", "sm_90a",
                 /*slices=*/4);
  checkAttention({{"Hq", 8}, {"Hkv", 8}, {"D", 96}}, "f16", "sm_120",
                 /*slices=*/3);
  checkAttention(Sizes{{"Hq", 8}, {"Hkv", 2}, {"D", 64}}, "bf16", "sm_80",
                 /*slices=*/1);
}

TEST_CASE("prompts of wide heads fit into registers", "[nvrtc][attention]") {
  frontend::ElaborationOptions wide;
  wide.sizes = {{"Hq", 8}, {"Hkv", 1}, {"D", 256}};
  auto arch = GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_120");
  compileFor("exact_attention", wide, arch, /*kernels=*/6);
  // There a few bytes do not fit.
  if (arch != "sm_120")
    compileFor("mac", wide, arch, kernelsOfMac(arch));
}

TEST_CASE("prompts of exact attentions fit into registers",
          "[nvrtc][attention]") {
  auto arch = GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_120");
  compileFor("exact_attention", {}, arch, /*kernels=*/6);
  if (arch != "sm_90a")
    return;
  frontend::ElaborationOptions plain;
  plain.sizes = {{"Hq", 8}, {"Hkv", 2}, {"D", 128}};
  plain.tokenTypes["*"] = "f32";
  compileFor("exact_attention", plain, arch, /*kernels=*/6);
}

TEST_CASE("bounded attentions fit into registers", "[nvrtc][attention]") {
  auto arch = GENERATE(as<std::string>(), "sm_90a", "sm_120");
  auto steps = compileFor("slake", {}, arch, /*kernels=*/11);
  for (const jit::GpuAttentionStep &step : steps)
    for (const auto &kernel : step.kernels)
      CHECK(kernel.info.programmatic == step.decodes);
  // Others of these elsewhere: below.
  if (arch != "sm_90a")
    return;
  compileFor("edge_infinite/edge_infinite", {}, arch, /*kernels=*/5);
  frontend::ElaborationOptions wide;
  wide.sizes = {{"Hq", 8}, {"Hkv", 1}, {"D", 256}};
  compileFor("h2o", wide, arch, /*kernels=*/10);
  // StreamingLLM has nothing to score.
  compileFor("streaming_llm", {}, arch, /*kernels=*/9);
}

TEST_CASE("prompts of bounded attentions fit into registers",
          "[nvrtc][attention]") {
  auto arch = GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_120");
  frontend::ElaborationOptions given;
  given.options["budget"] = 256;
  given.sizes = {{"Hq", 8}, {"Hkv", 2}, {"D", 256}};
  compileFor("slake", given, arch, /*kernels=*/11);
  if (arch != "sm_90a")
    return;
  given.sizes["D"] = 96;
  compileFor("slake", given, arch, /*kernels=*/11);
  given.sizes = {{"Hq", 6}, {"Hkv", 2}, {"D", 128}};
  given.tokenTypes["*"] = "f32";
  compileFor("slake", given, arch, /*kernels=*/11);
}

TEST_CASE("what watches attentions fits into registers", "[nvrtc][attention]") {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  auto arch =
      GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_100a", "sm_120");
  checkCubin(*nvrtc, jit::diagnosticsText(), "diagnostics", arch,
             /*kernels=*/1, /*splits=*/false);
}

TEST_CASE("what others watch and move by waits for them",
          "[nvrtc][attention]") {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  for (llvm::StringRef text : {jit::diagnosticsText(), jit::cursorsText()}) {
    llvm::Expected<std::string> ptx =
        nvrtc->ptx(text, "waits.cu", {"sm_90a", {}});
    REQUIRE(bool(ptx));
    checkWaits(*ptx);
  }
}

TEST_CASE("prompts by segments fit into registers", "[nvrtc][attention]") {
  auto arch = GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_120");
  const std::string name = "edge_infinite/edge_infinite";
  frontend::ElaborationOptions given;
  given.sizes = {{"Hq", 8}, {"Hkv", 2}, {"D", 96}, {"R", 24}};
  if (arch != "sm_90a") {
    compileFor(name, given, arch, /*kernels=*/5);
    return;
  }
  given.sizes = {{"Hq", 8}, {"Hkv", 2}, {"D", 256}, {"R", 64}};
  compileFor(name, given, arch, /*kernels=*/5);
  given.sizes = {{"Hq", 6}, {"Hkv", 2}, {"D", 128}, {"R", 64}};
  given.tokenTypes["*"] = "f32";
  compileFor(name, given, arch, /*kernels=*/5);
}
