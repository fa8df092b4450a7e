//===- HostEvicting.cpp - steps over caches that evict, on the CPU --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/HostEvicting.h"
#include "runtime/Text.h"

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// What kernels may write behind the last score.
static constexpr int64_t slack = 16;

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
  if (Status status = checkBoundedStep(pool, given); !status || given.rows == 0)
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
  if (Status status = checkBoundedPrompts(pool, given);
      !status || given.cuSeqlens.back() == 0)
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
  describeRows(worker.scoresMemory, worker.scores.data(),
               {group(), window.stride});
  describeRows(worker.sumsMemory, sums.data(),
               {static_cast<int64_t>(sums.size())});
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

std::unique_ptr<AttentionDecoder::Impl>
ladle::makeHostEvicting(const AttentionProgram &program,
                        AttentionPoolImpl &pool,
                        const AttentionDecoderOptions &options) {
  return std::make_unique<HostEvicting>(program, pool, options);
}
