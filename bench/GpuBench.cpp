//===- GpuBench.cpp - decode kernels on a GPU -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replays CUDA graphs of steps over layers whose states take turns, so that
// none is found in the L2 cache. A step is both kernels of a route, as decoding
// launches them; fills stay what they are, one fill a graph, and a cycle is
// the mean over fills 0 to m - 1, of which the last folds.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/Nvrtc.h"
#include "runtime/cuda/Driver.h"
#include "runtime/jit/GpuProgram.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle;
using jit::GpuArgument;
using jit::GpuKernelInfo;
using jit::GpuProgram;
using jit::GpuRequest;

namespace {

struct Settings {
  std::string file = "examples/gated_delta_rule.ladle", preset = "qwen3-next";
  std::vector<std::string> routes{"recurrent", "inner", "adjoint"};
  std::vector<std::string> states{"f32"};
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  std::string entries = "bf16", json;
  int64_t threshold = 16, threads = 128, tileRows = 0;
};

void orExit(const Status &status) {
  if (!status) {
    fmt::print(stderr, "error: {}\n", status.message());
    std::exit(1);
  }
}
template <typename T> T orExit(Result<T> result) {
  orExit(result.status());
  return std::move(*result);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The memory of one layer, or a share of it, on the device.
struct Argument {
  cuda::Memory memory;
  uint64_t address = 0;
  std::vector<int64_t> strides; ///< those that the kernel is told
};

class GpuDecode {
public:
  GpuDecode(const cuda::Device &device, const Nvrtc &nvrtc,
            const Settings &settings, const std::string &route,
            const std::string &state, int64_t rows);
  /// Seconds of a step at a fill.
  double time(int64_t fill);
  double stateBytes() const { return bytes; }

private:
  void allocate();
  Status launch(const GpuKernelInfo &info, const cuda::Kernel &kernel,
                int64_t layer);

  const cuda::Device &device;
  int64_t rows, capacity, layers = 1;
  int32_t threshold;
  double bytes = 0;
  GpuProgram program;
  std::optional<cuda::Module> module;
  std::optional<cuda::Kernel> decode, decodeFold;
  std::vector<std::vector<Argument>> arguments; ///< of each layer
  cuda::Memory slots, cursors, thresholds;
};

} // namespace

static int64_t product(const std::vector<int64_t> &shape) {
  int64_t result = 1;
  for (int64_t extent : shape)
    result *= extent;
  return result;
}

GpuDecode::GpuDecode(const cuda::Device &device, const Nvrtc &nvrtc,
                     const Settings &settings, const std::string &route,
                     const std::string &state, int64_t rows)
    : device(device), rows(rows), capacity(settings.threshold),
      threshold(static_cast<int32_t>(settings.threshold)) {
  GpuRequest request;
  request.path = settings.file;
  request.preset = settings.preset;
  request.route = route;
  request.stateType = state;
  request.entryType = settings.entries;
  request.capacity = capacity;
  request.threads = settings.threads;
  request.tileRows = settings.tileRows;
  std::string messages;
  std::optional<GpuProgram> compiled = jit::compileForGpu(request, messages);
  if (!compiled)
    orExit(Status(ErrorCode::InvalidData, messages));
  program = std::move(*compiled);
  auto cubin = nvrtc.compile(program.text, "kernels.cu", {device.arch(), {}});
  if (!cubin)
    orExit(Status(ErrorCode::Internal, llvm::toString(cubin.takeError())));
  module = orExit(cuda::Module::load(device, cubin->image));
  decode = orExit(module->kernel(program.decode.name));
  if (program.decodeFold)
    decodeFold = orExit(module->kernel(program.decodeFold->name));
  for (const StateSpec &spec : program.signature.states)
    bytes += static_cast<double>(rows * spec.heads * spec.keySize *
                                 spec.valueSize * sizeInBytes(spec.dtype));
  layers = std::clamp<int64_t>(
      static_cast<int64_t>(3 * static_cast<double>(device.cacheBytes()) /
                           bytes) +
          1,
      2, 64);
  allocate();
}

void GpuDecode::allocate() {
  std::vector<int32_t> numbers(rows);
  for (int64_t row = 0; row < rows; ++row)
    numbers[row] = static_cast<int32_t>(row);
  auto upload = [&](const std::vector<int32_t> &values) {
    auto size = static_cast<int64_t>(values.size() * sizeof(int32_t));
    cuda::Memory memory = orExit(cuda::Memory::allocate(device, size));
    orExit(memory.write(values.data(), size));
    return memory;
  };
  slots = upload(numbers);
  cursors = upload(std::vector<int32_t>(2 * rows));
  thresholds = upload({threshold});
  const Signature &signature = program.signature;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Argument> &list = arguments.emplace_back();
    for (const GpuArgument &argument : program.arguments) {
      Argument &made = list.emplace_back();
      auto make = [&](std::vector<int64_t> shape, DType dtype, size_t told) {
        int64_t stride = 1;
        std::vector<int64_t> strides(shape.size());
        for (size_t i = shape.size(); i-- > 0; stride *= shape[i])
          strides[i] = stride;
        made.strides.assign(strides.begin(),
                            strides.begin() + static_cast<ptrdiff_t>(told));
        made.memory = orExit(cuda::Memory::allocate(
            device, product(shape) * sizeInBytes(dtype)));
        // Small numbers in every type.
        orExit(made.memory.fill(0x1c));
        made.address = made.memory.address();
      };
      auto withRows = [&](const TensorSpec &spec, size_t told) {
        std::vector<int64_t> shape{rows};
        shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
        make(shape, spec.dtype, told);
      };
      auto told = [](const TensorSpec &spec) {
        return spec.shape.size() - (spec.shape.size() > 1);
      };
      switch (argument.kind) {
      case GpuArgument::Kind::Param: {
        const TensorSpec &spec = signature.params[argument.index];
        make(spec.shape, spec.dtype, told(spec));
        break;
      }
      case GpuArgument::Kind::Token:
        withRows(signature.tokens[argument.index],
                 1 + told(signature.tokens[argument.index]));
        break;
      case GpuArgument::Kind::Output:
        withRows(signature.outputs[argument.index],
                 1 + told(signature.outputs[argument.index]));
        break;
      case GpuArgument::Kind::Carry:
        withRows(signature.carries[argument.index], 1);
        break;
      case GpuArgument::Kind::State: {
        const StateSpec &spec = signature.states[argument.index];
        make({rows, spec.heads, spec.valueSize, spec.keySize}, spec.dtype, 1);
        break;
      }
      case GpuArgument::Kind::Field: {
        TensorSpec spec = program.fields[argument.index];
        spec.shape.insert(spec.shape.begin() + 1, capacity);
        withRows(spec, 1);
        break;
      }
      }
    }
  }
}

Status GpuDecode::launch(const GpuKernelInfo &info, const cuda::Kernel &kernel,
                         int64_t layer) {
  uint64_t slotAddress = slots.address(), cursorAddress = cursors.address(),
           thresholdAddress = thresholds.address();
  int32_t pad = -1;
  std::vector<void *> values{&slotAddress, &slotAddress, &cursorAddress,
                             &thresholdAddress, &pad};
  for (Argument &argument : arguments[layer]) {
    values.push_back(&argument.address);
    for (int64_t &stride : argument.strides)
      values.push_back(&stride);
  }
  return kernel.launch({info.gridBlocks, static_cast<unsigned>(rows), 1},
                       {info.threads, 1, 1}, values.data());
}

double GpuDecode::time(int64_t fill) {
  std::vector<int32_t> lengths(2 * rows);
  for (int64_t row = 0; row < rows; ++row)
    lengths[2 * row + 1] = static_cast<int32_t>(fill);
  orExit(cursors.write(lengths.data(), cursors.bytes()));
  cuda::Graph graph = orExit(cuda::Graph::record(device, [&]() -> Status {
    for (int64_t layer = 0; layer < layers; ++layer) {
      if (Status status = launch(program.decode, *decode, layer); !status)
        return status;
      if (decodeFold)
        if (Status status = launch(*program.decodeFold, *decodeFold, layer);
            !status)
          return status;
    }
    return Status();
  }));
  orExit(graph.replay());
  orExit(device.synchronize());
  std::vector<double> samples;
  for (int i = 0; i < 9; ++i)
    samples.push_back(orExit(graph.time(3)) / 3 / static_cast<double>(layers));
  return median(samples);
}

static nlohmann::ordered_json measure(const cuda::Device &device,
                                      const Nvrtc &nvrtc,
                                      const Settings &settings) {
  nlohmann::ordered_json results;
  fmt::print("{:>10} {:>5} {:>6} {:>12} {:>12} {:>12} {:>10}\n", "route",
             "state", "batch", "empty", "half", "fold", "cycle");
  for (const std::string &route : settings.routes)
    for (const std::string &state : settings.states)
      for (int64_t batch : settings.batches) {
        GpuDecode decode(device, nvrtc, settings, route, state, batch);
        bool isRecurrent = route == "recurrent";
        std::vector<double> byFill;
        for (int64_t fill = 0; fill < (isRecurrent ? 1 : settings.threshold);
             ++fill)
          byFill.push_back(decode.time(fill));
        double cycle = 0;
        for (double seconds : byFill)
          cycle += seconds / static_cast<double>(byFill.size());
        fmt::print(
            "{:>10} {:>5} {:>6} {:>9.2f} µs {:>9.2f} µs {:>9.2f} µs "
            "{:>7.2f} µs, {:.0f} GB/s of states when empty\n",
            route, state, batch, byFill.front() * 1e6,
            byFill[byFill.size() / 2] * 1e6, byFill.back() * 1e6, cycle * 1e6,
            decode.stateBytes() * (isRecurrent ? 2 : 1) / byFill.front() / 1e9);
        std::fflush(stdout);
        results.push_back({{"route", route},
                           {"states", state},
                           {"entries", settings.entries},
                           {"batch", batch},
                           {"state_bytes", decode.stateBytes()},
                           {"seconds_by_fill", byFill},
                           {"seconds_a_step", cycle}});
      }
  return results;
}

int main(int argc, char **argv) {
  Settings settings;
  CLI::App app("decode kernels on a GPU");
  app.add_option("file", settings.file)->capture_default_str();
  app.add_option("--preset", settings.preset)->capture_default_str();
  app.add_option("--routes", settings.routes)->delimiter(',');
  app.add_option("--states", settings.states)->delimiter(',');
  app.add_option("--entries", settings.entries)->capture_default_str();
  app.add_option("--batches", settings.batches)->delimiter(',');
  app.add_option("--threshold", settings.threshold)->capture_default_str();
  app.add_option("--threads", settings.threads)->capture_default_str();
  app.add_option("--tile-rows", settings.tileRows)->capture_default_str();
  app.add_option("--json", settings.json, "a file for the figures");
  CLI11_PARSE(app, argc, argv);
  cuda::Device device = orExit(cuda::Device::open());
  auto nvrtc = Nvrtc::open();
  if (!nvrtc)
    orExit(Status(ErrorCode::NotFound, llvm::toString(nvrtc.takeError())));
  fmt::print("{} {} on {}, driver {}\n", settings.file, settings.preset,
             device.name(), device.driverVersion());
  nlohmann::ordered_json result{
      {"device", device.name()},         {"driver", device.driverVersion()},
      {"file", settings.file},           {"preset", settings.preset},
      {"threshold", settings.threshold}, {"threads", settings.threads},
      {"tile_rows", settings.tileRows}};
  result["results"] = measure(device, *nvrtc, settings);
  if (!settings.json.empty())
    std::ofstream(settings.json) << result.dump(2) << '\n';
  return 0;
}
