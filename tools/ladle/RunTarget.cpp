//===- RunTarget.cpp - what a run decodes on ------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/RunTarget.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

Result<RunTarget> RunTarget::choose(const std::string &target) {
  RunTarget chosen;
  chosen.host = Host::describe();
  chosen.cores = chosen.host.cores;
  if (target == "cpu")
    return chosen;
  Result<DeviceInfo> device = describeDevice();
  Result<measure::Gpu> opened =
      device ? measure::Gpu::open() : Result<measure::Gpu>(device.status());
  if (!opened) {
    // No GPU is no surprise, one without a compiler is.
    if (device)
      chosen.note =
          fmt::format("{} is not used: {}", device->name, opened.message());
    if (target == "auto")
      return chosen;
    return opened.status();
  }
  chosen.gpu.emplace(std::move(*opened));
  chosen.host = Host::describe(*device);
  chosen.device = *device;
  return chosen;
}
