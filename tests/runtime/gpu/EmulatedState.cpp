//===- EmulatedState.cpp - memory, work and modules of the device ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/EmulatedState.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

using namespace ladle::test;

EmulatedState &EmulatedState::get() {
  // Never destroyed: what a process leaves behind may come at its very end.
  static auto &state = *new EmulatedState;
  return state;
}

std::vector<EmulatedGpu::Launch> EmulatedState::takeLaunches() {
  return std::exchange(launches, {});
}

std::vector<std::string> EmulatedState::takeCalls() {
  return std::exchange(calls, {});
}

void EmulatedState::failNext(const std::string &function, int code) {
  failures[function] = code;
}

int64_t EmulatedState::liveBytes() const {
  int64_t bytes = 0;
  for (auto [address, size] : memory)
    bytes += static_cast<int64_t>(size);
  return bytes;
}

void EmulatedState::watch(const void *begin, size_t bytes) {
  traffic.of = {begin, bytes};
  takeTouched();
}

EmulatedGpu::Touched EmulatedState::takeTouched() {
  return {traffic.read.exchange(0), traffic.written.exchange(0)};
}

int EmulatedState::enter(const char *function) {
  calls.emplace_back(function);
  auto found = failures.find(function);
  if (found == failures.end())
    return success;
  int code = found->second;
  failures.erase(found);
  return code;
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

bool EmulatedState::isCapturing() const {
  for (const auto &[key, stream] : streams)
    if (stream->isCapturing)
      return true;
  return false;
}

int EmulatedState::add(void *handle, Work work) {
  auto *stream = static_cast<EmulatedStream *>(handle);
  if (stream && !streams.count(stream))
    return invalidValue;
  if (stream && stream->isCapturing)
    stream->captured.push_back(std::move(work));
  else
    queue.push_back(std::move(work));
  return success;
}

int EmulatedState::drain() {
  while (!queue.empty() && sticky == success) {
    Work work = std::move(queue.front());
    queue.pop_front();
    sticky = work();
  }
  return sticky;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

int EmulatedState::allocate(uint64_t *address, size_t bytes) {
  constexpr size_t alignment = 256, most = size_t(1) << 34;
  if (isCapturing())
    return captureUnsupported;
  if (bytes > most)
    return outOfMemory;
  if (isSparse(bytes)) {
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
      return outOfMemory;
    *address = reinterpret_cast<uint64_t>(data);
    memory[*address] = bytes;
    return success;
  }
  void *data = std::aligned_alloc(alignment, (bytes + alignment - 1) /
                                                 alignment * alignment);
  std::memset(data, 0xff, bytes);
  *address = reinterpret_cast<uint64_t>(data);
  memory[*address] = bytes;
  return success;
}

int EmulatedState::release(uint64_t address) {
  if (isCapturing())
    return captureUnsupported;
  drain();
  auto found = memory.find(address);
  if (found == memory.end())
    return invalidValue;
  void *data = reinterpret_cast<void *>(address); // NOLINT
  if (isSparse(found->second))
    munmap(data, found->second);
  else
    std::free(data);
  memory.erase(found);
  return success;
}

void EmulatedState::set(uint64_t address, unsigned char byte, size_t bytes) {
  void *data = reinterpret_cast<void *>(address); // NOLINT
  auto found = memory.find(address);
  // Nothing of it has to be written: it becomes what it was at first.
  if (byte == 0 && found != memory.end() && found->second == bytes &&
      isSparse(bytes))
    madvise(data, bytes, MADV_DONTNEED);
  else
    std::memset(data, byte, bytes);
}

bool EmulatedState::contains(uint64_t address, size_t bytes) const {
  auto after = memory.upper_bound(address);
  if (after == memory.begin())
    return false;
  auto [begin, size] = *std::prev(after);
  return address + bytes <= begin + size;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

int EmulatedState::launch(const Launch &launch, EmulatedKernel &kernel,
                          void **values) {
  launches.push_back(launch);
  for (unsigned extent : {launch.grid[0], launch.grid[1], launch.grid[2],
                          launch.block[0], launch.block[1], launch.block[2]})
    if (extent == 0)
      return invalidValue;
  if (launch.blocksOfCluster == 0 ||
      launch.grid[0] % launch.blocksOfCluster != 0 || launch.grid[1] > 65535 ||
      launch.grid[2] > 65535 ||
      static_cast<int>(launch.sharedBytes) > kernel.sharedLimit)
    return invalidValue;
  // The arguments are the caller's only until it gets back.
  std::vector<uint64_t> copies;
  for (size_t i = 0; i < kernel.sizes.size(); ++i)
    std::memcpy(&copies.emplace_back(0), values[i], kernel.sizes[i]);
  return add(launch.stream, [this, launch, &kernel, copies] {
    return run(launch, kernel, copies);
  });
}

int EmulatedState::run(const Launch &launch, const EmulatedKernel &kernel,
                       std::vector<uint64_t> values) {
  if (!kernel.code->module)
    return success;
  std::vector<void *> arguments;
  for (uint64_t &value : values)
    arguments.push_back(&value);
  std::vector<Allocation> allocations;
  for (auto [address, bytes] : memory)
    allocations.push_back({reinterpret_cast<void *>(address), bytes}); // NOLINT
  llvm::Error error = kernel.code->module->launch(
      kernel.name, {launch.grid[0], launch.grid[1], launch.grid[2]},
      {launch.block[0], launch.block[1], launch.block[2]}, arguments.data(),
      allocations, launch.blocksOfCluster, &traffic);
  if (!error)
    return success;
  failure = kernel.name + ": " + llvm::toString(std::move(error));
  return launchFailed;
}
