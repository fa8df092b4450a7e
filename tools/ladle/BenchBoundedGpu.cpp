//===- BenchBoundedGpu.cpp - steps over bounded caches on a GPU -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences are decoded until their caches are full, and a segmented one until
// the middle of a segment after the first fold; longer ones, by --context,
// begin with prompts. What a step takes there is the median of replays; what it
// takes with all that leaves the cache, the mean over as many steps as a
// segment has. Layers take turns until they read twice the second-level cache.
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/Convert.h"
#include "tools/ladle/BenchDocument.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/ladle/Source.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <fmt/format.h>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

namespace {

class BoundedGpuBench {
public:
  BoundedGpuBench(const BenchOptions &options, const measure::Gpu &gpu,
                  const AttentionProgram &program, int64_t rows)
      : options(options), device(gpu.device()), program(program),
        bounded(*program.getImpl().bounded), rows(rows) {}

  /// Decodes until caches are as full as they are to be.
  Status prepare();
  /// Seconds of a step of a layer: of each replay, and the mean over a cycle.
  Status time();
  /// Keys, values and memories that a step reads, and a memory that it writes.
  double bytes() const;
  int64_t tokens() const { return warmup; }
  size_t layers() const { return bound.size(); }
  std::vector<double> samples;
  double mean = 0, early = 0; ///< early: each step started ahead of time

private:
  bool evicts() const { return bounded.kind == BoundedKind::Evicting; }
  Status makeTensors(int64_t tokens,
                     std::map<std::string, TensorView, std::less<>> &tensors);
  Result<std::span<const int32_t>> keep(std::vector<int32_t> list);
  Status addLayer();
  Status fill(int64_t tokens);
  Status launchAll(Start start = Start::InOrder);
  /// Seconds of a step of a layer.
  Result<double> timeCycle(Start start, std::vector<double> *each);

  const BenchOptions &options;
  const cuda::Device &device;
  AttentionProgram program;
  const BoundedProgram &bounded;
  int64_t rows, warmup = 0; ///< tokens of a sequence before it is timed
  std::mt19937_64 random{1};
  std::vector<DeviceTensor> memory;
  /// Of a call.
  static constexpr int64_t mostPromptTokens = 8192;
  AttentionArguments arguments;
  std::vector<std::unique_ptr<AttentionPool>> pools;
  std::vector<std::unique_ptr<AttentionDecoder>> decoders;
  std::vector<BoundStep> bound;
};

} // namespace

double BoundedGpuBench::bytes() const {
  const AttentionProgramImpl &made = program.getImpl();
  int64_t token = made.keySize * sizeInBytes(made.keyType) +
                  made.valueSize * sizeInBytes(made.valueType);
  int64_t kept = evicts()
                     ? bounded.budget
                     : bounded.sinks + bounded.window + bounded.segment / 2;
  int64_t remembered = 0;
  if (bounded.memory != BoundedMemory::None)
    remembered = bounded.memoryKeySize * made.valueSize *
                 sizeInBytes(bounded.memoryType);
  // What leaves a cache that evicts changes the memory in each step.
  if (evicts())
    remembered *= 2;
  return static_cast<double>(rows * made.cacheHeads *
                             (kept * token + remembered));
}

Status BoundedGpuBench::makeTensors(
    int64_t tokens, std::map<std::string, TensorView, std::less<>> &tensors) {
  const Signature &signature = program.signature();
  std::normal_distribution<float> normal;
  for (const auto *specs :
       {&signature.tokens, &signature.params, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape = spec.shape;
      if (specs != &signature.params)
        shape.insert(shape.begin(), tokens);
      auto count = static_cast<size_t>(std::accumulate(
          shape.begin(), shape.end(), int64_t(1), std::multiplies<>()));
      auto width = static_cast<size_t>(sizeInBytes(spec.dtype));
      std::vector<std::byte> values(count * width);
      for (size_t i = 0; i < count; ++i)
        storeFloat(spec.dtype, 0.3F * normal(random),
                   values.data() + i * width);
      Result<DeviceTensor> made = DeviceTensor::copyOf(
          program.device(),
          TensorView::dense(values.data(), spec.dtype, shape));
      if (!made)
        return made.status();
      tensors[spec.name] = made->view();
      memory.push_back(std::move(*made));
    }
  return Status();
}

Result<std::span<const int32_t>>
BoundedGpuBench::keep(std::vector<int32_t> list) {
  Result<DeviceTensor> made = DeviceTensor::copyOf(
      program.device(),
      TensorView::dense(list, DType::I32, {static_cast<int64_t>(list.size())}));
  if (!made)
    return made.status();
  memory.push_back(std::move(*made));
  return std::span<const int32_t>{memory.back().as<int32_t>(), list.size()};
}

/// Prompts of so many tokens, a part of one sequence at a time, in every layer.
Status BoundedGpuBench::fill(int64_t tokens) {
  std::map<std::string, TensorView, std::less<>> tensors;
  int64_t part = std::min(tokens, mostPromptTokens);
  if (Status status = makeTensors(part, tensors); !status)
    return status;
  for (int32_t slot = 0; slot < rows; ++slot)
    for (int64_t done = 0; done < tokens; done += part) {
      PrefillArguments prompt;
      prompt.rows = 1;
      prompt.tensors = tensors;
      prompt.tokens = part;
      Result<std::span<const int32_t>> slots = keep({slot});
      Result<std::span<const int32_t>> starts =
          keep({0, static_cast<int32_t>(std::min(part, tokens - done))});
      if (!slots || !starts)
        return slots ? starts.status() : slots.status();
      prompt.slots = *slots;
      prompt.cuSeqlens = *starts;
      for (auto &decoder : decoders)
        if (Status status = decoder->prefill(prompt, device.stream()); !status)
          return status;
    }
  return Status();
}

Status BoundedGpuBench::addLayer() {
  Result<AttentionPool> pool = AttentionPool::create(program, {.slots = rows});
  if (!pool)
    return pool.status();
  pools.push_back(std::make_unique<AttentionPool>(std::move(*pool)));
  AttentionDecoderOptions decoding;
  decoding.rows = rows;
  decoding.promptTokens =
      std::clamp<int64_t>(options.context, 1, mostPromptTokens);
  Result<AttentionDecoder> decoder =
      AttentionDecoder::create(program, *pools.back(), decoding);
  if (!decoder)
    return decoder.status();
  decoders.push_back(std::make_unique<AttentionDecoder>(std::move(*decoder)));
  Result<BoundStep> step = decoders.back()->bind(arguments);
  if (!step)
    return step.status();
  bound.push_back(std::move(*step));
  return Status();
}

Status BoundedGpuBench::launchAll(Start start) {
  for (BoundStep &step : bound)
    if (Status status = step.launch(device.stream(), start); !status)
      return status;
  return Status();
}

Status BoundedGpuBench::prepare() {
  arguments.rows = rows;
  if (Status status = makeTensors(rows, arguments.tensors); !status)
    return status;
  std::vector<int32_t> list(static_cast<size_t>(rows));
  std::iota(list.begin(), list.end(), 0);
  Result<std::span<const int32_t>> slots = keep(std::move(list));
  if (!slots)
    return slots.status();
  arguments.slots = *slots;
  auto cache = static_cast<double>(device.cacheBytes());
  constexpr int64_t leastLayers = 4, mostLayers = 64;
  auto count = std::clamp<int64_t>(
      static_cast<int64_t>(2 * cache / bytes()) + 2, leastLayers, mostLayers);
  for (int64_t i = 0; i < count; ++i)
    if (Status status = addLayer(); !status)
      return status;
  warmup = evicts() ? bounded.capacity + bounded.queries + 1
                    : bounded.sinks + bounded.window + bounded.segment +
                          bounded.segment / 2;
  // Longer ones stand where they would in a segment.
  int64_t before = std::max<int64_t>(options.context - warmup, 0);
  if (!evicts())
    before = before / bounded.segment * bounded.segment;
  if (before > 0)
    if (Status status = fill(before); !status)
      return status;
  for (int64_t i = 0; i < warmup; ++i)
    if (Status status = launchAll(); !status)
      return status;
  warmup += before;
  return device.synchronize();
}

Result<double> BoundedGpuBench::timeCycle(Start start,
                                          std::vector<double> *each) {
  Result<cuda::Graph> graph =
      cuda::Graph::record(device, [&] { return launchAll(start); });
  if (!graph)
    return graph.status();
  auto ofLayer = [&](double seconds) {
    return seconds / static_cast<double>(bound.size());
  };
  // The first replay uploads the graph.
  for (int64_t i = 0; i <= options.samples; ++i) {
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    if (i > 0 && each)
      each->push_back(ofLayer(*seconds));
  }
  int64_t cycle = evicts() ? 256 : bounded.segment;
  Result<double> all = graph->time(static_cast<int>(cycle));
  if (!all)
    return all.status();
  return ofLayer(*all) / static_cast<double>(cycle);
}

Status BoundedGpuBench::time() {
  Result<double> all = timeCycle(Start::InOrder, &samples);
  if (!all)
    return all.status();
  mean = *all;
  // Layers have nothing in common, so that one may start ahead of time.
  Result<double> ahead = timeCycle(Start::Early, nullptr);
  if (!ahead)
    return ahead.status();
  early = *ahead;
  return Status();
}

static Status benchAll(const BenchOptions &options, const measure::Gpu &gpu) {
  AttentionCompileOptions compile = attentionOptions(options);
  Result<AttentionProgram> program = compileAttention(
      readSource(options.source.file), options.source.file, compile);
  if (!program)
    return program.status();
  Result<measure::Ceilings> ceilings = measure::Ceilings::measure(gpu);
  if (!ceilings)
    return ceilings.status();
  double rate = ceilings->read().bytesPerSecond();
  fmt::print("{} {} on {}, driver {}\nreading gives {:.0f} GB/s\n\n{:>6} "
             "{:>7} {:>11} {:>11} {:>11} {:>11} {:>11} {:>6} {:>6}\n",
             options.source.file, options.source.preset, gpu.device().name(),
             gpu.driver(), 1e-9 * rate, "batch", "layers", "a step",
             "of a cycle", "early", "its bytes", "limit", "ratio", "early");
  BenchDocument document(options, gpu, "ladle-bench-bounded-gpu-1");
  document["capacity"] = program->capacity();
  document["read_bytes_per_s"] = rate;
  for (int64_t batch : options.batches) {
    BoundedGpuBench bench(options, gpu, *program, batch);
    if (Status status = bench.prepare(); !status)
      return status;
    if (Status status = bench.time(); !status)
      return status;
    double step = measure::median(bench.samples);
    double limit = bench.bytes() / rate;
    Json figure{{"batch", batch},
                {"layers", bench.layers()},
                {"tokens_before", bench.tokens()},
                {"us", 1e6 * step},
                {"mean_us", 1e6 * bench.mean},
                {"early_us", 1e6 * bench.early},
                {"bytes", bench.bytes()},
                {"limit_us", 1e6 * limit}};
    document.add(std::move(figure), bench.samples);
    fmt::print("{:>6} {:>7} {:>11} {:>11} {:>11} {:>8.1f} MB {:>11} {:>6.2f} "
               "{:>6.2f}\n",
               batch, bench.layers(), formatTime(step), formatTime(bench.mean),
               formatTime(bench.early), 1e-6 * bench.bytes(), formatTime(limit),
               bench.mean / limit, bench.early / limit);
    std::fflush(stdout);
  }
  return document.write();
}

int tool::benchBoundedOnGpu(const BenchOptions &options,
                            const measure::Gpu &gpu) {
  return exitCodeOf(benchAll(options, gpu));
}
