//===- BoundedCheck.cpp - a bounded cache against the oracle --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/BoundedCheck.h"

#include "runtime/Convert.h"
#include "runtime/check/CaseText.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/DeviceCopies.h"

#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace ladle;
using namespace ladle::check;
using interpreter::BoundedInterpreter;
using interpreter::Precision;
using interpreter::ValueInfo;

// Found by their arguments' namespace.
namespace ladle {
static std::string showValue(const std::optional<SegmentSettings> &segments) {
  return segments ? fmt::format("{}:{}:{}", segments->sinks, segments->window,
                                segments->segment)
                  : "";
}
static bool readValue(std::string_view text,
                      std::optional<SegmentSettings> &segments) {
  auto [sinks, others] = llvm::StringRef(text).split(':');
  auto [window, segment] = others.split(':');
  SegmentSettings read;
  if (!llvm::to_integer(sinks, read.sinks, 10) ||
      !llvm::to_integer(window, read.window, 10) ||
      !llvm::to_integer(segment, read.segment, 10))
    return false;
  segments = read;
  return true;
}
} // namespace ladle

namespace ladle::check {
template <typename Case, typename Visitor>
static void visitKeys(Case &c, Visitor visit) {
  visit("type", c.type);
  visit("tokens", c.tokens);
  visit("prompt", c.prompt);
  visit("later", c.later);
  visit("segments", c.segments);
  visit("lowered", c.lowered);
  visit("forks", c.forks);
  visit("threads", c.threads);
  visit("seed", c.seed);
}
} // namespace ladle::check

std::string BoundedCase::str() const { return writeCase(*this); }

Result<BoundedCase> BoundedCase::parse(std::string_view text) {
  BoundedCase result;
  if (Status status = readCase(text, result); !status)
    return status;
  if (Status status = checkTypeKey("type", result.type); !status)
    return status;
  if (result.tokens < 1 || result.prompt < 0 || result.later < 0 ||
      result.lowered < 0 || result.threads < 1)
    return Status(
        ErrorCode::InvalidArgument,
        fmt::format("tokens = {}, prompt = {}, later = {}, lowered = "
                    "{} and threads = {} of a case are not 1, 0, 0, 0 "
                    "and 1 at least",
                    result.tokens, result.prompt, result.later, result.lowered,
                    result.threads));
  return result;
}

static DType dtypeOf(Precision precision) {
  return precision == Precision::Bfloat16  ? DType::BF16
         : precision == Precision::Float16 ? DType::F16
                                           : DType::F32;
}

namespace {

/// A decoder and the oracle side by side.
class BoundedRun {
public:
  BoundedRun(const BoundedCase &config, BoundedInterpreter oracle,
             AttentionProgram program, double bound)
      : config(config), oracle(std::move(oracle)), program(std::move(program)),
        random(config.seed), copies(this->program.device()) {
    result.config = config;
    result.bound = bound;
  }

  Result<BoundedResult> run();

private:
  static constexpr int64_t slotCount = 4;
  using Arrays = BoundedInterpreter::Arrays;
  using Tensors = std::map<std::string, TensorView, std::less<>>;

  Arrays draw(llvm::ArrayRef<ValueInfo> infos);
  TensorView pack(const ValueInfo &info, const std::vector<Arrays> &rows,
                  size_t which);
  Tensors pack(const std::vector<Arrays> &rows);
  Status prompt(AttentionDecoder &decoder, int32_t slot, int64_t count);
  Status step(AttentionDecoder &decoder, const std::vector<int32_t> &slots);
  Status truncate(AttentionPool &pool, int32_t slot);
  void follow(int32_t slot);
  void checkRegret(int32_t slot);
  Status download(const Tensors &from);
  void compare(int64_t row, const Arrays &expected, const Arrays &terms);
  void compareLengths(const AttentionPool &pool);
  void fail(std::string why) {
    if (result.failure.empty())
      result.failure = std::move(why);
  }

  BoundedCase config;
  BoundedInterpreter oracle;
  AttentionProgram program;
  std::mt19937_64 random;
  DeviceCopies copies;
  BoundedResult result;
  Arrays params;
  std::vector<BoundedInterpreter::Row> rows;
  AttentionPool *pool = nullptr;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<float>> outputs;
};

} // namespace

BoundedRun::Arrays BoundedRun::draw(llvm::ArrayRef<ValueInfo> infos) {
  std::normal_distribution<double> normal;
  Arrays arrays;
  for (const ValueInfo &info : infos) {
    std::vector<double> &values = arrays.emplace_back(info.size());
    for (double &value : values)
      value = roundTo(normal(random), info.precision);
  }
  return arrays;
}

TensorView BoundedRun::pack(const ValueInfo &info,
                            const std::vector<Arrays> &all, size_t which) {
  DType dtype = dtypeOf(info.precision);
  auto bytes = static_cast<size_t>(sizeInBytes(dtype));
  std::vector<std::byte> &into = memory.emplace_back();
  for (const Arrays &arrays : all)
    for (double value : arrays[which]) {
      into.resize(into.size() + bytes);
      storeFloat(dtype, static_cast<float>(value),
                 into.data() + into.size() - bytes);
    }
  std::vector<int64_t> shape{static_cast<int64_t>(all.size())};
  shape.insert(shape.end(), info.shape.begin(), info.shape.end());
  return TensorView::dense(into.data(), dtype, shape);
}

BoundedRun::Tensors BoundedRun::pack(const std::vector<Arrays> &all) {
  memory.clear();
  memory.reserve(oracle.getTokens().size() + oracle.getParams().size());
  Tensors tensors;
  for (size_t i = 0; i < oracle.getTokens().size(); ++i)
    tensors.emplace(oracle.getTokens()[i].name,
                    pack(oracle.getTokens()[i], all, i));
  for (size_t i = 0; i < oracle.getParams().size(); ++i) {
    TensorView view = pack(oracle.getParams()[i], {params}, i);
    tensors.emplace(oracle.getParams()[i].name, view[0]);
  }
  outputs.resize(oracle.getOutputs().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueInfo &info = oracle.getOutputs()[i];
    outputs[i].assign(all.size() * info.size(), NAN);
    std::vector<int64_t> shape{static_cast<int64_t>(all.size())};
    shape.insert(shape.end(), info.shape.begin(), info.shape.end());
    tensors.emplace(info.name,
                    TensorView::dense(outputs[i], DType::F32, shape));
  }
  return tensors;
}

Status BoundedRun::download(const Tensors &from) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (Status status =
            copies.download(from.at(oracle.getOutputs()[i].name), outputs[i]);
        !status)
      return status;
  return Status();
}

void BoundedRun::compare(int64_t row, const Arrays &expected,
                         const Arrays &terms) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueInfo &info = oracle.getOutputs()[i];
    auto first =
        outputs[i].begin() + row * static_cast<int64_t>(expected[i].size());
    std::vector<double> actual(first, first + expected[i].size());
    // Each head by itself: one may be a tenth of another.
    size_t width = info.shape.size() > 1 ? info.shape.back() : 1;
    for (size_t at = 0; at < expected[i].size(); at += width) {
      double error = relativeError(std::span(actual).subspan(at, width),
                                   std::span(expected[i]).subspan(at, width),
                                   std::span(terms[i]).subspan(at, width));
      result.error = std::max(result.error, error);
      if (!(error <= result.bound))
        fail(fmt::format("{} of head {} is off by {:.2e} (bound {:.2e})",
                         info.name, at / width, error, result.bound));
    }
  }
}

/// The oracle evicts what the decoder did, which has to be as good to rounding:
/// one may have chosen either of two that are as salient.
void BoundedRun::follow(int32_t slot) {
  BoundedInterpreter::Row &row = rows[slot];
  row.follows.clear();
  for (size_t head = 0; oracle.isEvicting && head < row.heads.size(); ++head)
    row.follows.push_back(
        pool->keptPositions(slot, static_cast<int64_t>(head)));
}

void BoundedRun::checkRegret(int32_t slot) {
  constexpr double mostRegret = 1e-3;
  if (!(rows[slot].regret <= mostRegret))
    fail(fmt::format("slot {} evicted a token that is more salient by {:.1e}",
                     slot, rows[slot].regret));
}

Status BoundedRun::prompt(AttentionDecoder &decoder, int32_t slot,
                          int64_t count) {
  std::vector<Arrays> tokens, expected, terms;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(draw(oracle.getTokens()));
  const int32_t slots[] = {slot};
  const int32_t starts[] = {0, static_cast<int32_t>(count)};
  PrefillArguments arguments;
  copies.clear();
  Result<std::span<const int32_t>> slotNumbers = copies.upload(slots);
  Result<std::span<const int32_t>> startNumbers = copies.upload(starts);
  if (!slotNumbers || !startNumbers)
    return slotNumbers ? startNumbers.status() : slotNumbers.status();
  arguments.rows = 1;
  arguments.slots = *slotNumbers;
  arguments.cuSeqlens = *startNumbers;
  arguments.tokens = copies.isOnDevice() ? count : 0;
  arguments.tensors = pack(tokens);
  if (Status status = copies.upload(arguments.tensors); !status)
    return status;
  if (Status status = decoder.prefill(arguments); !status)
    return status;
  if (Status status = download(arguments.tensors); !status)
    return status;
  follow(slot);
  // The oracle takes its time: of a long prompt it answers the end and some.
  std::vector<bool> answered;
  for (int64_t i = 0; i < count; ++i)
    answered.push_back(count <= 300 || i % 256 == 0 || i + 12 >= count);
  oracle.prefill(rows[slot], params, tokens, expected, &terms, answered);
  checkRegret(slot);
  for (int64_t i = 0; i < count; ++i)
    if (!expected[i].empty())
      compare(i, expected[i], terms[i]);
  if (!result.passed())
    result.failure += fmt::format(" in a prompt of {}", count);
  return Status();
}

Status BoundedRun::step(AttentionDecoder &decoder,
                        const std::vector<int32_t> &slots) {
  std::vector<Arrays> tokens;
  for (size_t i = 0; i < slots.size(); ++i)
    tokens.push_back(draw(oracle.getTokens()));
  AttentionArguments arguments;
  copies.clear();
  Result<std::span<const int32_t>> numbers = copies.upload(slots);
  if (!numbers)
    return numbers.status();
  arguments.rows = static_cast<int64_t>(slots.size());
  arguments.slots = *numbers;
  arguments.tensors = pack(tokens);
  if (Status status = copies.upload(arguments.tensors); !status)
    return status;
  if (Status status = decoder.step(arguments); !status)
    return status;
  if (Status status = download(arguments.tensors); !status)
    return status;
  for (size_t i = 0; i < slots.size(); ++i) {
    Arrays expected;
    for (const ValueInfo &info : oracle.getOutputs())
      expected.emplace_back(info.size(), 0.0);
    Arrays terms = expected;
    if (slots[i] >= 0) {
      follow(slots[i]);
      oracle.step(rows[slots[i]], params, tokens[i], expected);
      terms = rows[slots[i]].terms;
      checkRegret(slots[i]);
    }
    compare(static_cast<int64_t>(i), expected, terms);
  }
  return Status();
}

/// Drops the newest token, if it can be dropped.
Status BoundedRun::truncate(AttentionPool &pool, int32_t slot) {
  BoundedInterpreter::Row &row = rows[slot];
  if (row.heads.front().kept.size() < 2 ||
      row.length <=
          oracle.segments.sinks + row.segments * oracle.segments.segment)
    return Status();
  --row.length;
  for (BoundedInterpreter::Head &head : row.heads)
    head.kept.pop_back();
  return pool.truncate(slot, row.length);
}

void BoundedRun::compareLengths(const AttentionPool &pool) {
  for (int32_t slot = 0; slot < slotCount; ++slot) {
    auto kept = static_cast<int64_t>(rows[slot].heads.front().kept.size());
    if (pool.length(slot) != rows[slot].length || pool.keptTokens(slot) != kept)
      fail(fmt::format("slot {} keeps {} of {} tokens, the oracle {} of {}",
                       slot, pool.keptTokens(slot), pool.length(slot), kept,
                       rows[slot].length));
  }
}

Result<BoundedResult> BoundedRun::run() {
  rows.assign(slotCount, oracle.makeRow());
  params = draw(oracle.getParams());
  AttentionPoolOptions memoryOptions;
  memoryOptions.slots = slotCount;
  Result<AttentionPool> pool = AttentionPool::create(program, memoryOptions);
  if (!pool)
    return pool.status();
  this->pool = &*pool;
  AttentionDecoderOptions options;
  options.threads = config.threads;
  // A slot's at a time; a GPU has no memory for more.
  options.promptTokens =
      std::max({config.prompt + 1, config.later, int64_t(1)});
  Result<AttentionDecoder> decoder =
      AttentionDecoder::create(program, *pool, options);
  if (!decoder)
    return decoder.status();
  for (int32_t slot = 0; config.prompt && slot < 2; ++slot)
    // The second ends one token later.
    if (Status status = prompt(*decoder, slot, config.prompt + slot); !status)
      return status;
  for (int64_t i = 0; i < config.tokens && result.passed(); ++i) {
    // Slots come and go; row 1 is padding now and then.
    std::vector<int32_t> slots{0, static_cast<int32_t>(i % 3 ? 2 : -1)};
    if (i % 2)
      slots.push_back(1);
    if (i > config.tokens / 2)
      slots.push_back(3);
    if (i == config.tokens * 2 / 3) {
      const int32_t ended[] = {2};
      if (Status status = pool->reset(ended); !status)
        return status;
      rows[2] = oracle.makeRow();
    }
    if (config.forks && i == config.tokens / 2) {
      const int32_t from[] = {0}, to[] = {3};
      if (Status status = pool->fork(from, to); !status)
        return status;
      rows[3] = rows[0];
    }
    if (config.forks && i == config.tokens * 3 / 4) {
      if (Status status = copyByContents(*pool, 1, 2); !status)
        return status;
      rows[2] = rows[1];
    }
    if (config.later && i == config.tokens / 2)
      if (Status status = prompt(*decoder, 1, config.later); !status)
        return status;
    if (config.lowered && i == config.tokens / 3) {
      if (Status status = decoder->setBudget(0, config.lowered); !status)
        return status;
      follow(0);
      oracle.setBudget(rows[0], config.lowered);
      checkRegret(0);
    }
    if (oracle.isSegmented && i % 5 == 4)
      if (Status status = truncate(*pool, 0); !status)
        return status;
    if (Status status = step(*decoder, slots); !status)
      return status;
    compareLengths(*pool);
    if (!result.passed())
      result.failure += fmt::format(" in step {}", i);
  }
  for (const BoundedInterpreter::Row &row : rows) {
    result.folds += row.segments;
    if (oracle.isEvicting)
      for (const BoundedInterpreter::Head &head : row.heads)
        result.evicted += row.length - static_cast<int64_t>(head.kept.size());
  }
  return std::move(result);
}

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

/// f32 arithmetic, and what a memory of 16 bits costs: each fold rounds its
/// matrix once, and of tokens that are evicted each is a fold.
static double boundOf(DType memory, bool isEvicting) {
  double step = memory == DType::BF16  ? 0x1p-8
                : memory == DType::F16 ? 0x1p-11
                                       : 0.0;
  return Bound::exact + (isEvicting ? 16 : 2) * step;
}

Result<BoundedResult> check::checkBounded(const AttentionRequest &request,
                                          const BoundedCase &config) {
  frontend::ElaborationOptions elaboration = request.elaboration;
  for (const auto &[name, size] : config.sizes)
    elaboration.sizes[name] = size;
  elaboration.tokenTypes["*"] = config.type;
  std::string messages;
  auto oracle = compileBoundedOracle(request.path, request.source, elaboration,
                                     messages, config.segments);
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  AttentionCompileOptions options;
  options.attention = elaboration.recurrence;
  options.preset = elaboration.preset;
  options.sizes = elaboration.sizes;
  options.options = elaboration.options;
  // Outputs of f32 hide nothing by their rounding.
  options.tokenTypes = {{"*", config.type}};
  options.stateTypes = elaboration.stateTypes;
  for (const ValueInfo &info : oracle->getOutputs())
    options.tokenTypes[info.name] = "f32";
  options.segments = config.segments;
  options.target = request.target;
  Result<AttentionProgram> program =
      compileAttention(request.source, request.path, options);
  if (!program)
    return program.status();
  double bound = boundOf(program->memoryType(), oracle->isEvicting);
  return BoundedRun(config, std::move(*oracle), std::move(*program), bound)
      .run();
}

Result<BoundedReport> check::checkBounded(const AttentionRequest &request) {
  std::string messages;
  auto oracle = compileBoundedOracle(request.path, request.source,
                                     request.elaboration, messages);
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  BoundedReport report;
  report.name = oracle->name;
  report.reproducer =
      showCommand(request.path, request.target, request.elaboration);
  Status status = runCases(
      request,
      oracle->isEvicting ? planEviction(oracle->eviction, request.seed)
                         : planSegments(oracle->segments, request.seed),
      report,
      [&](const BoundedCase &one) { return checkBounded(request, one); });
  if (!status)
    return status;
  return report;
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

bool BoundedReport::passed() const {
  return std::all_of(cases.begin(), cases.end(),
                     [](const BoundedResult &one) { return one.passed(); });
}

/// Of a cache that evicts.
static std::string evictionTable(const BoundedReport &report) {
  std::string text = fmt::format(
      "{}: largest relative error against float64\n\n{:>6} {:>6} {:>6} {:>7} "
      "{:>7} {:>9} {:>9}\n",
      report.name, "tokens", "prompt", "later", "lowered", "evicted", "error",
      "bound");
  for (const BoundedResult &one : report.cases)
    text += fmt::format("{:>6} {:>6} {:>6} {:>7} {:>7} {:>9.1e} {:>9.1e}  {}\n",
                        one.config.type, one.config.prompt, one.config.later,
                        one.config.lowered, one.evicted, one.error, one.bound,
                        one.passed() ? "ok" : "FAILED");
  return text + showRepeats(report.cases, report.reproducer);
}

std::string BoundedReport::table() const {
  if (!cases.empty() && !cases.front().config.segments)
    return evictionTable(*this);
  std::string text = fmt::format(
      "{}: largest relative error against float64\n\n{:>6} {:>6} {:>6} {:>7} "
      "{:>6} {:>6} {:>6} {:>9} {:>9}\n",
      name, "tokens", "sinks", "window", "segment", "prompt", "later", "folds",
      "error", "bound");
  for (const BoundedResult &one : cases) {
    const BoundedCase &config = one.config;
    SegmentSettings segments = config.segments.value_or(SegmentSettings());
    text += fmt::format(
        "{:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>6} {:>9.1e} {:>9.1e}  {}\n",
        config.type, segments.sinks, segments.window, segments.segment,
        config.prompt, config.later, one.folds, one.error, one.bound,
        one.passed() ? "ok" : "FAILED");
  }
  return text + showRepeats(cases, reproducer);
}

std::string BoundedReport::json() const {
  nlohmann::ordered_json all = {{"attention", name},
                                {"passed", passed()},
                                {"cases", nlohmann::ordered_json::array()}};
  for (const BoundedResult &one : cases)
    all["cases"].push_back({{"case", one.config.str()},
                            {"folds", one.folds},
                            {"evicted", one.evicted},
                            {"error", one.error},
                            {"bound", one.bound},
                            {"passed", one.passed()},
                            {"failure", one.failure}});
  return all.dump(2, ' ', false,
                  nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}
