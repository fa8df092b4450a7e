//===- DeviceMixedTest.cpp - short and long rows of one call on a GPU -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Batch.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/HostSteps.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Drafts.h"

using namespace ladle;
using namespace ladle::test;

static const char *const moving =
    ",page=8,rows=3,staggered=1,pads=1,resets=1,forks=1,takes_states=1";

// Rows at different fills, without a state and with one, branches of others,
// slots that others have had, and padding.
TEST_CASE("short rows cross over beside long ones, and branch") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=kv_only,L=32,m=6,crossover=20,tokens=90"},
      {"gated_delta_rule", "route=kv_only,L=19,m=5,crossover=19,tokens=50,"
                           "moves=1,seed=4"},
      {"kda", "route=kv_only,L=32,m=8,crossover=18,tokens=50,seed=2"},
      {"rwkv7", "route=kv_only,L=16,m=8,crossover=12,tokens=40,seed=3"},
      {"mamba3", "route=kv_only,L=16,m=4,crossover=9,tokens=40,seed=5"},
      {"gated_delta_rule", "route=outer,L=16,m=9,tokens=30,seed=6"},
      {"gated_delta_rule", "route=adjoint,L=16,m=9,tokens=30,seed=7"},
  }));
  checkOnGpu(model, text + moving);
}

TEST_CASE("trees of drafts in pages, of rows that cross over and branch") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=kv_only,L=32,m=7,crossover=19,drafts=4,"
                           "tokens=60"},
      {"gated_delta_rule", "route=inner,L=20,m=8,drafts=5,tokens=40,seed=2"},
      {"kda", "route=kv_only,L=15,m=6,crossover=12,drafts=3,tokens=30,seed=3"},
      {"mamba3", "route=inner,L=16,m=6,drafts=4,tokens=30,seed=4"},
      {"gated_delta_rule", "route=adjoint,L=16,m=6,drafts=4,tokens=24,seed=5"},
  }));
  checkOnGpu(model, text + ",trees=1" + moving);
}

TEST_CASE("prompts become entries in pages, or a state where they are long") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=kv_only,L=64,m=8,crossover=48,prompts=60,"
                           "chunk=32,tokens=24"},
      {"gated_delta_rule", "route=kv_only,L=28,m=9,crossover=20,prompts=24,"
                           "chunk=16,drafts=4,trees=1,tokens=20,seed=2"},
      {"kda", "route=kv_only,L=32,m=8,crossover=24,prompts=30,chunk=16,"
              "entries=bf16,tokens=8,seed=3"},
      {"mamba3", "route=kv_only,L=32,m=8,crossover=24,prompts=30,chunk=16,"
                 "tokens=8,seed=5"},
      {"gated_delta_rule", "route=inner,L=16,m=8,prompts=40,chunk=16,"
                           "tokens=8,seed=7"},
      {"gated_delta_rule", "route=kv_only,L=512,m=8,crossover=500,"
                           "prompts=490,chunk=64,drafts=4,trees=1,tokens=24,"
                           "seed=9"},
  }));
  checkOnGpu(model, text + moving);
}

namespace {

/// kv_only in pages of 8, then inner: rows cross over at 12 entries.
struct Mixed {
  explicit Mixed(const std::string &target, int64_t rows,
                 std::optional<int64_t> states = 4,
                 const std::string &route = "kv_only", int64_t page = 8)
      : program(compile(target, route, page)),
        pool(makePool(program, 4, memory(states, route == "kv_only" ? 12 : 0))),
        decoder(need(Decoder::create(program, pool))), tensors(program, rows) {}

  static Program compile(const std::string &target, const std::string &route,
                         int64_t page) {
    CompileOptions options;
    options.preset = "tiny";
    options.target = target;
    options.route = route;
    options.capacity = 21; // the last page has fewer
    options.page = page;
    return need(compileFile(examplePath("gated_delta_rule"), options));
  }
  static PoolOptions memory(std::optional<int64_t> states, int64_t crossover) {
    PoolOptions options;
    options.states = states;
    options.foldThreshold = 5;
    options.crossover = crossover;
    return options;
  }
  void reserve(const std::vector<int32_t> &slots, int32_t entries) {
    std::vector<int32_t> each(slots.size(), entries);
    need(pool.cursors().reserve(slots, each));
  }
  /// A token of each of `slots`, which are as many as rows.
  void decode(const std::vector<int32_t> &slots,
              const std::vector<int32_t> &sequences, int32_t position) {
    tensors.setSlots(slots);
    tensors.fill(sequences, std::vector<int32_t>(slots.size(), position));
    need(decoder.step(tensors.arguments));
  }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;
};

} // namespace

static void compareRows(const Mixed &got, const Mixed &wanted, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    CAPTURE(row);
    std::vector<float> mine = got.tensors.output(row),
                       other = wanted.tensors.output(row);
    for (size_t i = 0; i < mine.size(); ++i)
      REQUIRE(mine[i] == Approx(other[i]).margin(1e-5));
  }
}

TEST_CASE("one graph decodes rows while they cross over, each at its time") {
  if (!hasGpu())
    return;
  Mixed mixed("cuda", 3), reference("cpu", 3);
  // Slot 2 begins with 7 tokens that the others do not have.
  mixed.reserve({2}, 7);
  for (int32_t token = 0; token < 7; ++token)
    for (Mixed *each : {&mixed, &reference})
      each->decode({2, -1, -1}, {2, 0, 0}, token);
  mixed.reserve({0, 2}, 20);
  mixed.tensors.setSlots({0, 2, -1});
  auto device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(device, [&] {
    return mixed.decoder.step(mixed.tensors.arguments, device.stream());
  }));
  for (int32_t token = 7; token < 27; ++token) {
    CAPTURE(token);
    mixed.tensors.fill({1, 2, 0}, {token, token, token});
    need(graph.replay());
    need(device.synchronize());
    reference.decode({0, 2, -1}, {1, 2, 0}, token);
    compareRows(mixed, reference, 3);
    for (int32_t slot : {0, 2}) {
      Cursor mine = need(mixed.pool.cursor(slot)),
             other = need(reference.pool.cursor(slot));
      CHECK(mine.length == other.length);
      CHECK(mine.epoch == other.epoch);
    }
  }
  CHECK(need(mixed.pool.cursor(0)).epoch == 2);
  CHECK(need(mixed.pool.cursor(2)).epoch == 4);
}

TEST_CASE(
    "raw entries follow any checkpoint on a GPU, that of their slot too") {
  if (!hasGpu())
    return;
  auto [page, states] = GENERATE(table<int64_t, std::optional<int64_t>>(
      {{0, std::nullopt}, {8, std::nullopt}, {8, 4}}));
  CAPTURE(page, states.value_or(-1));
  Mixed mixed("cuda", 3, states, "adjoint", page),
      reference("cpu", 3, states, "adjoint", page);
  auto decode = [&](const std::vector<int32_t> &slots,
                    const std::vector<int32_t> &sequences, int32_t token) {
    if (page)
      mixed.reserve({0, 1, 2}, 1);
    for (Mixed *each : {&mixed, &reference})
      each->decode(slots, sequences, token);
    compareRows(mixed, reference, 3);
  };
  // Slot 0 holds 3 entries, slot 1 none, and each has a state of its own.
  for (int32_t token = 0; token < 8; ++token)
    decode({0, token < 5 ? 1 : -1, -1}, {1, 2, 0}, token);
  CHECK(need(mixed.pool.cursor(0)).length == 3);
  CHECK(need(mixed.pool.cursor(1)).length == 0);
  for (auto [entries, to] : {std::pair(2, 2), {3, 1}}) {
    for (Mixed *each : {&mixed, &reference})
      need(each->pool.rebuild(0, entries, to, /*checkpoint=*/1));
    CHECK(need(mixed.pool.cursor(to)).epoch == 1);
    CHECK(need(mixed.pool.cursor(to)).length == entries);
    if (to == 1)
      for (int32_t token = 8; token < 20; ++token)
        decode({0, 1, 2}, {1, 2, 3}, token);
  }
}

TEST_CASE("a deployment on a GPU can have pages and no states") {
  if (!hasGpu())
    return;
  Mixed mixed("cuda", 1, 0);
  CHECK(need(mixed.pool.state("S")).shape[0] == 0);
  mixed.reserve({1}, 21);
  for (int32_t token = 0; token < 21; ++token)
    mixed.decode({1}, {1}, token);
  need(synchronize(gpu));
  CHECK(need(mixed.pool.cursor(1)).length == 21);
  CHECK(need(mixed.pool.cursor(1)).epoch == 0);
  mixed.decode({1}, {1}, 21);
  need(synchronize(gpu));
  mixed.tensors.fill({1}, {22});
  CHECK(mixed.decoder.step(mixed.tensors.arguments).message() ==
        "an earlier step wanted a state for slot 1, which had none of its own "
        "(CursorOptions::states is 0): take states before (Cursors::reserve)");
  CHECK(need(mixed.pool.cursor(1)).length == 21);
  std::vector<int32_t> slot{1};
  CHECK(mixed.pool.flush(mixed.program, slot).message() ==
        "'gated_delta_rule' has no states to fold entries into "
        "(CursorOptions::states is 0): a sequence has 21 tokens at most");
}

namespace {

/// Drafts of rows in pages of 8, and what decodes them one after the other.
struct DraftRows {
  DraftRows(const Program &program, int64_t drafts)
      : batch(program.signature(), drafts, /*packed=*/false,
              check::Batch::gpuAlignment) {
    frontend::ElaborationOptions elaboration;
    elaboration.preset = "tiny";
    oracle = check::compileOracle("m", readExample("gated_delta_rule"),
                                  elaboration, messages);
    REQUIRE(oracle);
    params = inputs.draw(oracle->getParams(), 0, check::RandomInputs::params);
    batch.setParams(params);
  }
  static Program compile(std::vector<std::string> extraRoutes) {
    CompileOptions options;
    options.preset = "tiny";
    options.target = "cuda";
    options.route = "kv_only";
    options.extraRoutes = std::move(extraRoutes);
    options.capacity = 16;
    options.page = 8;
    options.drafts = 2;
    return need(compileFile(examplePath("gated_delta_rule"), options));
  }
  using Arrays = interpreter::SpecInterpreter::Arrays;
  Arrays tokens(int32_t sequence, uint64_t position) {
    return inputs.draw(oracle->getTokens(), sequence, position);
  }
  /// What the oracle answers the token of a sequence that its row is at.
  Arrays answer(interpreter::SpecInterpreter::Row &row, int32_t sequence,
                uint64_t position) {
    Arrays outputs(oracle->getOutputs().size());
    oracle->step(row, params, tokens(sequence, position), outputs);
    return outputs;
  }

  std::string messages;
  std::optional<interpreter::SpecInterpreter> oracle;
  check::RandomInputs inputs{{}, 3};
  check::Batch batch;
  Arrays params;
};

} // namespace

// The kernel of inner reads a state, and there is one of another sequence.
TEST_CASE(
    "drafts that read a state which a slot does not have are not accepted") {
  if (!hasGpu())
    return;
  Program program = DraftRows::compile({"inner"});
  PoolOptions memory;
  memory.states = 2;
  memory.crossover = memory.foldThreshold = 4;
  Pool pool = makePool(program, 2, memory);
  Program reading = need(program.withRoute(RouteKind::Inner));
  auto shortRows = need(check::HostSteps::create(program, pool, {})),
       longRows = need(check::HostSteps::create(reading, pool, {}));
  DraftRows drafts(program, 2);
  auto verify = [&](check::HostSteps &steps, int32_t slot, uint64_t token) {
    for (int64_t draft : {0, 1})
      drafts.batch.setTokens(draft, drafts.tokens(slot, token + draft));
    std::vector<int32_t> slots{slot}, starts{0, 2};
    VerifyArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = drafts.batch.getTensors();
    return steps.verify(arguments);
  };
  auto commit = [&](check::HostSteps &steps, int32_t slot, int32_t count) {
    Status status = steps.commit(std::vector{slot}, std::vector{count});
    need(synchronize(gpu));
    return status;
  };
  for (uint64_t token = 0; token < 6; token += 2) {
    need(verify(shortRows, 1, token));
    need(commit(shortRows, 1, 2));
  }
  REQUIRE(pool.cursors().stateOf(1) >= 0);
  REQUIRE(need(pool.cursor(1)).epoch == 1);
  need(verify(longRows, 0, 0));
  need(commit(longRows, 0, 2));
  CHECK(need(pool.cursor(0)).length == 0);
  CHECK(verify(shortRows, 0, 0).message() ==
        "an earlier step wanted a state for slot 0, which had none of its own: "
        "take states before (Cursors::reserve)");
  need(pool.cursors().reserve({}, {}, std::vector{0}));
  need(verify(longRows, 0, 0));
  auto row = drafts.oracle->makeRow();
  for (int64_t draft : {0, 1})
    CHECK(check::relativeError(drafts.batch.getOutput(draft, 0),
                               drafts.answer(row, 0, draft)[0]) < 1e-2);
  need(commit(longRows, 0, 2));
  CHECK(need(pool.cursor(0)).length == 2);
}

// Kernels of rows with a state have no room for more entries.
TEST_CASE("a row that could not fold leaves room for drafts") {
  if (!hasGpu())
    return;
  // L = 16, T = 2: the row crosses over at 12, for which nobody takes a state.
  Program program = DraftRows::compile({"inner"});
  PoolOptions memory;
  memory.states = 1;
  memory.crossover = memory.foldThreshold = 12;
  Pool pool = makePool(program, 1, memory);
  Decoder decoder = need(Decoder::create(program, pool));
  DraftRows drafts(program, 2);
  Tensors tensors(program, 2);
  Numbers slots(program, 1), starts(program, 2), numAccepted(program, 1);
  slots.set({0});
  starts.set({0, 2});
  numAccepted.set({2});
  need(pool.cursors().reserve(std::vector{0}, std::vector{8}));
  auto row = drafts.oracle->makeRow();
  int32_t position = 0;
  auto step = [&] {
    for (int64_t draft : {0, 1})
      drafts.batch.setTokens(draft, drafts.tokens(0, position + draft));
    for (const auto *specs :
         {&program.signature().params, &program.signature().tokens})
      for (const TensorSpec &spec : *specs)
        need(copy(drafts.batch.getTensors().find(spec.name)->second,
                  tensors.arguments.tensors.at(spec.name)));
    VerifyArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots.all();
    arguments.cuSeqlens = starts.all();
    arguments.drafts = 2;
    arguments.tensors = tensors.arguments.tensors;
    if (Status status = decoder.verify(arguments); !status)
      return status;
    for (int32_t draft : {0, 1}) {
      std::vector<float> mine = tensors.output(draft);
      std::vector<double> wanted = drafts.answer(row, 0, position + draft)[0];
      for (size_t i = 0; i < mine.size(); ++i)
        CHECK(mine[i] == Approx(wanted[i]).margin(1e-2));
    }
    position += 2;
    return pool.commit(slots.all(), numAccepted.all());
  };
  for (int32_t token = 0; token < 14; token += 2) {
    if (token == 8) // a page, and no state: the next does not come to 12
      need(pool.cursors().reserve(std::vector{0}, std::vector{3}));
    need(step());
  }
  need(synchronize(gpu));
  REQUIRE(pool.cursors().stateOf(0) < 0);
  REQUIRE(need(pool.cursor(0)).length == 14);
  // 16 entries had room, but then no drafts behind them.
  need(step());
  need(synchronize(gpu));
  CHECK(need(pool.cursor(0)).length == 14);
  CHECK(step().message() ==
        "an earlier step wanted a state for slot 0, which had none of its own: "
        "take states before (Cursors::reserve)");
  // What it has is folded by the first step behind one.
  need(pool.cursors().reserve(std::vector{0}, std::vector{2}));
  REQUIRE(pool.cursors().stateOf(0) >= 0);
  position = 14;
  row = drafts.oracle->makeRow();
  for (uint64_t token = 0; token < 14; ++token)
    drafts.answer(row, 0, token);
  need(step());
  need(synchronize(gpu));
  CHECK(need(pool.cursor(0)).epoch == 1);
  CHECK(need(pool.cursor(0)).length == 2);
}

TEST_CASE("blocks go by what their row is, wherever those of a kind are") {
  if (!hasGpu())
    return;
  constexpr int32_t rows = 600, ahead = 6, sequences = 7;
  auto hasState = [](int32_t row) { return row % 3 == 0 || row > 580; };
  Program program = DraftRows::compile({});
  PoolOptions memory;
  memory.pages = 2 * rows;
  memory.states = rows;
  memory.crossover = memory.foldThreshold = 4;
  Pool pool = makePool(program, rows, memory);
  auto steps = need(check::HostSteps::create(program, pool, {}));
  DraftRows drafts(program, rows * 3 / 2);
  // Rows of one sequence have the same tokens, from its first on.
  auto verify = [&](auto &&position) {
    std::vector<int32_t> slots, starts{0}, counts;
    for (int32_t row = 0; row < rows; ++row) {
      int32_t token = position(row), number = 1 + row % 2;
      slots.push_back(token < 0 ? -1 : row);
      counts.push_back(token < 0 ? 0 : 1);
      for (int32_t draft = 0; draft < number; ++draft)
        drafts.batch.setTokens(
            starts.back() + draft,
            drafts.tokens(row % sequences, std::max(token, 0) + draft));
      starts.push_back(starts.back() + number);
    }
    VerifyArguments arguments;
    arguments.rows = rows;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = drafts.batch.getTensors();
    need(steps.verify(arguments));
    need(steps.commit(slots, counts));
    need(synchronize(gpu));
    return starts;
  };
  for (int32_t token = 0; token < ahead; ++token)
    verify([&](int32_t row) { return hasState(row) ? token : -1; });
  verify([](int32_t) { return -1; });
  for (int32_t row : {0, 1, 2, 599})
    CHECK(need(pool.cursor(row)).epoch == (hasState(row) ? 1 : 0));
  std::vector<int32_t> starts = verify([&](int32_t row) {
    return row == 7 ? -1 : hasState(row) ? ahead : 0;
  });
  std::vector<DraftRows::Arrays> wanted;
  for (int32_t sequence = 0; sequence < sequences; ++sequence) {
    auto history = drafts.oracle->makeRow();
    for (int32_t token = 0; token < ahead + 2; ++token)
      wanted.push_back(drafts.answer(history, sequence, token));
  }
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t at = starts[row]; at < starts[row + 1]; ++at) {
      CAPTURE(row, at);
      std::vector<double> output = drafts.batch.getOutput(at, 0);
      if (row == 7) {
        CHECK(output == std::vector<double>(output.size(), 0));
        continue;
      }
      int32_t token = at - starts[row] + (hasState(row) ? ahead : 0);
      CHECK(check::relativeError(
                output, wanted[row % sequences * (ahead + 2) + token][0]) <
            1e-2);
    }
}

// By the kernel of kv_only, which has nobody else's rows.
TEST_CASE("drafts of a pool without states are verified by entries alone") {
  if (!hasGpu())
    return;
  Program program = DraftRows::compile({});
  REQUIRE(program.verifiesAtOnce());
  PoolOptions memory;
  memory.states = 0;
  Pool pool = makePool(program, 2, memory);
  auto steps = need(check::HostSteps::create(program, pool, {}));
  DraftRows drafts(program, 4);
  std::vector<int32_t> slots{1, -1, 0}, starts{0, 2, 3, 4}, counts{2, 0, 1};
  auto first = drafts.oracle->makeRow(), second = drafts.oracle->makeRow();
  for (uint64_t step = 0; step < 6; ++step) {
    CAPTURE(step);
    for (int64_t draft : {0, 1})
      drafts.batch.setTokens(draft, drafts.tokens(1, 2 * step + draft));
    drafts.batch.setTokens(2, drafts.tokens(3, step));
    drafts.batch.setTokens(3, drafts.tokens(2, step));
    VerifyArguments arguments;
    arguments.rows = 3;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = drafts.batch.getTensors();
    need(steps.verify(arguments));
    need(synchronize(gpu));
    auto isClose = [&](int64_t draft, const DraftRows::Arrays &wanted) {
      return check::relativeError(drafts.batch.getOutput(draft, 0), wanted[0]) <
             1e-2;
    };
    for (int64_t draft : {0, 1})
      CHECK(isClose(draft, drafts.answer(first, 1, 2 * step + draft)));
    CHECK(isClose(3, drafts.answer(second, 2, step)));
    std::vector<double> padding = drafts.batch.getOutput(2, 0);
    CHECK(padding == std::vector<double>(padding.size(), 0));
    need(steps.commit(slots, counts));
    need(synchronize(gpu));
  }
  CHECK(need(pool.cursor(1)).length == 12);
  CHECK(need(pool.cursor(1)).epoch == 0);
  CHECK(need(pool.cursor(0)).length == 6);
}

TEST_CASE("nobody writes a page or a state that others hold") {
  if (!hasGpu())
    return;
  Mixed mixed("cuda", 2), reference("cpu", 2);
  mixed.reserve({0}, 14);
  for (int32_t token = 0; token < 14; ++token)
    for (Mixed *each : {&mixed, &reference})
      each->decode({0, -1}, {1, 0}, token);
  CHECK(need(mixed.pool.cursor(0)).epoch == 1);
  std::vector<int32_t> from{0}, to{3};
  BlockCount pages = mixed.pool.cursors().pages();
  for (Mixed *each : {&mixed, &reference})
    need(each->pool.fork(from, to));
  CHECK(mixed.pool.cursors().stateOf(3) == mixed.pool.cursors().stateOf(0));
  CHECK(mixed.pool.cursors().pages().free == pages.free);
  // Without a copy the entry is lost, and the other branch does not see it.
  mixed.decode({3, -1}, {2, 0}, 14);
  need(synchronize(gpu));
  CHECK(mixed.decoder.step(mixed.tensors.arguments).code() ==
        ErrorCode::ResourceExhausted);
  need(mixed.pool.cursors().rebuild(0, 2, 3));
  for (int32_t token = 14; token < 24; ++token) {
    CAPTURE(token);
    mixed.reserve({0, 3}, 1);
    for (Mixed *each : {&mixed, &reference})
      each->decode({0, 3}, {1, 2}, token);
    compareRows(mixed, reference, 2);
  }
  CHECK(mixed.pool.cursors().stateOf(3) != mixed.pool.cursors().stateOf(0));
  // A prefix of what is not folded, and entries of another history.
  for (Mixed *each : {&mixed, &reference}) {
    need(each->pool.rebuild(3, 1, 1));
    CHECK(each->pool.rebuild(3, 9, 1).message() ==
          "entries is 9, wanted 0 to 2, those that slot 3 holds");
    CHECK_FALSE(each->pool.rebuild(3, 0, 1, 2).ok());
  }
  mixed.reserve({1, 3}, 6);
  for (int32_t token = 24; token < 30; ++token) {
    for (Mixed *each : {&mixed, &reference})
      each->decode({1, 3}, {4, 2}, token);
    compareRows(mixed, reference, 2);
  }
  for (int32_t slot : {0, 1, 3})
    need(mixed.pool.reset(std::vector{slot}));
  CHECK(mixed.pool.cursors().pages().free == pages.all);
  CHECK(mixed.pool.cursors().states().free == 4);
}
