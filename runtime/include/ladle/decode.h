//===- decode.h - one token for each row of a batch -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step answers one token for each row of a batch. Every row names the slot
// of its sequence; rows fold on their own, when their own buffer is full. The
// answer of a row depends on that row alone, bit for bit: not on the rows
// around it, the number of threads, or where its memory lies.
//
// On a GPU a step is a fixed row of kernel launches: it never waits, allocates
// or compiles, and it reads slots, cursors and the threshold on the device. So
// a CUDA graph can capture it and replay it while the slots change and the
// cursors move.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DECODE_H
#define LADLE_DECODE_H

#include "ladle/pool.h"

#include <map>

namespace ladle {

/// All memory is that of the program's device, slots included. On a GPU they
/// are read when the step runs.
struct StepArguments {
  int64_t rows = 0; ///< on a GPU, 65535 at a time are one launch
  /// [rows]; a padding slot makes a padded row, whose outputs become zero and
  /// which touches nothing else.
  std::span<const int32_t> readSlots;
  /// [rows], or empty for the read slots. A row that reads one slot and writes
  /// another leaves the first as it is: the second becomes the first and the
  /// row's token, folded.
  std::span<const int32_t> writeSlots;
  /// A view for every parameter [heads, ...], token [rows, heads, ...] and
  /// output [rows, heads, ...] of the signature. Any strides but along the
  /// last dimension of [heads, D] and [heads, R, D], which is contiguous; the
  /// dimension of a single shared head may be left out. Outputs overlap neither
  /// themselves nor anything else. On a GPU addresses and strides are multiples
  /// of what the kernels load at once, 16 bytes at most; an error says of what.
  /// Strides there are at most 2^31 − 1 elements.
  std::map<std::string, TensorView, std::less<>> tensors;
};

/// Drafts of a batch: those of row r are cuSeqlens[r] to cuSeqlens[r + 1] − 1
/// of the tokens and outputs. All memory is that of the program's device. On a
/// GPU the numbers are read when the work runs, so that a graph can be replayed
/// with other slots, other numbers of drafts and other trees.
struct VerifyArguments {
  int64_t rows = 0;
  /// [rows]; a padding slot makes a padded row, as in a step. No two alike.
  std::span<const int32_t> slots;
  /// [rows + 1], from 0 to the number of all drafts. A row has 1 to
  /// Program::drafts() of them, a padded one may have none.
  std::span<const int32_t> cuSeqlens;
  /// [drafts]: the parent of each draft within its row, which comes before it,
  /// or −1 for one that follows the committed history. Empty: chains, in which
  /// every draft follows the one before it.
  std::span<const int32_t> parents;
  /// On a GPU, where the host does not look into cuSeqlens: for how many drafts
  /// there are tokens and outputs. Left out on the CPU.
  int64_t drafts = 0;
  /// As in a step, with the number of all drafts in place of the rows.
  std::map<std::string, TensorView, std::less<>> tensors;
};

/// Prompts of a batch: the tokens of row r are cuSeqlens[r] to
/// cuSeqlens[r + 1] − 1 of the tokens and outputs. All memory is that of the
/// program's device. On a GPU the numbers are read when the work runs, so that
/// a graph can be replayed with other slots and prompts of other lengths.
struct PrefillArguments {
  int64_t rows = 0;
  /// [rows]; a padding slot makes a padded row, as in a step. No two alike.
  std::span<const int32_t> slots;
  /// [rows + 1], from 0 to the number of all tokens. A row has 1 at least, of
  /// any number, a padded one may have none. Of an attention with a paged cache
  /// any row may have none: its slot stays as it is, empty or not.
  std::span<const int32_t> cuSeqlens;
  /// On a GPU, where the host does not look into cuSeqlens: for how many tokens
  /// there is room in the tensors. Left out on the CPU.
  int64_t tokens = 0;
  /// As in a step, with the number of all tokens in place of the rows.
  std::map<std::string, TensorView, std::less<>> tensors;
};

struct DecoderOptions {
  /// 0: one for each processor that the process may use. Of the CPU only; fewer
  /// where the system starts no more (Decoder::threads).
  int threads = 0;
  /// The heads to compute, multiples of Program::headGroup(); the end -1 is
  /// all. The other heads of the pool and of the outputs are left alone. If
  /// several ranges of one pool decode a token together, it has to be given
  /// Cursors, which are advanced once after all of them.
  int64_t headBegin = 0, headEnd = -1;
};

/// When a step on a GPU begins to load what it reads. What it writes, it writes
/// after everything ahead of it on its stream has ended.
enum class Start {
  /// After everything ahead of it.
  InOrder,
  /// While that is still running, on devices that can (sm_90 on): the caller
  /// vouches that of what is ahead, back to the last launch in order, nothing
  /// writes what this step reads: tokens, parameters, slots, cursors, and what
  /// its pool holds. Other layers do not; a token's own projection does, and
  /// so do Cursors::advance, a commit, and the last step of the same pool.
  Early
};

/// A step whose arguments have been checked: to launch it again costs the
/// launches alone. Its decoder, and the memory of its arguments, must outlive
/// it.
class BoundStep {
public:
  BoundStep(BoundStep &&) noexcept;
  BoundStep &operator=(BoundStep &&) noexcept;
  ~BoundStep();

  /// That it was bound to: the most that it decodes.
  int64_t rows() const;

  /// Decodes the first `rows` rows on a stream, by what the memory of slots and
  /// tensors holds by then.
  Status launchRows(int64_t rows, void *stream = nullptr,
                    Start start = Start::InOrder);
  /// All of them.
  Status launch(void *stream = nullptr, Start start = Start::InOrder) {
    return launchRows(rows(), stream, start);
  }

  /// Other memory for an argument, of the same shape, strides and device, which
  /// on a GPU nobody asks the driver about. NotFound names the arguments.
  Status setMemory(std::string_view name, void *data);
  /// Other slots, [rows], of the device; `writeSlots` null is the read slots.
  Status setSlots(const int32_t *readSlots, const int32_t *writeSlots);

  struct Impl;
  explicit BoundStep(std::unique_ptr<Impl> impl);

private:
  std::unique_ptr<Impl> impl;
};

/// A program bound to a pool and to threads. The pool must outlive it, and may
/// be moved meanwhile, but not be assigned to; only one step at a time may run
/// on a pool. Calls of decoders and pools that share cursors are one after
/// another, too: cursors are of all of them.
class Decoder {
public:
  /// InvalidArgument if the pool was made for other states, carries or entries
  /// than the program's, or for another device, or the head range does not fit.
  static Result<Decoder> create(const Program &program, Pool &pool,
                                const DecoderOptions &options = {});
  Decoder(Decoder &&) noexcept;
  Decoder &operator=(Decoder &&) noexcept;
  ~Decoder();

  int threads() const; ///< 0 on a GPU

  /// Decodes one token for each row. If it fails, the message names the
  /// argument, what it got and what it wanted, nothing has been computed and
  /// nothing has changed. It fails on: a missing or unknown argument, a wrong
  /// type, shape, stride or device, null or misaligned memory, a slot out of
  /// range, a slot that one row writes and another reads or writes, and entries
  /// in the buffer of a slot that the route cannot read.
  ///
  /// On a GPU it returns once its kernels are on the stream. What slots hold is
  /// not looked at there: a slot out of range, a slot that two rows write, and
  /// entries that the route does not read are the caller's to avoid. A row that
  /// kv_only decodes after it has folded, where entries do not lie in pages, is
  /// told of by the next call that comes after the step has run.
  Status step(const StepArguments &arguments, void *stream = nullptr);

  /// Answers the drafts of each row: what a step would answer to each if those
  /// on the path to it had been accepted. Drafts read the committed history and
  /// their ancestors alone. They wait in the slot for Pool::commit, and until
  /// then the slot takes neither steps nor drafts. States are only written to
  /// fold what was committed: one window early, so that as many drafts as the
  /// program takes always find free entries. Layers whose pools share cursors
  /// all verify the same drafts before they are committed, once for all.
  ///
  /// Fails as a step does, and on: a program without drafts, a row with too
  /// many of them, a parent that is none, a slot that still has drafts,
  /// or other ones than a layer that shares its cursor has verified.
  ///
  /// On a GPU it is one launch, or one a draft where these wait for their
  /// parents (Program::verifiesAtOnce), and as in a step what is in memory of
  /// the device is the caller's to get right: slots, numbers of drafts,
  /// parents, and that no slot has drafts left.
  Status verify(const VerifyArguments &arguments, void *stream = nullptr,
                Start start = Start::InOrder);

  /// Answers all tokens of each row, which follow what its slot holds: as many
  /// steps as the row has tokens, with the same answers to rounding, in chunks
  /// of Program::chunk() tokens. A slot may be empty or hold a sequence
  /// already. A token that is not finite may spoil the answers of its whole
  /// chunk, of those before it, too; other rows it leaves alone.
  ///
  /// Afterwards the slot holds no entries: those it held and the tokens are in
  /// its state, which was read and written once (on a GPU, by a program for few
  /// prompts, once for some 2000 tokens). There are two exceptions.
  /// `kv_only` keeps a sequence that is still without a state and shorter than
  /// the fold threshold as entries, and touches no state. A program that folds
  /// by chunks (numerics = chunk) keeps what lies behind the last whole chunk
  /// of the sequence as entries; the others are folded where decoding would
  /// have folded them, so that it does not matter how a sequence is split into
  /// prompts and steps: answers agree to rounding, and a prompt that is split
  /// where a chunk ends gives the same bits.
  ///
  /// Layers whose pools share cursors all take the same prompts, on a GPU on
  /// the same stream, and then Cursors::advance moves them, with the slots of
  /// the prompts.
  ///
  /// Fails as a step does, and on: a program without prompts
  /// (CompileOptions::prefill), a row without tokens, drafts that are not
  /// committed, or a prompt that a layer which shares the cursor took with
  /// another length.
  ///
  /// On a GPU it is a fixed row of launches, and as in a step what is in memory
  /// of the device is the caller's to get right: slots, the numbers of tokens,
  /// and that no slot has drafts. `kv_only` takes prompts there if entries lie
  /// in pages, with pages and states for them (Cursors::reserve); Unsupported
  /// otherwise: prompts are for withRoute(Inner) then.
  Status prefill(const PrefillArguments &arguments, void *stream = nullptr);

  /// Checks arguments like a step, and beyond that, on a GPU, that the driver
  /// knows their memory; then keeps them for many steps.
  Result<BoundStep> bind(const StepArguments &arguments);

  struct Impl;

private:
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// One step on the threads of the process. A Decoder is faster for many.
Status decode(const Program &program, Pool &pool,
              const StepArguments &arguments);

} // namespace ladle

#endif // LADLE_DECODE_H
