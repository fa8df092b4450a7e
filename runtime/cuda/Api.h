//===- Api.h - the functions of the CUDA driver -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What cuda.h declares, as far as it is used here. Results are 0 or an error.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_API_H
#define LADLE_RUNTIME_CUDA_API_H

#include "ladle/status.h"

#include <cstddef>
#include <cstdint>

namespace ladle::cuda {

/// CUlaunchAttribute: a number that says which, and a union of 64 bytes.
struct LaunchAttribute {
  int id;
  alignas(8) unsigned value[16];
};
static_assert(sizeof(LaunchAttribute) == 72);

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56);

/// CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: blocks along x, y and z.
inline constexpr int clusterDimension = 4;
/// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int programmaticSerialization = 6;
/// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int maxDynamicSharedBytes = 8;
/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
inline constexpr int pointerDeviceOrdinal = 9;

/// The functions by their versioned names.
struct Api {
  using Handle = void *;

  int (*init)(unsigned);
  int (*getErrorString)(int, const char **);
  int (*driverGetVersion)(int *);
  int (*deviceGetCount)(int *);
  int (*deviceGet)(int *, int);
  int (*deviceGetName)(char *, int, int);
  int (*deviceGetAttribute)(int *, int, int);
  int (*deviceTotalMem)(size_t *, int);
  int (*primaryCtxRetain)(Handle *, int);
  int (*ctxGetCurrent)(Handle *);
  int (*ctxSetCurrent)(Handle);
  int (*ctxPushCurrent)(Handle);
  int (*ctxPopCurrent)(Handle *);
  int (*ctxSynchronize)();
  int (*pointerGetAttribute)(void *, int, uint64_t);
  int (*memGetInfo)(size_t *, size_t *);
  int (*memAlloc)(uint64_t *, size_t);
  int (*memFree)(uint64_t);
  /// Of the host, which kernels reach at the same address.
  int (*hostAlloc)(void **, size_t, unsigned);
  int (*hostFree)(void *);
  int (*copyToDevice)(uint64_t, const void *, size_t, Handle stream);
  int (*copyToHost)(void *, uint64_t, size_t, Handle stream);
  int (*copyOnDevice)(uint64_t, uint64_t, size_t, Handle stream);
  int (*fill8)(uint64_t, unsigned char, size_t, Handle stream);
  int (*fill32)(uint64_t, unsigned, size_t, Handle stream);
  int (*moduleLoadData)(Handle *, const void *);
  int (*moduleUnload)(Handle);
  int (*moduleGetFunction)(Handle *, Handle, const char *);
  int (*funcSetAttribute)(Handle, int, int);
  int (*launchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, Handle, void **, void **);
  /// Since CUDA 11.8, otherwise null.
  int (*launchKernelEx)(const LaunchConfig *, Handle, void **, void **);
  int (*streamCreate)(Handle *, unsigned);
  int (*streamSynchronize)(Handle);
  int (*streamDestroy)(Handle);
  int (*beginCapture)(Handle, int);
  int (*endCapture)(Handle, Handle *);
  int (*isCapturing)(Handle, int *);
  int (*graphInstantiate)(Handle *, Handle, unsigned long long);
  /// How many, where there is no room for them.
  int (*graphGetNodes)(Handle, Handle *, size_t *);
  int (*graphDestroy)(Handle);
  int (*graphExecDestroy)(Handle);
  int (*graphLaunch)(Handle, Handle);
  int (*eventCreate)(Handle *, unsigned);
  int (*eventRecord)(Handle, Handle);
  int (*eventSynchronize)(Handle);
  int (*eventElapsedTime)(float *, Handle, Handle);
  int (*eventDestroy)(Handle);

  /// The file that was opened.
  std::string path;

  /// The driver's words for `code`; ResourceExhausted if memory is short.
  Status check(int code, const char *what) const {
    return code == 0 ? Status() : failure(code, what);
  }
  Status failure(int code, const char *what) const;

  /// Opens $LADLE_CUDA or libcuda.so.1, once a process. NotFound says where it
  /// was looked for.
  static Result<std::shared_ptr<const Api>> open();
};

} // namespace ladle::cuda

#endif // LADLE_RUNTIME_CUDA_API_H
