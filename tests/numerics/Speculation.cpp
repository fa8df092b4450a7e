//===- Speculation.cpp - sequences, drafts and their oracle ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Speculation.h"
#include "runtime/check/Comparison.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

using namespace ladle;
using namespace ladle::test;

static constexpr int64_t promptChunk = 16, longestPrompt = 36;

/// Counts as an assertion only if it fails: there are millions.
static void require(const Status &status) {
  if (!status)
    FAIL(status.message());
}

Speculation::Speculation(const SpeculationOptions &given)
    : options(given), random(given.seed), inputs({}, given.seed) {
  CompileOptions compile;
  compile.sizes = options.sizes;
  compile.drafts = options.drafts;
  compile.target = options.target;
  compile.capacity = options.capacity;
  compile.route = options.routes.front();
  compile.extraRoutes.assign(options.routes.begin() + 1, options.routes.end());
  compile.page = options.page;
  compile.prefill = options.page > 0;
  compile.chunk = promptChunk;
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = options.sizes;
  std::string messages;
  oracle = check::compileOracle("speculation", options.source, elaboration,
                                messages);
  INFO(messages);
  REQUIRE(oracle);
  for (const interpreter::ValueInfo &output : oracle->getOutputs())
    compile.tokenTypes[output.name] = "f32";
  Result<Program> program =
      compileSource(options.source, "speculation", compile);
  INFO(program.message());
  REQUIRE(program.ok());
  PoolOptions memory;
  memory.slots = options.slots;
  memory.pages = options.pages;
  memory.states = options.states;
  memory.foldThreshold = options.page; // until it moves
  pool.emplace(std::move(*Pool::create(*program, memory)));
  for (const std::string &route : options.routes) {
    programs.push_back(*program->withRoute(*parseRoute(route)));
    DecoderOptions one;
    one.threads = 1;
    decoders.push_back(
        std::move(*check::HostSteps::create(programs.back(), *pool, one)));
  }
  batch.emplace(programs.front().signature(),
                options.rows *
                    std::max(options.drafts, options.page ? longestPrompt : 0),
                /*packed=*/false,
                options.target == "cpu" ? check::Batch::hostAlignment
                                        : check::Batch::gpuAlignment);
  params = inputs.draw(oracle->getParams(), 0, check::RandomInputs::params);
  batch->setParams(params);
  sequences.assign(options.slots, {oracle->makeRow(), {}, {}});
  listed.emplace(
      std::move(*DeviceTensor::allocate(program->device(), DType::I32, {1})));
}

void Speculation::clear(int32_t slot) {
  // The host names it, or memory of the device does.
  if (below(2)) {
    require(pool->reset({&slot, 1}));
  } else {
    require(copy(TensorView::dense(&slot, DType::I32, {1}), listed->view()));
    require(pool->resetRows({listed->as<int32_t>(), 1}));
  }
  sequences[slot] = {oracle->makeRow(), {}, {}};
}

void Speculation::keep(Sequence &sequence, const Arrays &token) const {
  if (!options.page)
    return;
  sequence.before.push_back(sequence.now);
  sequence.tokens.push_back(token);
  if (static_cast<int64_t>(sequence.tokens.size()) <= options.capacity)
    return;
  sequence.before.erase(sequence.before.begin());
  sequence.tokens.erase(sequence.tokens.begin());
}

void Speculation::follow(Sequence &sequence, const Arrays &token, int64_t row) {
  keep(sequence, token);
  Arrays outputs(oracle->getOutputs().size());
  oracle->step(sequence.now, params, token, outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    compare(batch->getOutput(row, i), outputs[i]);
}

std::vector<int64_t> Speculation::standing() const {
  // Only pages and states can be used up; on a GPU their accounts wait.
  if (options.target != "cpu" || !options.page)
    return {};
  std::vector<int64_t> numbers{pool->cursors().pages().free,
                               pool->cursors().states().free};
  for (int32_t slot = 0; slot < options.slots; ++slot) {
    Cursor cursor = *pool->cursor(slot);
    numbers.insert(numbers.end(),
                   {cursor.length, cursor.committed, cursor.epoch,
                    pool->cursors().stateOf(slot)});
  }
  return numbers;
}

bool Speculation::succeeds(const Status &status,
                           const std::vector<int64_t> &before) {
  if (status || status.code() != ErrorCode::ResourceExhausted) {
    require(status);
    return true;
  }
  if (standing() != before)
    FAIL("changed, though " << status.message());
  ++exhausted;
  clear(static_cast<int32_t>(below(options.slots)));
  return false;
}

std::vector<int32_t> Speculation::pickSlots() {
  std::vector<int32_t> slots(options.slots);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(1 + below(options.rows));
  for (int32_t &slot : slots)
    if (below(8) == 0)
      slot = -1;
  return slots;
}

check::HostSteps &Speculation::chooseRoute(const std::vector<int32_t> &slots) {
  size_t choice = below(programs.size());
  // Seldom, because it leaves nothing to fold.
  if (programs[choice].route() == RouteKind::Recurrent && below(6) != 0)
    choice = 0;
  if (programs[choice].route() != RouteKind::Recurrent)
    return decoders[choice];
  std::vector<int64_t> before = standing();
  bool isFlushed = succeeds(pool->flush(programs.front(), slots), before);
  return decoders[isFlushed ? choice : 0];
}

void Speculation::compare(const std::vector<double> &actual,
                          const std::vector<double> &expected) {
  double error = check::relativeError(actual, expected);
  // Of so many outputs some nearly cancel, though the states of all are about
  // as large as 1.
  if (options.page) {
    constexpr double small = 0.05;
    double largest = 0;
    for (double value : expected)
      largest = std::max(largest, std::abs(value));
    if (largest > 0 && largest < small)
      error *= largest / small;
  }
  worst = std::max(worst, error);
}

/// The first `count` rows of the tokens and outputs.
static auto viewsOf(const check::Batch &batch, const Signature &signature,
                    int64_t count) {
  auto views = batch.getTensors();
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = views.find(spec.name)->second;
      view = view.slice(0, 0, count);
    }
  return views;
}

void Speculation::decode() {
  std::vector<int32_t> slots = pickSlots();
  check::HostSteps &decoder = chooseRoute(slots);
  std::vector<Arrays> tokens;
  for (size_t row = 0; row < slots.size(); ++row) {
    tokens.push_back(drawTokens());
    batch->setTokens(row, tokens.back());
  }
  StepArguments arguments;
  arguments.rows = static_cast<int64_t>(slots.size());
  arguments.readSlots = slots;
  arguments.tensors =
      viewsOf(*batch, programs.front().signature(), arguments.rows);
  std::vector<int64_t> before = standing();
  if (!succeeds(decoder.step(arguments), before))
    return;
  for (size_t row = 0; row < slots.size(); ++row)
    if (slots[row] >= 0)
      follow(sequences[slots[row]], tokens[row], static_cast<int64_t>(row));
}

void Speculation::readPrompt() {
  std::vector<int32_t> slots = pickSlots();
  check::HostSteps &decoder = chooseRoute(slots);
  std::vector<int32_t> starts{0};
  std::vector<Arrays> tokens;
  for (size_t row = 0; row < slots.size(); ++row) {
    starts.push_back(starts.back() +
                     static_cast<int32_t>(1 + below(longestPrompt)));
    while (static_cast<int32_t>(tokens.size()) < starts.back())
      batch->setTokens(static_cast<int64_t>(tokens.size()),
                       tokens.emplace_back(drawTokens()));
  }
  PrefillArguments arguments;
  arguments.rows = static_cast<int64_t>(slots.size());
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors =
      viewsOf(*batch, programs.front().signature(), starts.back());
  std::vector<int64_t> before = standing();
  if (!succeeds(decoder.prefill(arguments), before))
    return;
  for (size_t row = 0; row < slots.size(); ++row)
    for (int32_t i = starts[row]; slots[row] >= 0 && i < starts[row + 1]; ++i)
      follow(sequences[slots[row]], tokens[i], i);
  ++prompts;
}

void Speculation::verify() {
  std::vector<int32_t> slots = pickSlots();
  check::HostSteps &decoder = chooseRoute(slots);
  std::vector<int32_t> starts{0}, parents;
  std::vector<Arrays> tokens;
  bool isChain = below(3) == 0;
  for (size_t row = 0; row < slots.size(); ++row) {
    auto count = static_cast<int32_t>(1 + below(options.drafts));
    for (int32_t draft = 0; draft < count; ++draft) {
      parents.push_back(isChain ? draft - 1
                                : static_cast<int32_t>(below(draft + 1)) - 1);
      batch->setTokens(static_cast<int64_t>(tokens.size()),
                       tokens.emplace_back(drawTokens()));
    }
    starts.push_back(starts.back() + count);
  }
  VerifyArguments arguments;
  arguments.rows = static_cast<int64_t>(slots.size());
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  if (!isChain || below(2))
    arguments.parents = parents;
  arguments.tensors =
      viewsOf(*batch, programs.front().signature(), starts.back());
  std::vector<int64_t> epochs;
  for (int32_t slot : slots)
    epochs.push_back(slot < 0 ? 0 : pool->cursor(slot)->epoch);
  std::vector<int64_t> before = standing();
  if (!succeeds(decoder.verify(arguments), before))
    return;

  std::vector<int32_t> numAccepted, path;
  for (size_t row = 0; row < slots.size(); ++row) {
    int32_t first = starts[row], count = starts[row + 1] - first;
    if (slots[row] < 0) {
      numAccepted.push_back(0);
      for (int32_t draft = 0; draft < count; ++draft)
        for (size_t i = 0; i < oracle->getOutputs().size(); ++i)
          for (double value : batch->getOutput(first + draft, i))
            if (value != 0)
              FAIL("a padded row answers " << value);
      continue;
    }
    folds += pool->cursor(slots[row])->epoch != epochs[row];
    std::vector<Row> nodes;
    for (int32_t draft = 0; draft < count; ++draft) {
      int32_t parent = parents[first + draft];
      nodes.push_back(parent < 0 ? sequences[slots[row]].now : nodes[parent]);
      Arrays outputs(oracle->getOutputs().size());
      oracle->step(nodes.back(), params, tokens[first + draft], outputs);
      for (size_t i = 0; i < outputs.size(); ++i)
        compare(batch->getOutput(first + draft, i), outputs[i]);
    }
    // What is forgotten is forgotten with its drafts.
    if (below(40) == 0) {
      clear(slots[row]);
      numAccepted.push_back(0);
      continue;
    }
    auto last = static_cast<int32_t>(below(count + 1)) - 1;
    std::vector<int32_t> own;
    for (int32_t draft = last; draft >= 0; draft = parents[first + draft])
      own.insert(own.begin(), draft);
    for (int32_t draft : own) {
      keep(sequences[slots[row]], tokens[first + draft]);
      sequences[slots[row]].now = std::move(nodes[draft]);
    }
    numAccepted.push_back(static_cast<int32_t>(own.size()));
    path.insert(path.end(), own.begin(), own.end());
    accepted += static_cast<int64_t>(own.size());
    rejected += count - static_cast<int64_t>(own.size());
  }
  // Between verify and commit a slot may be flushed; its drafts stay.
  Status flushed;
  if (below(6) == 0 && programs.front().route() != RouteKind::Recurrent)
    flushed = pool->flush(programs.front(), slots);
  if (flushed || flushed.code() != ErrorCode::ResourceExhausted)
    require(flushed);
  require(decoder.commit(slots, numAccepted, path));
}

void Speculation::reset() { clear(static_cast<int32_t>(below(options.slots))); }

void Speculation::flush() {
  std::vector<int64_t> before = standing();
  succeeds(pool->flush(programs.front(), pickSlots()), before);
}

void Speculation::fork() {
  auto from = static_cast<int32_t>(below(options.slots)),
       to = static_cast<int32_t>(below(options.slots));
  std::vector<int64_t> before = standing();
  if (from == to || !succeeds(pool->fork({&from, 1}, {&to, 1}), before))
    return;
  sequences[to] = sequences[from];
  ++forks;
}

void Speculation::rebuild() {
  auto from = static_cast<int32_t>(below(options.slots)),
       to = static_cast<int32_t>(below(options.slots)),
       other = static_cast<int32_t>(below(options.slots));
  int64_t held = pool->cursor(from)->committed;
  bool hasCarries = !programs.front().signature().carries.empty();
  int64_t kept = hasCarries ? held : static_cast<int64_t>(below(held + 1));
  std::optional<int32_t> checkpoint;
  if (programs.front().route() == RouteKind::Adjoint && !hasCarries &&
      pool->cursor(other)->length == 0 && below(2))
    checkpoint = other;
  Sequence sequence = sequences[from];
  for (int64_t entry = kept; entry < held; ++entry) {
    sequence.now = sequence.before.back();
    sequence.before.pop_back();
    sequence.tokens.pop_back();
  }
  if (checkpoint) {
    Sequence follower = sequences[other];
    for (auto token = sequence.tokens.end() - kept;
         token != sequence.tokens.end(); ++token) {
      keep(follower, *token);
      Arrays outputs(oracle->getOutputs().size());
      oracle->step(follower.now, params, *token, outputs);
    }
    sequence = std::move(follower);
  }
  std::vector<int64_t> before = standing();
  if (!succeeds(pool->rebuild(from, kept, to, checkpoint), before))
    return;
  sequences[to] = std::move(sequence);
  ++prefixes;
  others += checkpoint.has_value();
}

/// Rows have other lengths at which they fold and cross over from now on.
void Speculation::setLimits() {
  auto most = options.capacity - options.drafts;
  require(pool->setFoldThreshold(static_cast<int64_t>(1 + below(most))));
  require(pool->cursors().setCrossover(static_cast<int64_t>(1 + below(most))));
}

void Speculation::move() {
  auto from = static_cast<int32_t>(below(options.slots)),
       to = static_cast<int32_t>(below(options.slots));
  std::vector<int64_t> before = standing();
  Result<SlotContents> contents = pool->exportSlot(programs.front(), from);
  if (!succeeds(contents.status(), before))
    return;
  before = standing();
  if (!succeeds(pool->importSlot(to, *contents), before))
    return;
  sequences[to] = sequences[from];
}

void Speculation::act() {
  uint64_t choice = below(40);
  if (choice == 0)
    return reset();
  if (choice == 1)
    return move();
  if (choice < 4)
    return flush();
  if (options.page && choice < 10)
    return choice < 6 ? readPrompt() : choice < 8 ? fork() : rebuild();
  if (options.page && choice == 10)
    return setLimits();
  return choice < 12 ? decode() : verify();
}

void Speculation::compareSlots() {
  const Signature &signature = programs.front().signature();
  for (int32_t slot = 0; slot < options.slots; ++slot) {
    Result<SlotContents> contents = pool->exportSlot(programs.front(), slot);
    // Others give way, and those that came before have been compared.
    for (int32_t other = 0; !contents && other < options.slots; ++other)
      if (other != slot) {
        clear(other);
        contents = pool->exportSlot(programs.front(), slot);
      }
    require(contents.status());
    for (size_t i = 0; i < signature.states.size(); ++i)
      compare(check::toKeyMajor(check::toDoubles(contents->states[i].view()),
                                signature.states[i]),
              sequences[slot].now.states[i]);
    for (size_t i = 0; i < signature.carries.size(); ++i)
      compare(check::toDoubles(contents->carries[i].view()),
              sequences[slot].now.carries[i]);
  }
}

void Speculation::extend(int32_t slot, int64_t drafts, int64_t count) {
  std::vector<Arrays> tokens;
  for (int64_t draft = 0; draft < drafts; ++draft)
    batch->setTokens(draft, tokens.emplace_back(drawTokens()));
  int32_t starts[] = {0, static_cast<int32_t>(drafts)};
  VerifyArguments arguments;
  arguments.rows = 1;
  arguments.slots = {&slot, 1};
  arguments.cuSeqlens = starts;
  arguments.tensors = viewsOf(*batch, programs.front().signature(), drafts);
  require(decoders.front().verify(arguments));
  for (int64_t draft = 0; draft < count; ++draft)
    follow(sequences[slot], tokens[draft], draft);
  auto taken = static_cast<int32_t>(count);
  require(decoders.front().commit({&slot, 1}, {&taken, 1}));
  accepted += count;
  rejected += drafts - count;
}
