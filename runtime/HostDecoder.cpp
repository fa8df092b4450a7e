//===- HostDecoder.cpp - steps on the CPU ---------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step first checks everything and decides what each row does, then runs the
// kernels, then moves the cursors. Up to the kernels nothing has changed.
//
//===----------------------------------------------------------------------===//

#include "runtime/HostDecoder.h"
#include "runtime/Arguments.h"
#include "runtime/Text.h"

#include <cstring>

using namespace ladle;

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status HostDecoder::checkSlots(const StepArguments &arguments) const {
  if (Status status = checkSlotCounts(arguments, INT32_MAX); !status)
    return status;
  const HostCursors &cursors = pool.positions();
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int32_t read = arguments.readSlots[row];
    int32_t write =
        arguments.writeSlots.empty() ? read : arguments.writeSlots[row];
    if (pool.isPadding(read) && pool.isPadding(write))
      continue;
    if (Status status = pool.checkSlot(read); !status)
      return invalid(fmt::format("readSlots[{}]: {}", row, status.message()));
    if (Status status = pool.checkSlot(write); !status)
      return invalid(fmt::format("writeSlots[{}]: {}", row, status.message()));
    if (Status status = cursors.checkCommitted(read); !status)
      return invalid(fmt::format("readSlots[{}]: {}", row, status.message()));
    if (Status status = cursors.checkCommitted(write); !status)
      return invalid(fmt::format("writeSlots[{}]: {}", row, status.message()));
    Status status = cursors.checkPrompted(read);
    if (status)
      status = cursors.checkPrompted(write);
    if (status)
      status = cursors.checkToken(read, write, decoded);
    if (!status)
      return invalid(fmt::format("row {}: {}", row, status.message()));
    if (read != write && program.foldsByChunk())
      return invalid(fmt::format(
          "writeSlots[{}] is {}, wanted the {} of readSlots: a row that goes "
          "on in another slot folds, and the program folds where chunks end; "
          "fork the slot instead",
          row, write, read));
  }
  return Status();
}

/// A slot that is written belongs to one row: what another saw of it would
/// depend on which came first.
Status HostDecoder::checkConflicts(const StepArguments &arguments) {
  std::span<const int32_t> reads = arguments.readSlots;
  std::span<const int32_t> writes =
      arguments.writeSlots.empty() ? reads : arguments.writeSlots;
  std::vector<HostCursors::Writer> &writers = pool.positions().writers;
  int64_t call = ++pool.positions().calls;
  for (int64_t row = 0; row < arguments.rows; ++row) {
    if (pool.isPadding(writes[row]))
      continue;
    HostCursors::Writer &writer = writers[writes[row]];
    if (writer.call == call)
      return invalid(fmt::format("writeSlots[{}] and writeSlots[{}] are both "
                                 "{}, wanted a slot of its own for each row",
                                 writer.row, row, writes[row]));
    writer = {call, row};
  }
  for (int64_t row = 0; row < arguments.rows; ++row) {
    if (pool.isPadding(reads[row]))
      continue;
    const HostCursors::Writer &writer = writers[reads[row]];
    if (writer.call == call && writer.row != row)
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

Status HostDecoder::planRow(StepRow plan) {
  const HostCursors &cursors = pool.positions();
  const Cursor &cursor = cursors[plan.read];
  plan.kernels = &kernelsOf(cursor);
  if (!plan.kernels->usesBuffer && cursor.length > 0)
    return invalid(fmt::format(
        "readSlots[{}]: slot {} holds {} entries, which route '{}' does not "
        "read; flush the slot first",
        plan.row, plan.read, cursor.length, toString(plan.kernels->route)));
  bool appends = plan.kernels->usesBuffer && plan.read == plan.write &&
                 !cursors.foldsWithToken(cursor);
  plan.folds = plan.kernels->usesBuffer && !appends;
  bool readsState = plan.kernels->route != RouteKind::KvOnly;
  claims.push_back(
      {plan.read, appends, readsState, !appends && plan.read == plan.write});
  if (plan.read != plan.write)
    claims.push_back({plan.write, 0, false, /*writesState=*/true});
  stepRows.push_back(plan);
  return Status();
}

/// The kernel of a row, whose slots have what they need.
RowTask HostDecoder::stepTask(const StepRow &plan) const {
  RowTask task =
      taskOf(pool, plan.folds ? plan.kernels->decodeFold : plan.kernels->decode,
             plan.kernels->usesBuffer, plan.read);
  task.row = plan.row;
  if (plan.read != plan.write) {
    const HostCursors::Branches &into = pool.positions().branch(plan.write);
    task.writeSlot = pool.stateIndex(plan.write, into.stateVersion);
    task.writeCarry = pool.carryIndex(plan.write, into.carryVersion);
  }
  return task;
}

/// Zeroes the outputs of the heads that this decoder computes.
void HostDecoder::zeroOutputs(int64_t row) {
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

/// Says that this layer has decoded what its rows wait for.
Status HostDecoder::takeTokens(const RouteKernels &route) {
  HostCursors &cursors = pool.positions();
  if (Status status = cursors.takeStep(route); !status)
    return status;
  decoded.resize(static_cast<size_t>(pool.slots));
  for (const StepRow &plan : stepRows) {
    int64_t round = cursors.takeToken(plan.read, plan.write);
    pool.take(plan.write, round);
    decoded[plan.write] = round;
  }
  return Status();
}

Status HostDecoder::step(const StepArguments &arguments, void *) {
  if (Status status = checkSlots(arguments); !status)
    return status;
  if (arguments.rows == 0)
    return Status();
  if (Status status = checkConflicts(arguments); !status)
    return status;
  if (Status status = bindArguments(
          program.signature(), arguments.rows, DeviceId(), arguments.tensors,
          {caller.params(), caller.tokens(), caller.outputs()});
      !status)
    return status;

  stepRows.clear();
  claims.clear();
  paddedRows.clear();
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int32_t read = arguments.readSlots[row];
    if (pool.isPadding(read))
      paddedRows.push_back(row);
    else if (Status status = planRow({row, read,
                                      arguments.writeSlots.empty()
                                          ? read
                                          : arguments.writeSlots[row]});
             !status)
      return status;
  }
  HostCursors &cursors = pool.positions();
  const RouteKernels &route = *program.getImpl().find(program.route());
  if (cursors.isShared)
    if (Status status = cursors.checkStep(route); !status)
      return status;
  if (Status status = cursors.claim(claims); !status)
    return status;
  if (cursors.isShared)
    if (Status status = takeTokens(route); !status)
      return status;
  tasks.clear();
  for (const StepRow &plan : stepRows)
    tasks.push_back(stepTask(plan));
  caller.run(threadPool, tasks, heads);
  for (int64_t row : paddedRows)
    zeroOutputs(row);
  if (!cursors.isShared)
    for (const StepRow &plan : stepRows)
      cursors.moveRow(CursorMove::kindOf(route), plan.read, plan.write);
  return Status();
}

//===----------------------------------------------------------------------===//
// Bound steps
//===----------------------------------------------------------------------===//

namespace {

/// Checked again with every launch: on the CPU slots can be looked at, and the
/// check costs little beside the kernels.
class HostStep final : public BoundStep::Impl {
public:
  HostStep(HostDecoder &decoder, const StepArguments &bound)
      : decoder(decoder), arguments(bound) {
    rows = bound.rows;
  }

  Status launch(int64_t count, void *stream, Start) override {
    if (count == rows)
      return decoder.step(arguments, stream);
    StepArguments part = arguments;
    part.rows = count;
    part.readSlots = part.readSlots.first(count);
    if (!part.writeSlots.empty())
      part.writeSlots = part.writeSlots.first(count);
    const Signature &signature = decoder.signature();
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        TensorView &view = part.tensors.find(spec.name)->second;
        view = view.slice(0, 0, count);
      }
    return decoder.step(part, stream);
  }
  Status setMemory(std::string_view name, void *data) override {
    auto found = arguments.tensors.find(name);
    if (found == arguments.tensors.end())
      return Status(ErrorCode::NotFound,
                    fmt::format("'{}' has no argument '{}'",
                                decoder.signature().name, name));
    found->second.data = data;
    return Status();
  }
  Status setSlots(const int32_t *readSlots,
                  const int32_t *writeSlots) override {
    arguments.readSlots = {readSlots, static_cast<size_t>(rows)};
    arguments.writeSlots = {writeSlots,
                            writeSlots ? static_cast<size_t>(rows) : 0};
    return Status();
  }

private:
  HostDecoder &decoder;
  StepArguments arguments;
};

} // namespace

Result<BoundStep> HostDecoder::bind(const StepArguments &arguments) {
  if (Status status = checkSlotCounts(arguments, INT32_MAX); !status)
    return status;
  if (arguments.rows == 0)
    return invalid("rows is 0, wanted 1 at least to bind a step");
  if (Status status = bindArguments(
          program.signature(), arguments.rows, DeviceId(), arguments.tensors,
          {caller.params(), caller.tokens(), caller.outputs()});
      !status)
    return status;
  return BoundStep(std::make_unique<HostStep>(*this, arguments));
}

Result<std::unique_ptr<Decoder::Impl>>
ladle::makeHostDecoder(const Program &program, HostPool &pool,
                       const DecoderOptions &options) {
  constexpr int maxThreads = 4096;
  if (options.threads < 0 || options.threads > maxThreads)
    return invalid(fmt::format("threads is {}, wanted 0 to {}", options.threads,
                               maxThreads));
  HeadRange heads{options.headBegin, options.headEnd < 0
                                         ? program.signature().heads
                                         : options.headEnd};
  return std::unique_ptr<Decoder::Impl>(
      std::make_unique<HostDecoder>(program, pool, heads, options.threads));
}
