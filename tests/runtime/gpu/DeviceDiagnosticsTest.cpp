//===- DeviceDiagnosticsTest.cpp - what heads say that they did on a GPU --===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decoder of the GPU and one of the CPU answer the same tokens, and have to
// tell the same; tests/numerics/AttentionDiagnosticsTest.cpp computes what that
// is from the definition.
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr int64_t tokenCount = 26;

/// What is compiled, and decoded with.
struct Subject {
  const char *name;
  std::string text;
  std::string type = "bf16"; ///< of queries, keys and values
  std::map<std::string, double> options = {};
  std::optional<AttentionSettings> settings = {};
  bool reuses = true;
  std::vector<std::string> comesAgain = {"q_pre"}; ///< so that queries match
  int64_t rows = 3;
  std::map<std::string, int64_t> sizes = {{"Hq", 4}, {"Hkv", 2}, {"D", 64}};
};

class Decoding {
public:
  Decoding(const Subject &subject, const std::string &target, bool diagnoses)
      : subject(subject), rows(subject.rows) {
    AttentionCompileOptions options;
    options.sizes = subject.sizes;
    options.options = subject.options;
    options.tokenTypes = {{"*", subject.type}};
    options.target = target;
    program = std::make_unique<AttentionProgram>(
        need(compileAttention(subject.text, subject.name, options)));
    pool = std::make_unique<AttentionPool>(need(AttentionPool::create(
        *program, {.slots = rows + 1, .pages = 3 * (rows + 1)})));
    AttentionDecoderOptions how;
    how.settings = subject.settings;
    how.diagnostics = diagnoses;
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool, how)));
    arguments.rows = rows;
    const Signature &signature = program->signature();
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs)
        allocate(spec, /*hasRows=*/true);
    for (const TensorSpec &spec : signature.params) {
      allocate(spec, /*hasRows=*/false);
      std::vector<float> moments(static_cast<size_t>(spec.shape[0]), 32);
      need(copy(TensorView::dense(moments, DType::F32, spec.shape),
                memory[spec.name].view()));
    }
    for (const auto &[name, tensor] : memory)
      arguments.tensors[name] = tensor.view();
    memory["slots"] =
        need(DeviceTensor::allocate(program->device(), DType::I32, {rows}));
    arguments.slots = {memory["slots"].as<int32_t>(),
                       static_cast<size_t>(rows)};
    if (target == "cuda") {
      std::vector<int32_t> all(static_cast<size_t>(rows + 1));
      std::iota(all.begin(), all.end(), 0);
      need(pool->reserve(all, tokenCount));
    }
  }

  /// The token at a position of the sequences, of which one pauses and one
  /// begins late.
  void fill(int64_t position) {
    std::vector<int32_t> slots{0, position % 5 == 4 ? -1 : 3,
                               position < 9 ? -1 : 1};
    for (int64_t row = 3; row < rows; ++row)
      slots.push_back(static_cast<int32_t>(row + 1));
    need(copy(TensorView::dense(slots.data(), DType::I32, {rows}),
              memory["slots"].view()));
    for (const TensorSpec &spec : program->signature().tokens) {
      std::vector<int64_t> shape{rows, spec.shape[0], spec.shape[1]};
      std::vector<float> values(
          static_cast<size_t>(rows * spec.shape[0] * spec.shape[1]));
      bool again = std::count(subject.comesAgain.begin(),
                              subject.comesAgain.end(), spec.name) > 0;
      std::mt19937 random(
          static_cast<unsigned>(again && position % 4 ? position % 3
                                                      : 100 + position) +
          1000 * static_cast<unsigned>(spec.name.front() + spec.name.size()));
      // Norms of many octaves.
      float scale = spec.name == "v"
                        ? std::ldexp(1.0F, static_cast<int>(position % 7) - 4)
                        : 1.0F;
      for (float &value : values)
        value = scale * std::normal_distribution<float>()(random);
      need(copy(TensorView::dense(values, DType::F32, shape),
                memory[spec.name].view()));
    }
  }

  std::vector<float> answer() {
    need(synchronize(program->device()));
    TensorView output = memory[program->signature().outputs[0].name].view();
    std::vector<float> values(static_cast<size_t>(
        output.shape[0] * output.shape[1] * output.shape[2]));
    need(copy(output, TensorView::dense(values, DType::F32, output.shape)));
    return values;
  }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  AttentionArguments arguments;

private:
  void allocate(const TensorSpec &spec, bool hasRows) {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), rows);
    memory[spec.name] =
        need(DeviceTensor::allocate(program->device(), spec.dtype, shape));
  }

  const Subject &subject;
  int64_t rows;
  std::map<std::string, DeviceTensor> memory;
};

} // namespace

static void checkNorms(const AttentionHeadDiagnostics::Norms &got,
                       const AttentionHeadDiagnostics::Norms &wanted) {
  // The same bins; where they stand for the largest norm, that number, whose
  // squares are added in another order.
  CHECK_THAT(got.median, WithinRel(wanted.median, 1e-12));
  CHECK_THAT(got.p90, WithinRel(wanted.p90, 1e-12));
  CHECK_THAT(got.p99, WithinRel(wanted.p99, 1e-12));
  CHECK_THAT(got.most, WithinRel(wanted.most, 1e-12));
}

static void checkAlike(const std::vector<AttentionHeadDiagnostics> &got,
                       const std::vector<AttentionHeadDiagnostics> &wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t head = 0; head < got.size(); ++head) {
    CAPTURE(head);
    CHECK(got[head].tokens == wanted[head].tokens);
    CHECK(got[head].hits == wanted[head].hits);
    CHECK(got[head].cached == wanted[head].cached);
    CHECK(got[head].skipped == wanted[head].skipped);
    CHECK_THAT(got[head].bandWeight, WithinAbs(wanted[head].bandWeight, 1e-5));
    CHECK_THAT(got[head].reusedWeight,
               WithinAbs(wanted[head].reusedWeight, 1e-5));
    checkNorms(got[head].query, wanted[head].query);
    checkNorms(got[head].value, wanted[head].value);
  }
}

static std::vector<Subject> subjects() {
  Subject plain{"mac", readExample("mac")};
  plain.options = {{"window", 16}, {"band", 4}, {"tau", 0.3}, {"sinks", 1}};
  Subject wide{"everything",
               everythingOfMatches("Hq = 24, Hkv = 2, D = 32, Dv = 64")};
  wide.comesAgain = {"q_pre", "q"};
  wide.sizes.clear(); // its preset
  Subject half = plain;
  half.type = "f16";
  // Ends chains, skips what is short, and looks less far.
  half.settings = AttentionSettings{.tau = 0.3,
                                    .window = 12,
                                    .band = 2,
                                    .sinks = 0,
                                    .maxGap = 5,
                                    .maxChain = 2,
                                    .skip = 6};
  Subject precise = plain;
  precise.type = "f32";
  Subject exact{"exact", readExample("exact_attention")};
  exact.reuses = false;
  return {plain, wide, half, precise, exact};
}

TEST_CASE("heads on a GPU tell what they tell on the CPU") {
  if (!hasGpu())
    return;
  Subject subject = GENERATE(from_range(subjects()));
  CAPTURE(subject.name, subject.type);
  Decoding device(subject, "cuda", true), host(subject, "cpu", true);
  CHECK(device.decoder->diagnostics().front().tokens == 0);
  for (int64_t position = 0; position < tokenCount; ++position) {
    for (Decoding *each : {&device, &host}) {
      each->fill(position);
      need(each->decoder->step(each->arguments));
    }
    std::span<const int64_t> matches = device.decoder->matches();
    REQUIRE(std::ranges::equal(matches, host.decoder->matches()));
    if (position == 7) // read while it goes on
      checkAlike(device.decoder->diagnostics(), host.decoder->diagnostics());
  }
  std::vector<AttentionHeadDiagnostics> found = device.decoder->diagnostics();
  checkAlike(found, host.decoder->diagnostics());
  for (const AttentionHeadDiagnostics &head : found) {
    CHECK(head.tokens == 26 + 21 + 17);
    CHECK(head.value.most > head.value.median);
    CHECK((head.hits > 0) == subject.reuses);
    CHECK((head.skipped > 0) == subject.reuses);
    CHECK((head.bandWeight > 0) == subject.reuses);
    CHECK((head.reusedWeight > 0) == subject.reuses);
    CHECK((head.query.median > 0) == subject.reuses);
  }
}

TEST_CASE("heads on a GPU tell of more rows than a block has threads") {
  if (!hasGpu())
    return;
  Subject subject = subjects()[0];
  subject.rows = 260;
  subject.sizes = {{"Hq", 2}, {"Hkv", 1}, {"D", 32}};
  Decoding device(subject, "cuda", true), host(subject, "cpu", true);
  for (int64_t position = 0; position < 4; ++position)
    for (Decoding *each : {&device, &host}) {
      each->fill(position);
      need(each->decoder->step(each->arguments));
    }
  std::vector<AttentionHeadDiagnostics> found = device.decoder->diagnostics();
  checkAlike(found, host.decoder->diagnostics());
  CHECK(found.front().tokens == 4 * 259); // one has not begun
}

TEST_CASE("a graph captures diagnostics with its step") {
  if (!hasGpu())
    return;
  Subject subject = subjects()[0];
  Decoding device(subject, "cuda", true), host(subject, "cpu", true);
  BoundStep step = need(device.decoder->bind(device.arguments));
  cuda::Device card = need(cuda::Device::shared());
  auto graph = need(
      cuda::Graph::record(card, [&] { return step.launch(card.stream()); }));
  for (int64_t position = 0; position < tokenCount; ++position) {
    for (Decoding *each : {&device, &host})
      each->fill(position);
    need(synchronize(device.program->device()));
    need(graph.replay());
    need(host.decoder->step(host.arguments));
    need(synchronize(device.program->device()));
  }
  checkAlike(device.decoder->diagnostics(), host.decoder->diagnostics());
}

TEST_CASE("nobody asks a GPU: no diagnostics, no launch, the same answers") {
  if (!hasGpu() || !emulatedGpu())
    return;
  Subject subject = subjects()[0];
  std::vector<float> answers[2];
  auto launches = [&](bool diagnoses) {
    Decoding device(subject, "cuda", diagnoses);
    device.fill(0);
    need(synchronize(gpu));
    emulatedGpu()->takeLaunches();
    emulatedGpu()->takeCalls();
    need(device.decoder->step(device.arguments));
    // Nor does it wait or allocate where somebody asks.
    for (const std::string &call : emulatedGpu()->takeCalls()) {
      CHECK_THAT(call, !Contains("Synchronize"));
      CHECK_THAT(call, !Contains("Alloc"));
    }
    need(synchronize(gpu));
    CHECK(device.decoder->diagnostics().empty() == !diagnoses);
    std::vector<EmulatedGpu::Launch> all = emulatedGpu()->takeLaunches();
    answers[diagnoses ? 1 : 0] = device.answer();
    return all;
  };
  std::vector<EmulatedGpu::Launch> without = launches(false);
  std::vector<EmulatedGpu::Launch> with = launches(true);
  CHECK(answers[0] == answers[1]);
  // Few rows that are watched have a plan, as many have: who watches looks at
  // it.
  REQUIRE(without.size() == 3);
  REQUIRE(with.size() == 5);
  CHECK(with[0].kernel == without[0].kernel);
  CHECK(without[1].kernel == "mac_decode_few");
  CHECK(with[1].kernel == "mac_decode_plan");
  CHECK(with[2].kernel == "mac_decode_attend");
  CHECK(with[3].kernel == without[2].kernel);
  CHECK(with.back().kernel == "ladle_attention_diagnostics");
  CHECK(with.back().grid[0] == 4 + 2);
  CHECK(with.back().isProgrammatic);
}

TEST_CASE("diagnostics on a GPU fail as its calls do") {
  if (!hasGpu() || !emulatedGpu())
    return;
  Subject subject = subjects()[0];
  Decoding device(subject, "cuda", true);
  AttentionDecoderOptions watching;
  watching.diagnostics = true;
  // What watches is compiled once, and found on disk from then on.
  int before = emulatedGpu()->compilations();
  need(AttentionDecoder::create(*device.program, *device.pool, watching));
  CHECK(emulatedGpu()->compilations() == before);
  emulatedGpu()->failNext("cuModuleLoadData", 209);
  CHECK_FALSE(
      AttentionDecoder::create(*device.program, *device.pool, watching).ok());
  emulatedGpu()->failNext("cuCtxSynchronize", 719);
  CHECK(device.decoder->diagnostics().empty());
  CHECK(device.decoder->diagnostics().size() == 4);
}
