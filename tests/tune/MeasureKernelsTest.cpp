//===- MeasureKernelsTest.cpp - kernels that measure ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/Ceilings.h"
#include "tools/measure/GpuCycle.h"

#include <catch2/catch.hpp>

using namespace ladle;

/// What reads or writes memory must not spill: its traffic would be counted to
/// the memory's.
static void checkKernels(const std::string &text, size_t count,
                         const char *arch) {
  auto nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  auto cubin = nvrtc->compile(text, "measure.cu", {arch, {}});
  if (!cubin) {
    INFO(llvm::toString(cubin.takeError()));
    FAIL("the kernels do not compile");
  }
  CHECK(cubin->kernels.size() == count);
  CHECK(measure::describeSpills(cubin->kernels).empty());
}

TEST_CASE("the kernels of the ceilings compile and do not spill", "[nvrtc]") {
  const char *arch = GENERATE("sm_80", "sm_90a", "sm_100a", "sm_120");
  // Three policies, four numbers of loads, two directions, and nothing.
  checkKernels(measure::Ceilings::kernels(), 3 * 4 * 2 + 1, arch);
}

TEST_CASE("the kernels that fill memory compile", "[nvrtc]") {
  checkKernels(measure::GpuLayers::kernels(), 3, "sm_90a");
}
