//===- HostBounded.cpp - steps over bounded caches on the CPU -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A task is a row and a head of the cache, and does the whole step. Cursors say
// which tokens a slot keeps; kernels get them as runs of entries.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/ThreadPool.h"

#include <algorithm>
#include <cstring>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {
class HostBounded final : public AttentionDecoder::Impl {
public:
  HostBounded(const AttentionProgram &program, AttentionPoolImpl &pool,
              const AttentionDecoderOptions &options);

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override { return {}; }

private:
  using Cursor = AttentionPoolImpl::Cursor;

  Status bind(int64_t rows, const NamedTensors &tensors);

  //===--- Segmented caches
  //------------------------------------------------===//
  int64_t entryOf(int64_t position) const;
  /// Writes the runs of entries of positions [begin, end), which lie in the
  /// ring, and returns how many runs there are.
  size_t runsOf(int64_t begin, int64_t end, int64_t *runs) const;
  /// A step that does nothing, of the token at `position`.
  BoundedTask taskOf(int64_t row, int32_t slot, int64_t position) const;
  void answer(BoundedTask &task, int64_t segments) const;
  void fold(BoundedTask &task, Cursor &cursor) const;
  bool isFull(const Cursor &cursor, int64_t window) const;
  void prefillSegments(int32_t slot, int64_t begin, int64_t end);

  /// Runs each task for each head of the cache, in any order.
  void run(std::span<const BoundedTask> tasks);
  /// The same, the tasks of a head in their order.
  void runInOrder(std::span<const BoundedTask> tasks);
  void call(const BoundedTask &task, int64_t head, int worker) {
    workers[worker].task = task;
    workers[worker].task.head = head;
    bounded.decode(workers[worker].list.data());
  }

  AttentionProgram program;
  const AttentionProgramImpl &made;
  const BoundedProgram &bounded;
  AttentionPoolImpl &pool;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threads;
  std::vector<MemoryDescriptor> arguments; ///< params, tokens, outputs
  std::vector<BoundedTask> tasks, answers;

  /// The arguments of a worker, on cache lines of its own.
  struct alignas(64) Worker {
    BoundedTask task;
    std::vector<void *> list;
  };
  std::vector<Worker> workers;
};
} // namespace

HostBounded::HostBounded(const AttentionProgram &given, AttentionPoolImpl &pool,
                         const AttentionDecoderOptions &options)
    : program(given), made(program.getImpl()), bounded(*made.bounded),
      pool(pool),
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
  }
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Status HostBounded::bind(int64_t rows, const NamedTensors &tensors) {
  const Signature &signature = made.signature;
  std::span<MemoryDescriptor> all(arguments);
  return bindArguments(
      signature, rows, DeviceId(), tensors,
      {all.first(signature.params.size()),
       all.subspan(signature.params.size(), signature.tokens.size()),
       all.last(signature.outputs.size())});
}

//===----------------------------------------------------------------------===//
// Segmented caches
//===----------------------------------------------------------------------===//

int64_t HostBounded::entryOf(int64_t position) const {
  int64_t sinks = bounded.sinks;
  return position < sinks
             ? position
             : sinks + (position - sinks) % (bounded.capacity - sinks);
}

size_t HostBounded::runsOf(int64_t begin, int64_t end, int64_t *runs) const {
  if (begin >= end)
    return 0;
  int64_t first = entryOf(begin), count = end - begin;
  int64_t together = std::min(count, bounded.capacity - first);
  runs[0] = first;
  runs[1] = first + together;
  if (together == count)
    return 1;
  runs[2] = bounded.sinks;
  runs[3] = bounded.sinks + count - together;
  return 2;
}

BoundedTask HostBounded::taskOf(int64_t row, int32_t slot,
                                int64_t position) const {
  BoundedTask task;
  task.row = row;
  task.slot = slot;
  task.position = position;
  task.entry = entryOf(position);
  task.appends = task.answers = 0;
  return task;
}

/// What the token attends to after so many folds.
void HostBounded::answer(BoundedTask &task, int64_t segments) const {
  task.answers = 1;
  task.holds = segments > 0;
  int64_t end = task.position + 1;
  // Before the first fold all tokens lie side by side, as if there were no
  // sinks among them.
  if (!segments && end <= bounded.capacity) {
    task.kept[1] = end;
    return;
  }
  task.kept[1] = std::min(bounded.sinks, end);
  runsOf(bounded.sinks + segments * bounded.segment, end, task.kept + 2);
}

void HostBounded::fold(BoundedTask &task, Cursor &cursor) const {
  int64_t begin = bounded.sinks + cursor.segments * bounded.segment;
  runsOf(begin, begin + bounded.segment, task.folded);
  task.isFirst = cursor.segments == 0;
  ++cursor.segments;
}

bool HostBounded::isFull(const Cursor &cursor, int64_t window) const {
  return cursor.length - bounded.sinks - cursor.segments * bounded.segment -
             window >=
         bounded.segment;
}

/// A thread does several heads in a row, because each asks for what the next
/// one reads first.
void HostBounded::run(std::span<const BoundedTask> all) {
  int64_t heads = made.cacheHeads;
  int64_t total = static_cast<int64_t>(all.size()) * heads;
  int64_t some = std::clamp<int64_t>(total / (8 * threads.size()), 1, heads);
  threads.forEach((total + some - 1) / some, [&](int64_t share, int worker) {
    for (int64_t index = share * some, end = std::min(index + some, total);
         index < end; ++index)
      call(all[index / heads], index % heads, worker);
  });
}

void HostBounded::runInOrder(std::span<const BoundedTask> all) {
  threads.forEach(made.cacheHeads, [&](int64_t head, int worker) {
    for (const BoundedTask &task : all)
      call(task, head, worker);
  });
}

/// Tokens between two folds see the same memory: they enter the cache one after
/// another, and are then answered all at once.
void HostBounded::prefillSegments(int32_t slot, int64_t begin, int64_t end) {
  Cursor &cursor = pool.cursors[slot];
  int64_t after = cursor.length + end - begin;
  int64_t most = std::max<int64_t>(0, (after - bounded.sinks - bounded.window) /
                                          bounded.segment);
  // So many at a time that the list of tasks stays small.
  constexpr size_t chunk = 256;
  tasks.clear();
  answers.clear();
  auto flush = [&] {
    runInOrder(tasks);
    run(answers);
    tasks.clear();
    answers.clear();
  };
  for (int64_t i = begin; i < end; ++i) {
    BoundedTask token = taskOf(i, slot, cursor.length);
    Cursor next = cursor;
    ++next.length;
    bool folds = next.segments < most && isFull(next, /*window=*/1);
    if (folds || answers.size() == chunk)
      flush();
    cursor.length = next.length;
    tasks.push_back(token);
    tasks.back().appends = 1;
    while (cursor.segments < most && isFull(cursor, /*window=*/1)) {
      tasks.push_back(token);
      fold(tasks.back(), cursor);
    }
    answers.push_back(token);
    answer(answers.back(), cursor.segments);
  }
  flush();
  // Without a window the last token may complete a segment.
  while (cursor.segments < most && isFull(cursor, /*window=*/0)) {
    tasks.push_back(taskOf(begin, slot, cursor.length - 1));
    fold(tasks.back(), cursor);
  }
  flush();
}

//===----------------------------------------------------------------------===//
// Steps and prompts
//===----------------------------------------------------------------------===//

Status HostBounded::step(const AttentionArguments &given, void *) {
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
    Cursor &cursor = pool.cursors[slot];
    tasks.push_back(taskOf(row, slot, cursor.length));
    BoundedTask &task = tasks.back();
    task.appends = 1;
    ++cursor.length;
    if (isFull(cursor, bounded.window))
      fold(task, cursor);
    answer(task, cursor.segments);
  }
  run(tasks);
  return Status();
}

Status HostBounded::prefill(const PrefillArguments &given, void *) {
  if (Status status = checkBoundedPrompts(pool, given);
      !status || given.cuSeqlens.back() == 0)
    return status;
  if (Status status = bind(given.cuSeqlens.back(), given.tensors); !status)
    return status;
  for (int64_t row = 0; row < given.rows; ++row) {
    int64_t begin = given.cuSeqlens[row], end = given.cuSeqlens[row + 1];
    if (given.slots[row] >= 0)
      prefillSegments(given.slots[row], begin, end);
    else
      for (int64_t i = begin; i < end; ++i)
        zeroBoundedOutputs(made.signature, arguments, i);
  }
  return Status();
}

Result<BoundStep> HostBounded::bind(const AttentionArguments &given) {
  if (Status status = checkAttentionRows(given.rows, given.slots.size());
      !status)
    return status;
  if (given.rows == 0)
    return invalid("rows is 0, wanted 1 at least to bind a step");
  if (Status status = bind(given.rows, given.tensors); !status)
    return status;
  return bindHostAttention(*this, made.signature, given);
}

std::unique_ptr<AttentionDecoder::Impl>
ladle::makeHostBounded(const AttentionProgram &program, AttentionPoolImpl &pool,
                       const AttentionDecoderOptions &options) {
  return std::make_unique<HostBounded>(program, pool, options);
}
