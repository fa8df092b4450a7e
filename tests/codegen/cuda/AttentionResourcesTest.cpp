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

static void checkAttention(const std::map<std::string, int64_t> &sizes,
                           const std::string &type, const std::string &arch) {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  CAPTURE(sizes, type, arch);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(readExample("mac"), "mac.ladle"),
      llvm::SMLoc());
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = sizes;
  elaboration.tokenTypes["*"] = type;
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
  REQUIRE(steps.size() == 2);
  for (const jit::GpuAttentionStep &step : steps) {
    // Two blocks of a multiprocessor with 227 KiB, or what there is.
    unsigned most = 113 << 10;
    if (shared)
      most = std::min(most, static_cast<unsigned>(shared));
    CHECK(step.attend.info.sharedBytes <= most);
    CHECK(step.attend.info.threads >= 32);
  }
  llvm::Expected<Cubin> cubin = nvrtc->compile(*text, "mac.cu", {arch, {}});
  if (!cubin) {
    FAIL(llvm::toString(cubin.takeError()));
    return;
  }
  CHECK(cubin->kernels.size() == 8);
  for (const KernelResources &kernel : cubin->kernels) {
    CAPTURE(kernel.name, kernel.registers);
    CHECK(kernel.spillStores + kernel.spillLoads == 0);
    CHECK(kernel.stackBytes == 0);
  }
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
