//===- BenchAttentionPrompts.cpp - ladle bench --prompts of an attention --===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A call that answers a prompt a row, of empty slots, against what tensor cores
// give in the same run. Flops are two products of a query and each key up to
// it, by segments of each that it attends to; that weights are multiplied
// twice, as two numbers, does not count, nor does what reads a memory.
//
//===----------------------------------------------------------------------===//

#include "ladle/device.h"
#include "runtime/Convert.h"
#include "runtime/check/AttentionCheck.h"
#include "runtime/check/BoundedCheck.h"
#include "runtime/cuda/DeviceAttention.h"
#include "tools/ladle/BenchDocument.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Products.h"
#include "tools/measure/Statistics.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

namespace {

class AttentionPrompts {
public:
  AttentionPrompts(const BenchOptions &options, const measure::Gpu &gpu,
                   const AttentionProgram &program, int64_t rows)
      : options(options), device(gpu.device()), program(program), rows(rows) {}

  Status prepare();
  /// Seconds of a call.
  Result<std::vector<double>> time();
  /// Of a call.
  double flops() const;

private:
  Status makeTensors();
  double keysOfPrompt() const;
  Result<std::span<const int32_t>> keep(std::vector<int32_t> values);

  const BenchOptions &options;
  const cuda::Device &device;
  AttentionProgram program;
  int64_t rows;
  std::vector<DeviceTensor> memory;
  PrefillArguments arguments;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
};

} // namespace

/// That the tokens of a row attend to, all together.
double AttentionPrompts::keysOfPrompt() const {
  int64_t tokens = options.prompts, keys = tokens * (tokens + 1) / 2;
  if (SegmentSettings each = program.segments();
      program.getImpl().gpu->prefill.scans()) {
    int64_t most = std::max<int64_t>(
        (tokens - each.sinks - each.window) / each.segment, 0);
    for (int64_t at = each.sinks; at < tokens; ++at)
      keys -= std::min((at - each.sinks) / each.segment, most) * each.segment;
  }
  return static_cast<double>(keys);
}

double AttentionPrompts::flops() const {
  const AttentionProgramImpl &made = program.getImpl();
  double pairs =
      static_cast<double>(rows * made.signature.heads) * keysOfPrompt();
  return 2 * pairs * static_cast<double>(made.keySize + made.valueSize);
}

Result<std::span<const int32_t>>
AttentionPrompts::keep(std::vector<int32_t> values) {
  auto count = static_cast<int64_t>(values.size());
  Result<DeviceTensor> made = DeviceTensor::copyOf(
      program.device(), TensorView::dense(values.data(), DType::I32, {count}));
  if (!made)
    return made.status();
  memory.push_back(std::move(*made));
  return std::span(memory.back().as<const int32_t>(), values.size());
}

Status AttentionPrompts::makeTensors() {
  const Signature &signature = program.signature();
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  auto add = [&](const TensorSpec &spec, bool hasRows) -> Status {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), rows * options.prompts);
    auto count = static_cast<size_t>(std::accumulate(
        shape.begin(), shape.end(), int64_t(1), std::multiplies<>()));
    auto width = static_cast<size_t>(sizeInBytes(spec.dtype));
    std::vector<std::byte> values(count * width);
    for (size_t i = 0; i < count; ++i)
      storeFloat(spec.dtype, hasRows ? normal(random) : 1,
                 values.data() + i * width);
    Result<DeviceTensor> made = DeviceTensor::copyOf(
        program.device(), TensorView::dense(values.data(), spec.dtype, shape));
    if (!made)
      return made.status();
    arguments.tensors[spec.name] = made->view();
    memory.push_back(std::move(*made));
    return Status();
  };
  for (const auto *specs :
       {&signature.params, &signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs)
      if (Status status = add(spec, specs != &signature.params); !status)
        return status;
  return Status();
}

Status AttentionPrompts::prepare() {
  if (Status status = makeTensors(); !status)
    return status;
  std::vector<int32_t> slots(static_cast<size_t>(rows)), starts{0};
  std::iota(slots.begin(), slots.end(), 0);
  for (int64_t row = 1; row <= rows; ++row)
    starts.push_back(static_cast<int32_t>(row * options.prompts));
  Result<std::span<const int32_t>> named = keep(slots), begins = keep(starts);
  if (!named || !begins)
    return named ? begins.status() : named.status();
  arguments.rows = rows;
  arguments.slots = *named;
  arguments.cuSeqlens = *begins;
  arguments.tokens = rows * options.prompts;
  AttentionPoolOptions room;
  room.slots = rows;
  if (!program.isBounded()) {
    int64_t page = program.pageSize();
    room.pages = rows * ((options.prompts + page - 1) / page);
  }
  Result<AttentionPool> made = AttentionPool::create(program, room);
  if (!made)
    return made.status();
  pool = std::make_unique<AttentionPool>(std::move(*made));
  if (!program.isBounded())
    if (Status status = pool->reserve(slots, options.prompts); !status)
      return status;
  AttentionDecoderOptions decoding;
  decoding.rows = rows;
  decoding.promptTokens = arguments.tokens;
  Result<AttentionDecoder> decodes =
      AttentionDecoder::create(program, *pool, decoding);
  if (!decodes)
    return decodes.status();
  decoder = std::make_unique<AttentionDecoder>(std::move(*decodes));
  return Status();
}

Result<std::vector<double>> AttentionPrompts::time() {
  Result<cuda::Graph> graph = cuda::Graph::record(
      device, [&] { return decoder->prefill(arguments, device.stream()); });
  if (!graph)
    return graph.status();
  std::vector<double> samples;
  // The first replay uploads the graph.
  for (int64_t i = 0; i <= options.samples; ++i) {
    // Slots are empty again; their pages stay.
    if (Status status = pool->getImpl().device->cursors.fill(0); !status)
      return status;
    if (Status status = device.synchronize(); !status)
      return status;
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    if (i > 0)
      samples.push_back(*seconds);
  }
  return samples;
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Whether a prompt is answered right, and the tokens after it.
static Status checkAnswers(const BenchOptions &options,
                           const AttentionCompileOptions &compile,
                           const AttentionProgram &program) {
  check::AttentionRequest request;
  request.path = options.source.file;
  request.source = readSource(options.source.file);
  request.elaboration.recurrence = compile.attention;
  request.elaboration.preset = compile.preset;
  request.elaboration.sizes = options.source.sizes;
  request.elaboration.options = options.source.options;
  if (program.isBounded()) {
    request.target = "cuda";
    check::BoundedCase bounded;
    bounded.prompt = program.getImpl().bounded->budget + 70;
    bounded.tokens = 2;
    // So that some are folded: an interpreter takes long for the program's.
    if (program.getImpl().gpu->prefill.scans())
      bounded.segments = SegmentSettings{5, 9, 20};
    Result<check::BoundedResult> result = check::checkBounded(request, bounded);
    if (!result)
      return result.status();
    return result->passed() ? Status()
                            : Status(ErrorCode::Internal, result->failure);
  }
  check::AttentionCase config;
  config.prompt = 70;
  config.tokens = 2;
  config.pageSize = program.pageSize();
  config.settings = program.settings();
  config.target = "cuda";
  Result<check::AttentionResult> result =
      check::checkAttention(request, config);
  if (!result)
    return result.status();
  return result->passed() ? Status()
                          : Status(ErrorCode::Internal, result->failure);
}

static Status benchAll(const BenchOptions &options, const measure::Gpu &gpu) {
  AttentionCompileOptions compile = attentionOptions(options);
  Result<AttentionProgram> program = compileAttention(
      readSource(options.source.file), options.source.file, compile);
  if (!program)
    return program.status();
  if (const GpuAttentionForm &form = program->getImpl().gpu->prefill;
      program->isBounded() && !form.selects() && !form.scans())
    return Status(ErrorCode::Unsupported,
                  fmt::format("prompts of '{}' go token by token on a GPU: "
                              "leave --prompts out to time steps",
                              program->signature().name));
  if (!options.skipCheck)
    if (Status status = checkAnswers(options, compile, *program); !status)
      return status;
  Result<double> ceiling = measure::measureProducts(gpu);
  if (!ceiling)
    return ceiling.status();
  fmt::print("{} {} on {}, driver {}\nprompts of {} tokens; products of bf16 "
             "give {:.3g} TF/s\n\n{:>6} {:>7} {:>11} {:>11} {:>11} {:>6}\n",
             options.source.file, options.source.preset, gpu.device().name(),
             gpu.driver(), options.prompts, 1e-12 * *ceiling, "batch", "tokens",
             "a call", "a token", "flops", "share");
  BenchDocument document(options, gpu, "ladle-bench-attention-prompts-1");
  document["products_per_s"] = *ceiling;
  for (int64_t batch : options.batches) {
    AttentionPrompts bench(options, gpu, *program, batch);
    if (Status status = bench.prepare(); !status)
      return status;
    Result<std::vector<double>> samples = bench.time();
    if (!samples)
      return samples.status();
    double call = measure::median(*samples), rate = bench.flops() / call;
    double token = call / static_cast<double>(batch * options.prompts);
    Json figure{{"batch", batch},          {"tokens", options.prompts},
                {"us_a_call", 1e6 * call}, {"ns_a_token", 1e9 * token},
                {"flops", bench.flops()},  {"flops_per_s", rate}};
    document.add(std::move(figure), *samples);
    fmt::print("{:>6} {:>7} {:>11} {:>11} {:>11} {:>6.2f}\n", batch,
               options.prompts, formatTime(call), formatTime(token),
               fmt::format("{:.3g} TF/s", 1e-12 * rate), rate / *ceiling);
    std::fflush(stdout);
  }
  return document.write();
}

int tool::benchAttentionPrompts(const BenchOptions &options,
                                const measure::Gpu &gpu) {
  return exitCodeOf(benchAll(options, gpu));
}
