//===- OneHead.cpp - an attention of one head, a token at a time ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/OneHead.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::test;

static constexpr int64_t size = 32;
static const char *const inputs[] = {"q_pre", "q", "k", "v"};

OneHead::OneHead(const std::string &target, const AttentionSettings &settings,
                 const std::string &text) {
  AttentionCompileOptions options;
  options.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", size}};
  options.tokenTypes = {{"*", "f32"}};
  if (text.empty())
    options.options = {{"sinks", 1.0}};
  options.target = target;
  program = std::make_unique<AttentionProgram>(need(compileAttention(
      text.empty() ? readExample("mac") : text, "mac.ladle", options)));
  pool = std::make_unique<AttentionPool>(need(
      AttentionPool::create(*program, {.slots = 2, .pages = 8, .window = 4})));
  decoder = std::make_unique<AttentionDecoder>(decoderOf(settings));
  auto allocate = [&](const std::string &name, DType type,
                      const std::vector<int64_t> &shape) {
    memory[name] = need(DeviceTensor::allocate(program->device(), type, shape));
    return memory[name].view();
  };
  for (const char *name : {"q_pre", "q", "k", "v", "o"})
    arguments.tensors[name] = allocate(name, DType::F32, {1, 1, size});
  allocate("slots", DType::I32, {1});
  arguments.rows = 1;
  arguments.slots = {memory["slots"].as<int32_t>(), 1};
}

AttentionDecoder OneHead::decoderOf(const AttentionSettings &settings) {
  return need(AttentionDecoder::create(
      *program, *pool, {.threads = 1, .settings = settings, .preference = {}}));
}

void OneHead::fill(float query, int32_t slot, float value) {
  std::vector<float> queries(size, query), values(size, value);
  for (const char *name : inputs) {
    std::vector<float> &from = name[0] == 'q' ? queries : values;
    need(copy(TensorView::dense(from, DType::F32, {1, 1, size}),
              memory[name].view()));
  }
  std::vector<int32_t> slots{slot};
  need(copy(TensorView::dense(slots, DType::I32, {1}), memory["slots"].view()));
}

int64_t OneHead::stepBy(AttentionDecoder &by, float query, int32_t slot,
                        float value) {
  fill(query, slot, value);
  const std::vector<int32_t> slots{slot};
  if (isOnGpu())
    need(pool->reserve(slots, 1));
  need(by.step(arguments));
  need(synchronize(program->device()));
  return by.matches()[0];
}

int64_t OneHead::step(float query, int32_t slot, float value) {
  return stepBy(*decoder, query, slot, value);
}

Status OneHead::prefill(const std::vector<int32_t> &slots,
                        const std::vector<int32_t> &starts, float query) {
  PrefillArguments prompts;
  prompts.rows = static_cast<int64_t>(slots.size());
  int64_t tokens = starts.back();
  std::vector<float> queries(static_cast<size_t>(tokens * size), query),
      values(queries.size(), 1);
  std::map<std::string, DeviceTensor> there;
  auto upload = [&](const std::string &name, const TensorView &from) {
    there[name] =
        need(DeviceTensor::allocate(program->device(), from.dtype, from.shape));
    need(copy(from, there[name].view()));
    return there[name].view();
  };
  for (const char *name : {"q_pre", "q", "k", "v", "o"})
    prompts.tensors[name] =
        upload(name, TensorView::dense(name[0] == 'q' ? queries : values,
                                       DType::F32, {tokens, 1, size}));
  std::vector<int32_t> rows = slots, begins = starts;
  upload("slots", TensorView::dense(rows, DType::I32, {prompts.rows}));
  upload("begins", TensorView::dense(begins, DType::I32, {prompts.rows + 1}));
  prompts.slots = {there["slots"].as<int32_t>(), slots.size()};
  prompts.cuSeqlens = {there["begins"].as<int32_t>(), starts.size()};
  for (size_t row = 0; row < slots.size() && isOnGpu(); ++row) {
    const std::vector<int32_t> one{slots[row]};
    need(pool->reserve(one, starts[row + 1] - starts[row]));
  }
  prompts.tokens = isOnGpu() ? tokens : 0;
  Status status = decoder->prefill(prompts);
  need(synchronize(program->device()));
  return status;
}

void OneHead::reset(int32_t slot) {
  const std::vector<int32_t> slots{slot};
  need(pool->reset(slots));
}

float OneHead::answer() { return need(toFloats(memory["o"].view())).front(); }

std::vector<std::string> test::targetsOfOneHead() {
  if (hasGpu())
    return {"cpu", "cuda"};
  return {"cpu"};
}
