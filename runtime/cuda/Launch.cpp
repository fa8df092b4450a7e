//===- Launch.cpp - kernels and graphs of the CUDA driver -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::cuda;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

Result<Module> Module::load(const Device &device, const std::string &image) {
  const std::shared_ptr<const Context> &context = device.context();
  CurrentContext current(*context);
  void *handle = nullptr;
  if (Status status =
          context->check(context->api->moduleLoadData(&handle, image.data()),
                         "cuModuleLoadData");
      !status)
    return status;
  Module module;
  module.context = context;
  module.isProgrammatic = device.isProgrammatic();
  module.handle =
      std::shared_ptr<const void>(handle, [context](const void *each) {
        CurrentContext current(*context);
        context->api->moduleUnload(const_cast<void *>(each));
      });
  return module;
}

Result<Kernel> Module::kernel(const KernelInfo &info) const {
  Kernel kernel;
  kernel.module = handle;
  kernel.context = context;
  kernel.about = info;
  kernel.about.programmatic = info.programmatic && isProgrammatic;
  CurrentContext current(*context);
  const Api &api = *context->api;
  if (api.moduleGetFunction(&kernel.function, const_cast<void *>(handle.get()),
                            info.name.c_str()) != 0)
    return Status(ErrorCode::NotFound,
                  fmt::format("the module has no kernel '{}'", info.name));
  // More than any device gives without being asked.
  constexpr unsigned ordinaryBytes = 48 << 10;
  if (info.sharedBytes > ordinaryBytes)
    if (Status status = context->check(
            api.funcSetAttribute(kernel.function, maxDynamicSharedBytes,
                                 static_cast<int>(info.sharedBytes)),
            "cuFuncSetAttribute");
        !status)
      return Status(ErrorCode::Unsupported,
                    fmt::format("kernel '{}' wants {} bytes of shared memory "
                                "a block, which the device does not have",
                                info.name, info.sharedBytes));
  return kernel;
}

Status Kernel::launch(Extent grid, Extent block, void *const *arguments,
                      void *stream, bool early,
                      unsigned blocksOfCluster) const {
  const Api &api = *context->api;
  auto **values = const_cast<void **>(arguments);
  LaunchAttribute attributes[2];
  unsigned count = 0;
  if (early && about.programmatic)
    attributes[count++] = {programmaticSerialization, {1}};
  if (blocksOfCluster == 0)
    blocksOfCluster = about.cluster;
  if (blocksOfCluster > 1)
    attributes[count++] = {clusterDimension, {blocksOfCluster, 1, 1}};
  if (count == 0)
    return api.check(api.launchKernel(function, grid.x, grid.y, grid.z, block.x,
                                      block.y, block.z, about.sharedBytes,
                                      stream, values, nullptr),
                     "cuLaunchKernel");
  LaunchConfig config{
      grid.x, grid.y,     grid.z, block.x, block.y, block.z, about.sharedBytes,
      stream, attributes, count};
  return api.check(api.launchKernelEx(&config, function, values, nullptr),
                   "cuLaunchKernelEx");
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Result<Graph> Graph::record(const Device &device,
                            const std::function<Status()> &launch) {
  const std::shared_ptr<const Context> &context = device.context();
  const Api &api = *context->api;
  CurrentContext current(*context);
  constexpr int threadLocal = 1;
  if (Status status =
          context->check(api.beginCapture(context->stream, threadLocal),
                         "cuStreamBeginCapture");
      !status)
    return status;
  Status launched = launch();
  void *graph = nullptr, *executable = nullptr;
  Status ended = context->check(api.endCapture(context->stream, &graph),
                                "cuStreamEndCapture");
  if (!launched)
    return launched;
  if (!ended)
    return ended;
  size_t nodes = 0;
  Status made = context->check(api.graphGetNodes(graph, nullptr, &nodes),
                               "cuGraphGetNodes");
  if (made)
    made = context->check(api.graphInstantiate(&executable, graph, 0),
                          "cuGraphInstantiate");
  api.graphDestroy(graph);
  if (!made)
    return made;
  Graph result;
  result.context = context;
  result.nodeCount = static_cast<int64_t>(nodes);
  result.executable =
      std::shared_ptr<const void>(executable, [context](const void *each) {
        context->api->graphExecDestroy(const_cast<void *>(each));
      });
  return result;
}

Status Graph::replay() const {
  CurrentContext current(*context);
  return context->check(
      context->api->graphLaunch(const_cast<void *>(executable.get()),
                                context->stream),
      "cuGraphLaunch");
}

Result<double> Graph::time(int count) const {
  CurrentContext current(*context);
  const Api &api = *context->api;
  void *start = nullptr, *end = nullptr;
  float milliseconds = 0;
  Status status;
  auto step = [&](int code, const char *what) {
    if (status)
      status = context->check(code, what);
  };
  step(api.eventCreate(&start, 0), "cuEventCreate");
  step(api.eventCreate(&end, 0), "cuEventCreate");
  step(api.eventRecord(start, context->stream), "cuEventRecord");
  for (int i = 0; i < count && status; ++i)
    status = replay();
  step(api.eventRecord(end, context->stream), "cuEventRecord");
  step(api.eventSynchronize(end), "cuEventSynchronize");
  step(api.eventElapsedTime(&milliseconds, start, end), "cuEventElapsedTime");
  for (void *event : {start, end})
    if (event)
      api.eventDestroy(event);
  if (!status)
    return status;
  return 1e-3 * milliseconds;
}
