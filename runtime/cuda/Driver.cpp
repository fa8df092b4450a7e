//===- Driver.cpp - the CUDA driver, opened at run time -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <mutex>

using namespace ladle;
using namespace ladle::cuda;

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

Context::~Context() {
  // The primary context stays: a process creates it once, and others use it.
  if (stream)
    api->streamDestroy(stream);
}

Result<Device> Device::open(int ordinal) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  Result<std::shared_ptr<const Api>> opened = Api::open();
  if (!opened)
    return opened.status();
  const std::shared_ptr<const Api> &api = *opened;
  if (Status status = api->check(api->init(0), "cuInit"); !status)
    return Status(ErrorCode::NotFound, status.message());
  int handle = 0, count = 0;
  api->deviceGetCount(&count);
  if (ordinal < 0 || ordinal >= count)
    return Status(
        ErrorCode::NotFound,
        fmt::format("no CUDA device {}: the driver has {}", ordinal, count));
  if (Status status =
          api->check(api->deviceGet(&handle, ordinal), "cuDeviceGet");
      !status)
    return Status(ErrorCode::NotFound, status.message());
  Device device;
  char name[256] = "";
  int bytes = 0;
  size_t memory = 0;
  constexpr int attributeL2 = 38, attributeMajor = 75, attributeMinor = 76,
                attributeProcessors = 16;
  constexpr unsigned nonBlocking = 1;
  api->driverGetVersion(&device.version);
  api->deviceGetName(name, sizeof(name), handle);
  api->deviceGetAttribute(&bytes, attributeL2, handle);
  api->deviceGetAttribute(&device.major, attributeMajor, handle);
  api->deviceGetAttribute(&device.minor, attributeMinor, handle);
  api->deviceGetAttribute(&device.processors, attributeProcessors, handle);
  constexpr int attributeMemoryClock = 36, attributeBusWidth = 37;
  int kilohertz = 0, bits = 0;
  // Twice a clock.
  if (api->deviceGetAttribute(&kilohertz, attributeMemoryClock, handle) == 0 &&
      api->deviceGetAttribute(&bits, attributeBusWidth, handle) == 0)
    device.bandwidth = 2e3 * kilohertz * (bits / 8.0);
  api->deviceTotalMem(&memory, handle);
  device.deviceName = name;
  device.level2 = bytes;
  device.memory = static_cast<int64_t>(memory);
  auto context = std::make_shared<Context>();
  context->api = api;
  context->ordinal = ordinal;
  auto steps = {
      std::function([&] {
        return api->check(api->primaryCtxRetain(&context->handle, handle),
                          "cuDevicePrimaryCtxRetain");
      }),
      std::function([&] {
        return api->check(api->ctxSetCurrent(context->handle),
                          "cuCtxSetCurrent");
      }),
      std::function([&] {
        return api->check(api->streamCreate(&context->stream, nonBlocking),
                          "cuStreamCreate");
      })};
  for (const std::function<Status()> &step : steps)
    if (Status status = step(); !status)
      return status;
  device.held = std::move(context);
  device.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return device;
}

Result<Device> Device::shared(int ordinal) {
  // Never destroyed: at the end of the process the driver may be gone first.
  static auto &mutex = *new std::mutex;
  static auto &opened = *new std::map<std::pair<const Api *, int>, Device>;
  Result<std::shared_ptr<const Api>> api = Api::open();
  if (!api)
    return api.status();
  std::lock_guard<std::mutex> lock(mutex);
  auto key = std::pair(api->get(), ordinal);
  if (auto found = opened.find(key); found != opened.end())
    return found->second;
  Result<Device> device = open(ordinal);
  if (device)
    opened.emplace(key, *device);
  return device;
}

std::string Device::arch() const {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

int64_t Device::freeBytes() const {
  CurrentContext current(*held);
  size_t free = 0, total = 0;
  return held->api->memGetInfo(&free, &total) == 0 ? static_cast<int64_t>(free)
                                                   : 0;
}

Status Device::synchronize() const {
  CurrentContext current(*held);
  return held->check(held->api->ctxSynchronize(), "a kernel");
}

Status Device::synchronize(void *stream) const {
  CurrentContext current(*held);
  return held->check(held->api->streamSynchronize(stream), "a kernel");
}

Status Device::upload(uint64_t to, const void *from, int64_t bytes,
                      void *stream) const {
  CurrentContext current(*held);
  return held->check(
      held->api->copyToDevice(to, from, static_cast<size_t>(bytes), stream),
      "cuMemcpyHtoDAsync");
}

Status Device::download(void *to, uint64_t from, int64_t bytes,
                        void *stream) const {
  CurrentContext current(*held);
  if (Status status = held->check(
          held->api->copyToHost(to, from, static_cast<size_t>(bytes), stream),
          "cuMemcpyDtoHAsync");
      !status)
    return status;
  return held->check(held->api->streamSynchronize(stream), "a kernel");
}

Status Device::copy(uint64_t to, uint64_t from, int64_t bytes,
                    void *stream) const {
  CurrentContext current(*held);
  return held->check(
      held->api->copyOnDevice(to, from, static_cast<size_t>(bytes), stream),
      "cuMemcpyDtoDAsync");
}

Status Device::fill(uint64_t at, uint8_t byte, int64_t bytes,
                    void *stream) const {
  CurrentContext current(*held);
  return held->check(
      held->api->fill8(at, byte, static_cast<size_t>(bytes), stream),
      "cuMemsetD8Async");
}

Status Device::fillInt(uint64_t at, int32_t value, int64_t count,
                       void *stream) const {
  CurrentContext current(*held);
  return held->check(held->api->fill32(at, static_cast<unsigned>(value),
                                       static_cast<size_t>(count), stream),
                     "cuMemsetD32Async");
}

Result<bool> Device::isCapturing(void *stream) const {
  CurrentContext current(*held);
  int isActive = 0;
  if (Status status = held->check(held->api->isCapturing(stream, &isActive),
                                  "cuStreamIsCapturing");
      !status)
    return status;
  return isActive != 0;
}

bool Device::isReachable(const void *address) const {
  CurrentContext current(*held);
  int ordinal = -1;
  return held->api->pointerGetAttribute(&ordinal, pointerDeviceOrdinal,
                                        reinterpret_cast<uint64_t>(address)) ==
             0 &&
         ordinal == held->ordinal;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

cuda::Memory &cuda::Memory::operator=(Memory &&other) noexcept {
  std::swap(context, other.context);
  std::swap(pointer, other.pointer);
  std::swap(size, other.size);
  return *this;
}

cuda::Memory::~Memory() {
  if (!pointer)
    return;
  CurrentContext current(*context);
  context->api->memFree(pointer);
}

Result<cuda::Memory> cuda::Memory::allocate(const Device &device,
                                            int64_t bytes) {
  Memory memory;
  memory.context = device.context();
  memory.size = bytes;
  CurrentContext current(*memory.context);
  if (Status status = memory.context->check(
          memory.context->api->memAlloc(
              &memory.pointer,
              static_cast<size_t>(std::max<int64_t>(bytes, 1))),
          "cuMemAlloc");
      !status)
    return status;
  return memory;
}

Status cuda::Memory::write(const void *host, int64_t bytes, int64_t offset) {
  CurrentContext current(*context);
  const Api &api = *context->api;
  if (Status status = context->check(
          api.copyToDevice(pointer + offset, host, bytes, nullptr),
          "cuMemcpyHtoD");
      !status)
    return status;
  return context->check(api.streamSynchronize(nullptr), "cuMemcpyHtoD");
}

Status cuda::Memory::read(void *host, int64_t bytes, int64_t offset) const {
  CurrentContext current(*context);
  const Api &api = *context->api;
  if (Status status =
          context->check(api.copyToHost(host, pointer + offset,
                                        static_cast<size_t>(bytes), nullptr),
                         "cuMemcpyDtoH");
      !status)
    return status;
  return context->check(api.streamSynchronize(nullptr), "cuMemcpyDtoH");
}

Status cuda::Memory::fill(uint8_t byte) {
  CurrentContext current(*context);
  const Api &api = *context->api;
  if (Status status = context->check(
          api.fill8(pointer, byte, static_cast<size_t>(size), nullptr),
          "cuMemsetD8");
      !status)
    return status;
  return context->check(api.streamSynchronize(nullptr), "cuMemsetD8");
}

//===----------------------------------------------------------------------===//
// Words of the host
//===----------------------------------------------------------------------===//

cuda::HostWord &cuda::HostWord::operator=(HostWord &&other) noexcept {
  std::swap(context, other.context);
  std::swap(word, other.word);
  return *this;
}

cuda::HostWord::~HostWord() {
  if (!word)
    return;
  CurrentContext current(*context);
  context->api->hostFree(const_cast<int32_t *>(word));
}

Result<cuda::HostWord> cuda::HostWord::allocate(const Device &device) {
  // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
  constexpr unsigned mapped = 1 | 2;
  HostWord result;
  result.context = device.context();
  CurrentContext current(*result.context);
  void *memory = nullptr;
  if (Status status = result.context->check(
          result.context->api->hostAlloc(&memory, sizeof(int32_t), mapped),
          "cuMemHostAlloc");
      !status)
    return status;
  result.word = static_cast<int32_t *>(memory);
  *result.word = 0;
  return result;
}

int32_t cuda::HostWord::take() {
  int32_t value = *word;
  if (value != 0)
    *word = 0;
  return value;
}
