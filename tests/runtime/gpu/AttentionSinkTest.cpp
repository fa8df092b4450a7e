//===- AttentionSinkTest.cpp - many small weights beside a large one ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "ladle/device.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <cmath>

using namespace ladle;
using namespace ladle::test;

// The first token has nearly all of the weight and a value of 0, the others a
// value of 1 each: the answer is made of weights that are far below 1.
TEST_CASE("weights beside an attention sink are not lost") {
  if (!hasGpu())
    return;
  constexpr int64_t tokens = 256, size = 32;
  auto type = GENERATE(as<std::string>(), "f16", "bf16");
  float key = GENERATE(4.0F, 8.5F, 12.0F); // scores of 6, 12 and 17
  CAPTURE(type, key);
  AttentionCompileOptions options;
  options.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", size}};
  options.tokenTypes = {{"*", type}, {"o", "f32"}};
  options.target = "cuda";
  AttentionProgram program = need(compileAttention(
      readExample("exact_attention"), "exact_attention.ladle", options));
  AttentionPool pool =
      need(AttentionPool::create(program, {.slots = 1, .pages = 20}));
  AttentionDecoder decoder = need(AttentionDecoder::create(program, pool));

  std::map<std::string, DeviceTensor> memory;
  std::map<std::string, TensorView, std::less<>> tensors;
  auto fill = [&](int64_t first, int64_t count) {
    for (const auto *specs :
         {&program.signature().tokens, &program.signature().outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<float> values(static_cast<size_t>(count * size), 0);
        for (int64_t i = 0; i < count; ++i)
          for (int64_t c = 0; c < size; ++c) {
            bool isSink = first + i == 0;
            float &value = values[i * size + c];
            if (spec.name == "q")
              value = c ? 0 : 8;
            else if (spec.name == "k")
              value = isSink && !c ? key : 0;
            else if (spec.name == "v")
              value = isSink ? 0 : 1;
          }
        memory[spec.name] = need(DeviceTensor::allocate(
            program.device(), spec.dtype, {count, 1, size}));
        tensors[spec.name] = memory[spec.name].view();
        need(copy(TensorView::dense(values, DType::F32, {count, 1, size}),
                  tensors[spec.name]));
      }
  };
  auto upload = [&](std::vector<int32_t> numbers) {
    return need(DeviceTensor::copyOf(
        program.device(),
        TensorView::dense(numbers, DType::I32,
                          {static_cast<int64_t>(numbers.size())})));
  };
  auto errorOf = [&](int64_t row, int64_t others) {
    need(synchronize(program.device()));
    std::vector<float> answer = need(toFloats(tensors["o"]));
    double weight = std::exp(-8.0 * key / std::sqrt(double(size)));
    double wanted = others * weight / (1 + others * weight);
    return std::abs(answer[row * size] / wanted - 1);
  };
  DeviceTensor slots = upload({0}), starts = upload({0, tokens});
  const std::vector<int32_t> all{0};
  need(pool.reserve(all, tokens + 1));

  fill(0, tokens);
  PrefillArguments prompt;
  prompt.rows = 1;
  prompt.slots = {slots.as<int32_t>(), 1};
  prompt.cuSeqlens = {starts.as<int32_t>(), 2};
  prompt.tokens = tokens;
  prompt.tensors = tensors;
  need(decoder.prefill(prompt));
  CHECK(errorOf(tokens - 1, tokens - 1) < 1e-4);

  fill(tokens, 1);
  AttentionArguments step;
  step.rows = 1;
  step.slots = {slots.as<int32_t>(), 1};
  step.tensors = tensors;
  need(decoder.step(step));
  CHECK(errorOf(0, tokens) < 1e-4);
}
