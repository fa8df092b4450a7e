//===- HostEvicting.cpp - steps over caches that evict, on the CPU --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is a task for each row and head of the cache, whose kernel does all of
// it. A prompt is answered token by token, in any order, by what the cache
// holds and by the prompt up to the token. Then each head chooses what to keep
// by the scores that its last queries have left, folds the others, and takes
// what it keeps of the prompt into the cache.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Convert.h"
#include "runtime/EvictingSlots.h"
#include "runtime/Text.h"
#include "runtime/ThreadPool.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// What kernels may write behind the last score.
static constexpr int64_t slack = 16;

namespace {
/// The tokens of a prompt, and what a head's last queries gave to those before.
struct Prompt {
  int32_t slot = 0;
  int64_t begin = 0, end = 0; ///< rows
  int64_t before = 0;         ///< the length of the sequence
  int64_t count() const { return end - begin; }
};
/// Scores of the last queries of a prompt, of one head of the cache.
struct Window {
  int64_t queries = 0, stride = 0;
  std::vector<float> scores; ///< [queries, group, stride], by candidate
};

class HostEvicting final : public AttentionDecoder::Impl {
public:
  HostEvicting(const AttentionProgram &program, AttentionPoolImpl &pool,
               const AttentionDecoderOptions &options);

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override { return {}; }
  Status setBudget(int32_t slot, int64_t budget) override;
  std::span<const LayerPreference> preferences() const override {
    return preferred;
  }

private:
  Status bind(int64_t rows, const NamedTensors &tensors);
  void prepare(int32_t slot);

  LayerPreference prefillSlot(const Prompt &prompt);
  void answer(const Prompt &prompt, int64_t head, int64_t row, int worker,
              Window &window, std::span<float> sums);
  LayerPreference finish(const Prompt &prompt, int64_t head,
                         const Window &window, std::span<const float> sums,
                         int worker);
  void keep(const Prompt &prompt, int64_t head, const Candidates &all,
            std::span<const int32_t> kept, int64_t seen, int worker);
  LayerPreference preferenceOfHead(const Prompt &prompt, int64_t head,
                                   const Window &window, const Candidates &all,
                                   std::span<const double> salience) const;
  /// Of a candidate: what the cache holds, and then the prompt.
  std::vector<float> vectorOf(const Prompt &prompt, int64_t head,
                              int64_t candidate, bool isValue) const;
  const char *tokenAt(const std::string &name, int64_t row, int64_t head,
                      DType &dtype) const;

  int64_t group() const { return made.signature.heads / made.cacheHeads; }

  AttentionProgram program;
  const AttentionProgramImpl &made;
  const BoundedProgram &bounded;
  AttentionPoolImpl &pool;
  EvictingSlots slots;
  std::optional<PreferenceOptions> preference;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threads;
  std::vector<MemoryDescriptor> arguments; ///< params, tokens, outputs
  std::vector<BoundedTask> tasks;
  std::vector<LayerPreference> preferred;

  /// The arguments of a worker, on cache lines of its own.
  struct alignas(64) Worker {
    BoundedTask task;
    std::vector<void *> list;
    std::vector<float> scores;
    std::vector<int32_t> leaving;
    MemoryDescriptor scoresMemory, sumsMemory, leavingMemory;
  };
  std::vector<Worker> workers;
};
} // namespace

static void describe(MemoryDescriptor &memory, void *data,
                     std::vector<int64_t> sizes) {
  memory.allocated = memory.aligned = data;
  std::vector<int64_t> strides = denseStrides(sizes);
  std::copy(sizes.begin(), sizes.end(), memory.sizesAndStrides);
  std::copy(strides.begin(), strides.end(),
            memory.sizesAndStrides + sizes.size());
}

HostEvicting::HostEvicting(const AttentionProgram &given,
                           AttentionPoolImpl &pool,
                           const AttentionDecoderOptions &options)
    : program(given), made(program.getImpl()), bounded(*made.bounded),
      pool(pool), slots(pool), preference(options.preference),
      ownThreads(options.threads ? std::make_unique<ThreadPool>(options.threads)
                                 : nullptr),
      threads(ownThreads ? *ownThreads : ThreadPool::shared()) {
  const Signature &signature = made.signature;
  arguments.resize(signature.params.size() + signature.tokens.size() +
                   signature.outputs.size());
  workers.resize(static_cast<size_t>(threads.size()));
  for (Worker &worker : workers) {
    auto *integers = reinterpret_cast<int64_t *>(&worker.task);
    for (size_t i = 0; i < boundedTaskIntegers; ++i)
      worker.list.push_back(integers + i);
    for (MemoryDescriptor &argument : arguments)
      worker.list.push_back(&argument);
    worker.list.push_back(&pool.keys.descriptor);
    worker.list.push_back(&pool.values.descriptor);
    for (AttentionPoolImpl::Array &array : pool.bounded)
      worker.list.push_back(&array.descriptor);
    for (MemoryDescriptor *memory :
         {&worker.scoresMemory, &worker.sumsMemory, &worker.leavingMemory})
      worker.list.push_back(memory);
  }
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Status HostEvicting::bind(int64_t rows, const NamedTensors &tensors) {
  const Signature &signature = made.signature;
  std::span<MemoryDescriptor> all(arguments);
  return bindArguments(
      signature, rows, DeviceId(), tensors,
      {all.first(signature.params.size()),
       all.subspan(signature.params.size(), signature.tokens.size()),
       all.last(signature.outputs.size())});
}

/// What a slot holds is forgotten when it is used again after a reset.
void HostEvicting::prepare(int32_t slot) {
  if (pool.cursors[slot].length == 0)
    slots.clear(slot);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Status HostEvicting::step(const AttentionArguments &given, void *) {
  if (Status status = checkAttentionRows(given.rows, given.slots.size());
      !status)
    return status;
  if (given.rows == 0)
    return Status();
  std::vector<std::pair<int32_t, int64_t>> wanted;
  for (int32_t slot : given.slots)
    if (slot >= 0)
      wanted.emplace_back(slot, 1);
  if (Status status = checkBoundedRoom(pool, wanted); !status)
    return status;
  if (Status status = bind(given.rows, given.tensors); !status)
    return status;
  tasks.clear();
  for (int64_t row = 0; row < given.rows; ++row) {
    int32_t slot = given.slots[row];
    if (slot < 0) {
      zeroBoundedOutputs(made.signature, arguments, row);
      continue;
    }
    prepare(slot);
    BoundedTask &task = tasks.emplace_back();
    task.row = row;
    task.slot = slot;
    task.position = pool.cursors[slot].length++;
    task.budget = pool.cursors[slot].budget;
  }
  int64_t heads = made.cacheHeads;
  threads.forEach(static_cast<int64_t>(tasks.size()) * heads,
                  [&](int64_t index, int worker) {
                    workers[worker].task = tasks[index / heads];
                    workers[worker].task.head = index % heads;
                    bounded.decode(workers[worker].list.data());
                  });
  return Status();
}

Result<BoundStep> HostEvicting::bind(const AttentionArguments &given) {
  if (Status status = checkAttentionRows(given.rows, given.slots.size());
      !status)
    return status;
  if (given.rows == 0)
    return invalid("rows is 0, wanted 1 at least to bind a step");
  if (Status status = bind(given.rows, given.tensors); !status)
    return status;
  return bindHostAttention(*this, made.signature, given);
}

//===----------------------------------------------------------------------===//
// Prompts
//===----------------------------------------------------------------------===//

Status HostEvicting::prefill(const PrefillArguments &given, void *) {
  if (Status status = checkPrompts(given); !status)
    return status;
  std::vector<std::pair<int32_t, int64_t>> wanted;
  for (int64_t row = 0; row < given.rows; ++row)
    if (given.slots[row] >= 0)
      wanted.emplace_back(given.slots[row], int64_t(given.cuSeqlens[row + 1]) -
                                                given.cuSeqlens[row]);
  if (given.cuSeqlens.back() == 0)
    return Status();
  if (Status status = checkBoundedRoom(pool, wanted); !status)
    return status;
  if (Status status = bind(given.cuSeqlens.back(), given.tensors); !status)
    return status;
  preferred.clear();
  for (int64_t row = 0; row < given.rows; ++row) {
    Prompt prompt;
    prompt.slot = given.slots[row];
    prompt.begin = given.cuSeqlens[row];
    prompt.end = given.cuSeqlens[row + 1];
    if (prompt.slot < 0) {
      for (int64_t i = prompt.begin; i < prompt.end; ++i)
        zeroBoundedOutputs(made.signature, arguments, i);
      if (preference)
        preferred.emplace_back();
      continue;
    }
    prepare(prompt.slot);
    prompt.before = pool.cursors[prompt.slot].length;
    LayerPreference of = prefillSlot(prompt);
    if (preference)
      preferred.push_back(of);
  }
  return Status();
}

LayerPreference HostEvicting::prefillSlot(const Prompt &prompt) {
  int64_t heads = made.cacheHeads;
  auto room = static_cast<size_t>(bounded.capacity + prompt.count() + slack);
  Window shape;
  shape.stride = static_cast<int64_t>(room);
  if (bounded.observes)
    shape.queries = std::min(bounded.queries, prompt.count());
  if (preference)
    shape.queries =
        std::max(shape.queries, std::min(preference->queries, prompt.count()));
  bool isSum = bounded.observes && bounded.queries == 0;
  auto makeWindow = [&] {
    Window window = shape;
    window.scores.resize(
        static_cast<size_t>(shape.queries * group() * shape.stride));
    return window;
  };
  std::vector<LayerPreference> each(static_cast<size_t>(heads));
  if (isSum) {
    // Sums over all queries are made one after another.
    threads.forEach(heads, [&](int64_t head, int worker) {
      Window window = makeWindow();
      std::vector<float> sums(room, 0);
      for (int64_t row = prompt.begin; row < prompt.end; ++row)
        answer(prompt, head, row, worker, window, sums);
      each[head] = finish(prompt, head, window, sums, worker);
    });
  } else {
    for (int64_t head = 0; head < heads; ++head) {
      Window window = makeWindow();
      threads.forEach(prompt.count(), [&](int64_t index, int worker) {
        answer(prompt, head, prompt.begin + index, worker, window, {});
      });
      each[head] = finish(prompt, head, window, {}, /*worker=*/0);
    }
  }
  pool.cursors[prompt.slot].length += prompt.count();
  LayerPreference mean;
  for (const LayerPreference &of : each) {
    mean.disturbance += of.disturbance / static_cast<double>(heads);
    mean.entropy += of.entropy / static_cast<double>(heads);
  }
  return mean;
}

/// Answers a token; if it is among the last, its scores go to the window, with
/// those of the cache in the order of the sequence.
void HostEvicting::answer(const Prompt &prompt, int64_t head, int64_t row,
                          int which, Window &window, std::span<float> sums) {
  Worker &worker = workers[which];
  auto size = static_cast<size_t>(group() * window.stride);
  if (worker.scores.size() < size)
    worker.scores.resize(size);
  describe(worker.scoresMemory, worker.scores.data(), {group(), window.stride});
  describe(worker.sumsMemory, sums.data(), {static_cast<int64_t>(sums.size())});
  BoundedTask &task = worker.task;
  task = {};
  task.row = row;
  task.slot = prompt.slot;
  task.head = head;
  task.position = prompt.before + row - prompt.begin;
  task.appends = 0;
  task.budget = pool.cursors[prompt.slot].budget;
  task.first = prompt.begin;
  bounded.prefillSelect(worker.list.data());
  int64_t place = row - (prompt.end - window.queries);
  if (place < 0)
    return;
  EvictingSlots::Head cache = slots.head(prompt.slot, head);
  int64_t held = *cache.held, visible = held + row + 1 - prompt.begin;
  for (int64_t g = 0; g < group(); ++g) {
    const float *from = worker.scores.data() + g * window.stride;
    float *to = window.scores.data() + (place * group() + g) * window.stride;
    for (int64_t i = 0; i < held; ++i)
      to[i] = from[cache.order[i]];
    std::copy(from + held, from + visible, to + held);
  }
}

/// The softmax of the queries of a window, summed over the heads of the group.
static void addWeights(const Window &window, int64_t group, int64_t query,
                       int64_t visible, float *weights) {
  for (int64_t g = 0; g < group; ++g) {
    const float *scores =
        window.scores.data() + (query * group + g) * window.stride;
    float most = *std::max_element(scores, scores + visible);
    double sum = 0;
    for (int64_t i = 0; i < visible; ++i)
      sum += std::exp(scores[i] - most);
    for (int64_t i = 0; i < visible; ++i)
      weights[i] += static_cast<float>(std::exp(scores[i] - most) / sum);
  }
}

LayerPreference HostEvicting::finish(const Prompt &prompt, int64_t head,
                                     const Window &window,
                                     std::span<const float> sums, int worker) {
  int64_t count = prompt.count(), after = prompt.before + count;
  Candidates all = slots.candidates(prompt.slot, head, prompt.before);
  auto held = static_cast<int64_t>(all.count());
  int64_t rows = bounded.observes ? std::min(bounded.queries, count) : 0;
  for (int64_t i = 0; i < count; ++i)
    all.positions.push_back(prompt.before + i);
  int64_t size = held + count;
  if (!sums.empty()) {
    std::vector<float> before = std::move(all.weights);
    EvictingSlots::Head cache = slots.head(prompt.slot, head);
    all.weights.assign(sums.begin() + held, sums.begin() + size);
    all.weights.insert(all.weights.begin(), before.begin(), before.end());
    for (int64_t i = 0; i < held; ++i)
      all.weights[i] += sums[cache.order[i]];
  } else {
    // What earlier queries gave is not looked at any more.
    all.weights.assign(static_cast<size_t>(rows * size), 0);
    for (int64_t row = 0; row < rows; ++row)
      addWeights(window, group(), window.queries - rows + row,
                 held + count - rows + row + 1,
                 all.weights.data() + row * size);
  }
  all.seen.clear();
  for (int64_t position : all.positions)
    all.seen.push_back(std::min(rows, after - position));

  EvictionNumbers numbers = slots.numbers();
  std::vector<double> salience = saliences(numbers, all);
  LayerPreference result;
  if (preference)
    result = preferenceOfHead(prompt, head, window, all, salience);
  keep(prompt, head, all,
       chooseKept(numbers, all, salience, after,
                  pool.cursors[prompt.slot].budget),
       rows, worker);
  return result;
}

/// Folds what is not among `kept`, and makes the rest what the head holds.
void HostEvicting::keep(const Prompt &prompt, int64_t head,
                        const Candidates &all, std::span<const int32_t> kept,
                        int64_t seen, int which) {
  EvictingSlots::Head cache = slots.head(prompt.slot, head);
  int64_t held = *cache.held, size = static_cast<int64_t>(all.count());
  Worker &worker = workers[which];
  worker.leaving.clear();
  for (int64_t i = 0, next = 0; i < size; ++i) {
    if (next < static_cast<int64_t>(kept.size()) && kept[next] == i)
      ++next;
    else
      worker.leaving.push_back(i < held ? cache.order[i]
                                        : static_cast<int32_t>(~(i - held)));
  }
  if (bounded.prefillFold && !worker.leaving.empty()) {
    worker.task = {};
    worker.task.slot = prompt.slot;
    worker.task.head = head;
    worker.task.first = prompt.begin;
    worker.task.listed = static_cast<int64_t>(worker.leaving.size());
    describe(worker.leavingMemory, worker.leaving.data(), {worker.task.listed});
    bounded.prefillFold(worker.list.data());
  }
  std::vector<int32_t> entries = slots.compact(prompt.slot, head, kept);
  int64_t room = bounded.capacity;
  int64_t rows = size ? static_cast<int64_t>(all.weights.size()) / size : 0;
  if (cache.weights)
    std::fill_n(cache.weights, std::max<int64_t>(bounded.queries, 1) * room, 0);
  for (size_t i = 0; i < kept.size(); ++i) {
    cache.positions[entries[i]] = all.positions[kept[i]];
    for (int64_t row = 0; cache.weights && row < rows; ++row)
      cache.weights[row * room + entries[i]] =
          all.weights[row * size + kept[i]];
    if (kept[i] < held)
      continue;
    int64_t at = (prompt.slot * made.cacheHeads + head) * room + entries[i];
    for (auto [name, array, width] :
         {std::tuple{&made.keyName, &pool.keys, made.keySize},
          std::tuple{&made.valueName, &pool.values, made.valueSize}}) {
      DType dtype;
      const char *from =
          tokenAt(*name, prompt.begin + kept[i] - held, head, dtype);
      int64_t bytes = width * array->elementBytes;
      std::memcpy(static_cast<char *>(array->memory.data()) + at * bytes, from,
                  static_cast<size_t>(bytes));
    }
  }
  if (cache.seen)
    *cache.seen = seen;
}

const char *HostEvicting::tokenAt(const std::string &name, int64_t row,
                                  int64_t head, DType &dtype) const {
  size_t which = made.signature.params.size();
  for (const TensorSpec &spec : made.signature.tokens) {
    dtype = spec.dtype;
    if (spec.name == name)
      break;
    ++which;
  }
  const MemoryDescriptor &from = arguments[which];
  const int64_t *strides = from.sizesAndStrides + 3;
  return static_cast<const char *>(from.aligned) +
         (row * strides[0] + head * strides[1]) * sizeInBytes(dtype);
}

//===----------------------------------------------------------------------===//
// Budgets
//===----------------------------------------------------------------------===//

Status HostEvicting::setBudget(int32_t slot, int64_t budget) {
  if (Status status = pool.checkSlot(slot); !status)
    return status;
  int64_t least = bounded.sinks + bounded.recent;
  if (budget < least || budget > bounded.budget)
    return invalid(fmt::format("budget is {}, wanted {} to {}", budget, least,
                               bounded.budget));
  AttentionPoolImpl::Cursor &cursor = pool.cursors[slot];
  prepare(slot);
  cursor.budget = budget;
  Prompt nothing;
  nothing.slot = slot;
  nothing.before = cursor.length;
  threads.forEach(made.cacheHeads, [&](int64_t head, int worker) {
    Candidates all = slots.candidates(slot, head, cursor.length);
    if (static_cast<int64_t>(all.count()) <= budget)
      return;
    EvictingSlots::Head cache = slots.head(slot, head);
    EvictionNumbers numbers = slots.numbers();
    keep(nothing, head, all,
         chooseKept(numbers, all, saliences(numbers, all), cursor.length,
                    budget),
         cache.seen ? *cache.seen : 0, worker);
  });
  return Status();
}

//===----------------------------------------------------------------------===//
// The preference of a layer
//===----------------------------------------------------------------------===//

std::vector<float> HostEvicting::vectorOf(const Prompt &prompt, int64_t head,
                                          int64_t candidate,
                                          bool isValue) const {
  EvictingSlots::Head cache = slots.head(prompt.slot, head);
  int64_t width = isValue ? made.valueSize : made.keySize;
  DType dtype = isValue ? made.valueType : made.keyType;
  const char *from = nullptr;
  if (candidate < *cache.held) {
    const AttentionPoolImpl::Array &array = isValue ? pool.values : pool.keys;
    int64_t at = (prompt.slot * made.cacheHeads + head) * bounded.capacity +
                 cache.order[candidate];
    from = static_cast<const char *>(array.memory.data()) +
           at * width * array.elementBytes;
  } else {
    from = tokenAt(isValue ? made.valueName : made.keyName,
                   prompt.begin + candidate - *cache.held, head, dtype);
  }
  std::vector<float> result;
  for (int64_t c = 0; c < width; ++c)
    result.push_back(loadFloat(dtype, from + c * sizeInBytes(dtype)));
  return result;
}

static double normOf(std::span<const float> vector) {
  double sum = 0;
  for (float element : vector)
    sum += static_cast<double>(element) * element;
  return std::sqrt(sum);
}

LayerPreference
HostEvicting::preferenceOfHead(const Prompt &prompt, int64_t head,
                               const Window &window, const Candidates &all,
                               std::span<const double> salience) const {
  auto size = static_cast<int64_t>(all.count());
  int64_t after = prompt.before + prompt.count();
  std::vector<uint8_t> isKept(static_cast<size_t>(size), 0);
  for (int32_t i :
       chooseKept(slots.numbers(), all, salience, after, preference->budget))
    isKept[i] = 1;
  std::vector<double> norms, sum(static_cast<size_t>(made.keySize), 0);
  double squares = 0, evicted = 0;
  for (int64_t i = 0; i < size; ++i) {
    norms.push_back(normOf(vectorOf(prompt, head, i, /*isValue=*/true)));
    if (isKept[i] || bounded.limit == 0)
      continue;
    std::vector<float> key = vectorOf(prompt, head, i, /*isValue=*/false);
    for (int64_t c = 0; c < made.keySize; ++c)
      sum[c] += key[c];
    squares += normOf(key) * normOf(key);
    ++evicted;
  }
  double spread = evicted ? squares / evicted : 0;
  for (double each : sum)
    spread -= evicted ? each / evicted * (each / evicted) : 0;

  LayerPreference mean;
  int64_t queries = std::min(preference->queries, prompt.count());
  for (int64_t t = 0; t < queries; ++t)
    for (int64_t g = 0; g < group(); ++g) {
      int64_t place = window.queries - queries + t;
      int64_t row = prompt.end - queries + t;
      PreferenceInputs inputs;
      inputs.tokens = static_cast<size_t>(size - queries + t + 1);
      inputs.scores = std::span(window.scores)
                          .subspan((place * group() + g) * window.stride);
      inputs.isKept = isKept;
      inputs.valueNorms = norms;
      inputs.remembers = bounded.memory == BoundedMemory::Taylor;
      inputs.valueExponent = preference->valueExponent;
      inputs.entropyOfExact = preference->entropyOfExact;
      if (bounded.limit > 0 && !bounded.queryName.empty()) {
        DType dtype;
        const char *from =
            tokenAt(bounded.queryName, row, head * group() + g, dtype);
        std::vector<float> query;
        for (int64_t c = 0; c < made.keySize; ++c)
          query.push_back(loadFloat(dtype, from + c * sizeInBytes(dtype)));
        inputs.isFirstOrder =
            bounded.scale * normOf(query) * std::sqrt(std::max(spread, 0.0)) <=
            bounded.limit;
      }
      LayerPreference each = preferenceOf(inputs);
      auto terms = static_cast<double>(queries * group());
      mean.disturbance += each.disturbance / terms;
      mean.entropy += each.entropy / terms;
    }
  return mean;
}

std::unique_ptr<AttentionDecoder::Impl>
ladle::makeHostEvicting(const AttentionProgram &program,
                        AttentionPoolImpl &pool,
                        const AttentionDecoderOptions &options) {
  return std::make_unique<HostEvicting>(program, pool, options);
}
