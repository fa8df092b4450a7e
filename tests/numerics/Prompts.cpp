//===- Prompts.cpp - sequences, prompts and their oracle ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Prompts.h"
#include "runtime/check/Comparison.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::test;

static void require(const Status &status) {
  if (!status)
    FAIL(status.message());
}

Prompts::Prompts(const std::string &source, CompileOptions options,
                 const check::InputRanges &ranges, PoolOptions memory)
    : inputs(ranges, 11) {
  frontend::ElaborationOptions elaboration;
  elaboration.preset = options.preset;
  std::string messages;
  oracle = check::compileOracle("prompts", source, elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  for (const interpreter::ValueInfo &output : oracle->getOutputs())
    options.tokenTypes[output.name] = "f32";
  options.prefill = true;
  Result<Program> made = compileSource(source, "prompts", options);
  INFO(made.message());
  REQUIRE(made.ok());
  program = *made;
  memory.slots = slots;
  Result<Pool> created = Pool::create(*program, memory);
  INFO(created.message());
  REQUIRE(created.ok());
  pool.emplace(std::move(*created));
  DecoderOptions two;
  two.threads = 2;
  decoder.emplace(std::move(*Decoder::create(*program, *pool, two)));
  params = inputs.draw(oracle->getParams(), 0, check::RandomInputs::params);
  sequences.assign(slots, oracle->makeRow());
  positions.resize(slots);
  for (int64_t slot = 0; slot < slots; ++slot)
    streams.push_back(static_cast<uint64_t>(slot));
}

void Prompts::compare(const std::vector<double> &actual,
                      const std::vector<double> &expected) {
  double error = check::relativeError(actual, expected);
  worst = error <= worst ? worst : error; // NaN is the worst
}

Prompts::Arrays Prompts::drawTokens(int32_t slot) {
  if (slot < 0)
    return inputs.draw(oracle->getTokens(), slots, 0);
  return inputs.draw(oracle->getTokens(), streams[slot], positions[slot]++);
}

std::vector<Prompts::Arrays>
Prompts::prefill(const std::vector<int32_t> &named,
                 const std::vector<int32_t> &counts) {
  std::vector<int32_t> starts{0};
  for (int32_t count : counts)
    starts.push_back(starts.back() + count);
  check::Batch batch(program->signature(), starts.back(), /*packed=*/false);
  batch.setParams(params);
  batch.clearOutputs();
  std::vector<Arrays> tokens;
  for (size_t row = 0; row < named.size(); ++row)
    for (int32_t i = 0; i < counts[row]; ++i) {
      tokens.push_back(drawTokens(named[row]));
      batch.setTokens(starts[row] + i, tokens.back());
    }
  PrefillArguments arguments;
  arguments.rows = static_cast<int64_t>(named.size());
  arguments.slots = named;
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  require(decoder->prefill(arguments));
  std::vector<Arrays> answers;
  for (size_t row = 0; row < named.size(); ++row)
    for (int32_t i = starts[row]; i < starts[row + 1]; ++i) {
      Arrays outputs(oracle->getOutputs().size());
      Arrays &mine = answers.emplace_back();
      if (named[row] >= 0)
        oracle->step(sequences[named[row]], params, tokens[i], outputs);
      for (size_t k = 0; k < outputs.size(); ++k) {
        mine.push_back(batch.getOutput(i, k));
        if (named[row] < 0)
          outputs[k].assign(mine.back().size(), 0);
        compare(mine.back(), outputs[k]);
      }
    }
  return answers;
}

Status Prompts::decodeInto(const std::vector<int32_t> &named,
                           std::vector<Arrays> &answers) {
  auto rows = static_cast<int64_t>(named.size());
  check::Batch batch(program->signature(), rows, /*packed=*/false);
  batch.setParams(params);
  std::vector<Arrays> tokens;
  for (int64_t row = 0; row < rows; ++row) {
    tokens.push_back(drawTokens(named[row]));
    batch.setTokens(row, tokens.back());
  }
  StepArguments arguments;
  arguments.rows = rows;
  arguments.readSlots = named;
  arguments.tensors = batch.getTensors();
  if (Status status = decoder->step(arguments); !status) {
    for (int32_t slot : named)
      --positions[slot];
    return status;
  }
  answers.resize(named.size());
  for (int64_t row = 0; row < rows; ++row) {
    Arrays outputs(oracle->getOutputs().size());
    oracle->step(sequences[named[row]], params, tokens[row], outputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      answers[row].push_back(batch.getOutput(row, k));
      compare(answers[row].back(), outputs[k]);
    }
  }
  return Status();
}

std::vector<Prompts::Arrays>
Prompts::decode(const std::vector<int32_t> &named) {
  std::vector<Arrays> answers;
  require(decodeInto(named, answers));
  return answers;
}

Status Prompts::tryDecode(const std::vector<int32_t> &named) {
  std::vector<Arrays> answers;
  return decodeInto(named, answers);
}

void Prompts::reset(int32_t slot) {
  require(pool->reset(std::span(&slot, 1)));
  sequences[slot] = oracle->makeRow();
}

void Prompts::fork(int32_t from, int32_t to) {
  require(pool->fork(std::span(&from, 1), std::span(&to, 1)));
  sequences[to] = sequences[from];
}

Prompts::Interpreter::Row Prompts::follow(Interpreter::Row row, int32_t slot,
                                          uint64_t first, uint64_t last) {
  for (uint64_t token = first; token < last; ++token) {
    Arrays outputs(oracle->getOutputs().size());
    oracle->step(row, params,
                 inputs.draw(oracle->getTokens(), streams[slot], token),
                 outputs);
  }
  return row;
}

void Prompts::compareSlots() {
  const Signature &signature = program->signature();
  for (int32_t slot = 0; slot < slots; ++slot) {
    Result<SlotContents> contents = pool->exportSlot(*program, slot);
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
