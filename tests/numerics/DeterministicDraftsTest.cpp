//===- DeterministicDraftsTest.cpp - the same bits in any cut -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a draft is answered depends on the committed history and on the path to
// it, to the bit: not on its number, on other drafts, or on how many there are.
// So sequences that are committed and folded in windows, and verify what lies
// in between again, answer the same bits however they are cut.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tests/numerics/Examples.h"

#include <algorithm>
#include <random>

using namespace ladle;
using namespace ladle::test;

namespace {

constexpr int64_t rowCount = 3, window = 6, length = 20;
constexpr uint64_t wrong = 1'000'000; // positions of tokens that are rejected

using Outputs = std::vector<std::vector<std::vector<double>>>;

class Sequences {
public:
  Sequences(const std::string &model, const std::string &route);

  /// Of each row, what each token is answered, in windows. `most` accepted at a
  /// time, `others` beside them.
  std::vector<Outputs> decode(int64_t most, int64_t others);
  /// Likewise, but whatever is accepted is committed.
  std::vector<Outputs> commitAll(int64_t most);

private:
  void setToken(int64_t at, int64_t row, uint64_t position) {
    batch->setTokens(at, inputs.draw(oracle->getTokens(), row, position));
  }
  Outputs::value_type outputs(int64_t at) const {
    Outputs::value_type all;
    for (size_t i = 0; i < program->signature().outputs.size(); ++i)
      all.push_back(batch->getOutput(at, i));
    return all;
  }
  std::map<std::string, TensorView, std::less<>> views(int64_t rows) const;
  uint64_t below(uint64_t bound) { return random() % bound; }

  std::mt19937_64 random{11};
  check::RandomInputs inputs{{}, 11};
  std::optional<interpreter::SpecInterpreter> oracle;
  std::optional<Program> program;
  std::optional<Pool> pool;
  std::optional<Decoder> decoder;
  std::optional<check::Batch> batch;
};

Sequences::Sequences(const std::string &model, const std::string &route) {
  CompileOptions options;
  options.sizes = tinySizes(model);
  options.drafts = window;
  options.route = route;
  std::string source = readExample(model), messages;
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = options.sizes;
  oracle = check::compileOracle(model, source, elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  Result<Program> compiled = compileSource(source, model, options);
  INFO(compiled.message());
  REQUIRE(compiled.ok());
  program = *compiled;
  PoolOptions memory;
  memory.slots = rowCount;
  pool.emplace(std::move(*Pool::create(*program, memory)));
  decoder.emplace(std::move(*Decoder::create(*program, *pool)));
  batch.emplace(program->signature(), rowCount * window, /*packed=*/false);
  batch->setParams(
      inputs.draw(oracle->getParams(), 0, check::RandomInputs::params));
}

std::map<std::string, TensorView, std::less<>>
Sequences::views(int64_t rows) const {
  auto views = batch->getTensors();
  for (const auto *specs :
       {&program->signature().tokens, &program->signature().outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = views.find(spec.name)->second;
      view = view.slice(0, 0, rows);
    }
  return views;
}

std::vector<Outputs> Sequences::decode(int64_t most, int64_t others) {
  std::vector<Outputs> answers(rowCount);
  std::vector<int32_t> slots{2, 0, 1};
  REQUIRE(pool->reset(slots));
  auto isDone = [](const Outputs &each) { return each.size() >= length; };
  while (!std::all_of(answers.begin(), answers.end(), isDone)) {
    std::vector<int32_t> starts{0}, parents, counts, path, full;
    std::vector<std::vector<int32_t>> accepted(rowCount);
    for (int64_t row = 0; row < rowCount; ++row) {
      auto done = static_cast<int64_t>(answers[row].size());
      int32_t first = starts.back(), count = 0, last = -1;
      int64_t begin = done / window * window, room = window - done % window;
      auto add = [&](uint64_t position, int32_t parent) {
        setToken(first + count, row, position);
        parents.push_back(parent);
        return count++;
      };
      for (int64_t position = begin; position < done; ++position)
        last = add(position, last);
      auto wanted = static_cast<int64_t>(1 + below(std::min(most, room)));
      for (int64_t i = 0; i < room && wanted > 0; ++i) {
        // Those of the sequence are mixed with others, which may follow any.
        if (i < others && room - i > wanted && below(2)) {
          add(wrong + below(99), static_cast<int32_t>(below(count + 1)) - 1);
          continue;
        }
        accepted[row].push_back(last = add(done++, last));
        --wanted;
      }
      if (done % window == 0) {
        int32_t each = last;
        std::vector<int32_t> whole;
        for (; each >= 0; each = parents[first + each])
          whole.insert(whole.begin(), each);
        path.insert(path.end(), whole.begin(), whole.end());
        full.push_back(slots[row]);
      }
      counts.push_back(done % window ? 0 : static_cast<int32_t>(window));
      starts.push_back(first + count);
    }
    VerifyArguments arguments;
    arguments.rows = rowCount;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.parents = parents;
    arguments.tensors = views(starts.back());
    REQUIRE(decoder->verify(arguments));
    REQUIRE(pool->commit(slots, counts, path));
    REQUIRE(pool->flush(*program, full));
    for (int64_t row = 0; row < rowCount; ++row)
      for (int32_t draft : accepted[row])
        answers[row].push_back(outputs(starts[row] + draft));
  }
  for (Outputs &each : answers)
    each.resize(length);
  return answers;
}

std::vector<Outputs> Sequences::commitAll(int64_t most) {
  std::vector<Outputs> answers(rowCount);
  std::vector<int32_t> slots{0, 1, 2};
  REQUIRE(pool->reset(slots));
  for (int64_t done = 0; done < length;) {
    auto count = static_cast<int32_t>(std::min(most, length - done));
    for (int64_t row = 0; row < rowCount; ++row)
      for (int32_t i = 0; i < count; ++i)
        setToken(row * count + i, row, done + i);
    std::vector<int32_t> starts{0, count, 2 * count, 3 * count};
    VerifyArguments arguments;
    arguments.rows = rowCount;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = views(starts.back());
    REQUIRE(decoder->verify(arguments));
    REQUIRE(pool->commit(slots, std::vector<int32_t>(rowCount, count)));
    for (int64_t row = 0; row < rowCount; ++row)
      for (int32_t i = 0; i < count; ++i)
        answers[row].push_back(outputs(row * count + i));
    done += count;
  }
  return answers;
}

} // namespace

TEST_CASE("in windows, drafts answer the same bits however they are cut") {
  auto [model, route] = GENERATE(
      table<std::string, std::string>({{"gated_delta_rule", "inner"},
                                       {"gated_delta_rule", "outer"},
                                       {"gated_delta_rule", "adjoint"},
                                       {"gated_delta_rule", "recurrent"},
                                       {"kda", "inner"},
                                       {"mamba3", "outer"},
                                       {"rwkv7", "adjoint"},
                                       {"short_conv", "inner"}}));
  CAPTURE(model, route);
  Sequences sequences(model, route);
  std::vector<Outputs> expected = sequences.decode(1, 0);
  bool isSame = sequences.decode(window, 0) == expected; // chains
  CHECK(isSame);
  isSame = sequences.decode(window, window) == expected; // trees
  CHECK(isSame);
}

TEST_CASE("without windows, drafts are rounded as their batches have it") {
  Sequences sequences("gated_delta_rule", "inner");
  bool isSame = sequences.commitAll(1) == sequences.commitAll(window);
  CHECK(!isSame);
}
