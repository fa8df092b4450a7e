//===- GpuRuntime.cpp - measured kernels in the runtime -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/GpuRuntime.h"
#include "ladle/device.h"
#include "runtime/Kernels.h"
#include "runtime/cuda/GpuCode.h"
#include "runtime/jit/Cursors.h"
#include "tools/measure/Statistics.h"

#include <chrono>
#include <functional>

using namespace ladle;
using namespace ladle::measure;

Result<Program> measure::makeRuntimeProgram(const Gpu &gpu,
                                            const jit::GpuProgram &program,
                                            const LoadedKernels &kernels,
                                            const std::string &route,
                                            int64_t capacity) {
  Result<LoadedKernels> cursors = gpu.load(jit::cursorsText().str());
  if (!cursors)
    return cursors.status();
  Result<cuda::Kernel> advance =
      cursors->module.kernel(jit::cursorsKernelInfo());
  if (!advance)
    return advance.status();
  auto code = std::make_shared<GpuRoute>();
  code->arguments = program.arguments;
  Result<cuda::Kernel> decode = kernels.module.kernel(program.decode);
  if (!decode)
    return decode.status();
  code->step.push_back(std::move(*decode));
  if (program.fold) {
    Result<cuda::Kernel> fold = kernels.module.kernel(*program.fold);
    if (!fold)
      return fold.status();
    code->fold = std::move(*fold);
  }
  ProgramImpl impl;
  impl.signature = program.signature;
  impl.headGroup = program.headGroup();
  impl.fields = program.fields;
  impl.capacity = program.fields.empty() ? 0 : capacity;
  impl.gpu = std::make_shared<GpuCode>(
      GpuCode{gpu.device(), std::move(*advance), {}, {}, {}, {}, {}});
  RouteKernels kernelsOfRoute;
  // What takes over after a fold is not measured here.
  kernelsOfRoute.route = route == "kv_only"
                             ? RouteKind::Inner
                             : parseRoute(route).value_or(RouteKind::Recurrent);
  kernelsOfRoute.usesBuffer = impl.capacity > 0;
  kernelsOfRoute.gpu = std::move(code);
  impl.route = kernelsOfRoute.route;
  impl.routes.push_back(std::move(kernelsOfRoute));
  return Program::create(std::move(impl));
}

/// The median of bursts that no queue of a driver is too short for.
static Result<double> timeCalls(const Gpu &gpu,
                                const std::function<Status()> &call) {
  constexpr int bursts = 9, calls = 64;
  std::vector<double> samples;
  for (int burst = 0; burst <= bursts; ++burst) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      if (Status status = call(); !status)
        return status;
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    if (Status status = gpu.device().synchronize(); !status)
      return status;
    // The first brings the kernels to the device.
    if (burst > 0)
      samples.push_back(elapsed.count() / calls);
  }
  return median(samples);
}

Result<HostCosts> measure::measureHost(const Gpu &gpu, const Program &program) {
  PoolOptions options;
  options.slots = 1;
  bool buffers = program.capacity() > 0;
  if (buffers) {
    Result<Cursors> cursors = Cursors::create(program, {.slots = 1});
    if (!cursors)
      return cursors.status();
    options.cursors = std::move(*cursors);
  }
  Result<Pool> pool = Pool::create(program, options);
  if (!pool)
    return pool.status();
  Result<Decoder> decoder = Decoder::create(program, *pool);
  if (!decoder)
    return decoder.status();
  StepArguments arguments;
  arguments.rows = 1;
  std::vector<DeviceTensor> memory;
  auto allocate = [&](DType dtype, std::vector<int64_t> shape) {
    Result<DeviceTensor> made =
        DeviceTensor::allocate(program.device(), dtype, std::move(shape));
    if (!made)
      return made.status();
    memory.push_back(std::move(*made));
    return Status();
  };
  const Signature &signature = program.signature();
  for (const auto *specs :
       {&signature.params, &signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape = spec.shape;
      if (specs != &signature.params)
        shape.insert(shape.begin(), 1);
      if (Status status = allocate(spec.dtype, std::move(shape)); !status)
        return status;
      arguments.tensors[spec.name] = memory.back().view();
    }
  if (Status status = allocate(DType::I32, {1}); !status)
    return status;
  arguments.readSlots = {memory.back().as<int32_t>(), 1};
  Result<BoundStep> step = decoder->bind(arguments);
  if (!step)
    return step.status();

  void *stream = gpu.device().stream();
  Result<double> launch = timeCalls(gpu, [&] { return step->launch(stream); });
  if (!launch)
    return launch.status();
  HostCosts costs{*launch, 0};
  if (!buffers)
    return costs;
  Result<double> advance = timeCalls(gpu, [&] {
    return options.cursors->advance(arguments.readSlots, {}, stream);
  });
  if (!advance)
    return advance.status();
  costs.advance = *advance;
  return costs;
}
