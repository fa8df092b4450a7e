//===- Api.cpp - the functions of the CUDA driver -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Api.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <map>
#include <mutex>

using namespace ladle;
using namespace ladle::cuda;

Status Api::failure(int code, const char *what) const {
  const char *text = nullptr;
  getErrorString(code, &text);
  constexpr int outOfMemory = 2;
  return Status(code == outOfMemory ? ErrorCode::ResourceExhausted
                                    : ErrorCode::Internal,
                fmt::format("{} failed with code {}: {}", what, code,
                            text ? text : "unknown error"));
}

/// The name of the first function that is missing, or null.
static const char *bindAll(Api &api, void *library) {
  const char *missing = nullptr;
  auto bind = [&](auto &function, const char *name, bool needed = true) {
    void *symbol = ::dlsym(library, name);
    if (!symbol && needed && !missing)
      missing = name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  bind(api.init, "cuInit");
  bind(api.getErrorString, "cuGetErrorString");
  bind(api.driverGetVersion, "cuDriverGetVersion");
  bind(api.deviceGetCount, "cuDeviceGetCount");
  bind(api.deviceGet, "cuDeviceGet");
  bind(api.deviceGetName, "cuDeviceGetName");
  bind(api.deviceGetAttribute, "cuDeviceGetAttribute");
  bind(api.deviceTotalMem, "cuDeviceTotalMem_v2");
  bind(api.primaryCtxRetain, "cuDevicePrimaryCtxRetain");
  bind(api.ctxGetCurrent, "cuCtxGetCurrent");
  bind(api.ctxSetCurrent, "cuCtxSetCurrent");
  bind(api.ctxPushCurrent, "cuCtxPushCurrent_v2");
  bind(api.ctxPopCurrent, "cuCtxPopCurrent_v2");
  bind(api.ctxSynchronize, "cuCtxSynchronize");
  bind(api.pointerGetAttribute, "cuPointerGetAttribute");
  bind(api.memGetInfo, "cuMemGetInfo_v2");
  bind(api.memAlloc, "cuMemAlloc_v2");
  bind(api.memFree, "cuMemFree_v2");
  bind(api.hostAlloc, "cuMemHostAlloc");
  bind(api.hostFree, "cuMemFreeHost");
  bind(api.copyToDevice, "cuMemcpyHtoDAsync_v2");
  bind(api.copyToHost, "cuMemcpyDtoHAsync_v2");
  bind(api.copyOnDevice, "cuMemcpyDtoDAsync_v2");
  bind(api.fill8, "cuMemsetD8Async");
  bind(api.fill32, "cuMemsetD32Async");
  bind(api.moduleLoadData, "cuModuleLoadData");
  bind(api.moduleUnload, "cuModuleUnload");
  bind(api.moduleGetFunction, "cuModuleGetFunction");
  bind(api.funcSetAttribute, "cuFuncSetAttribute");
  bind(api.launchKernel, "cuLaunchKernel");
  bind(api.launchKernelEx, "cuLaunchKernelEx", /*needed=*/false);
  bind(api.streamCreate, "cuStreamCreate");
  bind(api.streamSynchronize, "cuStreamSynchronize");
  bind(api.streamDestroy, "cuStreamDestroy_v2");
  bind(api.beginCapture, "cuStreamBeginCapture_v2");
  bind(api.endCapture, "cuStreamEndCapture");
  bind(api.isCapturing, "cuStreamIsCapturing");
  bind(api.graphInstantiate, "cuGraphInstantiateWithFlags");
  bind(api.graphGetNodes, "cuGraphGetNodes");
  bind(api.graphDestroy, "cuGraphDestroy");
  bind(api.graphExecDestroy, "cuGraphExecDestroy");
  bind(api.graphLaunch, "cuGraphLaunch");
  bind(api.eventCreate, "cuEventCreate");
  bind(api.eventRecord, "cuEventRecord");
  bind(api.eventSynchronize, "cuEventSynchronize");
  bind(api.eventElapsedTime, "cuEventElapsedTime");
  bind(api.eventDestroy, "cuEventDestroy_v2");
  return missing;
}

static Result<std::shared_ptr<const Api>> openNow(const std::string &named) {
  void *library = nullptr;
  if (!named.empty()) {
    library = ::dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return Status(ErrorCode::NotFound,
                    fmt::format("LADLE_CUDA: {}", ::dlerror()));
  }
  for (const char *name : {"libcuda.so.1", "libcuda.so"})
    if (!library)
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status(ErrorCode::NotFound,
                  "no CUDA driver: libcuda.so.1 was not found\n"
                  "note: it comes with the driver of the GPU; LADLE_CUDA names "
                  "a file elsewhere");
  auto api = std::make_shared<Api>();
  if (const char *missing = bindAll(*api, library))
    return Status(ErrorCode::Unsupported,
                  fmt::format("the CUDA driver lacks {}\n"
                              "note: CUDA 11.4 or later has it",
                              missing));
  Dl_info info;
  if (::dladdr(reinterpret_cast<void *>(api->init), &info))
    api->path = info.dli_fname;
  return std::shared_ptr<const Api>(std::move(api));
}

Result<std::shared_ptr<const Api>> Api::open() {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Api>> opened;
  const char *variable = std::getenv("LADLE_CUDA");
  std::string named = variable ? variable : "";
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = opened.find(named); found != opened.end())
    return found->second;
  Result<std::shared_ptr<const Api>> api = openNow(named);
  if (api)
    opened[named] = *api;
  return api;
}
