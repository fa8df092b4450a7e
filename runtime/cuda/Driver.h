//===- Driver.h - the CUDA driver, opened at run time -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What Ladle needs of libcuda, without its headers: machines without a GPU
// build and run everything else.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DRIVER_H
#define LADLE_RUNTIME_CUDA_DRIVER_H

#include "ladle/status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ladle::cuda {

struct Api;

/// A device with its primary context, current on the thread that opened it.
class Device {
public:
  /// NotFound if there is no driver or no such device: the message says what
  /// was looked for.
  static Result<Device> open(int ordinal = 0);

  const std::string &name() const { return deviceName; }
  /// "sm_90a": with the letter from compute capability 9 on.
  std::string arch() const;
  /// 13000 for CUDA 13.0.
  int driverVersion() const { return version; }
  int64_t cacheBytes() const { return level2; }

  /// Waits for everything. The first error of what was launched before shows
  /// here.
  Status synchronize() const;
  std::shared_ptr<const Api> api() const { return functions; }

private:
  explicit Device(std::shared_ptr<const Api> functions)
      : functions(std::move(functions)) {}
  std::shared_ptr<const Api> functions;
  std::string deviceName;
  int major = 0, minor = 0, version = 0;
  int64_t level2 = 0;
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
  Status write(const void *host, int64_t bytes, int64_t offset = 0);
  Status read(void *host, int64_t bytes, int64_t offset = 0) const;
  Status fill(uint8_t byte);

private:
  std::shared_ptr<const Api> functions;
  uint64_t pointer = 0;
  int64_t size = 0;
};

/// A kernel of a loaded module, which it keeps.
class Kernel {
public:
  struct Extent {
    unsigned x = 1, y = 1, z = 1;
  };
  /// `arguments` are addresses of the arguments' values. Returns before the
  /// kernel has run.
  Status launch(Extent grid, Extent block, void *const *arguments) const;

private:
  friend class Module;
  std::shared_ptr<const void> module;
  std::shared_ptr<const Api> functions;
  void *function = nullptr;
};

/// The code of a cubin.
class Module {
public:
  static Result<Module> load(const Device &device, const std::string &image);
  /// NotFound names the kernel.
  Result<Kernel> kernel(const std::string &name) const;

private:
  std::shared_ptr<const void> handle;
  std::shared_ptr<const Api> functions;
};

/// Launches that are recorded once and replayed as one.
class Graph {
public:
  /// Records what `launch` launches.
  static Result<Graph> record(const Device &device,
                              const std::function<Status()> &launch);
  Status replay() const;
  /// Seconds of `count` replays on the device's clock.
  Result<double> time(int count) const;

private:
  std::shared_ptr<const void> executable;
  std::shared_ptr<const Api> functions;
};

} // namespace ladle::cuda

#endif // LADLE_RUNTIME_CUDA_DRIVER_H
