//===- DeviceChunkTest.cpp - folds where chunks end, on a GPU -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With numerics = chunk a sequence folds where its length is a multiple of the
// chunk, and nowhere else, whether its tokens come in prompts or in steps.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

static const char *const moving =
    ",by_chunk=1,rows=3,tokens=6,staggered=1,pads=1,resets=1,forks=1,seed=3";

TEST_CASE("prompts and steps of every route fold where chunks end") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "gated_delta_net", "mamba2", "rwkv7",
                        "coupled");
  std::vector<std::string> routes{"inner", "outer"};
  // The value of one of its states comes from a read of the other.
  if (model != "coupled")
    routes.push_back("adjoint");
  for (const std::string &route : routes)
    checkOnGpu(model,
               "route=" + route + ",prompts=50,chunk=16,L=16,m=16" + moving);
}

TEST_CASE("the same with decays a channel, and carries") {
  if (!hasGpu())
    return;
  for (const char *route : {"inner", "adjoint"}) {
    checkOnGpu("kda", std::string("route=") + route +
                          ",prompts=60,chunk=24,L=24,m=24" + moving);
    checkOnGpu("short_conv", std::string("route=") + route +
                                 ",prompts=40,chunk=16,L=16,m=16" + moving);
  }
  checkOnGpu("mamba3", std::string("route=inner,prompts=40,chunk=16,L=16,"
                                   "m=16") +
                           moving);
}

// 40 tokens are not a whole number of those that a block takes at a time.
TEST_CASE("the same of states in tiles, in 16 bits, and the other way round") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=inner,state=bf16,entries=bf16,size.Hk=1,"
                           "size.Hv=2,size.Dk=64,size.Dv=128,prompts=150,"
                           "chunk=64,L=64,m=64"},
      {"gdn2", "route=outer,state=f16,layout=dk_dv,size.Hk=1,size.Hv=1,"
               "size.Dk=32,size.Dv=96,prompts=90,chunk=40,L=40,m=40"},
      {"delta_net", "route=adjoint,state=bf16,size.H=1,size.Dk=64,"
                    "size.Dv=128,prompts=70,chunk=32,L=32,m=32"},
  }));
  checkOnGpu(model, text + moving);
}

namespace {

constexpr int64_t chunk = 16, mostTokens = 60;

CompileOptions byChunk(const std::string &target = "cuda") {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = "inner";
  options.numerics = "chunk";
  options.chunk = chunk;
  return options;
}

Program compile(const CompileOptions &options) {
  return need(compileFile(examplePath("gated_delta_rule"), options));
}

/// One sequence in a pool of its own, wherever a program runs.
class Sequence {
public:
  explicit Sequence(const Program &program)
      : program(program), pool(makePool(program, 2)),
        decoder(need(Decoder::create(program, pool))),
        tensors(program, mostTokens),
        numbers(
            need(DeviceTensor::allocate(program.device(), DType::I32, {3}))) {}

  /// The answers to the next `count` tokens, a prompt or steps.
  std::vector<float> prefill(int32_t count, void *stream = nullptr) {
    set(count);
    PrefillArguments prompt = arguments();
    // The host looks into the lengths, and wants as many tokens.
    if (program.device().kind == DeviceKind::Cpu)
      for (auto &[name, view] : prompt.tensors)
        if (view.shape[0] == mostTokens)
          view = view.slice(0, 0, count);
    need(decoder.prefill(prompt, stream));
    return finish(count);
  }
  std::vector<float> decode(int32_t count) {
    std::vector<float> all;
    for (int32_t i = 0; i < count; ++i) {
      set(1);
      StepArguments step;
      step.rows = 1;
      step.readSlots = slots();
      step.tensors = tensors.arguments.tensors;
      for (auto &[name, view] : step.tensors)
        if (view.shape[0] == mostTokens)
          view = view.slice(0, 0, 1);
      need(decoder.step(step));
      std::vector<float> one = finish(1);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  /// Puts the next tokens where a captured prompt looks for them.
  void set(int32_t count) {
    std::vector<int32_t> sequences(mostTokens), positions(mostTokens);
    for (int32_t i = 0; i < mostTokens; ++i)
      positions[static_cast<size_t>(i)] = length + i;
    tensors.fill(sequences, positions);
    std::vector<int32_t> values{1, 0, count};
    need(copy(TensorView::dense(values, DType::I32, {3}), numbers.view()));
  }
  std::vector<float> finish(int32_t count) {
    if (program.device().kind == DeviceKind::Cuda)
      need(synchronize(gpu));
    length += count;
    std::vector<float> result;
    for (int32_t i = 0; i < count; ++i)
      for (float value : tensors.output(i))
        result.push_back(value);
    Cursor cursor = need(pool.cursor(1));
    CHECK(cursor.length == length % chunk);
    CHECK(cursor.committed == cursor.length);
    CHECK((cursor.epoch > 0) == (length >= chunk));
    return result;
  }
  PrefillArguments arguments() const {
    PrefillArguments result;
    result.rows = 1;
    result.slots = slots();
    result.cuSeqlens = {numbers.as<int32_t>() + 1, 2};
    result.tokens = mostTokens;
    result.tensors = tensors.arguments.tensors;
    return result;
  }
  std::span<const int32_t> slots() const { return {numbers.as<int32_t>(), 1}; }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;

private:
  DeviceTensor numbers; ///< slot, and where the prompt begins and ends
  int32_t length = 0;
};

void append(std::vector<float> &all, const std::vector<float> &more) {
  all.insert(all.end(), more.begin(), more.end());
}

} // namespace

TEST_CASE(
    "a prompt on a GPU that is split where chunks end has the same bits") {
  if (!hasGpu())
    return;
  Program program = compile(byChunk());
  CHECK(program.foldsByChunk());
  CHECK(program.capacity() == chunk);
  Sequence whole(program), parts(program);
  std::vector<float> answers = whole.prefill(54), more;
  for (int32_t count : {16, 32, 6})
    append(more, parts.prefill(count));
  CHECK(answers == more);
  // Steps go on from the entries that both have left.
  CHECK(whole.decode(12) == parts.decode(12));
}

TEST_CASE("answers do not depend on how a sequence is split on a GPU") {
  if (!hasGpu())
    return;
  Program program = compile(byChunk());
  Sequence whole(program), parts(program), onHost(compile(byChunk("cpu")));
  std::vector<float> answers = whole.prefill(54), more;
  append(more, parts.prefill(3));
  append(more, parts.decode(5));
  append(more, parts.prefill(5));
  append(more, parts.prefill(30));
  append(more, parts.decode(6));
  append(more, parts.prefill(5));
  std::vector<float> host = onHost.prefill(54);
  REQUIRE(more.size() == answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    CHECK(more[i] == Approx(answers[i]).margin(2e-2));
    CHECK(host[i] == Approx(answers[i]).margin(2e-2));
  }
}

TEST_CASE("a graph of prompts that fold by chunks is replayed") {
  if (!hasGpu())
    return;
  Program program = compile(byChunk());
  Sequence direct(program), replayed(program);
  cuda::Device device = need(cuda::Device::open(0));
  std::optional<cuda::Graph> graph;
  for (int32_t count : {5, 30, 13, 1, 48}) {
    std::vector<float> answers = direct.prefill(count);
    replayed.set(count);
    if (!graph)
      graph = need(cuda::Graph::record(device, [&] {
        return replayed.decoder.prefill(replayed.arguments(), device.stream());
      }));
    need(graph->replay());
    need(device.synchronize());
    CHECK(replayed.finish(count) == answers);
  }
}

TEST_CASE("layers on a GPU that share cursors fold by the same chunks") {
  if (!hasGpu())
    return;
  Program program = compile(byChunk());
  Cursors cursors = need(Cursors::create(program, {.slots = 2}));
  PoolOptions sharing;
  sharing.cursors = cursors;
  Pool first = makePool(program, 2, sharing),
       second = makePool(program, 2, sharing);
  std::vector<Decoder> layers;
  layers.push_back(need(Decoder::create(program, first)));
  layers.push_back(need(Decoder::create(program, second)));
  Sequence alone(program);
  for (int32_t count : {20, 9, 35}) {
    std::vector<float> answers = alone.prefill(count);
    // The inputs are the same again, and so are the answers of each layer.
    for (Decoder &layer : layers) {
      need(layer.prefill(alone.arguments()));
      need(synchronize(gpu));
      std::vector<float> mine;
      for (int32_t i = 0; i < count; ++i)
        append(mine, alone.tensors.output(i));
      CHECK(mine == answers);
    }
    need(cursors.advance(alone.slots()));
    Cursor mine = need(cursors.cursor(1)), other = need(alone.pool.cursor(1));
    CHECK(mine.length == other.length);
    CHECK(mine.epoch == other.epoch);
  }
}

TEST_CASE("who folds by chunks on a GPU folds nowhere else") {
  if (!hasGpu())
    return;
  Program program = compile(byChunk());
  Sequence sequence(program);
  CHECK_THAT(sequence.pool.setFoldThreshold(8).message(),
             Contains("foldThreshold is 8, wanted 16, where the chunks"));
  Tensors step(program, 1);
  step.fill({0}, {0});
  step.setSlots({1}, {0});
  CHECK_THAT(sequence.decoder.step(step.arguments).message(),
             Contains("writeSlots are given, wanted none: who folds by "
                      "chunks"));
  // Prompts of a program that folds elsewhere would leave other cursors.
  CompileOptions options = byChunk();
  options.numerics = "step";
  options.prefill = true;
  options.capacity = chunk;
  CHECK_THAT(Decoder::create(compile(options), sequence.pool).message(),
             Contains("'gated_delta_rule' does not fold by chunks (numerics = "
                      "chunk), and the program of the cursors does"));
  options = byChunk();
  options.page = 8;
  Result<Program> paged = compileFile(examplePath("gated_delta_rule"), options);
  CHECK(paged.status().code() == ErrorCode::Unsupported);
  CHECK_THAT(paged.message(),
             Contains("page is 8, expected 0 with numerics = chunk"));
}
