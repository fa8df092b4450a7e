//===- AttentionDecoder.cpp - decoders of attentions ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionDecoderImpl.h"
#include "runtime/Text.h"
#include "runtime/cuda/GpuCode.h"

using namespace ladle;

/// Rows are blocks along y of a launch.
static constexpr int64_t mostRows = maxGpuRows;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

Status ladle::checkAttentionRows(int64_t rows, size_t slots) {
  if (rows < 0)
    return invalid(fmt::format("rows is {}, wanted 0 at least", rows));
  if (slots == static_cast<size_t>(rows))
    return Status();
  return invalid(
      fmt::format("slots has {} elements, wanted the {} rows", slots, rows));
}

Status ladle::checkPrompts(const PrefillArguments &arguments, bool mayBeEmpty) {
  if (Status status =
          checkAttentionRows(arguments.rows, arguments.slots.size());
      !status)
    return status;
  std::span<const int32_t> starts = arguments.cuSeqlens;
  if (starts.size() != static_cast<size_t>(arguments.rows) + 1)
    return invalid(fmt::format("cuSeqlens has {} numbers, wanted {}",
                               starts.size(), arguments.rows + 1));
  if (starts[0] != 0)
    return invalid(fmt::format("cuSeqlens[0] is {}, wanted 0", starts[0]));
  for (int64_t row = 0; row < arguments.rows; ++row) {
    int64_t count = int64_t(starts[row + 1]) - starts[row];
    int64_t least = arguments.slots[row] >= 0 && !mayBeEmpty;
    if (count < least)
      return invalid(fmt::format("cuSeqlens[{}] gives row {} {} tokens, wanted "
                                 "{} at least",
                                 row + 1, row, count, least));
  }
  return Status();
}

static std::string boundsText(const AttentionProgramImpl &of) {
  if (!of.bounded)
    return "";
  const BoundedProgram &bounded = *of.bounded;
  if (bounded.kind == BoundedKind::Segmented)
    return fmt::format(", {} sinks, a window of {}, segments of {}, a memory "
                       "of {} {}",
                       bounded.sinks, bounded.window, bounded.segment,
                       bounded.memoryKeySize, toString(bounded.memoryType));
  return fmt::format(
      ", room for {} tokens, weights of {} queries{}, a memory of "
      "{} {}",
      bounded.capacity, bounded.queries,
      bounded.observes ? "" : " that nobody notes", bounded.memoryKeySize,
      toString(bounded.memoryType));
}

static Status checkSettings(const AttentionProgramImpl &made,
                            const AttentionPoolImpl &pool,
                            const AttentionSettings &settings) {
  if (!made.hasRing)
    return settings.tau >= 1 ? Status()
                             : invalid(fmt::format(
                                   "settings: tau is {}, wanted 1: '{}' keeps "
                                   "no summaries",
                                   settings.tau, made.signature.name));
  for (double share : {settings.tau, settings.drift})
    if (!(share >= 0 && share <= 1))
      return invalid(
          fmt::format("settings: tau or drift is {}, wanted 0 to 1", share));
  // A GPU adds up three of them in 32 bits.
  constexpr int64_t mostTokens = int64_t(1) << 29;
  for (auto [name, count] : {std::pair{"band", settings.band},
                             {"sinks", settings.sinks},
                             {"maxGap", settings.maxGap},
                             {"maxChain", settings.maxChain},
                             {"skip", settings.skip},
                             {"wideBand", settings.wideBand},
                             {"wideGap", settings.wideGap}})
    if (count < 0 || count > mostTokens)
      return invalid(fmt::format("settings: {} is {}, wanted 0 to {}", name,
                                 count, mostTokens));
  bool hasFront = false;
  for (const AttentionFormKernels::Piece &piece : made.decode.pieces)
    hasFront |= piece.begin == BoundKind::Start;
  if (settings.sinks > 0 && !hasFront)
    return invalid(fmt::format("settings: sinks is {}, wanted 0: '{}' is "
                               "compiled without",
                               settings.sinks, made.signature.name));
  if (settings.drift > 0 && !made.isRotated)
    return invalid(fmt::format("settings: drift is {}, wanted 0: '{}' is "
                               "compiled without a gate on it",
                               settings.drift, made.signature.name));
  if ((settings.wideBand > 0 || settings.wideGap > 0) && made.parts == 1)
    return invalid(fmt::format("settings: wideBand and wideGap are {} and {}, "
                               "wanted 0: '{}' is compiled with one band",
                               settings.wideBand, settings.wideGap,
                               made.signature.name));
  if (settings.window < 1 || settings.window > pool.window)
    return invalid(fmt::format("settings: window is {}, wanted 1 to the {} "
                               "entries of the pool's rings",
                               settings.window, pool.window));
  if (made.parts == 2 && settings.wideBand < settings.band)
    return invalid(fmt::format("settings: wideBand is {}, wanted the band {} "
                               "at least",
                               settings.wideBand, settings.band));
  return Status();
}

static Status checkPreference(const AttentionProgramImpl &made,
                              const PreferenceOptions &preference) {
  if (!made.bounded || made.bounded->kind != BoundedKind::Evicting)
    return Status(ErrorCode::Unsupported,
                  "preferences are of caches that evict");
  int64_t least = made.bounded->sinks + made.bounded->recent;
  if (preference.budget < least || preference.queries < 1 ||
      !(preference.valueExponent >= 0))
    return invalid(fmt::format(
        "preference: budget, queries and valueExponent are {}, {} and {}, "
        "wanted {}, 1 and 0 at least",
        preference.budget, preference.queries, preference.valueExponent,
        least));
  return Status();
}

Result<AttentionDecoder>
AttentionDecoder::create(const AttentionProgram &program, AttentionPool &pool,
                         const AttentionDecoderOptions &options) {
  const AttentionProgramImpl &made = program.getImpl();
  AttentionPoolImpl &memory = pool.getImpl();
  const AttentionProgramImpl &other = memory.program;
  auto shape = [](const AttentionProgramImpl &of) {
    return fmt::format(
               "{} heads, {} of a cache of {} {} keys and {} {} values, "
               "pages of {} tokens, {} summaries of {} a token{}{}",
               of.signature.heads, of.cacheHeads, of.keySize,
               toString(of.keyType), of.valueSize, toString(of.valueType),
               of.pageSize, of.hasRing ? of.parts : 0, toString(of.summaryType),
               of.isRotated ? ", rotated queries" : "",
               of.estimates ? ", moments" : "") +
           boundsText(of);
  };
  if (made.device != memory.program.device)
    return invalid(fmt::format("the pool is on {}, the program is for {}",
                               toString(memory.program.device),
                               toString(made.device)));
  if (shape(made) != shape(other))
    return invalid(fmt::format("the pool is made for {}; the program has {}",
                               shape(other), shape(made)));
  constexpr int mostThreads = 4096;
  if (options.threads < 0 || options.threads > mostThreads)
    return invalid(fmt::format("threads is {}, wanted 0 to {}", options.threads,
                               mostThreads));
  AttentionSettings settings = options.settings.value_or(made.settings);
  if (Status status = checkSettings(made, memory, settings); !status)
    return status;
  if (made.bounded && options.diagnostics)
    return Status(ErrorCode::Unsupported,
                  "diagnostics are of caches that keep all tokens, and that of "
                  "'" +
                      made.signature.name + "' is bounded");
  if (options.preference)
    if (Status status = checkPreference(made, *options.preference); !status)
      return status;
  if (!made.gpu && made.bounded)
    return AttentionDecoder(made.bounded->kind == BoundedKind::Evicting
                                ? makeHostEvicting(program, memory, options)
                                : makeHostBounded(program, memory, options));
  if (!made.gpu)
    return AttentionDecoder(
        makeHostAttention(program, memory, settings, options));
  int64_t rows = options.rows ? options.rows : memory.slots;
  if (rows < 0 || rows > mostRows)
    return invalid(
        fmt::format("rows is {}, wanted 1 to {}", options.rows, mostRows));
  // What is left of a prompt's tokens between kernels.
  constexpr int64_t usualTokens = 8192, mostTokens = int64_t(1) << 24;
  int64_t tokens = options.promptTokens ? options.promptTokens : usualTokens;
  if (tokens < 0 || tokens > mostTokens)
    return invalid(fmt::format("promptTokens is {}, wanted 1 to {}",
                               options.promptTokens, mostTokens));
  Result<std::unique_ptr<Impl>> decoder =
      makeDeviceAttention(program, memory, settings, rows, tokens, options);
  if (!decoder)
    return decoder.status();
  return AttentionDecoder(std::move(*decoder));
}

AttentionDecoder::AttentionDecoder(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
AttentionDecoder::AttentionDecoder(AttentionDecoder &&) noexcept = default;
AttentionDecoder &
AttentionDecoder::operator=(AttentionDecoder &&) noexcept = default;
AttentionDecoder::~AttentionDecoder() = default;

std::span<const int64_t> AttentionDecoder::matches() const {
  return impl->matches();
}

std::vector<AttentionHeadDiagnostics> AttentionDecoder::diagnostics() const {
  return impl->diagnostics();
}

Status AttentionDecoder::setBudget(int32_t slot, int64_t budget) {
  return impl->setBudget(slot, budget);
}

Status AttentionDecoder::setBudgets(std::span<const int32_t> slots,
                                    std::span<const int32_t> budgets,
                                    void *stream) {
  return impl->setBudgets(slots, budgets, stream);
}

Status AttentionDecoder::Impl::setBudgets(std::span<const int32_t> slots,
                                          std::span<const int32_t> budgets,
                                          void *) {
  // A call that fails evicts nothing.
  if (Status status = checkBudgets(slots, budgets); !status)
    return status;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i] >= 0)
      if (Status status = setBudget(slots[i], budgets[i]); !status)
        return status;
  return Status();
}

std::span<const LayerPreference> AttentionDecoder::preferences() const {
  return impl->preferences();
}

Status AttentionDecoder::step(const AttentionArguments &arguments,
                              void *stream) {
  return impl->step(arguments, stream);
}
Status AttentionDecoder::prefill(const PrefillArguments &arguments,
                                 void *stream) {
  return impl->prefill(arguments, stream);
}
Result<BoundStep> AttentionDecoder::bind(const AttentionArguments &arguments) {
  return impl->bind(arguments);
}
