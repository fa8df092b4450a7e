//===- Ceilings.h - what the memory of a GPU gives --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_CEILINGS_H
#define LADLE_TOOLS_MEASURE_CEILINGS_H

#include "tools/measure/Gpu.h"

#include <optional>
#include <vector>

namespace ladle::measure {

/// The best way that was found to stream memory, and how fast it was.
struct Ceiling {
  std::string variant; ///< "4 loads of 16 bytes, 256 threads, 64 KiB a block"
  std::vector<double> samples; ///< bytes a second; what is written counts too
  double bytesPerSecond() const;
};

/// Reads memory, or updates it in place, by several kernels. The best is what a
/// decode step could at most get; it is measured again in the course of a run,
/// so that a ratio to it compares neighbours in time.
class Ceilings {
public:
  /// Streams over `bytes` at most, less if there is not so much memory.
  static Result<Ceilings> measure(const Gpu &gpu, int64_t bytes = int64_t(2)
                                                                  << 30);
  /// The text of all variants.
  static std::string kernels();
  /// One more sample of the best variants.
  Status again();

  const Ceiling &read() const { return best[0]; }
  const Ceiling &update() const { return best[1]; }
  /// Of a kernel that does nothing, among others in a graph.
  double launchSeconds() const;
  int64_t bytes() const { return memory.bytes(); }

private:
  struct Variant {
    bool updates;
    const char *policy;
    unsigned loads, threads, steps;
    std::string kernel() const;
    int64_t blockBytes() const { return int64_t(16) * loads * threads * steps; }
    std::string str() const;
  };

  explicit Ceilings(cuda::Device device) : device(std::move(device)) {}
  Result<double> sample(const Variant &variant, int count);
  Status search();
  Status measureLaunch();

  cuda::Device device;
  std::optional<cuda::Module> module;
  cuda::Memory memory, sink;
  Variant chosen[2]{};
  Ceiling best[2];
  std::vector<double> launches;
};

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_CEILINGS_H
