//===- EmulatedCuda.cpp - libcuda without a GPU ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of cuda.h that runtime/cuda/Api.h binds.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Api.h"
#include "tests/runtime/gpu/EmulatedState.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace ladle;
using namespace ladle::test;
using Handle = void *;

#define EXPORT extern "C" __attribute__((visibility("default")))

static std::recursive_mutex mutex;

/// Locks the device and gives up if the test wants this call to fail.
#define ENTER                                                                  \
  std::lock_guard<std::recursive_mutex> lock(mutex);                           \
  EmulatedState &gpu = EmulatedState::get();                                   \
  if (int code = gpu.enter(__func__))                                          \
    return code;

static void *pointer(uint64_t address) {
  return reinterpret_cast<void *>(address); // NOLINT
}

// The names are those of cuda.h, as the library has them.
// NOLINTBEGIN(readability-identifier-naming)
EXPORT EmulatedGpu *ladle_emulated_gpu() { return &EmulatedState::get(); }

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

static int primaryContext;
static thread_local std::vector<Handle> contexts;

EXPORT int cuInit(unsigned) { ENTER return success; }
EXPORT int cuGetErrorString(int code, const char **text) {
  const std::string &failure = EmulatedState::get().failure;
  *text = code == launchFailed   ? failure.c_str()
          : code == outOfMemory  ? "out of memory"
          : code == invalidValue ? "invalid argument"
          : code == captureUnsupported
              ? "operation not permitted when stream is capturing"
              : "unknown error";
  return success;
}
EXPORT int cuDriverGetVersion(int *version) {
  *version = 13000;
  return success;
}
static int numberOf(const char *variable, int otherwise) {
  const char *text = std::getenv(variable);
  return text ? static_cast<int>(std::strtol(text, nullptr, 10)) : otherwise;
}
EXPORT int cuDeviceGetCount(int *count) {
  *count = numberOf("LADLE_EMULATED_DEVICES", 1);
  return success;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return success;
}
EXPORT int cuDeviceGetName(char *name, int size, int) {
  std::strncpy(name, "emulated GPU", size);
  return success;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int) {
  switch (attribute) {
  case 16: // multiprocessors
    *value = numberOf("LADLE_EMULATED_MULTIPROCESSORS", 4);
    return success;
  case 38: // L2
    *value = 1 << 20;
    return success;
  case 75: // compute capability
    *value = 9;
    return success;
  case 76:
    *value = 0;
    return success;
  default:
    return invalidValue;
  }
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = size_t(1) << 30;
  return success;
}
EXPORT int cuDevicePrimaryCtxRetain(Handle *context, int) {
  ENTER *context = &primaryContext;
  return success;
}
EXPORT int cuCtxGetCurrent(Handle *context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return success;
}
EXPORT int cuCtxSetCurrent(Handle context) {
  contexts = {context};
  return success;
}
EXPORT int cuCtxPushCurrent_v2(Handle context) {
  contexts.push_back(context);
  return success;
}
EXPORT int cuCtxPopCurrent_v2(Handle *context) {
  *context = contexts.back();
  contexts.pop_back();
  return success;
}
EXPORT int cuCtxSynchronize() {
  ENTER return gpu.isCapturing() ? captureUnsupported : gpu.drain();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

EXPORT int cuPointerGetAttribute(void *value, int, uint64_t address) {
  ENTER if (!gpu.contains(address, 1)) return invalidValue;
  *static_cast<int *>(value) = 0;
  return success;
}
EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *free = size_t(1) << 29;
  *total = size_t(1) << 30;
  return success;
}
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  ENTER return gpu.allocate(address, bytes);
}
EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  ENTER return gpu.allocate(reinterpret_cast<uint64_t *>(memory), bytes);
}
EXPORT int cuMemFreeHost(void *memory) {
  ENTER return gpu.release(reinterpret_cast<uint64_t>(memory));
}
EXPORT int cuMemFree_v2(uint64_t address) { ENTER return gpu.release(address); }

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                                Handle stream) {
  ENTER if (!gpu.contains(to, bytes)) return invalidValue;
  // Pageable memory is staged before the call returns.
  std::string staged(static_cast<const char *>(from), bytes);
  return gpu.add(stream, [to, staged] {
    std::memcpy(pointer(to), staged.data(), staged.size());
    return success;
  });
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                                Handle stream) {
  ENTER if (!gpu.contains(from, bytes)) return invalidValue;
  return gpu.add(stream, [=] {
    std::memcpy(to, pointer(from), bytes);
    return success;
  });
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                                Handle stream) {
  ENTER if (!gpu.contains(from, bytes) ||
            !gpu.contains(to, bytes)) return invalidValue;
  return gpu.add(stream, [=] {
    std::memmove(pointer(to), pointer(from), bytes);
    return success;
  });
}
EXPORT int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t bytes,
                           Handle stream) {
  ENTER if (!gpu.contains(at, bytes)) return invalidValue;
  return gpu.add(stream, [=] {
    EmulatedState::get().set(at, byte, bytes);
    return success;
  });
}
EXPORT int cuMemsetD32Async(uint64_t at, unsigned value, size_t count,
                            Handle stream) {
  ENTER if (at % 4 || !gpu.contains(at, 4 * count)) return invalidValue;
  return gpu.add(stream, [=] {
    std::fill_n(static_cast<unsigned *>(pointer(at)), count, value);
    return success;
  });
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

EXPORT int cuModuleLoadData(Handle *module, const void *image) {
  ENTER auto *code = new EmulatedCode;
  const char *text = static_cast<const char *>(image);
  *module = code;
  if (std::memcmp(text,
                  "\x7f"
                  "ELF",
                  4) == 0)
    return success;
  code->text = text;
  code->module.emplace(code->text);
  return success;
}
EXPORT int cuModuleUnload(Handle) { return success; }

/// The bytes of each parameter of a kernel, by its declaration.
static std::vector<size_t> parameterSizes(const std::string &text,
                                          const std::string &name) {
  std::vector<size_t> sizes;
  size_t begin = text.find(" " + name + "(") + name.size() + 2;
  std::string list = text.substr(begin, text.find(')', begin) - begin);
  if (list.find_first_not_of(" \n") == std::string::npos)
    return sizes;
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    std::string parameter = list.substr(at, end - at);
    bool isWide = false;
    for (const char *type : {"*", "long long", "double"})
      isWide |= parameter.find(type) != std::string::npos;
    sizes.push_back(isWide ? 8 : 4);
    at = end + 1;
  }
  return sizes;
}

EXPORT int cuModuleGetFunction(Handle *function, Handle module,
                               const char *name) {
  ENTER auto *code = static_cast<EmulatedCode *>(module);
  if (!code->module) {
    *function = new EmulatedKernel{code, name, {}};
    return success;
  }
  for (const std::string &kernel : code->module->kernels())
    if (kernel == name) {
      *function =
          new EmulatedKernel{code, name, parameterSizes(code->text, name)};
      return success;
    }
  return notFound;
}
EXPORT int cuFuncSetAttribute(Handle function, int attribute, int value) {
  ENTER if (attribute != cuda::maxDynamicSharedBytes ||
            value > 227 << 10) return invalidValue;
  static_cast<EmulatedKernel *>(function)->sharedLimit = value;
  return success;
}
EXPORT int cuLaunchKernel(Handle function, unsigned gx, unsigned gy,
                          unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, Handle stream, void **values,
                          void **) {
  ENTER auto &kernel = *static_cast<EmulatedKernel *>(function);
  return gpu.launch(
      {kernel.name, {gx, gy, gz}, {bx, by, bz}, shared, stream, false, 1},
      kernel, values);
}
EXPORT int cuLaunchKernelEx(const cuda::LaunchConfig *config, Handle function,
                            void **values, void **) {
  ENTER auto &kernel = *static_cast<EmulatedKernel *>(function);
  bool isProgrammatic = false;
  unsigned cluster[3] = {1, 1, 1};
  for (unsigned i = 0; i < config->attributeCount; ++i) {
    const cuda::LaunchAttribute &attribute = config->attributes[i];
    if (attribute.id == cuda::programmaticSerialization)
      isProgrammatic = attribute.value[0] == 1;
    else if (attribute.id == cuda::clusterDimension)
      std::copy_n(attribute.value, 3, cluster);
    else
      return invalidValue;
  }
  if (cluster[1] != 1 || cluster[2] != 1)
    return invalidValue;
  return gpu.launch({kernel.name,
                     {config->gridX, config->gridY, config->gridZ},
                     {config->blockX, config->blockY, config->blockZ},
                     config->sharedBytes,
                     config->stream,
                     isProgrammatic,
                     cluster[0]},
                    kernel, values);
}

//===----------------------------------------------------------------------===//
// Streams, graphs, events
//===----------------------------------------------------------------------===//

EXPORT int cuStreamCreate(Handle *stream, unsigned) {
  ENTER auto made = std::make_unique<EmulatedStream>();
  *stream = made.get();
  gpu.streams[made.get()] = std::move(made);
  return success;
}
EXPORT int cuStreamDestroy_v2(Handle stream) {
  ENTER gpu.streams.erase(static_cast<EmulatedStream *>(stream));
  return success;
}
EXPORT int cuStreamSynchronize(Handle) {
  ENTER return gpu.isCapturing() ? captureUnsupported : gpu.drain();
}
EXPORT int cuStreamBeginCapture_v2(Handle stream, int) {
  ENTER static_cast<EmulatedStream *>(stream)->isCapturing = true;
  return success;
}
EXPORT int cuStreamEndCapture(Handle handle, Handle *graph) {
  ENTER auto *stream = static_cast<EmulatedStream *>(handle);
  stream->isCapturing = false;
  *graph = new std::vector<Work>(std::exchange(stream->captured, {}));
  return success;
}
EXPORT int cuStreamIsCapturing(Handle stream, int *isActive) {
  ENTER *isActive =
      stream && static_cast<EmulatedStream *>(stream)->isCapturing;
  return success;
}
EXPORT int cuGraphInstantiateWithFlags(Handle *executable, Handle graph,
                                       unsigned long long) {
  ENTER *executable =
      new std::vector<Work>(*static_cast<std::vector<Work> *>(graph));
  return success;
}
EXPORT int cuGraphGetNodes(Handle graph, Handle *, size_t *count) {
  *count = static_cast<std::vector<Work> *>(graph)->size();
  return success;
}
EXPORT int cuGraphDestroy(Handle graph) {
  delete static_cast<std::vector<Work> *>(graph);
  return success;
}
EXPORT int cuGraphExecDestroy(Handle graph) { return cuGraphDestroy(graph); }
EXPORT int cuGraphLaunch(Handle graph, Handle stream) {
  ENTER for (const Work &work : *static_cast<std::vector<Work> *>(
                 graph)) if (int code = gpu.add(stream, work)) return code;
  return success;
}
EXPORT int cuEventCreate(Handle *event, unsigned) {
  *event = new int;
  return success;
}
EXPORT int cuEventRecord(Handle, Handle) { return success; }
EXPORT int cuEventSynchronize(Handle) { ENTER return gpu.drain(); }
EXPORT int cuEventElapsedTime(float *milliseconds, Handle, Handle) {
  *milliseconds = 1;
  return success;
}
EXPORT int cuEventDestroy_v2(Handle event) {
  delete static_cast<int *>(event);
  return success;
}
// NOLINTEND(readability-identifier-naming)
