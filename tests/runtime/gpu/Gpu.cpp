//===- Gpu.cpp - a device to test on --------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/Gpu.h"

#include <cmath>
#include <cstdlib>
#include <dlfcn.h>

using namespace ladle;
using namespace ladle::test;

static const char *examplePath = "examples/gated_delta_rule.ladle";

bool test::hasGpu() {
  CompileOptions options;
  options.preset = "tiny";
  options.target = "cuda";
  static const Status missing = compileFile(examplePath, options).status();
  if (!missing)
    WARN("skipped: " << missing.message());
  return missing.ok();
}

EmulatedGpu *test::emulatedGpu() {
  const char *path = std::getenv("LADLE_CUDA");
  void *library = path ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  void *symbol = library ? ::dlsym(library, emulatedGpuSymbol) : nullptr;
  return symbol ? reinterpret_cast<EmulatedGpu *(*)()>(symbol)() : nullptr;
}

Program test::tinyProgram(const std::string &route, const std::string &target,
                          int64_t capacity,
                          const std::map<std::string, int64_t> &sizes) {
  CompileOptions options;
  options.preset = "tiny";
  options.sizes.insert(sizes.begin(), sizes.end());
  options.target = target;
  options.route = route;
  options.capacity = capacity;
  if (route != "recurrent")
    options.extraRoutes = {"recurrent"};
  return need(compileFile(examplePath, options));
}

Tensors::Tensors(const Program &program, int64_t rows) : program(program) {
  const Signature &signature = program.signature();
  arguments.rows = rows;
  auto add = [&](const std::vector<TensorSpec> &specs, bool hasRows) {
    for (const TensorSpec &spec : specs) {
      std::vector<int64_t> shape = spec.shape;
      if (hasRows)
        shape.insert(shape.begin(), rows);
      auto made =
          need(DeviceTensor::allocate(program.device(), spec.dtype, shape));
      arguments.tensors[spec.name] = made.view();
      memory.emplace(spec.name, std::move(made));
    }
  };
  add(signature.params, false);
  add(signature.tokens, true);
  add(signature.outputs, true);
  std::vector<int32_t> slots(rows);
  for (int64_t row = 0; row < rows; ++row)
    slots[row] = static_cast<int32_t>(row);
  setSlots(slots);
}

void Tensors::fill(const std::vector<int32_t> &sequences,
                   const std::vector<int32_t> &positions) {
  for (const TensorSpec &spec : program.signature().tokens) {
    const TensorView &view = arguments.tensors[spec.name];
    int64_t count = view.count() / arguments.rows;
    std::vector<float> values;
    for (int64_t row = 0; row < arguments.rows; ++row)
      for (int64_t i = 0; i < count; ++i) {
        double phase = 0.7 * i + 1.3 * sequences[row] +
                       0.31 * positions[row] * (1 + i % 5);
        auto wave = static_cast<float>(std::sin(phase));
        values.push_back(spec.name == "g"      ? -0.1f * std::abs(wave)
                         : spec.name == "beta" ? 0.5f + 0.4f * wave
                                               : 0.5f * wave);
      }
    need(copy(TensorView::dense(values, DType::F32, view.shape), view));
  }
  for (const TensorSpec &spec : program.signature().outputs) {
    const TensorView &view = arguments.tensors[spec.name];
    std::vector<float> values(view.count(), 99.0f);
    need(copy(TensorView::dense(values, DType::F32, view.shape), view));
  }
}

void Tensors::setSlots(const std::vector<int32_t> &reads,
                       const std::vector<int32_t> &writes) {
  auto put = [&](const char *name, const std::vector<int32_t> &slots) {
    auto count = static_cast<int64_t>(slots.size());
    auto found = memory.find(name);
    // At the same address if there is one: graphs hold it.
    if (found == memory.end())
      found = memory
                  .emplace(name, need(DeviceTensor::allocate(
                                     program.device(), DType::I32, {count})))
                  .first;
    need(copy(TensorView::dense(const_cast<int32_t *>(slots.data()), DType::I32,
                                {count}),
              found->second.view()));
    return std::span<const int32_t>(found->second.as<int32_t>(), slots.size());
  };
  arguments.readSlots = put("read slots", reads);
  arguments.writeSlots = {};
  if (!writes.empty())
    arguments.writeSlots = put("write slots", writes);
}

std::vector<float> Tensors::output(int64_t row) const {
  const std::string &name = program.signature().outputs[0].name;
  return need(toFloats(arguments.tensors.find(name)->second[row]));
}

Pool test::makePool(const Program &program, int64_t slots,
                    PoolOptions options) {
  options.slots = slots;
  return need(Pool::create(program, options));
}
