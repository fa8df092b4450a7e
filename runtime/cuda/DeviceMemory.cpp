//===- DeviceMemory.cpp - tensors between host and device -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceMemory.h"
#include "ladle/device.h"
#include "runtime/Memory.h"
#include "runtime/Text.h"
#include "runtime/cuda/Driver.h"

#include <algorithm>

using namespace ladle;

Result<DeviceInfo> ladle::describeDevice(int index) {
  Result<cuda::Device> device = cuda::Device::shared(index);
  if (!device)
    return device.status();
  DeviceInfo info;
  info.name = device->name();
  info.arch = device->arch();
  info.driverPath = device->driverPath();
  info.driverVersion = device->driverVersion();
  info.memoryBytes = device->memoryBytes();
  info.freeBytes = device->freeBytes();
  info.cacheBytes = device->cacheBytes();
  info.multiprocessors = device->multiprocessors();
  return info;
}

Status ladle::synchronize(DeviceId id) {
  if (id.kind == DeviceKind::Cpu)
    return Status();
  Result<cuda::Device> device = cuda::Device::shared(id.index);
  return device ? device->synchronize() : device.status();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Result<DeviceTensor> DeviceTensor::allocate(DeviceId id, DType dtype,
                                            std::vector<int64_t> shape) {
  DeviceTensor result;
  result.tensor = TensorView::dense(nullptr, dtype, std::move(shape), id);
  int64_t bytes = result.tensor.count() * sizeInBytes(dtype);
  if (id.kind == DeviceKind::Cpu) {
    auto memory = std::make_shared<Memory>();
    if (!memory->allocate(bytes))
      return Status(ErrorCode::ResourceExhausted,
                    fmt::format("no memory for {} bytes", bytes));
    result.tensor.data = memory->data();
    result.memory = std::move(memory);
    return result;
  }
  Result<cuda::Device> device = cuda::Device::shared(id.index);
  if (!device)
    return device.status();
  Result<cuda::Memory> memory = cuda::Memory::allocate(*device, bytes);
  if (!memory)
    return memory.status();
  if (Status status = memory->fill(0); !status)
    return status;
  result.tensor.data = pointerTo(memory->address());
  result.memory = std::make_shared<cuda::Memory>(std::move(*memory));
  return result;
}

Result<DeviceTensor> DeviceTensor::copyOf(DeviceId id, const TensorView &view) {
  Result<DeviceTensor> result = allocate(id, view.dtype, view.shape);
  if (!result)
    return result.status();
  if (Status status = copy(view, result->view()); !status)
    return status;
  return result;
}

namespace {

/// Host memory for all that lies between the first and the last element of a
/// view, with the same strides.
class Mirror {
public:
  explicit Mirror(const TensorView &view) : original(view), mirrored(view) {
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < view.shape.size(); ++i) {
      int64_t reach = (view.shape[i] - 1) * view.strides[i];
      (reach < 0 ? low : high) += reach;
    }
    int64_t element = sizeInBytes(view.dtype);
    begin = low * element;
    bytes.resize(view.count() ? (high - low + 1) * element : 0);
    mirrored.data = bytes.data() - begin;
    mirrored.device = {};
  }
  const TensorView &view() const { return mirrored; }

  Status download() {
    return transfer([&](const cuda::Device &device, uint64_t address) {
      return device.download(bytes.data(), address,
                             static_cast<int64_t>(bytes.size()), nullptr);
    });
  }
  Status upload() {
    return transfer([&](const cuda::Device &device, uint64_t address) {
      if (Status status =
              device.upload(address, bytes.data(),
                            static_cast<int64_t>(bytes.size()), nullptr);
          !status)
        return status;
      return device.synchronize(nullptr);
    });
  }

private:
  template <typename Body> Status transfer(const Body &body) {
    Result<cuda::Device> device = cuda::Device::shared(original.device.index);
    if (!device)
      return device.status();
    if (Status status = device->synchronize(); !status)
      return status;
    return bytes.empty() ? Status()
                         : body(*device, addressOf(original.data) + begin);
  }

  const TensorView &original;
  TensorView mirrored;
  int64_t begin;
  std::vector<std::byte> bytes;
};

} // namespace

Status ladle::copyByHost(const TensorView &from, const TensorView &to) {
  auto isHost = [](const TensorView &view) {
    return view.device.kind == DeviceKind::Cpu;
  };
  std::optional<Mirror> source, target;
  if (!isHost(from)) {
    source.emplace(from);
    if (Status status = source->download(); !status)
      return status;
  }
  if (!isHost(to)) {
    target.emplace(to);
    // What lies between the elements keeps its value.
    if (!to.isDense())
      if (Status status = target->download(); !status)
        return status;
  }
  if (Status status =
          copy(source ? source->view() : from, target ? target->view() : to);
      !status)
    return status;
  return target ? target->upload() : Status();
}
