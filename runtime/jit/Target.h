//===- Target.h - what kernels are compiled for and run on ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_TARGET_H
#define LADLE_RUNTIME_JIT_TARGET_H

#include "codegen/DiskCache.h"
#include "codegen/cpu/ObjectLoader.h"
#include "codegen/cuda/Nvrtc.h"
#include "runtime/cuda/GpuCode.h"
#include "runtime/jit/Compiler.h"
#include "llvm/Support/JSON.h"

namespace ladle::jit {

/// The kernels of one route in memory, of the host or of a device.
struct LoadedRoute {
  RouteObject object;
  LoadedObject code;
  std::shared_ptr<const GpuRoute> gpu;
  bool cached = false;
  double milliseconds = 0;
};

class Target {
public:
  /// By the options' `target`. NotFound says what cuda lacks; for "auto" that
  /// is `note()` of the CPU.
  static Result<Target> choose(const CompileOptions &options);

  bool isGpu() const { return device.has_value(); }
  const std::string &note() const { return reason; }
  /// That says why this is not the GPU that was asked for first, or nothing.
  std::string warning() const;
  /// Since it was chosen, without what opening the device took.
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start)
        .count();
  }
  /// All that code depends on besides the source and its options.
  const std::vector<std::string> &keyParts() const { return parts; }

  /// Not for several threads with one compiler. On a GPU the kernel that
  /// verifies may answer rows of kv_only as well.
  Result<RouteObject> compile(RouteKind route, Compiler &compiler,
                              const GpuLayout &layout,
                              bool answersShortRows) const;
  /// The device, which has to be there.
  const cuda::Device &gpu() const { return *device; }
  /// `splits` as in CubinOptions.
  Result<std::string> makeCubin(llvm::StringRef text, llvm::StringRef name,
                                bool splits = false) const;
  /// What the model knows of the device; null on the host.
  const Machine::Card *card() const { return isGpu() ? &about : nullptr; }
  /// Of the device; empty on the host.
  std::string deviceName() const { return device ? device->name() : ""; }
  Result<LoadedRoute> load(RouteObject object) const;
  /// What the routes of a program for a GPU share, from the cache or compiled.
  Result<std::shared_ptr<const GpuCode>> shared(const DiskCache &cache) const;
  /// The kernel that watches attentions, likewise.
  Result<cuda::Kernel> diagnostics(const DiskCache &cache) const;
  /// Adds what a manifest says of the target.
  void describe(llvm::json::Object &manifest) const;

private:
  /// A text that depends on nothing but the device, from the cache or compiled.
  Result<cuda::Module> loadText(llvm::StringRef name, llvm::StringRef text,
                                const DiskCache &cache) const;

  using Clock = std::chrono::steady_clock;

  Clock::time_point start = Clock::now();
  std::string reason;
  std::vector<std::string> parts;
  std::optional<cuda::Device> device;
  Machine::Card about;
  std::optional<Nvrtc> nvrtc;
};

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_TARGET_H
