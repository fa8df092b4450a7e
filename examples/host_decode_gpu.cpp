//===- host_decode_gpu.cpp - decode a batch on a GPU from C++ -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a recurrence and decodes eight sequences on a GPU, without a header
// of CUDA. A program that has device memory and streams of its own passes
// those instead.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace ladle;

static void orExit(const Status &status) {
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
}

template <typename T> static T orExit(Result<T> result) {
  orExit(result.status());
  return std::move(*result);
}

/// Decays below one (g < 0), write strengths between zero and one.
static float makeInput(const std::string &name, int64_t index) {
  float wave = std::sin(0.7f * static_cast<float>(index));
  if (name == "g")
    return -0.1f * std::abs(wave);
  return name == "beta" ? 0.5f + 0.4f * wave : 0.2f * wave;
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "examples/gated_delta_rule.ladle";
  CompileOptions compile;
  compile.target = "cuda";
  Result<Program> compiled = compileFile(path, compile);
  if (!compiled && compiled.status().code() == ErrorCode::NotFound) {
    std::printf("no GPU: %s\n", compiled.message().c_str());
    return 0;
  }
  Program program = orExit(std::move(compiled));
  const Signature &signature = program.signature();
  const std::string &output = signature.outputs.front().name;
  DeviceId device = program.device();

  PoolOptions options;
  options.slots = 8;
  Pool pool = orExit(Pool::create(program, options));
  Decoder decoder = orExit(Decoder::create(program, pool));

  // Row r of the batch is the sequence in slot r. All memory is the device's.
  std::vector<int32_t> numbers{0, 1, 2, 3, 4, 5, 6, 7};
  DeviceTensor slots = orExit(DeviceTensor::copyOf(
      device, TensorView::dense(numbers.data(), DType::I32, {8})));
  StepArguments arguments;
  arguments.rows = 8;
  arguments.readSlots = {slots.as<int32_t>(), 8};
  std::vector<DeviceTensor> memory;
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape{arguments.rows};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      memory.push_back(
          orExit(DeviceTensor::allocate(device, spec.dtype, shape)));
      arguments.tensors[spec.name] = memory.back().view();
    }

  // Checked once, launched for every token; a CUDA graph could capture it.
  BoundStep step = orExit(decoder.bind(arguments));
  for (int64_t token = 0; token < 40; ++token) {
    for (const TensorSpec &spec : signature.tokens) {
      const TensorView &view = arguments.tensors[spec.name];
      std::vector<float> values(view.count());
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = makeInput(spec.name, 97 * token + i);
      orExit(copy(TensorView::dense(values, DType::F32, view.shape), view));
    }
    orExit(step.launch());
    // Waits for the step, and brings its answers to the host.
    double sum = 0;
    for (float value : orExit(toFloats(arguments.tensors[output])))
      sum += value;
    if (token % 8 == 7)
      std::printf("token %2d: sum of %s is %.6f\n", static_cast<int>(token),
                  output.c_str(), sum);
  }
}
