//===- attention.h - decoding with a cache of keys and values ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `attention` declarations become: a program, a pool of pages with a block
// table for each slot and rings of summaries beside it, and a decoder. A
// bounded cache has no pages: a slot holds so many tokens, and a memory of the
// others, from the start, and the same calls serve it.
//
// On a GPU a step is four kernels, which read slots, lengths and matches on the
// device and allocate nothing: a CUDA graph can capture it and replay it while
// sequences grow. A fifth keeps diagnostics, where these are asked for. Pages
// are taken by the host, between steps, with AttentionPool::reserve.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_ATTENTION_H
#define LADLE_ATTENTION_H

#include "ladle/budgets.h"
#include "ladle/decode.h"

namespace ladle {

struct AttentionProgramImpl;
struct AttentionPoolImpl;

/// The numbers of match and complete, as docs/language.md describes them. They
/// are data when a step runs: each layer may have its own.
struct AttentionSettings {
  double tau = 1; ///< 1 never matches
  int64_t window = 0, band = 0, sinks = 0;
  int64_t maxGap = 0, maxChain = 0, skip = 0; ///< 0 is no limit
  double drift = 0;                           ///< of programs that have a gate
  int64_t wideBand = 0, wideGap = 0;          ///< of programs with two bands

  bool operator==(const AttentionSettings &) const = default;
};

/// When a segmented cache folds, as docs/language.md describes it.
struct SegmentSettings {
  int64_t sinks = 0;   ///< tokens at the start, which stay
  int64_t window = 0;  ///< the newest, which a fold leaves
  int64_t segment = 1; ///< tokens that are folded together

  bool operator==(const SegmentSettings &) const = default;
};

/// The settings of each layer, from the table that `ladle tune --trace` writes
/// (docs/mac.md): layer i of the result is layer i of the model. InvalidData
/// says what is wrong with the file, a layer that is missing among it.
Result<std::vector<AttentionSettings>>
readAttentionSettings(const std::string &path);

/// The kernels of an attention at fixed sizes. Immutable; copies share the
/// code.
class AttentionProgram {
public:
  explicit AttentionProgram(AttentionProgramImpl impl);

  /// Its states and carries are empty; heads are those of the query.
  const Signature &signature() const;
  /// As the file has them.
  const AttentionSettings &settings() const;
  int64_t cacheHeads() const;
  int64_t pageSize() const; ///< tokens of a page; 0 of a bounded cache
  /// Whether tokens leave the cache, so that sequences may be of any length.
  bool isBounded() const;
  /// Tokens that a slot of a bounded cache has room for; 0 of others.
  int64_t capacity() const;
  /// Bytes of a slot of a bounded cache with its memory, whatever the length of
  /// its sequence; 0 of others.
  int64_t slotBytes() const;
  DeviceId device() const; ///< where the memory of its arguments is
  /// Whether it reuses summaries. Otherwise there are no rings.
  bool reuses() const;
  bool hasDrift() const;
  bool hasWideBand() const;
  /// Bytes of the rings of a slot, with windows of `window` tokens.
  int64_t ringBytes(int64_t window) const;
  /// Of an attention with a segmented cache, as it was compiled; zeros and one
  /// of others.
  SegmentSettings segments() const;
  /// How the matrix of a memory is stored; f32 where there is none.
  DType memoryType() const;
  /// What the compiler had to say.
  const std::string &warnings() const;
  /// What was compiled for what, as JSON: "version", "target", "bytes" of code,
  /// whether it was "cached" on disk, "milliseconds" since compileAttention was
  /// called, "warnings"; of a GPU "device", "driver", "nvrtc" and
  /// "context_milliseconds", which are not in the others.
  const std::string &manifest() const;

  const AttentionProgramImpl &getImpl() const { return *impl; }

private:
  std::shared_ptr<const AttentionProgramImpl> impl;
};

struct AttentionCompileOptions {
  std::string attention; ///< empty: the first of the file
  std::string preset;    ///< empty: the first
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> options;
  /// Storage types by the name of a token or output, or "*".
  std::map<std::string, std::string> tokenTypes;
  /// The same of a memory: of its matrix.
  std::map<std::string, std::string> stateTypes;
  /// How A / Z of a summary is stored: "f32", "bf16" or "f16".
  std::string summaryType = "f32";
  int64_t pageSize = 0; ///< 0: as the file says
  /// Of an attention with a segmented cache, instead of what the file says.
  std::optional<SegmentSettings> segments;
  /// "cpu", or "cuda", for which there has to be a device and NVRTC.
  std::string target = "cpu";
  int device = 0; ///< of cuda
  /// Whether kernels may come from the cache on disk, and go there.
  bool useDiskCache = true;
};

/// Compiles an attention of a text, which diagnostics call `name`.
/// InvalidArgument if it does not compile: the message holds all diagnostics.
/// NotFound says what cuda lacks.
/// Of the compiler's library, as compileSource is.
Result<AttentionProgram>
compileAttention(std::string_view text, std::string_view name,
                 const AttentionCompileOptions &options = {});

struct AttentionPoolOptions {
  int64_t slots = 0;
  int64_t pages = 0;     ///< of all slots together; 0 of a bounded cache
  int64_t maxTokens = 0; ///< of one slot; 0: all pages, or any number
  /// Entries of a ring; 0: the program's window. A GPU reads all of them, also
  /// where a decoder's window is less.
  int64_t window = 0;
};

/// A copy of one sequence, for another slot, pool or machine.
struct AttentionContents {
  std::string layout; ///< what pools have to agree in, as text
  int64_t length = 0; ///< tokens
  std::vector<int64_t> numbers;
  std::vector<std::byte> data;
};

/// The tokens of each slot in pages of one pool, and its ring of summaries.
/// Pages are taken as sequences grow and given back by `reset`; on a GPU they
/// have to be reserved before. Whether a ring may be used is data: a slot
/// without valid entries takes the exact path. Calls about slots of a GPU wait
/// for what runs there.
class AttentionPool {
public:
  /// ResourceExhausted if there is not so much memory, of which pages are only
  /// taken when they are first touched.
  static Result<AttentionPool> create(const AttentionProgram &program,
                                      const AttentionPoolOptions &options);
  AttentionPool(AttentionPool &&) noexcept;
  AttentionPool &operator=(AttentionPool &&) noexcept;
  ~AttentionPool();

  int64_t slots() const;
  int64_t freePages() const;
  /// Tokens of a slot, and how many of them its ring holds.
  int64_t length(int32_t slot) const;
  /// Of those, how many have not left the cache.
  int64_t keptTokens(int32_t slot) const;
  /// Of a cache that evicts: how many tokens of a slot each head keeps.
  int64_t budget(int32_t slot) const;
  /// Of a cache that evicts: the positions of the tokens that a
  /// head of the cache keeps, in order. Empty for others, and for what is out
  /// of range.
  std::vector<int64_t> keptPositions(int32_t slot, int64_t head) const;
  int64_t ringEntries(int32_t slot) const;

  /// Makes slots empty; a negative one is padding. InvalidArgument names a slot
  /// that is out of range, and none is reset.
  Status reset(std::span<const int32_t> slots);
  /// Drops the tokens of a slot from `length` on, and what they left: an
  /// estimated moment is that of the others, as far as the ring tells; where it
  /// holds none of them, it begins anew. Where
  /// segments were folded `length` is at least where the last of them ends:
  /// nothing is taken out of a memory again. A cache that evicts drops none,
  /// as its tokens have noted what they gave to others: reset the slot.
  /// ResourceExhausted, and nothing has changed, if other slots hold the page
  /// of the next token, too (`fork`), and there is none for a copy.
  Status truncate(int32_t slot, int64_t length);
  /// Makes slots to[i] what from[i] are: sequences with a prefix in common,
  /// each of which goes on by itself. Full pages are held by all of them until
  /// the last has given them up; rings, bounded caches, and a page that is not
  /// full are copied. What was in `to` is forgotten. A prefix of a sequence is
  /// a branch that is cut (`truncate`).
  ///
  /// InvalidArgument if a slot is out of range, or named in `to` and elsewhere;
  /// ResourceExhausted if there is no free page for a copy. Nothing has changed
  /// then.
  Status fork(std::span<const int32_t> from, std::span<const int32_t> to);
  /// Copies a sequence to the host, with what its rings hold; the slot stays as
  /// it is. Waits for the device.
  Result<AttentionContents> exportSlot(int32_t slot);
  /// Replaces the sequence of a slot. Pages may be of another size, and the
  /// contents of a cache with pages from the CPU or a GPU; those of a bounded
  /// cache are of one kind of device.
  ///
  /// InvalidArgument if the layouts differ, which it shows, or there are more
  /// than maxTokens; ResourceExhausted if too few pages are free; InvalidData
  /// if the bytes are not those of the length. Nothing has changed then.
  Status importSlot(int32_t slot, const AttentionContents &contents);
  /// Drops what earlier tokens left: the next tokens take the exact path.
  Status invalidateRings(std::span<const int32_t> slots);
  /// Takes the pages that the next `tokens` tokens of each slot need.
  /// InvalidArgument for a slot that is out of range, named twice, or gets more
  /// than maxTokens; ResourceExhausted if too few are free. Then nothing has
  /// changed.
  Status reserve(std::span<const int32_t> slots, int64_t tokens);

  AttentionPoolImpl &getImpl() { return *impl; }

private:
  explicit AttentionPool(std::unique_ptr<AttentionPoolImpl> impl);
  std::unique_ptr<AttentionPoolImpl> impl;
};

struct AttentionArguments {
  int64_t rows = 0;
  /// [rows], no two alike, in memory of the program's device; a negative one
  /// makes a padded row, whose outputs become zero and which touches nothing
  /// else.
  std::span<const int32_t> slots;
  /// A view for every parameter [heads, ...], token [rows, heads, ...] and
  /// output [rows, heads, ...]; strides as in a Decoder's step, on a GPU
  /// multiples of 16 bytes, as addresses are.
  std::map<std::string, TensorView, std::less<>> tensors;
};

/// What prompts say about a layer (LayerPreference), as SLAKE computes it.
struct PreferenceOptions {
  /// Tokens that a head would keep, the same for all layers.
  int64_t budget = 128;
  int64_t queries = 32;        ///< the last of the prompt
  double valueExponent = 0.1;  ///< of the value-aware term
  bool entropyOfExact = false; ///< instead of that after the cut
};

struct AttentionDecoderOptions {
  /// 0: one for each processor. Of the CPU only; fewer where the system starts
  /// no more.
  int threads = 0;
  /// Of a GPU: the most of a step or a call of prompts, padding among them, for
  /// which there is memory; 0 is as many as the pool has slots.
  int64_t rows = 0;
  /// Of a bounded cache, on a GPU: tokens of prompts for which there is memory;
  /// 0 is 8192. A call has no more where tokens are evicted; a segmented cache
  /// answers so many at a time.
  int64_t promptTokens = 0;
  /// Instead of the program's. What the kernels are compiled for stays: whether
  /// there are sinks, a drift gate, two bands, or a ring at all.
  std::optional<AttentionSettings> settings;
  /// Whether to keep what `diagnostics` tells. It changes no answer. On a GPU
  /// it is one more launch a step, and its kernel is compiled, or found in the
  /// cache on disk, when the decoder is made. Unsupported if the cache is
  /// bounded.
  bool diagnostics = false;
  /// Of a cache that evicts: `preferences` is asked for.
  std::optional<PreferenceOptions> preference;
  /// Of a paged cache, on a GPU: a row's answer does not depend, in the last
  /// bits, on the rows around it. Otherwise these decide where its history is
  /// cut, so that all warps of the device have as much to read. Run to run,
  /// answers are the same in both cases; elsewhere rows never depend on others.
  bool batchInvariant = false;
};

/// What a head of the query did in the steps of a decoder.
struct AttentionHeadDiagnostics {
  /// Norms over all tokens, from a histogram: within 1.1 %, but for the most.
  struct Norms {
    double median = 0, p90 = 0, p99 = 0, most = 0;
  };
  int64_t tokens = 0, hits = 0;
  /// Tokens of the cache that answers were about, and those of them that stood
  /// in reused summaries.
  int64_t cached = 0, skipped = 0;
  /// The mean share of the softmax's weight on the last `band` tokens, and on
  /// what was reused.
  double bandWeight = 0, reusedWeight = 0;
  Norms query; ///< of the query that is matched; 0 where there is no ring
  Norms value; ///< of the value, of the head of the cache that is shared
};

/// A program bound to a pool, which must outlive it. A ring that was filled
/// with another band, other sinks or another wide band is dropped when a slot
/// of it is decoded.
class AttentionDecoder {
public:
  /// InvalidArgument if the pool was made for other sizes than the program's,
  /// or the settings do not fit the program or the rings.
  static Result<AttentionDecoder>
  create(const AttentionProgram &program, AttentionPool &pool,
         const AttentionDecoderOptions &options = {});
  AttentionDecoder(AttentionDecoder &&) noexcept;
  AttentionDecoder &operator=(AttentionDecoder &&) noexcept;
  ~AttentionDecoder();

  /// Answers one token for each row, which becomes part of its sequence. If it
  /// fails, nothing has changed: on wrong arguments, a slot out of range or
  /// twice, a sequence of more than maxTokens, or no free page
  /// (ResourceExhausted).
  ///
  /// On a GPU it returns once its kernels are on the stream, and slots are the
  /// caller's to get right. A token for which no page was reserved is lost:
  /// slots are cut to what had pages by the next step, prompt or `reserve` that
  /// comes after the step has run, which says so (ResourceExhausted).
  Status step(const AttentionArguments &arguments, void *stream = nullptr);

  /// Checks arguments like a step, and keeps them for many: BoundStep::launch
  /// is what a graph captures. The write slots of BoundStep::setSlots are
  /// ignored.
  Result<BoundStep> bind(const AttentionArguments &arguments);

  /// Answers all tokens of each row by exact attention, tokens of row r being
  /// cuSeqlens[r] to cuSeqlens[r + 1] − 1, and leaves the summaries of the last
  /// `window` of them. A slot may hold a sequence already. On a GPU it is
  /// launches alone, which a graph can capture; a token without a page is lost
  /// as in a step. With a segmented cache a token of the prompt is answered by
  /// the sinks, the tokens of its segment up to it and the memory of the
  /// segments before (EdgeInfinite, Algorithm 1).
  Status prefill(const PrefillArguments &arguments, void *stream = nullptr);

  /// Of the last step: for each row and head the position of the token that was
  /// matched, or −1. [rows, heads], of as many rows as the last step had that
  /// was launched or captured here: after a graph of fewer rows was replayed,
  /// the others are of a step before. On a GPU it waits for the device, and is
  /// empty if that has failed.
  std::span<const int64_t> matches() const;

  /// Of a cache that evicts: how many tokens each head of a slot keeps from now
  /// on, until it is reset. If it holds more, the least salient leave, by what
  /// the last queries gave them, and are folded into the memory. What is in
  /// budgets.h gives the layers of a model budgets of their own. On a GPU it
  /// waits for the device.
  /// InvalidArgument if it is less than the sinks and the recent tokens, or
  /// more than the program's; Unsupported for other caches.
  Status setBudget(int32_t slot, int64_t budget);
  /// The same of many slots, a budget each; a negative slot is left out, and
  /// no other is there twice. If one slot or budget is refused, all slots keep
  /// what they have. On a GPU both are in its memory, where slots are not
  /// checked and a budget that is out of range counts as the nearest that is
  /// not, and it is launches alone, which a graph can capture.
  Status setBudgets(std::span<const int32_t> slots,
                    std::span<const int32_t> budgets, void *stream = nullptr);

  /// Of the rows of the last prefill, padding among them; empty if
  /// AttentionDecoderOptions::preference asks for none. Of a slot that held
  /// tokens before, the weights are those over what it kept and the prompt. On
  /// a GPU it waits for the device, and is empty if that has failed.
  std::span<const LayerPreference> preferences() const;

  /// Of all steps so far, prompts left out, [heads]; empty if
  /// AttentionDecoderOptions::diagnostics is off. On a GPU it waits for the
  /// device, and is empty if that has failed.
  std::vector<AttentionHeadDiagnostics> diagnostics() const;

  struct Impl;
  Impl &getImpl() { return *impl; }

private:
  explicit AttentionDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ladle

#endif // LADLE_ATTENTION_H
