//===- Engine.cpp - many sequences, a batch at a time ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

using namespace tinylm;

using Clock = std::chrono::steady_clock;

static constexpr uint8_t separator = 0;

static double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Engine::Engine(TinyLm &model, const EngineOptions &options)
    : model(model), options(options) {
  for (int64_t slot = model.getOptions().slots; slot-- > 0;)
    freeSlots.push_back(static_cast<int32_t>(slot));
}

/// Gives free slots to those that wait.
void Engine::admit(const std::vector<Request> &requests) {
  std::vector<int32_t> taken;
  while (!waiting.empty() && !freeSlots.empty()) {
    Sequence &sequence = running.emplace_back();
    sequence.request = waiting.front();
    sequence.slot = freeSlots.back();
    waiting.pop_front();
    freeSlots.pop_back();
    taken.push_back(sequence.slot);
    const std::string &prompt = requests[sequence.request].prompt;
    sequence.text.push_back(separator);
    sequence.text.insert(sequence.text.end(), prompt.begin(), prompt.end());
    sequence.prompt = sequence.text.size();
  }
  if (!taken.empty())
    model.reset(taken);
  if (model.takesPrompts())
    readPrompts();
}

/// All but the last byte of each prompt, with which a pass begins.
void Engine::readPrompts() {
  Clock::time_point start = Clock::now();
  for (;;) {
    Batch batch;
    for (Sequence &sequence : running) {
      int64_t room = ModelOptions::promptTokens - batch.count();
      int64_t missing = static_cast<int64_t>(sequence.prompt) - 1 -
                        static_cast<int64_t>(sequence.committed);
      if (std::min(room, missing) <= 0)
        continue;
      batch.addRow(sequence.slot);
      int32_t last = -1;
      for (int64_t i = std::min(room, missing); i > 0; --i)
        last = batch.addToken(sequence.text[sequence.committed++], last);
    }
    if (batch.rows() == 0)
      break;
    model.prefill(batch);
    figures.promptBytes += batch.count();
  }
  figures.promptSeconds += secondsSince(start);
}

/// What the model has not seen of a sequence, as much as fits, and if that is
/// all of it, drafts of what follows.
void Engine::plan(Sequence &sequence, Batch &batch) const {
  int64_t most = model.room(sequence.slot);
  auto missing =
      static_cast<int64_t>(sequence.text.size() - sequence.committed);
  sequence.known = static_cast<int32_t>(std::min(most, missing));
  sequence.answers = missing <= most;
  batch.addRow(sequence.slot);
  int32_t last = -1;
  for (int32_t i = 0; i < sequence.known; ++i)
    last = batch.addToken(sequence.text[sequence.committed + i], last);
  if (!sequence.answers || options.mode == Mode::Plain)
    return;
  int64_t room = std::min(options.drafts, most - sequence.known);
  Candidates candidates = options.mode == Mode::Chain
                              ? lookUpChain(sequence.text, room, options.lookup)
                              : lookUpTree(sequence.text, room, options.lookup);
  for (size_t i = 0; i < candidates.drafts.size(); ++i)
    batch.addToken(
        candidates.drafts[i],
        candidates.parents[i] < 0 ? last : last + 1 + candidates.parents[i]);
}

void Engine::accept(Sequence &sequence, const Batch &batch, int64_t row,
                    const Vector &logits, int64_t most, Answer &answer,
                    Acceptance &accepted) {
  int32_t first = batch.starts[row], end = batch.starts[row + 1];
  int64_t vocabulary = model.getConfig().vocabulary;
  for (int32_t i = 0; i < sequence.known; ++i)
    accepted.path.push_back(i);
  int32_t count = sequence.known, at = sequence.known - 1;
  while (sequence.answers && at >= 0) {
    std::span<const float> each = rowOf(logits, first + at, vocabulary);
    auto best = std::max_element(each.begin(), each.end());
    float second = -HUGE_VALF;
    for (auto other = each.begin(); other != each.end(); ++other)
      if (other != best)
        second = std::max(second, *other);
    auto next = static_cast<uint8_t>(best - each.begin());
    sequence.text.push_back(next);
    answer.text.push_back(static_cast<char>(next));
    answer.margins.push_back(*best - second);
    if (next == separator || static_cast<int64_t>(answer.text.size()) >= most)
      break;
    int32_t child = -1;
    for (int32_t token = at + 1; token < end - first && child < 0; ++token)
      if (batch.parents[first + token] == at &&
          batch.tokens[first + token] == next)
        child = token;
    at = child;
    if (at >= 0) {
      accepted.path.push_back(at);
      ++count;
      ++figures.accepted;
    }
  }
  figures.drafted += end - first - sequence.known;
  sequence.committed += count;
  accepted.counts.push_back(count);
}

void Engine::pass(const std::vector<Request> &requests,
                  std::vector<Answer> &answers) {
  Clock::time_point start = Clock::now();
  Batch batch;
  int64_t prompted = 0;
  for (Sequence &sequence : running) {
    // The last byte alone is where every answer begins.
    if (sequence.committed + model.takesPrompts() < sequence.prompt)
      prompted += std::min<int64_t>(model.room(sequence.slot),
                                    sequence.prompt - sequence.committed);
    plan(sequence, batch);
  }
  Vector logits = model.forward(batch);
  Acceptance accepted;
  int64_t before = figures.bytes;
  for (size_t row = 0; row < running.size(); ++row) {
    Sequence &sequence = running[row];
    Answer &answer = answers[sequence.request];
    size_t size = answer.text.size();
    accept(sequence, batch, static_cast<int64_t>(row), logits,
           requests[sequence.request].bytes, answer, accepted);
    figures.bytes += static_cast<int64_t>(answer.text.size() - size);
  }
  model.commit(batch, accepted);
  double seconds = secondsSince(start);
  figures.promptBytes += prompted;
  if (prompted) {
    figures.promptSeconds += seconds;
  } else {
    figures.seconds += seconds;
    figures.timedBytes += figures.bytes - before;
    figures.passes += 1;
    figures.rows += batch.rows();
  }

  std::erase_if(running, [&](const Sequence &sequence) {
    const Answer &answer = answers[sequence.request];
    bool ends = static_cast<int64_t>(answer.text.size()) >=
                    requests[sequence.request].bytes ||
                (!answer.text.empty() && answer.text.back() == separator);
    if (ends)
      freeSlots.push_back(sequence.slot);
    return ends;
  });
}

std::vector<Answer> Engine::run(const std::vector<Request> &requests) {
  std::vector<Answer> answers(requests.size());
  figures = {};
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].bytes > 0)
      waiting.push_back(i);
  while (!waiting.empty() || !running.empty()) {
    admit(requests);
    pass(requests, answers);
  }
  return answers;
}
