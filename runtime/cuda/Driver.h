//===- Driver.h - the CUDA driver, opened at run time -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What Ladle needs of libcuda, without its headers: machines without a GPU
// build and run everything else. A stream is a CUstream; null is the default
// one.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DRIVER_H
#define LADLE_RUNTIME_CUDA_DRIVER_H

#include "ladle/types.h"
#include "runtime/cuda/Api.h"
#include "runtime/cuda/KernelInfo.h"

#include <functional>
#include <string>

namespace ladle::cuda {

/// The primary context of a device, which other libraries of the process use
/// too, and a stream of our own.
struct Context {
  std::shared_ptr<const Api> api;
  void *handle = nullptr, *stream = nullptr;
  int ordinal = 0;

  ~Context();
  Status check(int code, const char *what) const {
    return api->check(code, what);
  }
};

/// Makes a context current on this thread for as long as it lives.
class CurrentContext {
public:
  explicit CurrentContext(const Context &context) : api(*context.api) {
    void *current = nullptr;
    api.ctxGetCurrent(&current);
    isPushed =
        current != context.handle && api.ctxPushCurrent(context.handle) == 0;
  }
  CurrentContext(const CurrentContext &) = delete;
  ~CurrentContext() {
    void *popped = nullptr;
    if (isPushed)
      api.ctxPopCurrent(&popped);
  }

private:
  const Api &api;
  bool isPushed;
};

/// A device with its primary context, current on the thread that opened it.
class Device {
public:
  /// NotFound if there is no driver or no such device: the message says what
  /// was looked for.
  static Result<Device> open(int ordinal = 0);
  /// The same, opened once a process.
  static Result<Device> shared(int ordinal = 0);

  int ordinal() const { return held->ordinal; }
  DeviceId id() const { return {DeviceKind::Cuda, held->ordinal}; }
  const std::string &name() const { return deviceName; }
  /// "sm_90a": with the letter from compute capability 9 on.
  std::string arch() const;
  /// 13000 for CUDA 13.0.
  int driverVersion() const { return version; }
  const std::string &driverPath() const { return held->api->path; }
  int64_t cacheBytes() const { return level2; }
  int64_t memoryBytes() const { return memory; }
  /// What can still be allocated; 0 if the driver does not say.
  int64_t freeBytes() const;
  int multiprocessors() const { return processors; }
  /// Bytes a second, of the clock and the width of the memory; 0 if the driver
  /// does not say.
  double memoryBandwidth() const { return bandwidth; }
  /// Whether kernels may start before the one ahead has ended, in graphs too.
  bool isProgrammatic() const {
    constexpr int sinceVersion = 12030;
    return major >= 9 && version >= sinceVersion && held->api->launchKernelEx;
  }
  /// Seconds that opening it took, most of them for the context, which a
  /// process creates once.
  double openSeconds() const { return seconds; }

  /// Waits for everything. The first error of what was launched before shows
  /// here.
  Status synchronize() const;
  Status synchronize(void *stream) const;

  Status upload(uint64_t to, const void *from, int64_t bytes,
                void *stream) const;
  /// Waits for the stream.
  Status download(void *to, uint64_t from, int64_t bytes, void *stream) const;
  /// Within the memory of the device.
  Status copy(uint64_t to, uint64_t from, int64_t bytes, void *stream) const;
  Status fill(uint64_t at, uint8_t byte, int64_t bytes, void *stream) const;
  Status fillInt(uint64_t at, int32_t value, int64_t count, void *stream) const;
  /// Whether what is put on the stream is recorded into a graph.
  Result<bool> isCapturing(void *stream) const;
  /// Whether the driver knows this address as memory that the device reaches.
  bool isReachable(const void *address) const;

  /// A stream that does not wait for the default one.
  void *stream() const { return held->stream; }
  const std::shared_ptr<const Context> &context() const { return held; }

private:
  Device() = default;
  std::shared_ptr<const Context> held;
  std::string deviceName;
  int major = 0, minor = 0, version = 0, processors = 0;
  int64_t level2 = 0, memory = 0;
  double seconds = 0, bandwidth = 0;
};

/// Memory of the device.
class Memory {
public:
  Memory() = default;
  Memory(Memory &&other) noexcept { *this = std::move(other); }
  Memory &operator=(Memory &&other) noexcept;
  ~Memory();

  /// ResourceExhausted if there is not so much memory. Not initialised.
  static Result<Memory> allocate(const Device &device, int64_t bytes);

  uint64_t address() const { return pointer; }
  int64_t bytes() const { return size; }
  /// These wait for the default stream.
  Status write(const void *host, int64_t bytes, int64_t offset = 0);
  Status read(void *host, int64_t bytes, int64_t offset = 0) const;
  Status fill(uint8_t byte);

private:
  std::shared_ptr<const Context> context;
  uint64_t pointer = 0;
  int64_t size = 0;
};

/// A number of the host that kernels reach at the same address: what they write
/// there is seen without waiting for anything.
class HostWord {
public:
  HostWord() = default;
  HostWord(HostWord &&other) noexcept { *this = std::move(other); }
  HostWord &operator=(HostWord &&other) noexcept;
  ~HostWord();

  /// 0 at first.
  static Result<HostWord> allocate(const Device &device);

  uint64_t address() const { return reinterpret_cast<uint64_t>(word); }
  /// Its value; it becomes 0.
  int32_t take();
  /// Whoever took a value and could not do what it asks for leaves it.
  void put(int32_t value) { *word = value; }

private:
  std::shared_ptr<const Context> context;
  volatile int32_t *word = nullptr;
};

/// A kernel of a loaded module, which it keeps.
class Kernel {
public:
  struct Extent {
    unsigned x = 1, y = 1, z = 1;
  };
  const KernelInfo &info() const { return about; }

  /// `arguments` are addresses of the arguments' values. Returns before the
  /// kernel has run. Without a stream: on the device's own. A kernel that can
  /// starts early if it is asked to. So many blocks along x are a cluster; 0:
  /// as many as its description says.
  Status launch(Extent grid, Extent block, void *const *arguments, void *stream,
                bool early = false, unsigned blocksOfCluster = 0) const;
  Status launch(Extent grid, Extent block, void *const *arguments) const {
    return launch(grid, block, arguments, context->stream);
  }
  /// The grid and block of its description, for so many rows, or for `blocks`
  /// blocks of each.
  Status launchRows(int64_t rows, void *const *arguments, void *stream,
                    unsigned blocks = 0, bool early = false) const {
    return launch(
        {blocks ? blocks : about.gridBlocks, static_cast<unsigned>(rows), 1},
        {about.threads, 1, 1}, arguments, stream, early);
  }

private:
  friend class Module;
  std::shared_ptr<const void> module;
  std::shared_ptr<const Context> context;
  KernelInfo about;
  void *function = nullptr;
};

/// The code of a cubin.
class Module {
public:
  static Result<Module> load(const Device &device, const std::string &image);
  /// NotFound names the kernel.
  Result<Kernel> kernel(const KernelInfo &info) const;
  Result<Kernel> kernel(const std::string &name) const {
    return kernel(KernelInfo{name});
  }

private:
  std::shared_ptr<const void> handle;
  std::shared_ptr<const Context> context;
  bool isProgrammatic = false;
};

/// Launches that are recorded once and replayed as one.
class Graph {
public:
  /// Records what `launch` launches on the device's own stream.
  static Result<Graph> record(const Device &device,
                              const std::function<Status()> &launch);
  Status replay() const;
  /// Kernels and copies that were recorded.
  int64_t nodes() const { return nodeCount; }
  /// Seconds of `count` replays on the device's clock.
  Result<double> time(int count) const;

private:
  std::shared_ptr<const void> executable;
  std::shared_ptr<const Context> context;
  int64_t nodeCount = 0;
};

} // namespace ladle::cuda

#endif // LADLE_RUNTIME_CUDA_DRIVER_H
