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

Result<RunTarget> RunTarget::choose(const std::string &target,
                                    std::optional<int64_t> threads) {
  RunTarget chosen;
  RunMachine &machine = chosen.machine;
  machine.host = Host::describe();
  machine.threads = static_cast<int>(threads.value_or(machine.host.cores));
  if (target == "cpu")
    return chosen;
  Result<DeviceInfo> device = describeDevice();
  Result<measure::Gpu> opened =
      device ? measure::Gpu::open() : Result<measure::Gpu>(device.status());
  if (!opened) {
    // No GPU is no surprise, one without a compiler is.
    if (device)
      machine.note =
          fmt::format("{} is not used: {}", device->name, opened.message());
    if (target == "auto")
      return chosen;
    return opened.status();
  }
  chosen.gpu.emplace(std::move(*opened));
  machine.host = Host::describe(*device);
  machine.arch = device->arch;
  chosen.device = *device;
  return chosen;
}
