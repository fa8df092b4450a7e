//===- AttentionCheck.cpp - an attention against the oracle ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"

#include "runtime/Convert.h"
#include "runtime/check/CaseText.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/DeviceCopies.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace ladle;
using namespace ladle::check;
using interpreter::AttentionInterpreter;
using interpreter::Precision;
using interpreter::ValueInfo;

namespace ladle::check {
template <typename Case, typename Visitor>
static void visitKeys(Case &c, Visitor visit) {
  visit("type", c.type);
  visit("summaries", c.summaryType);
  visit("page", c.pageSize);
  visit("tokens", c.tokens);
  visit("prompt", c.prompt);
  visit("guesses", c.guesses);
  visit("forks", c.forks);
  visit("tau", c.settings.tau);
  visit("window", c.settings.window);
  visit("band", c.settings.band);
  visit("sinks", c.settings.sinks);
  visit("max_gap", c.settings.maxGap);
  visit("max_chain", c.settings.maxChain);
  visit("skip", c.settings.skip);
  visit("drift", c.settings.drift);
  visit("wide_band", c.settings.wideBand);
  visit("wide_gap", c.settings.wideGap);
  visit("threads", c.threads);
  visit("batch_invariant", c.batchInvariant);
  visit("seed", c.seed);
}
} // namespace ladle::check

std::string AttentionCase::str() const { return writeCase(*this); }

Result<AttentionCase> AttentionCase::parse(std::string_view text) {
  AttentionCase result;
  if (Status status = readCase(text, result); !status)
    return status;
  if (Status status = checkTypeKey("type", result.type); !status)
    return status;
  if (Status status = checkTypeKey("summaries", result.summaryType); !status)
    return status;
  if (result.tokens < 1 || result.prompt < 0 || result.guesses < 0 ||
      result.forks < 0 || result.pageSize < 1 || result.threads < 1)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("tokens = {}, prompt = {}, guesses = {}, forks = "
                              "{}, page = {} and threads = {} of a case are "
                              "not 1, 0, 0, 0, 1 and 1 at least",
                              result.tokens, result.prompt, result.guesses,
                              result.forks, result.pageSize, result.threads));
  return result;
}

static Precision precisionOf(std::string_view type) {
  return type == "bf16"  ? Precision::Bfloat16
         : type == "f16" ? Precision::Float16
                         : Precision::Float32;
}

static DType dtypeOf(Precision precision) {
  return precision == Precision::Bfloat16  ? DType::BF16
         : precision == Precision::Float16 ? DType::F16
                                           : DType::F32;
}

namespace {

/// Two programs of one case, side by side.
class Run {
public:
  Run(const AttentionCase &config, AttentionInterpreter oracle,
      AttentionProgram program)
      : config(config), oracle(std::move(oracle)), program(std::move(program)),
        random(config.seed), copies(this->program.device()) {
    result.config = config;
    // A stored value that is nearly a tie may be rounded the other way, and so
    // may one that is made from it.
    double step = config.summaryType == "bf16"  ? 0x1p-8
                  : config.summaryType == "f16" ? 0x1p-11
                                                : 0.0;
    result.bound = Bound::exact + 2 * step;
  }

  Result<AttentionResult> run();

private:
  static constexpr int64_t slotCount = 4;
  using Arrays = AttentionInterpreter::Arrays;

  Arrays draw(llvm::ArrayRef<ValueInfo> infos);
  TensorView pack(const ValueInfo &info, const std::vector<Arrays> &rows,
                  size_t which);
  std::map<std::string, TensorView, std::less<>>
  pack(const std::vector<Arrays> &rows);
  Status prompt(AttentionPool &pool, AttentionDecoder &decoder, int32_t slot,
                int64_t count);
  Status guess(AttentionPool &pool, AttentionDecoder &decoder, int32_t slot,
               bool byPrompt);
  Status fork(AttentionPool &pool, int64_t number);
  Status step(AttentionPool &pool, AttentionDecoder &decoder,
              const std::vector<int32_t> &slots);
  void compare(int64_t row, const std::vector<double> &expected,
               const std::vector<double> &terms);
  void judge(int64_t head, int64_t position, int64_t matched,
             const AttentionInterpreter::Found &found);
  void fail(std::string why) {
    if (result.failure.empty())
      result.failure = std::move(why);
  }

  AttentionCase config;
  AttentionInterpreter oracle;
  AttentionProgram program;
  std::mt19937_64 random;
  AttentionResult result;
  Arrays params;
  double scale = 1; ///< of what is drawn
  std::vector<AttentionInterpreter::Row> rows;
  /// Queries that come again, by the place of the token.
  std::map<std::string, std::vector<std::vector<double>>> favourites;
  std::vector<std::vector<std::byte>> memory;
  std::vector<float> outputs;
  DeviceCopies copies;
};

} // namespace

/// Normal numbers. Half of the vectors are near others of their name, or the
/// same to the bit.
Run::Arrays Run::draw(llvm::ArrayRef<ValueInfo> infos) {
  std::normal_distribution<double> normal;
  Arrays arrays;
  for (const ValueInfo &info : infos) {
    std::vector<double> &values = arrays.emplace_back(info.size());
    size_t width = info.shape.back();
    for (size_t first = 0; first < values.size(); first += width) {
      auto &known = favourites[info.name];
      std::vector<double> base(width, 0);
      double spread = 1;
      if (known.size() > 2 && random() % 4) {
        base = known[random() % known.size()];
        spread = random() % 3 ? 0.3 : 0;
      }
      for (size_t c = 0; c < width; ++c)
        values[first + c] = roundTo(scale * (base[c] + spread * normal(random)),
                                    info.precision);
      if (known.size() < 4)
        known.emplace_back(values.begin() + first,
                           values.begin() + first + width);
    }
  }
  return arrays;
}

TensorView Run::pack(const ValueInfo &info, const std::vector<Arrays> &all,
                     size_t which) {
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

std::map<std::string, TensorView, std::less<>>
Run::pack(const std::vector<Arrays> &all) {
  memory.clear();
  memory.reserve(oracle.getTokens().size() + oracle.getParams().size());
  std::map<std::string, TensorView, std::less<>> tensors;
  for (size_t i = 0; i < oracle.getTokens().size(); ++i)
    tensors.emplace(oracle.getTokens()[i].name,
                    pack(oracle.getTokens()[i], all, i));
  for (size_t i = 0; i < oracle.getParams().size(); ++i) {
    TensorView view = pack(oracle.getParams()[i], {params}, i);
    tensors.emplace(oracle.getParams()[i].name, view[0]);
  }
  const ValueInfo &output = oracle.getOutput();
  outputs.assign(all.size() * output.size(), NAN);
  std::vector<int64_t> shape{static_cast<int64_t>(all.size())};
  shape.insert(shape.end(), output.shape.begin(), output.shape.end());
  tensors.emplace(output.name, TensorView::dense(outputs, DType::F32, shape));
  return tensors;
}

void Run::compare(int64_t row, const std::vector<double> &expected,
                  const std::vector<double> &terms) {
  auto first = outputs.begin() + row * static_cast<int64_t>(expected.size());
  std::vector<double> actual(first, first + expected.size());
  // Each head by itself: one may be a tenth of another.
  auto width = static_cast<size_t>(oracle.getOutput().shape.back());
  for (size_t at = 0; at < expected.size(); at += width) {
    double error = relativeError(std::span(actual).subspan(at, width),
                                 std::span(expected).subspan(at, width),
                                 std::span(terms).subspan(at, width));
    result.error = std::max(result.error, error);
    if (!(error <= result.bound))
      fail(fmt::format("head {} is off by {:.2e} (bound {:.2e})", at / width,
                       error, result.bound));
  }
}

/// Whether a match is what the oracle found, or as good to rounding.
void Run::judge(int64_t head, int64_t position, int64_t matched,
                const AttentionInterpreter::Found &found) {
  ++(matched >= 0 ? result.hits : result.misses);
  if (matched == found.position)
    return;
  double slack = 1e-5 * (found.limit + 1);
  double nearest = INFINITY;
  for (double square : found.squares)
    nearest = std::min(nearest, square);
  bool isNearLimit = std::abs(nearest - found.limit) <= slack;
  // Where nothing was found, no gate was asked.
  bool isNearDrift =
      found.driftLimit > 0 && std::abs(found.drift - found.driftLimit) <= slack;
  if (isNearLimit || (oracle.numbers.drift && isNearDrift))
    return;
  if (matched >= 0 && found.position >= 0) {
    // As near, but for rounding; equal ones are told apart by their order.
    auto offset = static_cast<size_t>(position - 1 - matched);
    double chosen =
        offset < found.squares.size() ? found.squares[offset] : INFINITY;
    if (chosen != nearest && chosen - nearest <= slack)
      return;
  }
  fail(fmt::format("head {} matches token {}, the oracle {}", head, matched,
                   found.position));
}

Status Run::prompt(AttentionPool &pool, AttentionDecoder &decoder, int32_t slot,
                   int64_t count) {
  std::vector<Arrays> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(draw(oracle.getTokens()));
  PrefillArguments arguments;
  arguments.rows = 1;
  const int32_t slots[] = {slot};
  const int32_t starts[] = {0, static_cast<int32_t>(count)};
  arguments.tensors = pack(tokens);
  copies.clear();
  Result<std::span<const int32_t>> slotNumbers = copies.upload(slots);
  Result<std::span<const int32_t>> startNumbers = copies.upload(starts);
  if (!slotNumbers || !startNumbers)
    return slotNumbers ? startNumbers.status() : slotNumbers.status();
  arguments.slots = *slotNumbers;
  arguments.cuSeqlens = *startNumbers;
  arguments.tokens = copies.isOnDevice() ? count : 0;
  if (Status status = copies.upload(arguments.tensors); !status)
    return status;
  if (Status status = pool.reserve(slots, count); !status)
    return status;
  if (Status status = decoder.prefill(arguments); !status)
    return status;
  if (Status status = copies.download(
          arguments.tensors.at(oracle.getOutput().name), outputs);
      !status)
    return status;
  AttentionInterpreter::Row &row = rows[slot];
  if (count >= config.settings.window)
    row.restart();
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> expected;
    bool leaves = count - i <= config.settings.window;
    oracle.step(row, params, tokens[i], expected, std::nullopt,
                /*isPrompt=*/true, leaves);
    compare(i, expected, row.terms);
  }
  return Status();
}

/// Tokens that are answered and dropped again. Their queries are longer, so
/// that a mean with them is another.
Status Run::guess(AttentionPool &pool, AttentionDecoder &decoder, int32_t slot,
                  bool byPrompt) {
  AttentionInterpreter::Row &row = rows[slot];
  size_t length = row.keys.size();
  scale = 2;
  Status status =
      byPrompt ? prompt(pool, decoder, slot, config.guesses) : Status();
  for (int64_t i = 0; i < config.guesses && !byPrompt && status; ++i)
    status = step(pool, decoder, {slot});
  scale = 1;
  if (!status)
    return status;
  row.truncate(length, static_cast<size_t>(config.settings.window));
  return pool.truncate(slot, static_cast<int64_t>(length));
}

/// Slots 2 and 3 in turn become branches of 0 and 1, whole or as far as half;
/// now and then by way of the host.
Status Run::fork(AttentionPool &pool, int64_t number) {
  auto from = static_cast<int32_t>(number / 2 % 2), to = 2 + from;
  if (Status status = number % 3 == 2 ? copyByContents(pool, from, to)
                                      : pool.fork({&from, 1}, {&to, 1});
      !status)
    return status;
  AttentionInterpreter::Row &row = rows[to] = rows[from];
  if (number % 2 == 0 || row.keys.size() < 2)
    return Status();
  size_t length = row.keys.size() / 2;
  row.truncate(length, static_cast<size_t>(config.settings.window));
  return pool.truncate(to, static_cast<int64_t>(length));
}

Status Run::step(AttentionPool &pool, AttentionDecoder &decoder,
                 const std::vector<int32_t> &slots) {
  std::vector<Arrays> tokens;
  for (size_t i = 0; i < slots.size(); ++i)
    tokens.push_back(draw(oracle.getTokens()));
  AttentionArguments arguments;
  arguments.rows = static_cast<int64_t>(slots.size());
  arguments.tensors = pack(tokens);
  copies.clear();
  Result<std::span<const int32_t>> numbers = copies.upload(slots);
  if (!numbers)
    return numbers.status();
  arguments.slots = *numbers;
  if (Status status = copies.upload(arguments.tensors); !status)
    return status;
  std::vector<int32_t> growing;
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(growing),
               [](int32_t slot) { return slot >= 0; });
  if (copies.isOnDevice())
    if (Status status = pool.reserve(growing, 1); !status)
      return status;
  if (Status status = decoder.step(arguments); !status)
    return status;
  if (Status status = copies.download(
          arguments.tensors.at(oracle.getOutput().name), outputs);
      !status)
    return status;
  int64_t heads = oracle.getHeads();
  for (size_t i = 0; i < slots.size(); ++i) {
    std::vector<double> expected(oracle.getOutput().size(), 0.0);
    std::vector<double> terms = expected;
    auto row = static_cast<int64_t>(i);
    if (slots[i] >= 0) {
      auto matches = decoder.matches().subspan(i * heads, heads);
      auto found = oracle.step(rows[slots[i]], params, tokens[i], expected,
                               llvm::ArrayRef(matches.data(), matches.size()));
      terms = rows[slots[i]].terms;
      for (int64_t head = 0; head < heads && oracle.reuses(); ++head)
        judge(head, static_cast<int64_t>(rows[slots[i]].keys.size()) - 1,
              matches[head], found[head]);
    }
    compare(row, expected, terms);
  }
  return Status();
}

Result<AttentionResult> Run::run() {
  rows.assign(slotCount, oracle.makeRow());
  params = draw(oracle.getParams());
  for (auto [values, info] : llvm::zip(params, oracle.getParams()))
    for (double &value : values) // moments, of queries of about that length
      value = roundTo(std::abs(value) +
                          static_cast<double>(oracle.getTokens()[0].shape[1]),
                      info.precision);
  AttentionPoolOptions memoryOptions;
  memoryOptions.slots = slotCount;
  int64_t most = config.tokens + config.prompt + config.guesses;
  memoryOptions.pages =
      slotCount * ((most + config.pageSize - 1) / config.pageSize);
  memoryOptions.maxTokens = most;
  memoryOptions.window = config.settings.window;
  Result<AttentionPool> pool = AttentionPool::create(program, memoryOptions);
  if (!pool)
    return pool.status();
  AttentionDecoderOptions decoderOptions;
  decoderOptions.threads = config.threads;
  decoderOptions.batchInvariant = config.batchInvariant;
  if (oracle.reuses())
    decoderOptions.settings = config.settings;
  Result<AttentionDecoder> decoder =
      AttentionDecoder::create(program, *pool, decoderOptions);
  if (!decoder)
    return decoder.status();
  for (int32_t slot = 0; config.prompt && slot < 2; ++slot)
    if (Status status = prompt(*pool, *decoder, slot, config.prompt); !status)
      return status;
  for (int64_t i = 0; i < config.tokens && result.passed(); ++i) {
    // Slots come and go; row 1 is padding now and then.
    std::vector<int32_t> slots{0, static_cast<int32_t>(i % 3 ? 2 : -1)};
    if (i % 2)
      slots.push_back(1);
    if (i > config.tokens / 2 || !rows[3].keys.empty())
      slots.push_back(3);
    if (i == config.tokens * 2 / 3) {
      const int32_t ended[] = {2};
      if (Status status = pool->reset(ended); !status)
        return status;
      rows[2] = oracle.makeRow();
    }
    if (Status status = step(*pool, *decoder, slots); !status)
      return status;
    if (!result.passed())
      result.failure += fmt::format(" in step {}", i);
    if (config.forks && i % config.forks == config.forks - 1)
      if (Status status = fork(*pool, i / config.forks); !status)
        return status;
    if (config.guesses == 0 || i % 3 || !result.passed())
      continue;
    if (Status status = guess(*pool, *decoder, 0, i % 2); !status)
      return status;
    if (!result.passed())
      result.failure += fmt::format(" in guesses after step {}", i);
  }
  return std::move(result);
}

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

Result<AttentionResult> check::checkAttention(const AttentionRequest &request,
                                              const AttentionCase &config) {
  frontend::ElaborationOptions elaboration = request.elaboration;
  for (const auto &[name, size] : config.sizes)
    elaboration.sizes[name] = size;
  elaboration.tokenTypes["*"] = config.type;
  std::string messages;
  auto oracle =
      compileAttentionOracle(request.path, request.source, elaboration,
                             messages, precisionOf(config.summaryType));
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  interpreter::AttentionNumbers &numbers = oracle->numbers;
  const AttentionSettings &settings = config.settings;
  if (oracle->reuses()) {
    numbers.tau = settings.tau;
    numbers.window = settings.window;
    numbers.band = settings.band;
    numbers.sinks = settings.sinks;
    numbers.maxGap = settings.maxGap;
    numbers.maxChain = settings.maxChain;
    numbers.skip = settings.skip;
    if (numbers.wideBand) {
      numbers.wideBand = settings.wideBand;
      numbers.wideGap = settings.wideGap;
    }
    if (numbers.drift)
      numbers.drift = settings.drift;
  }
  AttentionCompileOptions options;
  options.attention = elaboration.recurrence;
  options.preset = elaboration.preset;
  options.sizes = elaboration.sizes;
  options.options = elaboration.options;
  // Outputs of f32 hide nothing by their rounding.
  options.tokenTypes = {{"*", config.type}, {oracle->getOutput().name, "f32"}};
  options.summaryType = config.summaryType;
  options.pageSize = config.pageSize;
  options.target = config.target;
  // A match that never matches has no ring: ones at tau = 1 are compiled with
  // the file's.
  Result<AttentionProgram> program =
      compileAttention(request.source, request.path, options);
  if (!program)
    return program.status();
  return Run(config, std::move(*oracle), std::move(*program)).run();
}

/// All cases of a file, its own numbers first.
static std::vector<AttentionCase> planAll(const AttentionRequest &request,
                                          const AttentionInterpreter &oracle) {
  bool reuses = canMatch(oracle);
  std::vector<AttentionCase> cases =
      planAttention(reuses, oracle.numbers.wideBand.has_value(), request.seed);
  uint64_t seed = request.seed + cases.size();
  if (request.full) {
    std::vector<AttentionCase> more = multiplyShapes(
        cases, attentionSizeNames(request.path, request.source, oracle), seed);
    cases.insert(cases.end(), more.begin(), more.end());
    seed += more.size();
  }
  cases.insert(cases.begin(), planOwn(oracle, seed));
  for (AttentionCase &one : cases) {
    // A plan without sinks has no piece for them.
    if (!oracle.numbers.sinks)
      one.settings.sinks = 0;
    if (oracle.numbers.drift && reuses)
      one.settings.drift = *oracle.numbers.drift;
  }
  return cases;
}

Result<AttentionReport> check::checkAttention(const AttentionRequest &request) {
  std::string messages;
  auto oracle = compileAttentionOracle(request.path, request.source,
                                       request.elaboration, messages);
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  AttentionReport report;
  report.name = oracle->name;
  report.reproducer =
      showCommand(request.path, request.target, request.elaboration);
  Status status = runCases(request, planAll(request, *oracle), report,
                           [&](AttentionCase &one) {
                             one.target = request.target;
                             return checkAttention(request, one);
                           });
  if (!status)
    return status;
  return report;
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

bool AttentionReport::passed() const {
  return std::all_of(cases.begin(), cases.end(),
                     [](const AttentionResult &one) { return one.passed(); });
}

/// Numbers without a column, where they are set.
static std::string showOthers(const AttentionSettings &settings) {
  std::string text;
  auto show = [&](const char *name, auto value) {
    if (value != 0)
      text += fmt::format("{}={} ", name, value);
  };
  show("max_gap", settings.maxGap);
  show("max_chain", settings.maxChain);
  show("skip", settings.skip);
  show("drift", settings.drift);
  show("wide_band", settings.wideBand);
  show("wide_gap", settings.wideGap);
  return text;
}

std::string AttentionReport::table() const {
  std::string text =
      fmt::format("{}: largest relative error against float64, "
                  "matches given\n\n{:>6} {:>9} {:>5} {:>7} "
                  "{:>6} {:>6} {:>6} {:>6} {:>7} {:>9} {:>9}\n",
                  name, "tokens", "summaries", "page", "prompt", "tau",
                  "window", "band", "sinks", "hits", "error", "bound");
  for (const AttentionResult &one : cases) {
    const AttentionCase &config = one.config;
    double share = one.hits + one.misses
                       ? 100.0 * static_cast<double>(one.hits) /
                             static_cast<double>(one.hits + one.misses)
                       : 0.0;
    std::string others = showOthers(config.settings);
    for (const auto &[name, size] : config.sizes)
      others += fmt::format("{}={} ", name, size);
    text += fmt::format(
        "{:>6} {:>9} {:>5} {:>7} {:>6} {:>6} {:>6} {:>6} {:>5.0f} % "
        "{:>9.1e} {:>9.1e}  {}{}\n",
        config.type, config.summaryType, config.pageSize, config.prompt,
        config.settings.tau, config.settings.window, config.settings.band,
        config.settings.sinks, share, one.error, one.bound, others,
        one.passed() ? "ok" : "FAILED");
  }
  return text + showRepeats(cases, reproducer);
}

std::string AttentionReport::json() const {
  nlohmann::ordered_json all = {{"attention", name},
                                {"passed", passed()},
                                {"cases", nlohmann::ordered_json::array()}};
  for (const AttentionResult &one : cases)
    all["cases"].push_back({{"case", one.config.str()},
                            {"hits", one.hits},
                            {"misses", one.misses},
                            {"error", one.error},
                            {"bound", one.bound},
                            {"passed", one.passed()},
                            {"failure", one.failure}});
  return all.dump(2, ' ', false,
                  nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}
