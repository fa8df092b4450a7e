//===- PromptPair.h - prompts on a GPU and on the CPU -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A GPU and the CPU get the same prompts and tokens of an attention over a
// bounded cache, answer the same, and keep the same.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_PROMPTPAIR_H
#define LADLE_TESTS_RUNTIME_GPU_PROMPTPAIR_H

#include "ladle/attention.h"
#include "runtime/Convert.h"
#include "runtime/check/DeviceCopies.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <list>
#include <random>

namespace ladle::test {

using check::DeviceCopies;

struct Shape {
  int64_t heads = 4, cacheHeads = 2, size = 64;
  std::string type = "f32";
  std::map<std::string, int64_t> others = {}; ///< sizes
};
/// A prompt of a row: tokens for a slot, or of padding.
struct Prompt {
  int32_t slot;
  int64_t tokens;
};
using Options = std::map<std::string, double>;

inline DType dtypeNamed(const std::string &name) {
  return name == "bf16" ? DType::BF16 : name == "f16" ? DType::F16 : DType::F32;
}

/// A pool of four slots on a device, of an example or of a source.
class Side {
public:
  Side(const std::string &name, const std::string &target, const Shape &shape,
       const Options &options, const AttentionDecoderOptions &decoding)
      : type(dtypeNamed(shape.type)) {
    AttentionCompileOptions compile;
    compile.sizes = {
        {"Hq", shape.heads}, {"Hkv", shape.cacheHeads}, {"D", shape.size}};
    compile.sizes.insert(shape.others.begin(), shape.others.end());
    compile.options = options;
    compile.target = target;
    compile.tokenTypes = {{"*", shape.type}, {"o", "f32"}};
    bool isSource = name.find('\n') != std::string::npos;
    program = std::make_unique<AttentionProgram>(need(compileAttention(
        isSource ? name : readExample(name), "prompts.ladle", compile)));
    pool = std::make_unique<AttentionPool>(need(AttentionPool::create(
        *program, {.slots = 4, .pages = program->isBounded() ? 0 : 64})));
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool, decoding)));
    copies = std::make_unique<DeviceCopies>(program->device());
  }

  /// The same inputs on every device; outputs are far from any answer.
  DeviceCopies::Tensors tensors(int64_t rows, unsigned seed) {
    copies->clear();
    memory.clear();
    DeviceCopies::Tensors views;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const TensorSpec &spec : program->signature().tokens)
      views.emplace(spec.name,
                    fill(spec, rows, type, [&] { return normal(random); }));
    // Parameters have no rows, and one type on every device.
    for (const TensorSpec &spec : program->signature().params)
      views.emplace(spec.name, fill(spec, 0, spec.dtype,
                                    [&] { return 0.3F * normal(random); }));
    const TensorSpec &output = program->signature().outputs.front();
    views.emplace(output.name,
                  fill(output, rows, DType::F32, [] { return 1e6F; }));
    need(copies->upload(views));
    return views;
  }

  PrefillArguments prompts(const std::vector<Prompt> &rows, int64_t room,
                           unsigned seed) {
    slots.clear();
    starts = {0};
    for (const Prompt &row : rows) {
      slots.push_back(row.slot);
      starts.push_back(starts.back() + static_cast<int32_t>(row.tokens));
    }
    PrefillArguments arguments;
    arguments.rows = static_cast<int64_t>(rows.size());
    int64_t tokens = starts.back() + room;
    arguments.tensors = tensors(tokens, seed);
    arguments.slots = need(copies->upload(slots));
    arguments.cuSeqlens = need(copies->upload(starts));
    if (copies->isOnDevice())
      arguments.tokens = tokens;
    else
      for (const auto *specs :
           {&program->signature().tokens, &program->signature().outputs})
        for (const TensorSpec &spec : *specs)
          arguments.tensors.at(spec.name).shape[0] = starts.back();
    return arguments;
  }

  std::vector<float> answers(const TensorView &view) {
    std::vector<float> values(static_cast<size_t>(view.count()));
    need(copies->download(view, values));
    if (!copies->isOnDevice())
      std::copy_n(static_cast<const float *>(view.data), values.size(),
                  values.begin());
    return values;
  }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::unique_ptr<DeviceCopies> copies;

private:
  template <typename Draw>
  TensorView fill(const TensorSpec &spec, int64_t rows, DType dtype,
                  Draw draw) {
    std::vector<int64_t> shape = spec.shape;
    if (rows)
      shape.insert(shape.begin(), rows);
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    std::vector<std::byte> &into =
        memory.emplace_back(static_cast<size_t>(count * sizeInBytes(dtype)));
    for (int64_t i = 0; i < count; ++i)
      storeFloat(dtype, draw(), into.data() + i * sizeInBytes(dtype));
    return TensorView::dense(into.data(), dtype, shape);
  }

  DType type;
  std::list<std::vector<std::byte>> memory;
  std::vector<int32_t> slots, starts;
};

class Pair {
public:
  Pair(const std::string &name, const Shape &shape, const Options &options,
       int64_t promptTokens = 0,
       std::optional<PreferenceOptions> preference = {})
      : cacheHeads(shape.cacheHeads), there(name, "cuda", shape, options,
                                            {.rows = 40,
                                             .promptTokens = promptTokens,
                                             .settings = {},
                                             .preference = preference}),
        host(name, "cpu", shape, options,
             {.threads = 1, .settings = {}, .preference = preference}) {}

  void prefill(const std::vector<Prompt> &rows, int64_t room = 0) {
    CAPTURE(++seed);
    PrefillArguments arguments = there.prompts(rows, room, seed);
    need(there.decoder->prefill(arguments));
    std::vector<float> got = there.answers(arguments.tensors.at("o"));
    compare(rows, room, got);
  }

  /// What the host answers to the same prompts, and keeps. Of a row without a
  /// token, which it refuses, nothing changes.
  void compare(const std::vector<Prompt> &rows, int64_t room,
               const std::vector<float> &got) {
    compareAnswers(rows, room, got);
    checkKept();
  }
  void compareAnswers(std::vector<Prompt> rows, int64_t room,
                      const std::vector<float> &got) {
    std::erase_if(rows, [](const Prompt &row) { return row.tokens == 0; });
    PrefillArguments arguments = host.prompts(rows, room, seed);
    need(host.decoder->prefill(arguments));
    std::vector<float> wanted = host.answers(arguments.tensors.at("o"));
    check(got, wanted);
    // Behind the last prompt nothing is written.
    for (size_t i = wanted.size(); i < got.size(); ++i)
      REQUIRE(got[i] == 1e6F);
  }

  void step(const std::vector<int32_t> &slots) {
    CAPTURE(++seed);
    std::vector<float> all[2];
    for (Side *side : {&there, &host}) {
      AttentionArguments arguments;
      arguments.rows = static_cast<int64_t>(slots.size());
      arguments.tensors = side->tensors(arguments.rows, seed);
      arguments.slots = need(side->copies->upload(slots));
      need(side->decoder->step(arguments));
      all[side == &host] = side->answers(arguments.tensors.at("o"));
    }
    check(all[0], all[1]);
    checkKept();
  }

  /// Of a recorded call, other prompts in its room. The inputs are those of the
  /// call: all tokens that there is room for, of which the prompts are the
  /// first.
  void replay(cuda::Graph &graph, const PrefillArguments &recorded,
              const std::vector<Prompt> &rows) {
    std::vector<int32_t> slots, starts{0};
    for (const Prompt &row : rows) {
      slots.push_back(row.slot);
      starts.push_back(starts.back() + static_cast<int32_t>(row.tokens));
    }
    REQUIRE(starts.back() <= recorded.tokens);
    auto upload = [&](std::vector<int32_t> &values,
                      std::span<const int32_t> into) {
      std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
      need(copy(TensorView::dense(values, DType::I32, shape),
                TensorView::dense(const_cast<int32_t *>(into.data()),
                                  DType::I32, shape, there.program->device())));
    };
    upload(slots, recorded.slots);
    upload(starts, recorded.cuSeqlens);
    TensorView output = recorded.tensors.at("o");
    std::vector<float> empty(static_cast<size_t>(output.count()), 1e6F);
    need(copy(TensorView::dense(empty, DType::F32, output.shape), output));
    need(synchronize(there.program->device()));
    need(graph.replay());
    compare(rows, recorded.tokens - starts.back(), there.answers(output));
  }

  /// A graph of a call with room for the longest, which reads how many tokens
  /// there are when it is replayed.
  void replayOthers() {
    const std::vector<std::vector<Prompt>> calls{{{0, 37}, {1, 60}, {-1, 3}},
                                                 {{2, 90}, {0, 8}, {3, 2}},
                                                 {{1, 5}, {2, 0}, {0, 30}}};
    cuda::Device device = need(cuda::Device::shared());
    PrefillArguments first = there.prompts(calls[0], 0, ++seed);
    auto graph = need(cuda::Graph::record(device, [&] {
      return there.decoder->prefill(first, device.stream());
    }));
    CHECK(there.pool->length(0) == 0);
    for (const std::vector<Prompt> &rows : calls)
      replay(graph, first, rows);
  }

  void setBudget(int32_t slot, int64_t budget) {
    need(there.decoder->setBudget(slot, budget));
    need(host.decoder->setBudget(slot, budget));
    CHECK(there.pool->budget(slot) == budget);
    checkKept();
  }

  void reset(int32_t slot) {
    const int32_t ended[] = {slot};
    need(there.pool->reset(ended));
    need(host.pool->reset(ended));
  }

  void checkKept() {
    for (int32_t slot = 0; slot < 4; ++slot) {
      CAPTURE(slot);
      REQUIRE(there.pool->length(slot) == host.pool->length(slot));
      REQUIRE(there.pool->keptTokens(slot) == host.pool->keptTokens(slot));
      for (int64_t head = 0; head < cacheHeads; ++head)
        REQUIRE(there.pool->keptPositions(slot, head) ==
                host.pool->keptPositions(slot, head));
    }
  }

  int64_t cacheHeads;
  Side there, host;
  unsigned seed = 100;
  double margin = 3e-5;

private:
  void check(std::span<const float> got, std::span<const float> wanted) const {
    REQUIRE(got.size() >= wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(i);
      REQUIRE(got[i] == Approx(wanted[i]).margin(margin));
    }
  }
};

/// Of an evicting cache: it fills soon.
const Options small{{"budget", 24}, {"recent", 5}, {"queries", 6}};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_PROMPTPAIR_H
