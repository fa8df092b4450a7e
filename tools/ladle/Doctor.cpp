//===- Doctor.cpp - ladle doctor ------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "codegen/cpu/CpuTarget.h"
#include "ladle/version.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Host.h"
#include "tools/ladle/Table.h"
#include "llvm/Config/llvm-config.h"

#include <algorithm>
#include <cstdio>
#include <dlfcn.h>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

static void line(const char *what, const std::string &value) {
  std::fputs(fmt::format("{:<12}{}\n", what, value).c_str(), stdout);
}

/// The first of these libraries that can be loaded.
static std::string findLibrary(std::initializer_list<const char *> names) {
  for (const char *name : names)
    // Stays loaded: libraries lose what they allocated when they are closed.
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL))
      return name;
  return "";
}

static std::string describeCuda() {
  std::string driver = findLibrary({"libcuda.so.1", "libcuda.so"});
  std::string compiler = findLibrary(
      {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"});
  return fmt::format("driver {}, runtime compiler {}; cuda kernels are not "
                     "part of this version",
                     driver.empty() ? "not found" : driver + " found",
                     compiler.empty() ? "not found" : compiler + " found");
}

int tool::doctor() {
  Host host = Host::describe();
  line("ladle",
       fmt::format("{}, LLVM {}", ladle::version(), LLVM_VERSION_STRING));
  line("processor", host.processor);
  const CpuTarget &target = CpuTarget::host();
  std::string vectors = target.has("avx512f") ? "AVX-512"
                        : target.has("avx2")  ? "AVX2"
                        : target.has("neon")  ? "NEON"
                                              : "baseline";
  line("target",
       fmt::format("{}, {} vectors, {}", target.cpu, vectors, target.triple));
  line("cores", std::to_string(host.cores));
  line("caches",
       fmt::format("{} and {} a core, last level {}", formatBytes(host.level1),
                   formatBytes(host.level2), formatBytes(host.lastLevel)));
  line("memory", fmt::format("{}, {} free", formatBytes(host.memory),
                             formatBytes(host.availableMemory)));
  int64_t size = std::min<int64_t>(
      4 * host.cacheBytes(),
      std::max<int64_t>(host.availableMemory / 4, int64_t(64) << 20));
  Bandwidth bandwidth = measureBandwidth(size, host.cores, /*seconds=*/1);
  line("bandwidth",
       fmt::format("{:.1f} GB/s reading, {:.1f} GB/s updating in place, over "
                   "{}",
                   bandwidth.read / 1e9, bandwidth.update / 1e9,
                   formatBytes(size)));
  DiskCache cache = DiskCache::openDefault();
  line("cache", cache.getDirectory().empty()
                    ? "none: no home directory is known"
                    : fmt::format("{}, {} entries", cache.getDirectory().str(),
                                  cache.list().size()));
  line("cuda", describeCuda());
  return 0;
}
