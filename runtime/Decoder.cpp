//===- Decoder.cpp - one token for each row of a batch --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step first checks everything and decides what each row does, then runs the
// kernels, then moves the cursors. Up to the kernels nothing has changed.
//
//===----------------------------------------------------------------------===//

#include "ladle/decode.h"
#include "runtime/Arguments.h"
#include "runtime/KernelCaller.h"
#include "runtime/Text.h"

#include <cstring>

using namespace ladle;

struct Decoder::Impl {
  Impl(const Program &program, Pool &pool, HeadRange heads, int threadCount)
      : program(program), pool(pool.getImpl()), heads(heads),
        ownThreads(threadCount ? std::make_unique<ThreadPool>(threadCount)
                               : nullptr),
        threads(ownThreads ? *ownThreads : ThreadPool::shared()),
        caller(program, this->pool, threads.size()) {}

  Status step(const StepArguments &arguments);
  int threadCount() const { return threads.size(); }

private:
  Status checkSlots(const StepArguments &arguments) const;
  Status checkConflicts(const StepArguments &arguments);
  Status planRow(int64_t row, int32_t readSlot, int32_t writeSlot);
  void zeroOutputs(int64_t row);
  void moveCursor(const RowTask &task);

  Program program;
  Pool::Impl &pool;
  HeadRange heads;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threads;
  KernelCaller caller;
  std::vector<RowTask> tasks; // of the rows that are no padding
  std::vector<int64_t> paddedRows;
};

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status Decoder::Impl::checkSlots(const StepArguments &arguments) const {
  int64_t rows = arguments.rows;
  if (rows < 0 || rows > INT32_MAX)
    return invalid(fmt::format("rows is {}, wanted 0 to {}", rows, INT32_MAX));
  auto count = [](auto slots) { return static_cast<int64_t>(slots.size()); };
  if (count(arguments.readSlots) != rows)
    return invalid(fmt::format("readSlots has {} slots, wanted {}",
                               count(arguments.readSlots), rows));
  if (!arguments.writeSlots.empty() && count(arguments.writeSlots) != rows)
    return invalid(fmt::format("writeSlots has {} slots, wanted {} or none",
                               count(arguments.writeSlots), rows));
  for (int64_t row = 0; row < rows; ++row) {
    int32_t read = arguments.readSlots[row];
    int32_t write =
        arguments.writeSlots.empty() ? read : arguments.writeSlots[row];
    if (pool.isPadding(read) && pool.isPadding(write))
      continue;
    if (Status status = pool.checkSlot(read); !status)
      return invalid(fmt::format("readSlots[{}]: {}", row, status.message()));
    if (Status status = pool.checkSlot(write); !status)
      return invalid(fmt::format("writeSlots[{}]: {}", row, status.message()));
  }
  return Status();
}

/// A slot that is written belongs to one row: what another saw of it would
/// depend on which came first.
Status Decoder::Impl::checkConflicts(const StepArguments &arguments) {
  std::span<const int32_t> reads = arguments.readSlots;
  std::span<const int32_t> writes =
      arguments.writeSlots.empty() ? reads : arguments.writeSlots;
  std::vector<Pool::Impl::Writer> &writers = pool.writers;
  int64_t step = ++pool.steps;
  for (int64_t row = 0; row < arguments.rows; ++row) {
    if (pool.isPadding(writes[row]))
      continue;
    Pool::Impl::Writer &writer = writers[writes[row]];
    if (writer.step == step)
      return invalid(fmt::format("writeSlots[{}] and writeSlots[{}] are both "
                                 "{}, wanted a slot of its own for each row",
                                 writer.row, row, writes[row]));
    writer = {step, row};
  }
  for (int64_t row = 0; row < arguments.rows; ++row) {
    if (pool.isPadding(reads[row]))
      continue;
    const Pool::Impl::Writer &writer = writers[reads[row]];
    if (writer.step == step && writer.row != row)
      return invalid(fmt::format("readSlots[{}] and writeSlots[{}] are both "
                                 "{}, wanted that no other row writes what a "
                                 "row reads",
                                 row, writer.row, reads[row]));
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// What each row does
//===----------------------------------------------------------------------===//

Status Decoder::Impl::planRow(int64_t row, int32_t readSlot,
                              int32_t writeSlot) {
  const Cursor &cursor = pool.cursors[readSlot];
  const ProgramImpl &impl = program.getImpl();
  const RouteKernels *kernels = impl.find(program.route());
  // Once there is a state, kv_only would ignore it.
  if (kernels->route == RouteKind::KvOnly && kernels->usesBuffer &&
      cursor.epoch > 0)
    kernels = impl.find(RouteKind::Inner);
  RowTask task{kernels->decode, kernels->usesBuffer, row,          readSlot,
               writeSlot,       cursor.base,         cursor.length};
  if (!kernels->usesBuffer && cursor.length > 0)
    return invalid(fmt::format(
        "readSlots[{}]: slot {} holds {} entries, which route '{}' does not "
        "read; flush the slot first",
        row, readSlot, cursor.length, toString(kernels->route)));
  if (kernels->usesBuffer &&
      (readSlot != writeSlot || cursor.length + 1 >= pool.threshold))
    task.kernel = kernels->decodeFold;
  task.folds = task.kernel != kernels->decode || !kernels->usesBuffer;
  tasks.push_back(task);
  return Status();
}

/// Zeroes the outputs of the heads that this decoder computes.
void Decoder::Impl::zeroOutputs(int64_t row) {
  const Signature &signature = program.signature();
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const TensorSpec &spec = signature.outputs[i];
    const MemoryDescriptor &memory = caller.outputs()[i];
    const int64_t *strides = memory.sizesAndStrides + spec.shape.size() + 1;
    int64_t bytes = sizeInBytes(spec.dtype);
    auto *start = static_cast<char *>(memory.aligned);
    int64_t components = spec.shape.size() == 3 ? spec.shape[1] : 1;
    int64_t width = spec.shape.size() > 1 ? spec.shape.back() : 1;
    // An output of fewer heads belongs to the range that holds any of its
    // part of them.
    int64_t ratio = signature.heads / spec.shape[0];
    for (int64_t head = heads.begin / ratio; head <= (heads.end - 1) / ratio;
         ++head)
      for (int64_t c = 0; c < components; ++c) {
        int64_t offset = row * strides[0] + head * strides[1] +
                         (components > 1 ? c * strides[2] : 0);
        std::memset(start + offset * bytes, 0,
                    static_cast<size_t>(width * bytes));
      }
  }
}

void Decoder::Impl::moveCursor(const RowTask &task) {
  Cursor &cursor = pool.cursors[task.writeSlot];
  if (!task.folds) {
    cursor.committed = ++cursor.length;
    return;
  }
  int64_t next = pool.capacity ? (task.base + task.length) % pool.capacity : 0;
  cursor = {task.readSlot == task.writeSlot ? next : 0, 0, 0, cursor.epoch + 1};
}

Status Decoder::Impl::step(const StepArguments &arguments) {
  if (Status status = checkSlots(arguments); !status)
    return status;
  if (arguments.rows == 0)
    return Status();
  if (Status status = checkConflicts(arguments); !status)
    return status;
  if (Status status =
          bindArguments(program.signature(), arguments.rows, arguments.tensors,
                        {caller.params(), caller.tokens(), caller.outputs()});
      !status)
    return status;

  tasks.clear();
  paddedRows.clear();
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int32_t read = arguments.readSlots[row];
    if (pool.isPadding(read))
      paddedRows.push_back(row);
    else if (Status status = planRow(row, read,
                                     arguments.writeSlots.empty()
                                         ? read
                                         : arguments.writeSlots[row]);
             !status)
      return status;
  }
  caller.run(threads, tasks, heads);
  for (int64_t row : paddedRows)
    zeroOutputs(row);
  for (const RowTask &task : tasks)
    moveCursor(task);
  return Status();
}

//===----------------------------------------------------------------------===//
// Decoder
//===----------------------------------------------------------------------===//

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Decoder::Decoder(Decoder &&) noexcept = default;
Decoder &Decoder::operator=(Decoder &&) noexcept = default;
Decoder::~Decoder() = default;

Result<Decoder> Decoder::create(const Program &program, Pool &pool,
                                const DecoderOptions &options) {
  if (Status status = pool.getImpl().checkProgram(program); !status)
    return status;
  int64_t all = program.signature().heads;
  HeadRange heads{options.headBegin,
                  options.headEnd < 0 ? all : options.headEnd};
  if (heads.begin < 0 || heads.begin >= heads.end || heads.end > all ||
      heads.begin % program.headGroup() || heads.end % program.headGroup())
    return invalid(fmt::format(
        "heads {} to {}, wanted a range of multiples of {} within 0 to {}",
        heads.begin, heads.end, program.headGroup(), all));
  constexpr int maxThreads = 4096;
  if (options.threads < 0 || options.threads > maxThreads)
    return invalid(fmt::format("threads is {}, wanted 0 to {}", options.threads,
                               maxThreads));
  return Decoder(std::make_unique<Impl>(program, pool, heads, options.threads));
}

int Decoder::threads() const { return impl->threadCount(); }

Status Decoder::step(const StepArguments &arguments) {
  return impl->step(arguments);
}

Status ladle::decode(const Program &program, Pool &pool,
                     const StepArguments &arguments) {
  Result<Decoder> decoder = Decoder::create(program, pool);
  if (!decoder)
    return decoder.status();
  return decoder->step(arguments);
}
