//===- Doctor.cpp - ladle doctor ------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "codegen/cpu/CpuTarget.h"
#include "codegen/cuda/Nvrtc.h"
#include "ladle/device.h"
#include "ladle/version.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Host.h"
#include "tools/ladle/Table.h"
#include "llvm/Config/llvm-config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace ladle;
using namespace ladle::tool;

static void line(const char *what, const std::string &value) {
  std::fputs(fmt::format("{:<12}{}\n", what, value).c_str(), stdout);
}

/// All lines of a message, the later ones below the first.
static void report(const char *what, const std::string &message) {
  size_t at = 0;
  for (const char *title = what; at < message.size(); title = "") {
    size_t end = std::min(message.find('\n', at), message.size());
    line(title, message.substr(at, end - at));
    at = end + 1;
  }
}

static std::string versionText(int cuda) {
  return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
}

/// 90 of "sm_90a".
static int archNumber(const std::string &arch) {
  return static_cast<int>(
      std::strtol(arch.c_str() + sizeof("sm_") - 1, nullptr, 10));
}

static void describeCuda() {
  Result<DeviceInfo> device = describeDevice();
  if (device) {
    line("gpu",
         fmt::format("{}, {}, {} multiprocessors, {} free of {}, {} of L2",
                     device->name, device->arch, device->multiprocessors,
                     formatBytes(double(device->freeBytes)),
                     formatBytes(double(device->memoryBytes)),
                     formatBytes(double(device->cacheBytes))));
    line("cuda",
         fmt::format("driver for CUDA {}, {}",
                     versionText(device->driverVersion), device->driverPath));
  } else {
    report("cuda", device.message());
  }
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) {
    report("nvrtc", llvm::toString(nvrtc.takeError()));
    return;
  }
  auto [major, minor] = nvrtc->version();
  std::vector<int> archs = nvrtc->archs();
  line("nvrtc",
       fmt::format("{}.{}, {}{}", major, minor, nvrtc->path(),
                   archs.empty() ? ""
                                 : fmt::format(", compiles for sm_{}",
                                               fmt::join(archs, ", "))));
  if (device && !archs.empty() &&
      std::find(archs.begin(), archs.end(), archNumber(device->arch)) ==
          archs.end())
    line("", fmt::format("this NVRTC does not compile for {}: install one of "
                         "CUDA {}, which the driver runs",
                         device->arch, versionText(device->driverVersion)));
  // Code for an architecture runs on it whatever compiled it, up to a newer
  // major version than the driver's.
  if (device && major > device->driverVersion / 1000)
    line("", fmt::format("this NVRTC is newer than the driver, which may "
                         "refuse its code: install one of CUDA {} or a newer "
                         "driver",
                         versionText(device->driverVersion)));
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
  describeCuda();
  return 0;
}
