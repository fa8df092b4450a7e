//===- Driver.cpp - the CUDA driver, opened at run time -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::cuda;

/// The functions of the driver by their versioned names.
struct cuda::Api {
  using Handle = void *;
  int (*init)(unsigned);
  int (*getErrorString)(int, const char **);
  int (*driverGetVersion)(int *);
  int (*deviceGet)(int *, int);
  int (*deviceGetName)(char *, int, int);
  int (*deviceGetAttribute)(int *, int, int);
  int (*primaryCtxRetain)(Handle *, int);
  int (*ctxSetCurrent)(Handle);
  int (*ctxSynchronize)();
  int (*memAlloc)(uint64_t *, size_t);
  int (*memFree)(uint64_t);
  int (*copyToDevice)(uint64_t, const void *, size_t);
  int (*copyToHost)(void *, uint64_t, size_t);
  int (*memset)(uint64_t, unsigned char, size_t);
  int (*moduleLoadData)(Handle *, const void *);
  int (*moduleUnload)(Handle);
  int (*moduleGetFunction)(Handle *, Handle, const char *);
  int (*launchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, Handle, void **, void **);
  int (*streamCreate)(Handle *, unsigned);
  int (*streamSynchronize)(Handle);
  int (*beginCapture)(Handle, int);
  int (*endCapture)(Handle, Handle *);
  int (*graphInstantiate)(Handle *, Handle, unsigned long long);
  int (*graphDestroy)(Handle);
  int (*graphExecDestroy)(Handle);
  int (*graphLaunch)(Handle, Handle);
  int (*eventCreate)(Handle *, unsigned);
  int (*eventRecord)(Handle, Handle);
  int (*eventSynchronize)(Handle);
  int (*eventElapsedTime)(float *, Handle, Handle);
  int (*eventDestroy)(Handle);

  /// All launches go to one stream, which can be captured.
  Handle stream = nullptr;

  Status check(int code, const char *what) const {
    if (code == 0)
      return Status();
    const char *text = nullptr;
    getErrorString(code, &text);
    constexpr int outOfMemory = 2;
    return Status(code == outOfMemory ? ErrorCode::ResourceExhausted
                                      : ErrorCode::Internal,
                  fmt::format("{} failed with code {}: {}", what, code,
                              text ? text : "unknown error"));
  }
};

static Result<std::shared_ptr<Api>> openApi() {
  void *library = nullptr;
  for (const char *name : {"libcuda.so.1", "libcuda.so"})
    if (!library)
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status(ErrorCode::NotFound,
                  "no CUDA driver: libcuda.so.1 was not found\n"
                  "note: it comes with the driver of the GPU");
  auto api = std::make_shared<Api>();
  std::string missing;
  auto bind = [&](auto &function, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol && missing.empty())
      missing = name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  bind(api->init, "cuInit");
  bind(api->getErrorString, "cuGetErrorString");
  bind(api->driverGetVersion, "cuDriverGetVersion");
  bind(api->deviceGet, "cuDeviceGet");
  bind(api->deviceGetName, "cuDeviceGetName");
  bind(api->deviceGetAttribute, "cuDeviceGetAttribute");
  bind(api->primaryCtxRetain, "cuDevicePrimaryCtxRetain");
  bind(api->ctxSetCurrent, "cuCtxSetCurrent");
  bind(api->ctxSynchronize, "cuCtxSynchronize");
  bind(api->memAlloc, "cuMemAlloc_v2");
  bind(api->memFree, "cuMemFree_v2");
  bind(api->copyToDevice, "cuMemcpyHtoD_v2");
  bind(api->copyToHost, "cuMemcpyDtoH_v2");
  bind(api->memset, "cuMemsetD8_v2");
  bind(api->moduleLoadData, "cuModuleLoadData");
  bind(api->moduleUnload, "cuModuleUnload");
  bind(api->moduleGetFunction, "cuModuleGetFunction");
  bind(api->launchKernel, "cuLaunchKernel");
  bind(api->streamCreate, "cuStreamCreate");
  bind(api->streamSynchronize, "cuStreamSynchronize");
  bind(api->beginCapture, "cuStreamBeginCapture_v2");
  bind(api->endCapture, "cuStreamEndCapture");
  bind(api->graphInstantiate, "cuGraphInstantiateWithFlags");
  bind(api->graphDestroy, "cuGraphDestroy");
  bind(api->graphExecDestroy, "cuGraphExecDestroy");
  bind(api->graphLaunch, "cuGraphLaunch");
  bind(api->eventCreate, "cuEventCreate");
  bind(api->eventRecord, "cuEventRecord");
  bind(api->eventSynchronize, "cuEventSynchronize");
  bind(api->eventElapsedTime, "cuEventElapsedTime");
  bind(api->eventDestroy, "cuEventDestroy_v2");
  if (!missing.empty())
    return Status(ErrorCode::Unsupported,
                  fmt::format("the CUDA driver lacks {}\n"
                              "note: CUDA 11.4 or later has it",
                              missing));
  return api;
}

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

Result<Device> Device::open(int ordinal) {
  Result<std::shared_ptr<Api>> opened = openApi();
  if (!opened)
    return opened.status();
  const std::shared_ptr<Api> &api = *opened;
  if (Status status = api->check(api->init(0), "cuInit"); !status)
    return Status(ErrorCode::NotFound, status.message());
  Device device(api);
  int handle = 0;
  if (Status status =
          api->check(api->deviceGet(&handle, ordinal), "cuDeviceGet");
      !status)
    return Status(ErrorCode::NotFound, status.message());
  char name[256] = "";
  void *context = nullptr;
  int bytes = 0;
  constexpr int attributeL2 = 38, attributeMajor = 75, attributeMinor = 76;
  constexpr unsigned nonBlocking = 1;
  api->driverGetVersion(&device.version);
  api->deviceGetName(name, sizeof(name), handle);
  api->deviceGetAttribute(&bytes, attributeL2, handle);
  api->deviceGetAttribute(&device.major, attributeMajor, handle);
  api->deviceGetAttribute(&device.minor, attributeMinor, handle);
  device.deviceName = name;
  device.level2 = bytes;
  for (const Status &status :
       {api->check(api->primaryCtxRetain(&context, handle),
                   "cuDevicePrimaryCtxRetain"),
        api->check(api->ctxSetCurrent(context), "cuCtxSetCurrent"),
        api->check(api->streamCreate(&api->stream, nonBlocking),
                   "cuStreamCreate")})
    if (!status)
      return status;
  return device;
}

std::string Device::arch() const {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

Status Device::synchronize() const {
  return functions->check(functions->ctxSynchronize(), "a kernel");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

cuda::Memory &cuda::Memory::operator=(Memory &&other) noexcept {
  std::swap(functions, other.functions);
  std::swap(pointer, other.pointer);
  std::swap(size, other.size);
  return *this;
}

cuda::Memory::~Memory() {
  if (pointer)
    functions->memFree(pointer);
}

Result<cuda::Memory> cuda::Memory::allocate(const Device &device,
                                            int64_t bytes) {
  Memory memory;
  memory.functions = device.api();
  memory.size = bytes;
  if (Status status = memory.functions->check(
          memory.functions->memAlloc(
              &memory.pointer,
              static_cast<size_t>(std::max<int64_t>(bytes, 1))),
          "cuMemAlloc");
      !status)
    return status;
  return memory;
}

Status cuda::Memory::write(const void *host, int64_t bytes, int64_t offset) {
  return functions->check(functions->copyToDevice(pointer + offset, host,
                                                  static_cast<size_t>(bytes)),
                          "cuMemcpyHtoD");
}

Status cuda::Memory::read(void *host, int64_t bytes, int64_t offset) const {
  return functions->check(
      functions->copyToHost(host, pointer + offset, static_cast<size_t>(bytes)),
      "cuMemcpyDtoH");
}

Status cuda::Memory::fill(uint8_t byte) {
  return functions->check(
      functions->memset(pointer, byte, static_cast<size_t>(size)),
      "cuMemsetD8");
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

Result<Module> Module::load(const Device &device, const std::string &image) {
  std::shared_ptr<const Api> api = device.api();
  void *handle = nullptr;
  if (Status status = api->check(api->moduleLoadData(&handle, image.data()),
                                 "cuModuleLoadData");
      !status)
    return status;
  Module module;
  module.functions = api;
  module.handle = std::shared_ptr<const void>(handle, [api](const void *each) {
    api->moduleUnload(const_cast<void *>(each));
  });
  return module;
}

Result<Kernel> Module::kernel(const std::string &name) const {
  Kernel kernel;
  kernel.module = handle;
  kernel.functions = functions;
  if (functions->moduleGetFunction(&kernel.function,
                                   const_cast<void *>(handle.get()),
                                   name.c_str()) != 0)
    return Status(ErrorCode::NotFound,
                  fmt::format("the module has no kernel '{}'", name));
  return kernel;
}

Status Kernel::launch(Extent grid, Extent block, void *const *arguments) const {
  return functions->check(
      functions->launchKernel(function, grid.x, grid.y, grid.z, block.x,
                              block.y, block.z, 0, functions->stream,
                              const_cast<void **>(arguments), nullptr),
      "cuLaunchKernel");
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Result<Graph> Graph::record(const Device &device,
                            const std::function<Status()> &launch) {
  std::shared_ptr<const Api> api = device.api();
  constexpr int threadLocal = 1;
  if (Status status = api->check(api->beginCapture(api->stream, threadLocal),
                                 "cuStreamBeginCapture");
      !status)
    return status;
  Status launched = launch();
  void *graph = nullptr, *executable = nullptr;
  Status ended =
      api->check(api->endCapture(api->stream, &graph), "cuStreamEndCapture");
  if (!launched)
    return launched;
  if (!ended)
    return ended;
  Status made = api->check(api->graphInstantiate(&executable, graph, 0),
                           "cuGraphInstantiate");
  api->graphDestroy(graph);
  if (!made)
    return made;
  Graph result;
  result.functions = api;
  result.executable =
      std::shared_ptr<const void>(executable, [api](const void *each) {
        api->graphExecDestroy(const_cast<void *>(each));
      });
  return result;
}

Status Graph::replay() const {
  return functions->check(
      functions->graphLaunch(const_cast<void *>(executable.get()),
                             functions->stream),
      "cuGraphLaunch");
}

Result<double> Graph::time(int count) const {
  void *start = nullptr, *end = nullptr;
  float milliseconds = 0;
  Status status;
  auto step = [&](int code, const char *what) {
    if (status)
      status = functions->check(code, what);
  };
  step(functions->eventCreate(&start, 0), "cuEventCreate");
  step(functions->eventCreate(&end, 0), "cuEventCreate");
  step(functions->eventRecord(start, functions->stream), "cuEventRecord");
  for (int i = 0; i < count && status; ++i)
    status = replay();
  step(functions->eventRecord(end, functions->stream), "cuEventRecord");
  step(functions->eventSynchronize(end), "cuEventSynchronize");
  step(functions->eventElapsedTime(&milliseconds, start, end),
       "cuEventElapsedTime");
  for (void *event : {start, end})
    if (event)
      functions->eventDestroy(event);
  if (!status)
    return status;
  return 1e-3 * milliseconds;
}
