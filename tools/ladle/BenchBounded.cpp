//===- BenchBounded.cpp - steps over bounded caches on the CPU ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slots stand in the middle of a segment, or their caches are full, so that a
// token leaves with every step. Caches and memories hold random numbers, and
// there are so many that a step finds nothing of the last one in a cache of the
// processor. Rounds of steps and of a stream that reads as many bytes take
// turns, so that both see the machine alike.
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/Convert.h"
#include "runtime/check/BoundedCheck.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/Host.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace ladle;
using namespace ladle::tool;

namespace {
class BoundedBench {
public:
  BoundedBench(const BenchOptions &options, AttentionProgram program)
      : options(options), program(std::move(program)),
        threads(static_cast<int>(options.threads.value_or(0))) {}
  Status run();

private:
  Status prepare();
  void fillEvicting();
  bool evicts() const {
    return program.getImpl().bounded->kind == BoundedKind::Evicting;
  }
  /// So many numbers.
  void fill(AttentionPoolImpl::Array &array, DType type, int64_t count);
  /// Of keys, values and memories that a step reads, and of a memory that it
  /// writes.
  int64_t bytesOfStep() const;
  Status report() const;

  const BenchOptions &options;
  AttentionProgram program;
  int threads;
  int64_t rows = 0, kept = 0;
  std::mt19937_64 random{1};
  std::optional<AttentionPool> pool;
  std::optional<AttentionDecoder> decoder;
  std::vector<std::vector<std::byte>> memory;
  AttentionArguments arguments;
  std::vector<int32_t> slots;
  std::vector<double> stepSeconds, readSeconds;
};
} // namespace

void BoundedBench::fill(AttentionPoolImpl::Array &array, DType type,
                        int64_t count) {
  std::uniform_real_distribution<float> uniform(0.1F, 1);
  auto *at = static_cast<char *>(array.memory.data());
  int64_t width = sizeInBytes(type);
  // Numbers that come again do no harm, and are quick to make.
  std::vector<float> some(4096);
  for (float &number : some)
    number = uniform(random);
  for (int64_t i = 0; i < count; ++i)
    storeFloat(type, some[static_cast<size_t>(i) % some.size()],
               at + i * width);
}

/// Each head holds as many tokens as it may, which have been weighed by as many
/// queries as there may be.
void BoundedBench::fillEvicting() {
  const AttentionProgramImpl &made = program.getImpl();
  const BoundedProgram &bounded = *made.bounded;
  int64_t heads = rows * made.cacheHeads;
  auto next = pool->getImpl().bounded.begin();
  if (bounded.memory != BoundedMemory::None)
    next += 2;
  if (bounded.memory == BoundedMemory::Taylor) {
    fill(*next++, DType::F32, heads * made.valueSize);
    auto *spread = static_cast<float *>((next++)->memory.data());
    for (int64_t head = 0; head < heads; ++head) {
      spread[2 * head] = static_cast<float>(kept); // tokens that have left
      spread[2 * head + 1] = 1;
    }
  }
  auto *counts = static_cast<int64_t *>((next++)->memory.data());
  auto *order = static_cast<int32_t *>((next++)->memory.data());
  auto *positions = static_cast<int64_t *>((next++)->memory.data());
  for (int64_t head = 0; head < heads; ++head) {
    counts[head] = kept;
    // As if those before them had left one by one.
    for (int64_t i = 0; i < kept; ++i) {
      order[head * bounded.capacity + i] = static_cast<int32_t>(i);
      positions[head * bounded.capacity + i] = kept + i;
    }
  }
  if (!bounded.observes)
    return;
  int64_t noted = std::max<int64_t>(bounded.queries, 1);
  fill(*next++, DType::F32, heads * noted * bounded.capacity);
  if (bounded.queries)
    std::fill_n(static_cast<int64_t *>(next->memory.data()), heads,
                bounded.queries);
}

Status BoundedBench::prepare() {
  const AttentionProgramImpl &made = program.getImpl();
  const BoundedProgram &bounded = *made.bounded;
  kept = evicts() ? bounded.budget
                  : bounded.sinks + bounded.window + bounded.segment / 2;
  int64_t wanted = 4 * Host::describe().cacheBytes();
  rows = options.hostRows
             ? options.hostRows
             : std::max<int64_t>(1, wanted / program.slotBytes() + 1);
  Result<AttentionPool> created =
      AttentionPool::create(program, {.slots = rows});
  if (!created)
    return created.status();
  pool.emplace(std::move(*created));
  AttentionPoolImpl &inside = pool->getImpl();
  int64_t heads = rows * made.cacheHeads;
  fill(inside.keys, made.keyType, heads * bounded.capacity * made.keySize);
  fill(inside.values, made.valueType,
       heads * bounded.capacity * made.valueSize);
  if (bounded.memory != BoundedMemory::None) {
    fill(inside.bounded[0], bounded.memoryType,
         heads * bounded.memoryKeySize * made.valueSize);
    fill(inside.bounded[1], DType::F32, heads * bounded.memoryKeySize);
  }
  if (evicts())
    fillEvicting();
  for (int64_t slot = 0; slot < rows; ++slot) {
    AttentionPoolImpl::Cursor cursor;
    cursor.budget = bounded.budget;
    cursor.segments = evicts() ? 0 : 2;
    cursor.length =
        evicts() ? 2 * kept : kept + cursor.segments * bounded.segment;
    if (Status status = inside.write(static_cast<int32_t>(slot), cursor);
        !status)
      return status;
    slots.push_back(static_cast<int32_t>(slot));
  }
  AttentionDecoderOptions decoding;
  decoding.threads = threads;
  Result<AttentionDecoder> decodes =
      AttentionDecoder::create(program, *pool, decoding);
  if (!decodes)
    return decodes.status();
  decoder.emplace(std::move(*decodes));

  std::normal_distribution<float> normal;
  auto add = [&](const TensorSpec &spec, bool hasRows) {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), rows);
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    int64_t width = sizeInBytes(spec.dtype);
    auto &into = memory.emplace_back(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i)
      storeFloat(spec.dtype, 0.1F * normal(random), into.data() + i * width);
    arguments.tensors.emplace(
        spec.name, TensorView::dense(into.data(), spec.dtype, shape));
  };
  const Signature &signature = program.signature();
  memory.reserve(signature.params.size() + signature.tokens.size() +
                 signature.outputs.size());
  for (const TensorSpec &spec : signature.params)
    add(spec, false);
  for (const TensorSpec &spec : signature.tokens)
    add(spec, true);
  for (const TensorSpec &spec : signature.outputs)
    add(spec, true);
  arguments.rows = rows;
  arguments.slots = slots;
  return Status();
}

int64_t BoundedBench::bytesOfStep() const {
  const AttentionProgramImpl &made = program.getImpl();
  const BoundedProgram &bounded = *made.bounded;
  int64_t token = made.keySize * sizeInBytes(made.keyType) +
                  made.valueSize * sizeInBytes(made.valueType);
  int64_t remembered = 0;
  if (bounded.memory != BoundedMemory::None)
    remembered = bounded.memoryKeySize *
                 (made.valueSize * sizeInBytes(bounded.memoryType) +
                  int64_t(sizeof(float)));
  // What leaves a cache that evicts changes the memory in each step.
  if (evicts())
    remembered *= 2;
  return rows * made.cacheHeads * (kept * token + remembered);
}

Status BoundedBench::run() {
  if (Status status = prepare(); !status)
    return status;
  MemoryStream stream(bytesOfStep(), threads);
  if (stream.bytes() == 0)
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("no memory for {} bytes", bytesOfStep()));
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin = Clock::now();
  // A segmented cache grows by a token a step, and is brought back before the
  // next; one that evicts stays as full as it is.
  for (int64_t round = 0; round < options.samples + 1; ++round) {
    // The first brings memory in; one is measured, whatever the budget.
    double elapsed =
        std::chrono::duration<double>(Clock::now() - begin).count();
    if (options.budget > 0 && round > 1 && elapsed > options.budget)
      break;
    double read = stream.read();
    Clock::time_point start = Clock::now();
    if (Status status = decoder->step(arguments); !status)
      return status;
    double step = std::chrono::duration<double>(Clock::now() - start).count();
    if (!evicts())
      for (int32_t slot : slots)
        if (Status status = pool->truncate(slot, pool->length(slot) - 1);
            !status)
          return status;
    if (round == 0)
      continue;
    readSeconds.push_back(read * static_cast<double>(bytesOfStep()) /
                          static_cast<double>(stream.bytes()));
    stepSeconds.push_back(step);
  }
  std::sort(readSeconds.begin(), readSeconds.end());
  std::sort(stepSeconds.begin(), stepSeconds.end());
  return report();
}

Status BoundedBench::report() const {
  Host host = Host::describe();
  auto bytes = static_cast<double>(bytesOfStep());
  auto rate = [&](const std::vector<double> &seconds, size_t at) {
    return bytes / seconds[at] * 1e-9;
  };
  size_t middle = stepSeconds.size() / 2;
  bool remembers = program.getImpl().bounded->memory != BoundedMemory::None;
  fmt::print("{} on {}, {} rows, {} tokens kept{} each: {:.1f} MB a "
             "step, reading gives {:.2f} GB/s\n\n{:>10} {:>12} {:>10} {:>10}\n",
             program.signature().name, host.processor, rows, kept,
             remembers ? " and a memory" : "", bytes * 1e-6,
             rate(readSeconds, 0), "", "us a row", "GB/s", "of read");
  for (auto [label, at] : {std::pair{"best", size_t(0)}, {"median", middle}}) {
    double step = rate(stepSeconds, at), read = rate(readSeconds, at);
    fmt::print("{:>10} {:>12.1f} {:>10.2f} {:>8.1f} %\n", label,
               stepSeconds[at] * 1e6 / static_cast<double>(rows), step,
               100 * step / read);
  }
  if (options.json.empty())
    return Status();
  nlohmann::ordered_json all = {{"schema", "ladle-bench-bounded-1"},
                                {"attention", program.signature().name},
                                {"processor", host.processor},
                                {"cores", host.cores},
                                {"threads", threads},
                                {"rows", rows},
                                {"kept", kept},
                                {"bytes", bytesOfStep()},
                                {"step_seconds", stepSeconds},
                                {"read_seconds", readSeconds},
                                {"command", options.commandLine}};
  return writeFile(options.json, all.dump(2) + "\n");
}

int tool::benchBounded(const BenchOptions &options, const std::string &source) {
  AttentionCompileOptions compile;
  compile.attention = options.source.recurrence;
  compile.preset = options.source.preset;
  compile.sizes = options.source.sizes;
  compile.options = options.source.options;
  if (!options.source.stateType.empty())
    compile.stateTypes["*"] = options.source.stateType;
  Result<AttentionProgram> program =
      compileAttention(source, options.source.file, compile);
  Status status = program ? Status() : program.status();
  if (status)
    status = BoundedBench(options, *program).run();
  if (status)
    return 0;
  printError(status);
  return 1;
}
