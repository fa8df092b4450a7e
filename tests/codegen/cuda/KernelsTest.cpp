//===- KernelsTest.cpp - generated kernels on the emulator ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Decoding.h"
#include "tests/codegen/cuda/Emulator.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::jit;
using namespace ladle::test;

namespace {
class Emulator : public Executor {
public:
  std::string load(const GpuProgram &program) override {
    module.emplace(program.text);
    return "";
  }

  std::string run(const Launch &launch) override {
    const int32_t *reads = launch.readSlots.data();
    const int32_t *writes = launch.writeSlots.data();
    const int32_t *cursors = launch.cursors.data();
    const int32_t *threshold = &launch.threshold;
    int32_t pad = launch.padSlot;
    std::vector<void *> arguments{&reads, &writes, &cursors, &threshold, &pad};
    // Whatever else a kernel touches is an error.
    std::vector<Allocation> memory{
        {reads, launch.readSlots.size() * sizeof(int32_t)},
        {writes, launch.writeSlots.size() * sizeof(int32_t)},
        {cursors, launch.cursors.size() * sizeof(int32_t)},
        {threshold, sizeof(int32_t)}};
    for (Tensor &tensor : launch.tensors) {
      arguments.push_back(&tensor.pointer);
      for (size_t i = 0; i < tensor.dynamic; ++i)
        arguments.push_back(&tensor.strides[i]);
      memory.push_back({tensor.bytes.data(), tensor.bytes.size()});
    }
    llvm::Error error = module->launch(
        launch.kernel.name,
        {launch.kernel.gridBlocks, static_cast<unsigned>(launch.rows), 1},
        {launch.kernel.threads, 1, 1}, arguments.data(), memory,
        launch.kernel.cluster);
    return error ? llvm::toString(std::move(error)) : "";
  }

private:
  std::optional<EmulatedModule> module;
};
} // namespace

TEST_CASE("kernels agree with the oracle on every example", "[cuda]") {
  auto model = GENERATE(as<std::string>(), "linear_attention", "retnet",
                        "lightning", "lightning_core", "mamba", "mamba2", "gla",
                        "delta_net", "gated_delta_rule", "gated_delta_net",
                        "kda", "kda_lower_bound", "gdn2", "rwkv6", "rwkv7",
                        "rwkv7_core", "mamba3", "mamba3_mimo", "short_conv");
  auto route = GENERATE(as<std::string>(), "recurrent", "outer", "inner",
                        "adjoint", "kv_only");
  CAPTURE(model, route);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.route = route;
  int64_t tokens = route == "recurrent" ? 3 : 6;
  // The entries of kv_only are all there is.
  int threshold = route == "kv_only" ? 100 : 3;
  if (route == "kv_only")
    request.capacity = 8;
  CHECK(decode(request, threshold, tokens, emulator) <= 1);
}

// What is tiny, tensor cores take no part in, nor bulk copies.
TEST_CASE("kernels that multiply tiles agree with the oracle", "[cuda]") {
  auto model = GENERATE(as<std::string>(), "retnet", "mamba2", "gla",
                        "gated_delta_net", "kda", "gdn2", "rwkv6", "rwkv7",
                        "rwkv7_core", "mamba3", "mamba3_mimo");
  auto route = GENERATE(as<std::string>(), "inner", "adjoint");
  CAPTURE(model, route);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.route = route;
  bool isMamba = model.starts_with("mamba");
  request.elaboration.sizes = {{isMamba ? "N" : "Dk", 64},
                               {isMamba ? "P" : "Dv", 32}};
  // More entries than one product takes, if there are several a token.
  request.capacity = 6;
  CHECK(decode(request, 5, 11, emulator) <= 1);
}

// A tile that arrives in parts is the same tile.
TEST_CASE("kernels that copy tiles in parts agree with the oracle", "[cuda]") {
  struct Parts {
    int64_t threads, pieces, stages;
  };
  auto parts = GENERATE(Parts{64, 2, 1}, Parts{128, 4, 1}, Parts{128, 2, 2},
                        Parts{64, 1, 4}, Parts{32, 1, 2});
  auto model = GENERATE(as<std::string>(), "gated_delta_net", "gla");
  auto [route, state] = GENERATE(table<std::string, std::string>(
      {{"inner", "f32"}, {"inner", "bf16"}, {"recurrent", "f32"}}));
  CAPTURE(model, route, state, parts.threads, parts.pieces, parts.stages);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.route = route;
  request.stateType = state;
  request.elaboration.sizes = {{"Dk", 64}, {"Dv", 128}};
  request.layout["threads"] = parts.threads;
  // 16 rows a warp of groups of 8 lanes, 32 of groups of 4 for tensor cores.
  bool multiplies = state == "bf16";
  request.layout["tile_rows"] = parts.threads / (multiplies ? 1 : 2);
  double expected = decode(request, 3, 5, emulator);
  request.layout["pieces"] = parts.pieces;
  // Rows go in pairs there.
  request.layout["stages"] =
      multiplies ? std::min<int64_t>(parts.stages, 2) : parts.stages;
  CHECK(decode(request, 3, 5, emulator) == Approx(expected));
}

// What is left out is not there, and the rest is what it was.
TEST_CASE("kernels that hold one form agree with the oracle", "[cuda]") {
  auto model = GENERATE(as<std::string>(), "gated_delta_net", "gla", "rwkv7");
  auto forms = GENERATE(as<int64_t>(), 1, 2);
  CAPTURE(model, forms);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.route = "inner";
  request.capacity = 8;
  request.layout["forms"] = forms;
  std::string messages;
  std::optional<GpuProgram> program = compileForGpu(request, messages);
  REQUIRE(program);
  CHECK(program->folds == (forms == 2));
  CHECK_FALSE(program->fold);
  CHECK(program->decode.name ==
        model + (forms == 2 ? "_inner_decode_fold" : "_inner_decode"));
  // One never folds, the other does with every token.
  CHECK(decode(request, forms == 2 ? 1 : 100, 6, emulator) <= 1);
}

// A tile is transposed on its way in and out.
TEST_CASE("kernels of states of which dv is contiguous agree with the oracle",
          "[cuda]") {
  auto model =
      GENERATE(as<std::string>(), "linear_attention", "retnet", "mamba2", "gla",
               "gated_delta_net", "kda", "rwkv7", "mamba3_mimo", "coupled");
  auto route = GENERATE(as<std::string>(), "recurrent", "outer", "inner",
                        "adjoint", "kv_only");
  bool isKvOnly = route == "kv_only";
  if (model == "coupled" && (isKvOnly || route == "adjoint"))
    return;
  CAPTURE(model, route);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.stateLayout = "dk_dv";
  request.route = route;
  request.capacity = isKvOnly ? 8 : 4;
  CHECK(decode(request, isKvOnly ? 100 : 3, 6, emulator) <= 1);
}

TEST_CASE("tiles of all shapes are transposed", "[cuda]") {
  struct Shape {
    int64_t keys, values;
    const char *state;
  };
  auto shape = GENERATE(Shape{64, 32, "f32"}, Shape{64, 64, "bf16"},
                        Shape{96, 48, "f16"}, Shape{40, 36, "f32"},
                        Shape{33, 17, "f32"}, Shape{34, 21, "bf16"},
                        Shape{128, 20, "bf16"}, Shape{32, 80, "f16"});
  auto [model, route] = GENERATE(table<std::string, std::string>(
      {{"gated_delta_rule", "inner"}, {"gla", "recurrent"}}));
  CAPTURE(model, route, shape.keys, shape.values, shape.state);
  Emulator emulator;
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.stateType = shape.state;
  request.route = route;
  request.elaboration.sizes = {{"Dk", shape.keys}, {"Dv", shape.values}};
  // The arithmetic is the same, and so is what is rounded.
  double expected = decode(request, 3, 5, emulator);
  CHECK(expected <= (std::string(shape.state) == "f32" ? 1 : 500));
  request.stateLayout = "dk_dv";
  CHECK(decode(request, 3, 5, emulator) == Approx(expected));
}
