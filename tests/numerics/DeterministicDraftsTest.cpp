//===- DeterministicDraftsTest.cpp - drafts answer as steps do, to the bit ===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences are decoded token by token, and again as random trees, of which
// one path holds the same tokens. What is committed answered the same bits.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tests/numerics/Examples.h"

#include <random>

using namespace ladle;
using namespace ladle::test;

namespace {

constexpr int64_t rowCount = 3, drafts = 6, length = 40;
constexpr uint64_t wrong = 1'000'000; // positions of tokens that are rejected

using Outputs = std::vector<std::vector<std::vector<double>>>;

class Sequences {
public:
  Sequences(const std::string &model, bool isDeterministic);

  std::vector<Outputs> step();
  std::vector<Outputs> verify();
  RouteKind route() const { return program->route(); }

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

Sequences::Sequences(const std::string &model, bool isDeterministic) {
  CompileOptions options;
  options.sizes = tinySizes(model);
  options.drafts = drafts;
  options.deterministic = isDeterministic;
  if (!isDeterministic)
    options.route = "inner";
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
  batch.emplace(program->signature(), rowCount * drafts, /*packed=*/false);
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

/// Of each row, what each token is answered.
std::vector<Outputs> Sequences::step() {
  std::vector<Outputs> answers(rowCount);
  std::vector<int32_t> slots{0, 1, 2};
  REQUIRE(pool->reset(slots));
  for (int64_t position = 0; position < length; ++position) {
    for (int64_t row = 0; row < rowCount; ++row)
      setToken(row, row, position);
    StepArguments arguments;
    arguments.rows = rowCount;
    arguments.readSlots = slots;
    arguments.tensors = views(rowCount);
    REQUIRE(decoder->step(arguments));
    for (int64_t row = 0; row < rowCount; ++row)
      answers[row].push_back(outputs(row));
  }
  return answers;
}

std::vector<Outputs> Sequences::verify() {
  std::vector<Outputs> answers(rowCount);
  std::vector<int32_t> slots{2, 0, 1};
  REQUIRE(pool->reset(slots));
  while (answers[0].size() < length || answers[1].size() < length ||
         answers[2].size() < length) {
    std::vector<int32_t> starts{0}, parents, counts, path;
    for (int64_t row = 0; row < rowCount; ++row) {
      // The tokens of the sequence, and others between them.
      auto count = static_cast<int32_t>(1 + below(drafts));
      int32_t last = -1, accepted = 0, first = starts.back();
      for (int32_t draft = 0; draft < count; ++draft) {
        bool isRight = below(3) != 0 && answers[row].size() + accepted < length;
        setToken(first + draft, row,
                 isRight ? answers[row].size() + accepted : wrong + below(99));
        parents.push_back(isRight ? last
                                  : static_cast<int32_t>(below(draft + 1)) - 1);
        if (!isRight)
          continue;
        path.push_back(last = draft);
        ++accepted;
      }
      counts.push_back(accepted);
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
    size_t next = 0;
    for (int64_t row = 0; row < rowCount; ++row)
      for (int32_t i = 0; i < counts[row]; ++i)
        answers[row].push_back(outputs(starts[row] + path[next++]));
  }
  return answers;
}

} // namespace

TEST_CASE("drafts of a deterministic program answer as steps do") {
  for (const char *model :
       {"gated_delta_net", "kda", "mamba3", "rwkv7", "short_conv", "coupled"}) {
    CAPTURE(model);
    Sequences sequences(model, /*isDeterministic=*/true);
    CHECK(sequences.route() == RouteKind::Recurrent);
    std::vector<Outputs> expected = sequences.step();
    bool isSame = sequences.verify() == expected;
    CHECK(isSame);
    isSame = sequences.verify() == expected; // cut in other ways
    CHECK(isSame);
  }
}

TEST_CASE("drafts of other programs answer with other roundings") {
  Sequences sequences("gated_delta_rule", /*isDeterministic=*/false);
  bool isSame = sequences.step() == sequences.verify();
  CHECK(!isSame);
}
