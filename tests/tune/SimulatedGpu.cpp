//===- SimulatedGpu.cpp - an emulated GPU with a clock --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libladle_simulated_gpu stands in for libcuda (LADLE_CUDA). Kernels run on the
// emulator, as in libladle_emulated_gpu, whose functions it takes for all that
// it does not define. Graphs do not run: a replay takes what a formula says, so
// that a benchmark of thousands of launches takes no time.
//
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Api.h"

#include <dlfcn.h>
#include <map>

using namespace ladle;
using Handle = void *;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

/// What a graph, or the stream so far, takes, in seconds.
struct Clock {
  double now = 0, captured = 0;
  bool isCapturing = false;
  unsigned noise = 1;
  size_t launches = 0; ///< of what was captured
  std::map<Handle, double> graphs;

  /// A launch, and what its threads take; another size of a block, another
  /// part of that.
  void addLaunch(double blocks, unsigned threads) {
    double part = 1 + 0.05 * (threads / 32 * 7 % 5);
    ++launches;
    captured += 1e-6 + blocks * threads * 2e-10 * part;
  }
  void replay(double seconds) {
    noise = noise * 1664525 + 1013904223;
    now += seconds * (1 + 0.002 * (noise >> 16) / 65536);
  }
};
Clock simulated;

template <typename F> F *next(F *, const char *name) {
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
} // namespace

/// The function of the same name that was there before.
#define REAL(NAME) next(&(NAME), #NAME)

// As the driver names them.
// NOLINTBEGIN(readability-identifier-naming)

EXPORT int cuDeviceGetName(char *name, int, int) {
  constexpr char text[] = "simulated GPU";
  std::copy(std::begin(text), std::end(text), name);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  constexpr int cacheBytes = 38;
  if (attribute == cacheBytes) {
    *value = 2048;
    return 0;
  }
  return REAL(cuDeviceGetAttribute)(value, attribute, device);
}
/// Little memory: what is as large as it can be stays small.
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  constexpr int outOfMemory = 2;
  return bytes > size_t(8) << 20 ? outOfMemory
                                 : REAL(cuMemAlloc_v2)(address, bytes);
}
EXPORT int cuLaunchKernel(Handle function, unsigned gx, unsigned gy,
                          unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, Handle stream, void **values,
                          void **extra) {
  if (!simulated.isCapturing)
    return REAL(cuLaunchKernel)(function, gx, gy, gz, bx, by, bz, shared,
                                stream, values, extra);
  simulated.addLaunch(double(gx) * gy * gz, bx * by * bz);
  return 0;
}
EXPORT int cuLaunchKernelEx(const cuda::LaunchConfig *config, Handle function,
                            void **values, void **extra) {
  if (!simulated.isCapturing)
    return REAL(cuLaunchKernelEx)(config, function, values, extra);
  simulated.addLaunch(double(config->gridX) * config->gridY * config->gridZ,
                      config->blockX * config->blockY * config->blockZ);
  return 0;
}
EXPORT int cuStreamBeginCapture_v2(Handle stream, int mode) {
  simulated.isCapturing = true;
  simulated.captured = 0;
  simulated.launches = 0;
  return REAL(cuStreamBeginCapture_v2)(stream, mode);
}
EXPORT int cuStreamEndCapture(Handle stream, Handle *graph) {
  simulated.isCapturing = false;
  int code = REAL(cuStreamEndCapture)(stream, graph);
  simulated.graphs[*graph] = simulated.captured;
  return code;
}
EXPORT int cuGraphInstantiateWithFlags(Handle *executable, Handle graph,
                                       unsigned long long) {
  *executable = new double(simulated.graphs[graph]);
  return 0;
}
/// Of the graph that was captured last.
EXPORT int cuGraphGetNodes(Handle, Handle *, size_t *count) {
  *count = simulated.launches;
  return 0;
}
EXPORT int cuGraphExecDestroy(Handle executable) {
  delete static_cast<double *>(executable);
  return 0;
}
EXPORT int cuGraphLaunch(Handle executable, Handle) {
  simulated.replay(*static_cast<double *>(executable));
  return 0;
}
EXPORT int cuEventCreate(Handle *event, unsigned) {
  *event = new double(0);
  return 0;
}
EXPORT int cuEventRecord(Handle event, Handle) {
  *static_cast<double *>(event) = simulated.now;
  return 0;
}
EXPORT int cuEventElapsedTime(float *milliseconds, Handle start, Handle end) {
  *milliseconds = static_cast<float>(
      1e3 * (*static_cast<double *>(end) - *static_cast<double *>(start)));
  return 0;
}
EXPORT int cuEventDestroy_v2(Handle event) {
  delete static_cast<double *>(event);
  return 0;
}
// NOLINTEND(readability-identifier-naming)
