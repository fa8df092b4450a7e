//===- Decoder.cpp - one token for each row of a batch --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/decode.h"
#include "runtime/DecoderImpl.h"
#include "runtime/HostPool.h"
#include "runtime/Text.h"
#include "runtime/cuda/DevicePool.h"

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status ladle::checkSlotCounts(const StepArguments &arguments,
                              int64_t mostRows) {
  int64_t rows = arguments.rows;
  if (rows < 0 || rows > mostRows)
    return invalid(fmt::format("rows is {}, wanted 0 to {}", rows, mostRows));
  auto count = [](auto slots) { return static_cast<int64_t>(slots.size()); };
  if (count(arguments.readSlots) != rows)
    return invalid(fmt::format("readSlots has {} slots, wanted {}",
                               count(arguments.readSlots), rows));
  if (!arguments.writeSlots.empty() && count(arguments.writeSlots) != rows)
    return invalid(fmt::format("writeSlots has {} slots, wanted {} or none",
                               count(arguments.writeSlots), rows));
  return Status();
}

//===----------------------------------------------------------------------===//
// Decoder
//===----------------------------------------------------------------------===//

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Decoder::Decoder(Decoder &&) noexcept = default;
Decoder &Decoder::operator=(Decoder &&) noexcept = default;
Decoder::~Decoder() = default;

static Status checkHeads(const Program &program,
                         const DecoderOptions &options) {
  int64_t all = program.signature().heads;
  int64_t begin = options.headBegin,
          end = options.headEnd < 0 ? all : options.headEnd;
  if (begin < 0 || begin >= end || end > all || begin % program.headGroup() ||
      end % program.headGroup())
    return invalid(fmt::format(
        "heads {} to {}, wanted a range of multiples of {} within 0 to {}",
        begin, end, program.headGroup(), all));
  return Status();
}

/// Layers that share cursors leave them alike: prompts fold where chunks end or
/// elsewhere, and rows of kv_only that have folded keep entries or none.
static Status checkCursors(const Program &program,
                           const Cursors::Impl &cursors) {
  const std::string &name = program.signature().name;
  const ProgramImpl &impl = program.getImpl();
  bool isByChunk = cursors.fixedThreshold > 0;
  if (program.chunk() && program.foldsByChunk() != isByChunk)
    return invalid(fmt::format(
        "'{}' {} by chunks (numerics = chunk), and the program of the cursors "
        "{}: both do or neither, if prompts are to come",
        name, isByChunk ? "does not fold" : "folds",
        isByChunk ? "does" : "does not"));
  // A GPU does not know of which rows they are.
  if (cursors.device.kind == DeviceKind::Cpu &&
      program.route() == RouteKind::KvOnly &&
      impl.rewritesLong() != cursors.rewritesLong)
    return invalid(fmt::format(
        "rows of '{}' that have folded keep {} entries, and those of the "
        "program of the cursors {}: wanted routes that both keep entries, or "
        "neither (CompileOptions::longRoute)",
        name, impl.rewritesLong() ? "no" : "their",
        impl.rewritesLong() ? "do" : "do not"));
  return Status();
}

Result<Decoder> Decoder::create(const Program &program, Pool &pool,
                                const DecoderOptions &options) {
  Pool::Impl &memory = pool.getImpl();
  if (Status status = memory.checkProgram(program); !status)
    return status;
  if (Status status = checkCursors(program, memory.shared()); !status)
    return status;
  if (Status status = checkHeads(program, options); !status)
    return status;
  auto made =
      memory.device.kind == DeviceKind::Cpu
          ? makeHostDecoder(program, static_cast<HostPool &>(memory), options)
          : makeDeviceDecoder(program, static_cast<DevicePool &>(memory),
                              options);
  if (!made)
    return made.status();
  return Decoder(std::move(*made));
}

int Decoder::threads() const { return impl->threads(); }

Status Decoder::step(const StepArguments &arguments, void *stream) {
  return impl->step(arguments, stream);
}

Status Decoder::verify(const VerifyArguments &arguments, void *stream,
                       Start start) {
  return impl->verify(arguments, stream, start);
}

Status Decoder::prefill(const PrefillArguments &arguments, void *stream) {
  return impl->prefill(arguments, stream);
}

Result<BoundStep> Decoder::bind(const StepArguments &arguments) {
  return impl->bind(arguments);
}

Status ladle::decode(const Program &program, Pool &pool,
                     const StepArguments &arguments) {
  Result<Decoder> decoder = Decoder::create(program, pool);
  if (!decoder)
    return decoder.status();
  return decoder->step(arguments);
}

//===----------------------------------------------------------------------===//
// BoundStep
//===----------------------------------------------------------------------===//

BoundStep::BoundStep(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
BoundStep::BoundStep(BoundStep &&) noexcept = default;
BoundStep &BoundStep::operator=(BoundStep &&) noexcept = default;
BoundStep::~BoundStep() = default;

int64_t BoundStep::rows() const { return impl->rows; }

Status BoundStep::launchRows(int64_t rows, void *stream, Start start) {
  if (rows < 0 || rows > impl->rows)
    return invalid(fmt::format(
        "rows is {}, wanted 0 to {}, the rows that the step was bound to", rows,
        impl->rows));
  return impl->launch(rows, stream, start);
}

Status BoundStep::setMemory(std::string_view name, void *data) {
  if (!data)
    return invalid(fmt::format("argument '{}' is null", name));
  return impl->setMemory(name, data);
}

Status BoundStep::setSlots(const int32_t *readSlots,
                           const int32_t *writeSlots) {
  if (!readSlots)
    return invalid("readSlots is null");
  return impl->setSlots(readSlots, writeSlots);
}
