//===- BenchAttention.cpp - ladle bench of an attention -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of sequences that stand at one length, against the bytes that they
// cannot do without. Nothing is prefilled: caches and rings hold random
// numbers, and where a head is to match, its ring holds the query to the bit.
// Of real rings more begin as the query does (--alike).
// Where that is was drawn once (MatchPositions.h), so that runs compare.
// Layers take turns in a graph, until what they read is twice the second-level
// cache, 16 at least where there is room; before each replay their cursors are
// set back.
//
//===----------------------------------------------------------------------===//

#include "ladle/device.h"
#include "runtime/Convert.h"
#include "runtime/cuda/DeviceAttention.h"
#include "tools/ladle/BenchDocument.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/ladle/MatchPositions.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

namespace {

using Gaps = MatchScenario::Gaps;
constexpr MatchScenario scenarios[] = {
    {"all hit", Gaps::Uniform},
    {"grouped", Gaps::Grouped},
    {"gap 64", Gaps::Same, 64},
    {"95 % hit", Gaps::Same, 64, /*hasMisses=*/true},
    {"no hit", Gaps::None}};

class AttentionBench {
public:
  AttentionBench(const BenchOptions &options, const measure::Gpu &gpu,
                 const AttentionProgram &program, int64_t rows)
      : options(options), device(gpu.device()), program(program), rows(rows),
        window(std::max<int64_t>(program.settings().window, 1)) {}

  Status prepare(const MatchScenario &scenario);
  /// Seconds of a step.
  Result<std::vector<double>> time(Start start);
  /// What a step has to read and to write.
  double bytes() const { return stepBytes; }
  size_t layers() const { return decoders.size(); }

private:
  double countBytes() const;
  double layerBytes() const;
  Status makeTensors();
  Status addLayer();
  Status fillRandom(const cuda::Memory &memory, DType type);
  Status makeAlike(cuda::Memory &ring, int64_t queryBytes);
  Status setBack();
  /// That a step finds what it is to find, and nothing else.
  Status checkMatches();

  const BenchOptions &options;
  const cuda::Device &device;
  AttentionProgram program;
  int64_t rows, window;
  double stepBytes = 0;
  std::mt19937_64 random{1};
  std::map<DType, std::vector<std::byte>> chunks; ///< of random numbers
  std::vector<int64_t> gaps; ///< [rows, heads]; 0: no match
  std::map<std::string, DeviceTensor> memory;
  std::vector<std::byte> queries; ///< what is matched, [rows, heads, D]
  std::vector<int32_t> slotList;
  AttentionArguments arguments;
  std::vector<std::unique_ptr<AttentionPool>> pools;
  std::vector<std::unique_ptr<AttentionDecoder>> decoders;
  std::vector<BoundStep> steps;
};

} // namespace

double AttentionBench::countBytes() const {
  const AttentionProgramImpl &made = program.getImpl();
  int64_t heads = made.signature.heads, group = heads / made.cacheHeads;
  int64_t tokenBytes = made.keySize * sizeInBytes(made.keyType) +
                       made.valueSize * sizeInBytes(made.valueType);
  int64_t all = options.context + 1, tokens = 0, hits = 0;
  for (size_t first = 0; first < gaps.size();
       first += static_cast<size_t>(group)) {
    int64_t most = 0;
    for (size_t i = first; i < first + static_cast<size_t>(group); ++i) {
      hits += gaps[i] > 0;
      int64_t band = made.settings.band + made.settings.sinks;
      most = std::max(most, gaps[i] ? std::min(all, gaps[i] + band) : all);
    }
    tokens += most;
  }
  auto total = static_cast<double>(tokens * tokenBytes);
  if (!program.reuses())
    return total;
  int64_t entries = std::min(window - 1, options.context);
  int64_t queryBytes = made.keySize * sizeInBytes(made.queryType);
  int64_t summaryBytes =
      made.parts * (made.valueSize * sizeInBytes(made.summaryType) +
                    static_cast<int64_t>(sizeof(float)));
  total += static_cast<double>(rows * heads * entries * queryBytes);
  total += static_cast<double>(hits * summaryBytes);
  return total +
         static_cast<double>(rows * heads * (summaryBytes + queryBytes));
}

/// Of the cache and the rings of a layer, about.
double AttentionBench::layerBytes() const {
  const AttentionProgramImpl &made = program.getImpl();
  int64_t ofToken = made.keySize * sizeInBytes(made.keyType) +
                    made.valueSize * sizeInBytes(made.valueType);
  auto all =
      static_cast<double>(ofToken * made.cacheHeads * (options.context + 1));
  if (program.reuses())
    all += static_cast<double>(2 * ofToken * made.signature.heads * window);
  return all * static_cast<double>(rows);
}

Status AttentionBench::fillRandom(const cuda::Memory &to, DType type) {
  constexpr size_t count = size_t(1) << 20;
  std::vector<std::byte> &chunk = chunks[type];
  if (chunk.empty()) {
    std::normal_distribution<float> normal;
    auto width = static_cast<size_t>(sizeInBytes(type));
    chunk.resize(count * width);
    for (size_t i = 0; i < count; ++i)
      storeFloat(type, normal(random), chunk.data() + i * width);
  }
  auto size = std::min(static_cast<int64_t>(chunk.size()), to.bytes());
  if (Status status =
          device.upload(to.address(), chunk.data(), size, device.stream());
      !status)
    return status;
  for (int64_t at = size; at < to.bytes(); at += size)
    if (Status status =
            device.copy(to.address() + static_cast<uint64_t>(at), to.address(),
                        std::min(size, to.bytes() - at), device.stream());
        !status)
      return status;
  return device.synchronize(device.stream());
}

Status AttentionBench::makeTensors() {
  const Signature &signature = program.signature();
  std::normal_distribution<float> normal;
  arguments.rows = rows;
  auto add = [&](const TensorSpec &spec, bool hasRows) -> Status {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), rows);
    auto count = static_cast<size_t>(std::accumulate(
        shape.begin(), shape.end(), int64_t(1), std::multiplies<>()));
    auto width = static_cast<size_t>(sizeInBytes(spec.dtype));
    std::vector<std::byte> values(count * width);
    // A parameter is a moment: about that many squares.
    for (size_t i = 0; i < count; ++i)
      storeFloat(spec.dtype,
                 hasRows ? normal(random)
                         : static_cast<float>(program.getImpl().keySize),
                 values.data() + i * width);
    Result<DeviceTensor> made = DeviceTensor::copyOf(
        program.device(), TensorView::dense(values.data(), spec.dtype, shape));
    if (!made)
      return made.status();
    // The query that is matched is the first token.
    if (hasRows && queries.empty())
      queries = std::move(values);
    arguments.tensors[spec.name] = made->view();
    memory[spec.name] = std::move(*made);
    return Status();
  };
  for (const auto *specs :
       {&signature.tokens, &signature.params, &signature.outputs})
    for (const TensorSpec &spec : *specs)
      if (Status status = add(spec, specs != &signature.params); !status)
        return status;
  slotList.resize(static_cast<size_t>(rows));
  std::iota(slotList.begin(), slotList.end(), 0);
  Result<DeviceTensor> slots = DeviceTensor::copyOf(
      program.device(), TensorView::dense(slotList, DType::I32, {rows}));
  if (!slots)
    return slots.status();
  arguments.slots = {slots->as<int32_t>(), slotList.size()};
  memory["slots of rows"] = std::move(*slots);
  return Status();
}

/// Some entries of each head begin as its query does, which promises a match,
/// and go on as the opposite of it.
Status AttentionBench::makeAlike(cuda::Memory &ring, int64_t queryBytes) {
  std::bernoulli_distribution isAlike(options.alike);
  std::vector<std::byte> entries(static_cast<size_t>(window * queryBytes));
  int64_t width = sizeInBytes(program.getImpl().queryType);
  for (size_t i = 0; i < gaps.size(); ++i) {
    auto size = static_cast<int64_t>(entries.size());
    int64_t at = static_cast<int64_t>(i) * size;
    if (Status status = ring.read(entries.data(), size, at); !status)
      return status;
    const std::byte *query =
        queries.data() + static_cast<int64_t>(i) * queryBytes;
    std::vector<std::byte> alike(query, query + queryBytes);
    // The sign is the highest bit of the last byte.
    for (int64_t byte = queryBytes / 2 + width - 1; byte < queryBytes;
         byte += width)
      alike[static_cast<size_t>(byte)] ^= std::byte(0x80);
    for (int64_t entry = 0; entry < window; ++entry)
      if (isAlike(random))
        std::ranges::copy(alike, entries.begin() + entry * queryBytes);
    if (Status status = ring.write(entries.data(), size, at); !status)
      return status;
  }
  return Status();
}

Status AttentionBench::addLayer() {
  const AttentionProgramImpl &made = program.getImpl();
  int64_t pages = (options.context + made.pageSize) / made.pageSize;
  Result<AttentionPool> pool = AttentionPool::create(
      program, {.slots = rows, .pages = rows * pages, .maxTokens = 0});
  if (!pool)
    return pool.status();
  pools.push_back(std::make_unique<AttentionPool>(std::move(*pool)));
  DeviceAttentionPool &there = *pools.back()->getImpl().device;
  if (Status status = pools.back()->reserve(slotList, options.context + 1);
      !status)
    return status;
  for (auto [to, type] : {std::pair(&there.keys, made.keyType),
                          std::pair(&there.values, made.valueType)})
    if (Status status = fillRandom(*to, type); !status)
      return status;
  for (auto [name, type] : {std::pair("ring_queries", made.queryType),
                            std::pair("ring_rotated", made.queryType),
                            std::pair("ring_values", made.summaryType)})
    if (auto ring = there.rings.find(name); ring != there.rings.end())
      if (Status status = fillRandom(ring->second, type); !status)
        return status;
  if (auto ring = there.rings.find("ring_moments"); ring != there.rings.end()) {
    auto moment = static_cast<float>(made.keySize);
    int32_t bits;
    std::memcpy(&bits, &moment, sizeof bits);
    if (Status status = device.fillInt(ring->second.address(), bits,
                                       ring->second.bytes() / 4, nullptr);
        !status)
      return status;
  }
  int64_t queryBytes = made.keySize * sizeInBytes(made.queryType);
  if (options.alike > 0 && !gaps.empty())
    if (Status status = makeAlike(there.rings.at("ring_queries"), queryBytes);
        !status)
      return status;
  for (size_t i = 0; i < gaps.size(); ++i) {
    if (!gaps[i])
      continue;
    auto at = static_cast<int64_t>(i);
    int64_t entry = at * window + (options.context - gaps[i]) % window;
    if (Status status = there.rings.at("ring_queries")
                            .write(queries.data() + at * queryBytes, queryBytes,
                                   entry * queryBytes);
        !status)
      return status;
  }
  AttentionDecoderOptions decoderOptions;
  decoderOptions.rows = rows;
  decoderOptions.batchInvariant = options.batchInvariant;
  Result<AttentionDecoder> decoder =
      AttentionDecoder::create(program, *pools.back(), decoderOptions);
  if (!decoder)
    return decoder.status();
  decoders.push_back(std::make_unique<AttentionDecoder>(std::move(*decoder)));
  Result<BoundStep> step = decoders.back()->bind(arguments);
  if (!step)
    return step.status();
  steps.push_back(std::move(*step));
  return Status();
}

Status AttentionBench::prepare(const MatchScenario &scenario) {
  int64_t heads = program.signature().heads;
  gaps = MatchPositions::committed().gaps(
      scenario, rows * heads, heads / program.cacheHeads(),
      program.reuses() ? std::min(window - 1, options.context) : 0);
  stepBytes = countBytes();
  if (Status status = makeTensors(); !status)
    return status;
  // A replay begins and ends once for all layers: few would be charged for it.
  auto cache = static_cast<double>(device.cacheBytes());
  constexpr int64_t fewLayers = 16, mostLayers = 64;
  auto needed = static_cast<int64_t>(2 * cache / stepBytes) + 2;
  auto half = static_cast<double>(device.memoryBytes()) / 2;
  auto room = static_cast<int64_t>(half / layerBytes());
  int64_t count =
      std::min(mostLayers, std::max(needed, std::min(fewLayers, room)));
  for (int64_t i = 0; i < count; ++i)
    if (Status status = addLayer(); !status)
      return status;
  return Status();
}

/// All sequences to the length that is timed.
Status AttentionBench::setBack() {
  const AttentionSettings &settings = program.settings();
  constexpr int64_t numbers = DeviceAttentionPool::cursorNumbers;
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  // The entry that the token itself is left in is not looked at.
  int64_t entries =
      program.reuses() ? std::min(window - 1, options.context) : 0;
  std::vector<int32_t> cursors;
  for (int64_t row = 0; row < rows; ++row)
    cursors.insert(cursors.end(),
                   {narrow(options.context), narrow(entries),
                    narrow(options.context), narrow(settings.band),
                    narrow(settings.sinks), narrow(settings.wideBand), 0, 0});
  for (auto &pool : pools)
    if (Status status = pool->getImpl().device->cursors.write(
            cursors.data(),
            rows * numbers * static_cast<int64_t>(sizeof(int32_t)));
        !status)
      return status;
  return device.synchronize();
}

Status AttentionBench::checkMatches() {
  if (Status status = setBack(); !status)
    return status;
  for (BoundStep &step : steps)
    if (Status status = step.launch(device.stream()); !status)
      return status;
  for (auto &decoder : decoders) {
    std::span<const int64_t> matches = decoder->matches();
    for (size_t i = 0; i < gaps.size(); ++i) {
      int64_t wanted = gaps[i] ? options.context - gaps[i] : -1;
      if (i >= matches.size() || matches[i] != wanted)
        return Status(ErrorCode::Internal,
                      fmt::format("head {} matched token {}, wanted {}", i,
                                  i < matches.size() ? matches[i] : -2,
                                  wanted));
    }
  }
  return Status();
}

/// Of steps after one another; or of steps that each start before those of the
/// layers ahead have ended, back to the first one.
Result<std::vector<double>> AttentionBench::time(Start start) {
  if (!options.skipCheck && start == Start::InOrder)
    if (Status status = checkMatches(); !status)
      return status;
  Result<cuda::Graph> graph = cuda::Graph::record(device, [&]() -> Status {
    for (BoundStep &step : steps)
      if (Status status =
              step.launch(device.stream(),
                          &step == &steps.front() ? Start::InOrder : start);
          !status)
        return status;
    return Status();
  });
  if (!graph)
    return graph.status();
  std::vector<double> samples;
  // The first replay uploads the graph.
  for (int64_t i = 0; i <= options.samples; ++i) {
    if (Status status = setBack(); !status)
      return status;
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    if (i > 0)
      samples.push_back(*seconds / static_cast<double>(steps.size()));
  }
  return samples;
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

AttentionCompileOptions tool::attentionOptions(const BenchOptions &options) {
  AttentionCompileOptions compile;
  compile.attention = options.source.recurrence;
  compile.preset = options.source.preset;
  compile.sizes.insert(options.source.sizes.begin(),
                       options.source.sizes.end());
  compile.options.insert(options.source.options.begin(),
                         options.source.options.end());
  compile.target = "cuda";
  if (!options.source.stateType.empty())
    compile.stateTypes["*"] = options.source.stateType;
  return compile;
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
  fmt::print("{} {} on {}, driver {}\nsequences of {} tokens; reading gives "
             "{:.0f} GB/s\n\n{:>9} {:>6} {:>7} {:>11} {:>11} {:>11} {:>6}\n",
             options.source.file, options.source.preset, gpu.device().name(),
             gpu.driver(), options.context,
             1e-9 * ceilings->read().bytesPerSecond(), "matches", "batch",
             "layers", "a step", "its bytes", "limit", "ratio");
  BenchDocument document(options, gpu, "ladle-bench-attention-1");
  document["context"] = options.context;
  document["read_bytes_per_s"] = ceilings->read().bytesPerSecond();
  document["gaps_file"] = MatchPositions::file;
  document["gaps_seed"] = MatchPositions::committed().seed();
  if (options.alike > 0)
    document["alike"] = options.alike;
  if (options.batchInvariant)
    document["batch_invariant"] = true;
  for (int64_t batch : options.batches)
    for (const MatchScenario &scenario : scenarios) {
      // Without rings nothing ever matches.
      if (!program->reuses() && scenario.gaps != Gaps::None)
        continue;
      AttentionBench bench(options, gpu, *program, batch);
      if (Status status = bench.prepare(scenario); !status)
        return status;
      Result<std::vector<double>> samples = bench.time(Start::InOrder);
      if (!samples)
        return samples.status();
      double step = measure::median(*samples), early = 0;
      if (options.early) {
        Result<std::vector<double>> ahead = bench.time(Start::Early);
        if (!ahead)
          return ahead.status();
        early = measure::median(*ahead);
      }
      double limit = bench.bytes() / ceilings->read().bytesPerSecond();
      Json figure{{"matches", scenario.name}, {"gaps", scenario.gapsName()},
                  {"batch", batch},           {"layers", bench.layers()},
                  {"us", 1e6 * step},         {"bytes", bench.bytes()},
                  {"limit_us", 1e6 * limit}};
      if (options.early)
        figure["early_us"] = 1e6 * early;
      document.add(std::move(figure), *samples);
      fmt::print("{:>9} {:>6} {:>7} {:>11} {:>8.1f} MB {:>11} {:>6.2f}",
                 scenario.name, batch, bench.layers(), formatTime(step),
                 1e-6 * bench.bytes(), formatTime(limit), step / limit);
      if (options.early)
        fmt::print("; early {} {:.2f}", formatTime(early), early / limit);
      fmt::print("\n");
      std::fflush(stdout);
    }
  return document.write();
}

int tool::benchAttention(const BenchOptions &options, const measure::Gpu &gpu) {
  constexpr int64_t usual = 32768;
  BenchOptions filled = options;
  filled.context = options.context ? options.context : usual;
  return exitCodeOf(benchAll(filled, gpu));
}
