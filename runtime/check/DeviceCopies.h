//===- DeviceCopies.h - what a call gets on a device ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_DEVICECOPIES_H
#define LADLE_RUNTIME_CHECK_DEVICECOPIES_H

#include "ladle/device.h"
#include "ladle/tensor.h"

#include <map>
#include <span>
#include <vector>

namespace ladle::check {

/// Copies of what the host has drawn, where a program takes it. On the host
/// itself everything stays where it is.
class DeviceCopies {
public:
  using Tensors = std::map<std::string, TensorView, std::less<>>;
  explicit DeviceCopies(DeviceId device) : device(device) {}

  bool isOnDevice() const { return device != DeviceId(); }
  /// Those of the call before are not needed any more.
  void clear() { held.clear(); }
  Result<std::span<const int32_t>> upload(std::span<const int32_t> numbers);
  /// Views become those of the copies.
  Status upload(Tensors &tensors);
  /// Waits for the device, and copies a tensor of f32 back.
  Status download(const TensorView &from, std::span<float> to) const;

private:
  DeviceId device;
  std::vector<DeviceTensor> held;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_DEVICECOPIES_H
