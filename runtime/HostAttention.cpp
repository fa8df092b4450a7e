//===- HostAttention.cpp - steps of an attention on the CPU ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step looks for matches, for all heads of all rows at once; then it knows
// which tokens each head attends to, and spreads pieces of them over the
// threads; then it merges. Where pieces begin depends on the row alone, so that
// a row's answer does not depend on the rows around it or on the threads.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/AttentionDecoderImpl.h"
#include "runtime/AttentionDiagnostics.h"
#include "runtime/Text.h"
#include "runtime/ThreadPool.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {
class HostAttention final : public AttentionDecoder::Impl {
public:
  HostAttention(const AttentionProgram &program, AttentionPoolImpl &pool,
                const AttentionSettings &settings,
                const AttentionDecoderOptions &options);

  Status step(const AttentionArguments &arguments, void *stream) override;
  Status prefill(const PrefillArguments &arguments, void *stream) override;
  Result<BoundStep> bind(const AttentionArguments &arguments) override;
  std::span<const int64_t> matches() override { return matched; }
  std::vector<AttentionHeadDiagnostics> diagnostics() const override {
    return watching ? watching->report()
                    : std::vector<AttentionHeadDiagnostics>();
  }

private:
  /// A token that is answered: a row of a step, or one of many of a prompt.
  struct Token {
    int64_t row = 0; ///< among tokens and outputs
    int32_t slot = 0;
    int64_t position = 0;
    bool stores = false;
  };

  Status bind(int64_t rows,
              const std::map<std::string, TensorView, std::less<>> &tensors);
  Status checkRoom(std::span<const std::pair<int32_t, int64_t>> wanted) const;
  /// Takes pages, and copies a key and a value for each head.
  void append(const Token &token);
  void prepareRing(int32_t slot);
  AttentionTask taskOf(const Token &token) const;
  int64_t boundOf(BoundKind bound, const Token &token) const;
  void findMatches(std::span<const Token> tokens);
  void planPieces(std::span<const Token> tokens,
                  const AttentionFormKernels &form);
  void run(std::span<const Token> tokens, const AttentionFormKernels &form);
  void amend(const Token &token);
  void zeroOutput(int64_t row);
  void reserve(int64_t rows);

  int64_t heads() const { return made.signature.heads; }
  int64_t group() const { return heads() / made.cacheHeads; }

  AttentionProgram program;
  const AttentionProgramImpl &made;
  AttentionPoolImpl &pool;
  AttentionSettings settings;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threads;
  float limits[2];

  std::vector<MemoryDescriptor> arguments; ///< params, tokens, output
  MemoryDescriptor pieceValues, pieceSums, hitsMemory, startsMemory;
  std::vector<float> values, sums;
  std::vector<int32_t> hits;    ///< [rows, heads]
  std::vector<int64_t> starts;  ///< [rows, heads]
  std::vector<int64_t> matched; ///< [rows, heads]
  std::vector<Token> tokens;
  std::vector<AttentionTask> pieces, ends;
  std::unique_ptr<AttentionDiagnostics> watching; ///< null: nobody asks

  /// The arguments of a worker, on cache lines of its own.
  struct alignas(64) Worker {
    AttentionTask task;
    std::vector<void *> list;
  };
  std::vector<Worker> workers;
  void call(KernelFunction kernel, const AttentionTask &task, int worker) {
    workers[worker].task = task;
    kernel(workers[worker].list.data());
  }
};
} // namespace

HostAttention::HostAttention(const AttentionProgram &given,
                             AttentionPoolImpl &pool,
                             const AttentionSettings &settings,
                             const AttentionDecoderOptions &options)
    : program(given), made(program.getImpl()), pool(pool), settings(settings),
      ownThreads(options.threads ? std::make_unique<ThreadPool>(options.threads)
                                 : nullptr),
      threads(ownThreads ? *ownThreads : ThreadPool::shared()) {
  auto limit = [](double share) {
    return static_cast<float>(2 * (1 - share) * (1 - share));
  };
  limits[0] = limit(settings.tau);
  limits[1] = limit(settings.drift);
  if (options.diagnostics)
    watching = std::make_unique<AttentionDiagnostics>(made);
  const Signature &signature = made.signature;
  arguments.resize(signature.params.size() + signature.tokens.size() +
                   signature.outputs.size());
  workers.resize(static_cast<size_t>(threads.size()));
  for (Worker &worker : workers) {
    auto *integers = reinterpret_cast<int64_t *>(&worker.task);
    for (size_t i = 0; i < attentionTaskIntegers; ++i)
      worker.list.push_back(integers + i);
    for (float &number : limits)
      worker.list.push_back(&number);
    for (MemoryDescriptor &argument : arguments)
      worker.list.push_back(&argument);
    for (MemoryDescriptor *memory :
         {&pool.keys.descriptor, &pool.values.descriptor, &pool.tableDescriptor,
          &pieceValues, &pieceSums})
      worker.list.push_back(memory);
    if (!made.hasRing)
      continue;
    worker.list.push_back(&hitsMemory);
    worker.list.push_back(&startsMemory);
    for (AttentionPoolImpl::Array &ring : pool.rings)
      worker.list.push_back(&ring.descriptor);
  }
}

//===----------------------------------------------------------------------===//
// Checks and memory
//===----------------------------------------------------------------------===//

Status HostAttention::bind(
    int64_t rows,
    const std::map<std::string, TensorView, std::less<>> &tensors) {
  const Signature &signature = made.signature;
  std::span<MemoryDescriptor> all(arguments);
  return bindArguments(
      signature, rows, DeviceId(), tensors,
      {all.first(signature.params.size()),
       all.subspan(signature.params.size(), signature.tokens.size()),
       all.last(signature.outputs.size())});
}

/// Whether each slot is there once, and has room for so many tokens more.
Status HostAttention::checkRoom(
    std::span<const std::pair<int32_t, int64_t>> wanted) const {
  std::vector<bool> seen(static_cast<size_t>(pool.slots));
  int64_t pages = 0;
  for (auto [slot, tokens] : wanted) {
    if (Status status = pool.checkSlot(slot); !status)
      return status;
    if (seen[slot])
      return invalid(fmt::format("slot {} is named twice, wanted a slot of its "
                                 "own for each row",
                                 slot));
    seen[slot] = true;
    int64_t length = pool.cursors[slot].length;
    if (length + tokens > pool.maxTokens())
      return invalid(fmt::format("slot {} holds {} tokens and gets {}, wanted "
                                 "{} at most",
                                 slot, length, tokens, pool.maxTokens()));
    pages += std::max<int64_t>(0, pool.pagesFor(length + tokens) -
                                      pool.cursors[slot].pages);
  }
  return pool.checkFree(pages, 0);
}

void HostAttention::append(const Token &token) {
  const Signature &signature = made.signature;
  int64_t page = token.position / made.pageSize;
  int64_t place = token.position % made.pageSize;
  if (page >= pool.cursors[token.slot].pages)
    pool.takePage(token.slot);
  int32_t entry = pool.tableOf(token.slot)[page];
  auto copy = [&](const std::string &name, AttentionPoolImpl::Array &to,
                  int64_t size) {
    size_t which = signature.params.size();
    for (const TensorSpec &spec : signature.tokens) {
      if (spec.name == name)
        break;
      ++which;
    }
    const MemoryDescriptor &from = arguments[which];
    const int64_t *strides = from.sizesAndStrides + 3;
    for (int64_t head = 0; head < made.cacheHeads; ++head) {
      int64_t source = token.row * strides[0] + head * strides[1];
      int64_t target =
          ((entry * made.cacheHeads + head) * made.pageSize + place) * size;
      std::memcpy(
          static_cast<char *>(to.memory.data()) + target * to.elementBytes,
          static_cast<const char *>(from.aligned) + source * to.elementBytes,
          static_cast<size_t>(size * to.elementBytes));
    }
  };
  copy(made.keyName, pool.keys, made.keySize);
  copy(made.valueName, pool.values, made.valueSize);
  pool.cursors[token.slot].length = token.position + 1;
}

/// What was left with another band means something else.
void HostAttention::prepareRing(int32_t slot) {
  AttentionPoolImpl::Cursor &cursor = pool.cursors[slot];
  if (cursor.band == settings.band && cursor.sinks == settings.sinks &&
      cursor.wideBand == settings.wideBand)
    return;
  cursor.band = settings.band;
  cursor.sinks = settings.sinks;
  cursor.wideBand = settings.wideBand;
  cursor.entries = cursor.amended = 0;
}

void HostAttention::zeroOutput(int64_t row) {
  const TensorSpec &spec = made.signature.outputs[0];
  const MemoryDescriptor &memory = arguments.back();
  const int64_t *strides = memory.sizesAndStrides + 3;
  int64_t bytes = sizeInBytes(spec.dtype);
  for (int64_t head = 0; head < spec.shape[0]; ++head)
    std::memset(static_cast<char *>(memory.aligned) +
                    (row * strides[0] + head * strides[1]) * bytes,
                0, static_cast<size_t>(spec.shape[1] * bytes));
}

/// Vectors of a row-major array of `sizes`.
template <typename T>
static void describe(MemoryDescriptor &memory, std::vector<T> &data,
                     std::vector<int64_t> sizes) {
  memory.allocated = memory.aligned = data.data();
  std::vector<int64_t> strides = denseStrides(sizes);
  std::copy(sizes.begin(), sizes.end(), memory.sizesAndStrides);
  std::copy(strides.begin(), strides.end(),
            memory.sizesAndStrides + sizes.size());
}

void HostAttention::reserve(int64_t rows) {
  auto count = static_cast<size_t>(rows * heads());
  if (hits.size() < count) {
    hits.resize(count);
    starts.resize(count);
  }
  describe(hitsMemory, hits, {rows, heads()});
  describe(startsMemory, starts, {rows, heads()});
}

//===----------------------------------------------------------------------===//
// Matches, pieces, ends
//===----------------------------------------------------------------------===//

AttentionTask HostAttention::taskOf(const Token &token) const {
  AttentionTask task;
  task.row = token.row;
  task.slot = token.slot;
  task.position = token.position;
  if (!made.hasRing)
    return task;
  const AttentionPoolImpl::Cursor &cursor = pool.cursors[token.slot];
  task.band = settings.band;
  task.sinks = settings.sinks;
  task.wide = settings.wideBand;
  task.wideGap = settings.wideGap;
  task.maxChain = settings.maxChain;
  task.stores = token.stores;
  task.entry = token.position % pool.window;
  task.newest = (token.position + pool.window - 1) % pool.window;
  task.amended = cursor.amended + 1;
  // A match at p skips p + 1 - band - sinks tokens.
  task.count = std::min(cursor.entries, settings.window);
  if (settings.maxGap)
    task.count = std::min(task.count, settings.maxGap);
  if (settings.skip)
    task.count = std::min(task.count, token.position + 1 - settings.band -
                                          settings.sinks - settings.skip);
  if (settings.tau >= 1)
    task.count = 0;
  task.count = std::max<int64_t>(task.count, 0);
  return task;
}

int64_t HostAttention::boundOf(BoundKind bound, const Token &token) const {
  int64_t end = token.position + 1;
  int64_t sinks = std::min(settings.sinks, end);
  switch (bound) {
  case BoundKind::Start:
    return 0;
  case BoundKind::Sinks:
    return sinks;
  case BoundKind::Wide:
    return std::max(end - settings.wideBand, sinks);
  case BoundKind::Band:
    return std::max(end - settings.band, sinks);
  case BoundKind::End:
    return end;
  }
  return end;
}

void HostAttention::findMatches(std::span<const Token> answered) {
  int64_t parts = made.cacheHeads;
  threads.forEach(static_cast<int64_t>(answered.size()) * parts,
                  [&](int64_t index, int worker) {
                    AttentionTask task = taskOf(answered[index / parts]);
                    task.headBegin = index % parts * group();
                    task.headEnd = task.headBegin + group();
                    call(made.decode.find, task, worker);
                  });
}

void HostAttention::planPieces(std::span<const Token> answered,
                               const AttentionFormKernels &form) {
  // Long enough that starting one costs nothing beside it.
  constexpr int64_t pieceTokens = 2048;
  pieces.clear();
  ends.clear();
  for (const Token &token : answered)
    for (int64_t head = 0; head < made.cacheHeads; ++head) {
      AttentionTask task = taskOf(token);
      task.headBegin = head;
      AttentionTask last = task;
      for (size_t i = 0; i < form.pieces.size(); ++i) {
        const AttentionFormKernels::Piece &piece = form.pieces[i];
        last.bounds[i] = static_cast<int64_t>(pieces.size());
        int64_t from = boundOf(piece.begin, token);
        int64_t end = boundOf(piece.end, token);
        if (piece.afterMatch) {
          // The head of the group that needs most.
          const int64_t *start =
              starts.data() + token.row * heads() + head * group();
          from = std::max(from, *std::min_element(start, start + group()));
        }
        task.usesStarts = piece.afterMatch;
        for (; from < end; from += pieceTokens) {
          task.begin = from;
          task.end = std::min(from + pieceTokens, end);
          task.piece = static_cast<int64_t>(pieces.size());
          pieces.push_back(task);
        }
      }
      for (size_t i = form.pieces.size(); i <= mostAttends; ++i)
        last.bounds[i] = static_cast<int64_t>(pieces.size());
      ends.push_back(last);
    }
  auto count = static_cast<int64_t>(pieces.size());
  auto grow = [](std::vector<float> &memory, int64_t size) {
    if (memory.size() < static_cast<size_t>(size))
      memory.resize(static_cast<size_t>(size));
  };
  grow(values, count * group() * made.valueSize);
  grow(sums, count * group() * 2);
  describe(pieceValues, values, {count, group(), made.valueSize});
  describe(pieceSums, sums, {count, group(), 2});
}

/// Tokens that have been appended.
void HostAttention::run(std::span<const Token> answered,
                        const AttentionFormKernels &form) {
  planPieces(answered, form);
  threads.forEach(static_cast<int64_t>(pieces.size()),
                  [&](int64_t index, int worker) {
                    call(form.attend, pieces[index], worker);
                  });
  threads.forEach(static_cast<int64_t>(ends.size()),
                  [&](int64_t index, int worker) {
                    call(form.finish, ends[index], worker);
                  });
}

/// The token has left what it had to leave.
void HostAttention::amend(const Token &token) {
  if (!token.stores)
    return;
  AttentionPoolImpl::Cursor &cursor = pool.cursors[token.slot];
  cursor.entries = std::min(cursor.entries + 1, pool.window);
  ++cursor.amended;
}

//===----------------------------------------------------------------------===//
// Steps and prompts
//===----------------------------------------------------------------------===//

Status HostAttention::step(const AttentionArguments &arguments, void *) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  if (arguments.rows == 0)
    return Status();
  std::vector<std::pair<int32_t, int64_t>> wanted;
  for (int32_t slot : arguments.slots)
    if (slot >= 0)
      wanted.emplace_back(slot, 1);
  if (Status status = checkRoom(wanted); !status)
    return status;
  if (Status status = bind(arguments.rows, arguments.tensors); !status)
    return status;

  reserve(arguments.rows);
  matched.assign(static_cast<size_t>(arguments.rows * heads()), -1);
  tokens.clear();
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int32_t slot = arguments.slots[row];
    if (slot < 0) {
      zeroOutput(row);
      continue;
    }
    prepareRing(slot);
    tokens.push_back({row, slot, pool.cursors[slot].length, made.hasRing});
    append(tokens.back());
  }
  if (made.hasRing)
    findMatches(tokens);
  run(tokens, made.decode);
  if (watching)
    watching->record(pool, ends, sums, hits, starts);
  for (const Token &token : tokens) {
    if (made.hasRing)
      for (int64_t at = token.row * heads(), end = at + heads(); at < end; ++at)
        if (hits[at] >= 0)
          matched[at] = token.position - 1 - hits[at];
    amend(token);
  }
  return Status();
}

Status HostAttention::prefill(const PrefillArguments &arguments, void *) {
  if (Status status = checkPrompts(arguments, /*mayBeEmpty=*/true); !status)
    return status;
  std::vector<std::pair<int32_t, int64_t>> wanted;
  int64_t total = arguments.cuSeqlens.back();
  for (int64_t row = 0; row < arguments.rows; ++row)
    if (arguments.slots[row] >= 0)
      wanted.emplace_back(arguments.slots[row],
                          int64_t(arguments.cuSeqlens[row + 1]) -
                              arguments.cuSeqlens[row]);
  if (total == 0)
    return Status();
  if (Status status = checkRoom(wanted); !status)
    return status;
  if (Status status = bind(total, arguments.tensors); !status)
    return status;

  // So many at a time that what pieces leave stays small.
  constexpr size_t chunk = 64;
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int32_t slot = arguments.slots[row];
    int64_t begin = arguments.cuSeqlens[row],
            end = arguments.cuSeqlens[row + 1];
    if (begin == end)
      continue;
    if (slot < 0) {
      for (int64_t i = begin; i < end; ++i)
        zeroOutput(i);
      continue;
    }
    prepareRing(slot);
    bool fillsRing = end - begin >= pool.window;
    if (made.hasRing && fillsRing)
      pool.cursors[slot].entries = pool.cursors[slot].amended = 0;
    for (int64_t i = begin; i < end;) {
      tokens.clear();
      for (; i < end && tokens.size() < chunk; ++i) {
        bool stores = made.hasRing && end - i <= pool.window;
        tokens.push_back({i, slot, pool.cursors[slot].length, stores});
        append(tokens.back());
      }
      // Moments follow one another, so that tokens of a slot finish in order.
      const AttentionFormKernels &form = made.prefill;
      planPieces(tokens, form);
      threads.forEach(static_cast<int64_t>(pieces.size()),
                      [&](int64_t index, int worker) {
                        call(form.attend, pieces[index], worker);
                      });
      threads.forEach(made.cacheHeads, [&](int64_t head, int worker) {
        int64_t stored = 0;
        for (size_t token = 0; token < tokens.size(); ++token) {
          AttentionTask task = ends[token * made.cacheHeads + head];
          task.amended += stored;
          stored += task.stores;
          call(form.finish, task, worker);
        }
      });
      for (const Token &token : tokens)
        amend(token);
    }
  }
  return Status();
}

Result<BoundStep> HostAttention::bind(const AttentionArguments &arguments) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  if (arguments.rows == 0)
    return invalid("rows is 0, wanted 1 at least to bind a step");
  if (Status status = bind(arguments.rows, arguments.tensors); !status)
    return status;
  return bindHostAttention(*this, made.signature, arguments);
}

std::unique_ptr<AttentionDecoder::Impl> ladle::makeHostAttention(
    const AttentionProgram &program, AttentionPoolImpl &pool,
    const AttentionSettings &settings, const AttentionDecoderOptions &options) {
  return std::make_unique<HostAttention>(program, pool, settings, options);
}
