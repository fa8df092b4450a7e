//===- RangesTest.cpp - what a profiler sees ------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/Gpu.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace ladle;
using namespace ladle::test;

TEST_CASE("a profiler sees ranges with the names of the source") {
  const char *recorder = std::getenv("NVTX_INJECTION64_PATH");
  void *library = recorder ? ::dlopen(recorder, RTLD_NOW) : nullptr;
  void *symbol = library ? ::dlsym(library, "ladle_nvtx_take") : nullptr;
  if (!hasGpu() || !symbol) {
    WARN("skipped: NVTX_INJECTION64_PATH does not name ladle_nvtx_recorder");
    return;
  }
  auto take = [&] {
    std::vector<std::string> names;
    reinterpret_cast<void (*)(std::vector<std::string> &)>(symbol)(names);
    return names;
  };
  using Names = std::vector<std::string>;
  Program program = tinyProgram();
  Cursors cursors = need(Cursors::create(program, {.slots = 2}));
  PoolOptions options;
  options.cursors = cursors;
  Pool pool = makePool(program, 2, options);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 2);
  take();
  need(decoder.step(tensors.arguments));
  CHECK(take() == Names{"ladle gated_delta_rule inner"});
  need(cursors.advance(tensors.arguments.readSlots));
  CHECK(take() == Names{"ladle cursors"});
  need(pool.flush(program, std::vector<int32_t>{0, 1}));
  CHECK(take() == Names{"ladle gated_delta_rule inner flush", "ladle cursors"});
}
