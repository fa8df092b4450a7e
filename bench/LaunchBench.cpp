//===- LaunchBench.cpp - what the host takes to launch a step -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ladle_launch_bench [options of Google Benchmark]
//
// Ladle's own share of a launch, without a GPU: the driver is the emulated one,
// whose launch does nothing here.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"
#include "runtime/cuda/Driver.h"

#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstdlib>

using namespace ladle;

static constexpr const char *kFile =
    LADLE_SOURCE "/examples/gated_delta_net.ladle";

template <typename T> static T need(Result<T> result) {
  if (result)
    return std::move(*result);
  std::fprintf(stderr, "%s\n", result.message().c_str());
  std::exit(1);
}

static int launchNothing(void *, unsigned, unsigned, unsigned, unsigned,
                         unsigned, unsigned, unsigned, void *, void **,
                         void **) {
  return 0;
}

static int launchNothingEx(const cuda::LaunchConfig *, void *, void **,
                           void **) {
  return 0;
}

namespace {
/// One layer of Gated DeltaNet with cursors that layers share: a step is one
/// launch.
struct Layer {
  Program program = compileOne();
  Cursors cursors = need(Cursors::create(program, {.slots = 1}));
  Pool pool = makePool();
  Decoder decoder = need(Decoder::create(program, pool));
  std::vector<DeviceTensor> memory;
  StepArguments arguments;

  Layer() {
    const Signature &signature = program.signature();
    arguments.rows = 1;
    for (const auto *specs :
         {&signature.params, &signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<int64_t> shape = spec.shape;
        if (specs != &signature.params)
          shape.insert(shape.begin(), 1);
        arguments.tensors[spec.name] = allocate(spec.dtype, shape).view();
      }
    arguments.readSlots = {allocate(DType::I32, {1}).as<int32_t>(), 1};
    // The emulated driver notes what it would do; a real one takes its time.
    auto device = need(cuda::Device::shared());
    auto &api = const_cast<cuda::Api &>(*device.context()->api);
    api.launchKernel = launchNothing;
    api.launchKernelEx = launchNothingEx;
  }

  static Program compileOne() {
    CompileOptions options;
    options.target = "cuda";
    options.route = "inner";
    return need(compileFile(kFile, options));
  }
  Pool makePool() {
    PoolOptions options;
    options.cursors = cursors;
    return need(Pool::create(program, options));
  }
  DeviceTensor &allocate(DType dtype, std::vector<int64_t> shape) {
    memory.push_back(need(
        DeviceTensor::allocate(program.device(), dtype, std::move(shape))));
    return memory.back();
  }
};

Layer &layer() {
  static auto &made = *new Layer;
  return made;
}
} // namespace

static void check(benchmark::State &state, const Status &status) {
  if (!status)
    state.SkipWithError(status.message().c_str());
}

static void boundStep(benchmark::State &state) {
  BoundStep step = need(layer().decoder.bind(layer().arguments));
  for (auto _ : state)
    check(state, step.launch());
}
BENCHMARK(boundStep);

/// Arguments that are the same as before.
static void sameArguments(benchmark::State &state) {
  Layer &one = layer();
  for (auto _ : state)
    check(state, one.decoder.step(one.arguments));
}
BENCHMARK(sameArguments);

/// All tensors lie elsewhere than before.
static void otherAddresses(benchmark::State &state) {
  Layer &one = layer();
  StepArguments others[] = {one.arguments, one.arguments};
  std::vector<DeviceTensor> elsewhere;
  for (auto &[name, view] : others[1].tensors) {
    elsewhere.push_back(need(
        DeviceTensor::allocate(one.program.device(), view.dtype, view.shape)));
    view = elsewhere.back().view();
  }
  size_t turn = 0;
  for (auto _ : state)
    check(state, one.decoder.step(others[turn++ % 2]));
}
BENCHMARK(otherAddresses);

/// Shapes or strides that are not those before: everything is checked.
static void otherStrides(benchmark::State &state) {
  Layer &one = layer();
  StepArguments others[] = {one.arguments, one.arguments};
  // Of one row, the stride between rows is anything.
  others[1].tensors["q"].strides[0] *= 2;
  size_t turn = 0;
  for (auto _ : state)
    check(state, one.decoder.step(others[turn++ % 2]));
}
BENCHMARK(otherStrides);

static void advanceCursors(benchmark::State &state) {
  Layer &one = layer();
  for (auto _ : state)
    check(state, one.cursors.advance(one.arguments.readSlots, {}));
}
BENCHMARK(advanceCursors);

int main(int argc, char **argv) {
  setenv("LADLE_CUDA", LADLE_EMULATED_GPU, 1);
  setenv("LADLE_NVRTC", LADLE_EMULATED_GPU, 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
