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
#include <numeric>

using namespace ladle;
using namespace ladle::test;

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
  pool.emplace(std::move(*Pool::create(*program, memory)));
  for (const std::string &route : options.routes) {
    programs.push_back(*program->withRoute(*parseRoute(route)));
    DecoderOptions one;
    one.threads = 1;
    decoders.push_back(
        std::move(*check::HostSteps::create(programs.back(), *pool, one)));
  }
  batch.emplace(programs.front().signature(), options.rows * options.drafts,
                /*packed=*/false,
                options.target == "cpu" ? check::Batch::hostAlignment
                                        : check::Batch::gpuAlignment);
  params = inputs.draw(oracle->getParams(), 0, check::RandomInputs::params);
  batch->setParams(params);
  sequences.assign(options.slots, oracle->makeRow());
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
  if (programs[choice].route() == RouteKind::Recurrent)
    require(pool->flush(programs.front(), slots));
  return decoders[choice];
}

void Speculation::compare(const std::vector<double> &actual,
                          const std::vector<double> &expected) {
  worst = std::max(worst, check::relativeError(actual, expected));
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
  require(decoder.step(arguments));
  for (size_t row = 0; row < slots.size(); ++row) {
    if (slots[row] < 0)
      continue;
    Arrays outputs(oracle->getOutputs().size());
    oracle->step(sequences[slots[row]], params, tokens[row], outputs);
    for (size_t i = 0; i < outputs.size(); ++i)
      compare(batch->getOutput(row, i), outputs[i]);
  }
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
  require(decoder.verify(arguments));

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
    std::vector<Interpreter::Row> nodes;
    for (int32_t draft = 0; draft < count; ++draft) {
      int32_t parent = parents[first + draft];
      nodes.push_back(parent < 0 ? sequences[slots[row]] : nodes[parent]);
      Arrays outputs(oracle->getOutputs().size());
      oracle->step(nodes.back(), params, tokens[first + draft], outputs);
      for (size_t i = 0; i < outputs.size(); ++i)
        compare(batch->getOutput(first + draft, i), outputs[i]);
    }
    auto last = static_cast<int32_t>(below(count + 1)) - 1;
    std::vector<int32_t> own;
    for (int32_t draft = last; draft >= 0; draft = parents[first + draft])
      own.insert(own.begin(), draft);
    if (last >= 0)
      sequences[slots[row]] = std::move(nodes[last]);
    numAccepted.push_back(static_cast<int32_t>(own.size()));
    path.insert(path.end(), own.begin(), own.end());
    accepted += static_cast<int64_t>(own.size());
    rejected += count - static_cast<int64_t>(own.size());
  }
  // Between verify and commit a slot may be flushed; its drafts stay.
  if (below(6) == 0 && programs.front().route() != RouteKind::Recurrent)
    require(pool->flush(programs.front(), slots));
  require(decoder.commit(slots, numAccepted, path));
}

void Speculation::reset() {
  auto slot = static_cast<int32_t>(below(options.slots));
  require(pool->reset({&slot, 1}));
  sequences[slot] = oracle->makeRow();
}

void Speculation::flush() {
  require(pool->flush(programs.front(), pickSlots()));
}

void Speculation::move() {
  auto from = static_cast<int32_t>(below(options.slots)),
       to = static_cast<int32_t>(below(options.slots));
  Result<SlotContents> contents = pool->exportSlot(programs.front(), from);
  require(contents.status());
  require(pool->importSlot(to, *contents));
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
  return choice < 12 ? decode() : verify();
}

void Speculation::compareSlots() {
  const Signature &signature = programs.front().signature();
  for (int32_t slot = 0; slot < options.slots; ++slot) {
    Result<SlotContents> contents = pool->exportSlot(programs.front(), slot);
    require(contents.status());
    for (size_t i = 0; i < signature.states.size(); ++i)
      compare(check::toKeyMajor(check::toDoubles(contents->states[i].view()),
                                signature.states[i]),
              sequences[slot].states[i]);
    for (size_t i = 0; i < signature.carries.size(); ++i)
      compare(check::toDoubles(contents->carries[i].view()),
              sequences[slot].carries[i]);
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
  for (int64_t draft = 0; draft < count; ++draft) {
    Arrays outputs(oracle->getOutputs().size());
    oracle->step(sequences[slot], params, tokens[draft], outputs);
    for (size_t i = 0; i < outputs.size(); ++i)
      compare(batch->getOutput(draft, i), outputs[i]);
  }
  auto taken = static_cast<int32_t>(count);
  require(decoders.front().commit({&slot, 1}, {&taken, 1}));
  accepted += count;
  rejected += drafts - count;
}
