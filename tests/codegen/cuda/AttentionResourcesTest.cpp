//===- AttentionResourcesTest.cpp - what attention kernels take -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/Nvrtc.h"
#include "frontend/Frontend.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines.h"
#include "runtime/jit/GpuAttention.h"
#include "runtime/jit/GpuLayout.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;

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
  Result<std::string> text = jit::buildGpuAttention(*module, shared, steps);
  INFO(text.message());
  REQUIRE(text.ok());
  for (const jit::GpuAttentionStep &step : steps) {
    // Two blocks of a multiprocessor with 227 KiB, or what there is.
    unsigned most = 113 << 10;
    if (shared)
      most = std::min(most, static_cast<unsigned>(shared));
    CHECK(step.attend.info.sharedBytes <= most);
    CHECK(step.attend.info.threads >= 32);
  }
  llvm::Expected<Cubin> cubin = nvrtc->compile(*text, name + ".cu", {arch, {}});
  if (!cubin) {
    FAIL(llvm::toString(cubin.takeError()));
    return {};
  }
  CHECK(cubin->kernels.size() == kernels);
  for (const KernelResources &kernel : cubin->kernels) {
    CAPTURE(kernel.name, kernel.registers);
    CHECK(kernel.spillStores + kernel.spillLoads == 0);
    CHECK(kernel.stackBytes == 0);
  }
  return steps;
}

static void checkAttention(const std::map<std::string, int64_t> &sizes,
                           const std::string &type, const std::string &arch) {
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = sizes;
  elaboration.tokenTypes["*"] = type;
  auto steps = compileFor("mac", elaboration, arch, /*kernels=*/8);
  CHECK((steps.empty() || steps.size() == 2));
}

TEST_CASE("attentions fit into registers", "[nvrtc]") {
  checkAttention(
      {}, "bf16",
      GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_100a", "sm_120"));
}

TEST_CASE("attentions of other shapes fit into registers", "[nvrtc]") {
  using Sizes = std::map<std::string, int64_t>;
  checkAttention({{"Hq", 8}, {"Hkv", 1}, {"D", 256}}, "bf16", "sm_90a");
  checkAttention({{"Hq", 8}, {"Hkv", 8}, {"D", 96}}, "f16", "sm_120");
  checkAttention(Sizes{{"Hq", 8}, {"Hkv", 2}, {"D", 64}}, "bf16", "sm_80");
}

TEST_CASE("bounded attentions fit into registers", "[nvrtc]") {
  auto arch =
      GENERATE(as<std::string>(), "sm_80", "sm_90a", "sm_100a", "sm_120");
  auto steps = compileFor("slake", {}, arch, /*kernels=*/2);
  for (const jit::GpuAttentionStep &step : steps) {
    CHECK(step.attend.info.programmatic);
    CHECK(step.finish.info.programmatic);
  }
  compileFor("edge_infinite/edge_infinite", {}, arch, /*kernels=*/4);
  frontend::ElaborationOptions wide;
  wide.sizes = {{"Hq", 8}, {"Hkv", 1}, {"D", 256}};
  compileFor("h2o", wide, arch, /*kernels=*/2);
}
