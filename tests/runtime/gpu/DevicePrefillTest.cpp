//===- DevicePrefillTest.cpp - prompts on a GPU against the oracle --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prompts of lengths around the ends of chunks, on top of entries and states,
// rows of different lengths, padding, resets, steps between them.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/numerics/SerialRecurrences.h"
#include "tests/runtime/gpu/Prompts.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

static const char *const moving =
    ",L=8,m=8,rows=3,tokens=4,staggered=1,pads=1,resets=1,seed=3";

TEST_CASE("prompts of delta rules, sums, two writes, two states") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "gated_delta_rule",
                        "gated_delta_net", "mamba2", "rwkv7", "coupled");
  checkOnGpu(model, std::string("route=inner,prompts=70,chunk=32") + moving);
}

TEST_CASE("prompts with carries: scans, windows, of heads that share") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "linear_attention", "mamba3_mimo",
                        "short_conv");
  checkOnGpu(model, std::string("route=inner,prompts=40,chunk=16") + moving);
}

// Vectors are joined in blocks; of 24 tokens the last block is half.
TEST_CASE("prompts with decays a channel") {
  if (!hasGpu())
    return;
  checkOnGpu("kda", std::string("route=inner,prompts=60,chunk=24") + moving);
}

TEST_CASE("prompts of states in tiles, in 16 bits, and the other way round") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=recurrent,state=bf16,size.Hk=1,size.Hv=2,"
                           "size.Dk=64,size.Dv=128,prompts=80,chunk=64"},
      {"gdn2", "route=outer,state=f16,layout=dk_dv,size.Hk=1,size.Hv=1,"
               "size.Dk=32,size.Dv=96,prompts=40,chunk=40"},
  }));
  checkOnGpu(model, text + moving);
}

// Of the second, blocks have the last 16 rows alone; keys of the third decay.
TEST_CASE("prompts of states whose rows stay with warps") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=2,size.Dk=32,"
                          "size.Dv=64,prompts=80,chunk=64"},
      {"mamba2", "route=inner,size.H=2,size.G=1,size.N=32,size.P=48,"
                 "prompts=70,chunk=64,state=bf16"},
      {"kda", "route=inner,size.H=1,size.Dk=32,size.Dv=32,prompts=40,"
              "chunk=24"},
  }));
  checkOnGpu(model, text + moving);
}

// Of one prompt, others of the block are a step ahead of those with rows; of
// the fourth, carries are theirs.
TEST_CASE("prompts whose next step is made meanwhile") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=2,size.Dk=32,"
                          "size.Dv=64,prompts=150,chunk=64"},
      {"mamba2", "route=inner,size.H=2,size.G=1,size.N=32,size.P=48,"
                 "prompts=100,chunk=64,state=bf16,layout=dk_dv"},
      {"kda", "route=inner,size.H=1,size.Dk=64,size.Dv=16,prompts=60,"
              "chunk=24"},
      {"linear_attention", "route=inner,size.H=1,size.Dk=32,size.Dv=32,"
                           "prompts=80,chunk=40"},
  }));
  checkOnGpu(model, text + ",batch=1" + moving);
}

// Where narrow tiles are still few blocks, two warps have the same rows and
// half of dk each, and two crews make steps in turn: of five and of seven
// steps, and of less than one.
TEST_CASE("prompts whose rows are two warps'") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=2,size.Dk=64,"
                          "size.Dv=64,prompts=150,chunk=64"},
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=1,size.Dk=128,"
                          "size.Dv=48,prompts=220,chunk=64,layout=dk_dv"},
      {"mamba2", "route=inner,size.H=2,size.G=1,size.N=64,size.P=48,"
                 "prompts=100,chunk=64,state=bf16,layout=dk_dv"},
      {"delta_net", "route=inner,size.H=1,size.Dk=64,size.Dv=32,prompts=20,"
                    "chunk=32"},
      {"retnet", "route=inner,size.H=1,size.Dk=64,size.Dv=32,prompts=90,"
                 "chunk=64"},
      {"rwkv6", "route=inner,size.H=1,size.Dk=64,size.Dv=16,prompts=60,"
                "chunk=24"},
  }));
  checkOnGpu(model, text + ",batch=1" + moving);
}

// Of long rows, four warps have 16 of them and a quarter of dk each, and of two
// tiles of tokens two warps have the same, of which one stores: answers of 16
// bits and of 32, and a head of both blocks of a cluster.
TEST_CASE("prompts whose rows are four warps'") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "size.Hk=1,size.Hv=2,size.Dk=128,size.Dv=32,"
                          "prompts=150,chunk=64"},
      {"mamba2", "size.H=2,size.G=1,size.N=128,size.P=48,prompts=100,"
                 "chunk=64,state=bf16,layout=dk_dv"},
      {"delta_net", "size.H=1,size.Dk=128,size.Dv=16,prompts=45,chunk=16"},
      {"kda", "size.H=1,size.Dk=128,size.Dv=32,prompts=60,chunk=24"},
      {"gdn2", "size.Hk=1,size.Hv=2,size.Dk=128,size.Dv=16,prompts=50,"
               "chunk=64"},
      {"gla", "size.H=1,size.Dk=256,size.Dv=32,prompts=70,chunk=24,"
              "state=f16,layout=dk_dv"},
  }));
  checkOnGpu(model, "route=inner," + text + ",batch=1" + moving);
}

// Where channels decay, two blocks with tiles of one head make a step each for
// both: of as many as there are, of one less, and of none. A head of the second
// has two such pairs; warps of the third have their rows alone.
TEST_CASE("prompts whose steps blocks make for one another") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"kda", "route=inner,size.H=2,size.Dk=64,size.Dv=32,prompts=100,"
              "chunk=64"},
      {"rwkv7_core", "route=inner,size.H=1,size.Dk=64,size.Dv=128,"
                     "prompts=70,chunk=24,state=bf16,layout=dk_dv"},
      {"kda", "route=inner,size.H=1,size.Dk=32,size.Dv=32,prompts=60,"
              "chunk=24,state=f16"},
      {"rwkv6", "route=inner,size.H=1,size.Dk=64,size.Dv=64,prompts=60,"
                "chunk=24"},
  }));
  checkOnGpu(model, text + ",batch=1" + moving);
}

// What many tiles of a head have in common, a kernel of its own makes: of rows
// that end within a run of steps, of one step, and of none; tokens as they came
// and keys that decay, two warps and four with the same rows, one head and
// several. The steps of the last are more than a launch takes.
TEST_CASE("prompts whose steps another kernel prepares") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"kda", "size.H=2,size.Dk=64,size.Dv=128,prompts=100,chunk=64"},
      {"gla", "size.H=1,size.Dk=256,size.Dv=64,prompts=150,chunk=64,"
              "state=bf16"},
      {"gdn2", "size.Hk=1,size.Hv=2,size.Dk=128,size.Dv=64,prompts=90,"
               "chunk=32,state=f16,layout=dk_dv"},
      {"delta_net", "size.H=2,size.Dk=128,size.Dv=128,prompts=150,chunk=64"},
      {"gated_delta_net", "size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=256,"
                          "prompts=130,chunk=64"},
      {"retnet", "size.H=1,size.Dk=64,size.Dv=256,prompts=170,chunk=128"},
      {"rwkv7_core", "size.H=1,size.Dk=64,size.Dv=128,prompts=900,chunk=64"},
  }));
  checkOnGpu(model, "route=inner," + text + ",batch=1" + moving);
}

// Of entries in pages, rows that have a state take prompts by another route.
TEST_CASE("prepared steps of rows with a state, beside rows without") {
  if (!hasGpu())
    return;
  checkOnGpu("delta_net",
             std::string("route=kv_only,page=8,size.H=1,size.Dk=64,size.Dv=256,"
                         "prompts=150,chunk=64,batch=1,L=16,m=8,rows=3,"
                         "tokens=4,staggered=1,pads=1,resets=1,seed=3"));
}

TEST_CASE("values that a warp copies begin where sixteen bytes do") {
  if (!hasGpu())
    return;
  CompileOptions compile;
  compile.preset = "tiny";
  compile.sizes = {{"H", 1}, {"Dk", 64}, {"Dv", 256}};
  compile.target = "cuda";
  compile.route = "inner";
  compile.capacity = 4;
  compile.prefill = true;
  compile.batch = 1;
  Program program = need(compileFile("examples/delta_net.ladle", compile));
  Pool pool = makePool(program, 1);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 40);
  DeviceTensor numbers =
      need(DeviceTensor::allocate(program.device(), DType::I32, {3}));
  std::vector<int32_t> values{0, 33, 0};
  need(copy(TensorView::dense(values, DType::I32, {3}), numbers.view()));
  const auto *first = static_cast<const int32_t *>(numbers.view().data);
  PrefillArguments arguments;
  arguments.tensors = tensors.arguments.tensors;
  arguments.rows = 1;
  arguments.tokens = 40;
  arguments.cuSeqlens = {first, 2};
  arguments.slots = {first + 2, 1};
  need(decoder.prefill(arguments));
  TensorView &view = arguments.tensors.at("v");
  view.data = static_cast<char *>(view.data) + 8;
  CHECK_THAT(decoder.prefill(arguments).message(),
             Contains("argument 'v' is at") && Contains("multiple of 16"));
}

// With many prompts, eight warps with rows have others ahead of them; of heads
// of 64 values, where channels decay, four do.
TEST_CASE("many prompts whose next step is made meanwhile") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=2,size.Dk=32,"
                          "size.Dv=128,prompts=110,chunk=64"},
      {"kda", "route=inner,size.H=1,size.Dk=32,size.Dv=128,prompts=60,"
              "chunk=24,state=bf16"},
      {"rwkv6", "route=inner,size.H=2,size.Dk=64,size.Dv=64,prompts=60,"
                "chunk=24"},
      {"rwkv7_core", "route=inner,size.H=1,size.Dk=32,size.Dv=64,"
                     "prompts=70,chunk=64,state=bf16,layout=dk_dv"},
  }));
  checkOnGpu(model, text + moving);
}

// Four warps with rows multiply what others made for all of them; on other
// devices than Hopper each for itself. Where channels decay, that is f32, of
// gla queries alone; else bf16, of lightning's keys in three parts. Of the last
// two, warps have parts of dk.
TEST_CASE("prompts whose rows multiply together") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"kda", "size.H=1,size.Dk=128,size.Dv=128,prompts=50"},
      {"gla", "size.H=1,size.Dk=64,size.Dv=128,prompts=60,state=bf16"},
      {"gdn2", "size.Hk=1,size.Hv=1,size.Dk=32,size.Dv=128,prompts=40,"
               "state=f16,layout=dk_dv"},
      {"delta_net", "size.H=1,size.Dk=128,size.Dv=128,prompts=70"},
      {"lightning", "size.H=1,size.Dk=64,size.Dv=128,prompts=60"},
      {"retnet", "size.H=1,size.Dk=256,size.Dv=64,prompts=60,state=bf16"},
      {"gated_delta_net", "size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=64,batch=64,"
                          "prompts=70,state=f16"},
  }));
  check::CheckRequest request = requestOf(model);
  request.schedule["product_warps"] = GENERATE(1, 4);
  checkOnGpu(request, "route=inner,chunk=64," + text + moving);
}

// What an answer takes of a key besides, a number of the token alone, is not
// read from where warps multiply it together.
TEST_CASE("prompts of a key as it came beside a carry") {
  if (!hasGpu())
    return;
  check::CheckRequest request;
  request.path = "conv_q.ladle";
  request.source = R"(recurrence conv_q(H, Dk, Dv, W) {
  preset "tiny" { H = 1, Dk = 64, Dv = 128, W = 3 }
  param cq[H, W + 1, Dk] : f32
  token q[H, Dk], k[H, Dk], v[H, Dv], a[H] : bf16
  carry win_q[H, W, Dk] : bf16
  state S[H, Dk, Dv] : f32
  let qn = silu(conv(win_q, q, cq))
  win_q = shift(win_q, q)
  S = write(decay(S, sigmoid(a)), k, v)
  out y[H, Dv] : f32 = read(S, qn)
}
)";
  request.elaboration.preset = "tiny";
  request.schedule["product_warps"] = GENERATE(1, 4);
  checkOnGpu(request,
             std::string("route=inner,prompts=60,chunk=64,batch=64") + moving);
}

// Tiles of 64 rows that are as many as a large GPU has multiprocessors: two
// warps have the same rows where these solve or multiply what is computed; else
// there are two crews.
TEST_CASE("prompts of which each tile has a multiprocessor") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_net", "size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=64,"
                          "prompts=150,layout=dk_dv"},
      {"mamba2",
       "size.H=2,size.G=1,size.N=64,size.P=64,prompts=100,state=bf16"},
      {"lightning", "size.H=1,size.Dk=64,size.Dv=128,prompts=70"},
  }));
  checkOnGpu(model, "route=inner,chunk=64,batch=64," + text + moving);
}

// Rows of 256 are two warps', of one prompt and of many, with others ahead and,
// of 48 values, without.
TEST_CASE("prompts of states with long rows") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"retnet", "size.Dv=64,prompts=90,chunk=64"},
      {"retnet", "size.Dv=48,prompts=70,chunk=64,state=bf16,layout=dk_dv"},
      {"retnet", "size.Dv=32,prompts=90,chunk=64,batch=1"},
      {"gla", "size.Dv=64,prompts=60,chunk=24"},
      {"gla", "size.Dv=48,prompts=40,chunk=64,state=bf16"},
      {"gla", "size.Dv=32,prompts=60,chunk=64,batch=1"},
      {"delta_net", "size.Dv=48,prompts=70,chunk=64"},
  }));
  checkOnGpu(model, "route=inner,size.H=1,size.Dk=256," + text + moving);
}

// Keys and queries that are no tokens as they came are parts of bf16, of which
// answers of 16 bits take two. Of one prompt two blocks make steps for one
// another, unless carries are theirs.
TEST_CASE("prompts of keys and queries that are computed") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"lightning", "size.H=1,size.Dk=32,size.Dv=128,prompts=150,chunk=64,"
                    "batch=1"},
      {"lightning", "size.H=2,size.Dk=64,size.Dv=128,prompts=110,chunk=64,"
                    "state=bf16"},
      {"lightning", "size.H=1,size.Dk=32,size.Dv=48,prompts=70,chunk=40"},
      {"mamba3", "size.H=2,size.G=1,size.N=64,size.P=32,size.A=16,prompts=80,"
                 "chunk=64,batch=1"},
      {"mamba3", "size.H=2,size.G=1,size.N=32,size.P=64,size.A=8,prompts=80,"
                 "chunk=64,state=bf16,layout=dk_dv"},
  }));
  checkOnGpu(model, "route=inner," + text + moving);
}

// Of f32 all three parts are, where an answer is; nothing is split that meets
// what is not, keys of f16.
TEST_CASE("prompts of keys and queries of f32") {
  if (!hasGpu())
    return;
  auto [answer, key] = GENERATE(table<std::string, std::string>(
      {{"f32", "f32"}, {"bf16", "f32"}, {"f32", "bf16"}, {"f32", "f16"}}));
  check::CheckRequest request;
  request.path = "computed.ladle";
  request.source = "recurrence computed(H, Dk, Dv) {\n"
                   "  preset \"rows\" { H = 2, Dk = 32, Dv = 32 }\n"
                   "  token q[H, Dk], v[H, Dv] : f32\n"
                   "  token k[H, Dk] : " +
                   key +
                   "\n"
                   "  token g[H] : f32\n"
                   "  state S[H, Dk, Dv] : f32\n"
                   "  S = decay(S, sigmoid(g))\n"
                   "  S = write(S, k, v)\n"
                   "  out y[H, Dv] : " +
                   answer + " = read(S, silu(q))\n}\n";
  request.elaboration.preset = "rows";
  auto batch = GENERATE("", ",batch=1");
  checkOnGpu(request,
             std::string("route=inner,prompts=70,chunk=64") + batch + moving);
}

// Keys and queries lie in shared memory as they came, of one kind of 16 bits
// each.
TEST_CASE("prompts of keys of f16 and queries of bf16") {
  if (!hasGpu())
    return;
  check::CheckRequest request;
  request.path = "mixed.ladle";
  request.source = R"(recurrence mixed(Dk, Dv) {
  preset "stacks" { Dk = 20, Dv = 9 }
  preset "rows" { Dk = 32, Dv = 32 }
  token a[1], b[1], q[1, Dk], v[1, Dv] : bf16
  token k[1, Dk] : f16
  state S[1, Dk, Dv] : f32
  let kn = l2norm(k)
  S = decay(S, exp(-softplus(a)))
  S = write(S, kn, sigmoid(b) * (v - read(S, kn)))
  out y[1, Dv] : bf16 = read(S, q)
})";
  request.elaboration.preset = GENERATE("stacks", "rows");
  checkOnGpu(request, "route=inner,prompts=70" + std::string(moving));
}

// Of one key, what another state is read with is no sum of bf16.
TEST_CASE("prompts of computed queries beside those of f16") {
  if (!hasGpu())
    return;
  check::CheckRequest request;
  request.path = "beside.ladle";
  request.source = R"(recurrence beside(H, Dk, Dv) {
  preset "rows" { H = 2, Dk = 32, Dv = 32 }
  token p[H, Dk], k[H, Dk], v[H, Dv], w[H, Dv] : bf16
  token r[H, Dk] : f16
  token g[H], c[H] : f32
  state S[H, Dk, Dv] : f32
  state R[H, Dk, Dv] : f32
  S = decay(S, sigmoid(g))
  R = decay(R, sigmoid(g))
  S = write(S, k, v)
  R = write(R, k, w)
  out y[H, Dv] : f32 = read(S, silu(p))
  out z[H, Dv] : f32 = read(R, c * r)
})";
  request.elaboration.preset = "rows";
  checkOnGpu(request, "route=inner,prompts=70,chunk=64" + std::string(moving));
}

TEST_CASE("prompts beside drafts, whose slots keep versions of carries") {
  if (!hasGpu())
    return;
  checkOnGpu("mamba3",
             "route=inner,prompts=20,chunk=16,drafts=3,L=8,m=4,rows=3,"
             "tokens=12,staggered=1,resets=1,trees=1,seed=5");
}

// By a route with entries, by one that keeps a state for each draft, and with
// states that others share, so that what a branch leaves is its own.
TEST_CASE("prompts whose tokens wait for one another") {
  if (!hasGpu())
    return;
  auto [source, text] = GENERATE(table<const char *, std::string>({
      {saturating, "route=inner,entries=bf16,prompts=20,L=8,m=8"},
      {saturating, "route=outer,page=8,L=16,m=8,drafts=3,prompts=12,forks=1"},
      {feedback, "route=inner,state=bf16,prompts=20,L=8,m=8"},
      {feedback, "route=recurrent,L=8,m=4,drafts=3,prompts=12"},
      {gatedByState, "route=recurrent,layout=dk_dv,prompts=20"},
      {gatedByState, "route=recurrent,size.D=64,prompts=9"},
      {sharedCarries, "route=inner,prompts=20,L=8,m=8"},
      {sharedCarries, "route=outer,prompts=12,L=16,m=4,drafts=3"},
      {entangled, "route=recurrent,prompts=20,batch=1"},
  }));
  check::CheckRequest request;
  request.path = "serial.ladle";
  request.source = source;
  request.elaboration.preset = "tiny";
  checkOnGpu(request, text + ",rows=3,tokens=6,staggered=1,pads=1,"
                             "resets=1,seed=3");
}

TEST_CASE("all examples take prompts", "[.full]") {
  if (!hasGpu())
    return;
  for (const char *model :
       {"delta_net", "gated_delta_net", "gated_delta_rule", "gdn2", "gla",
        "kda", "kda_lower_bound", "lightning", "linear_attention", "mamba",
        "mamba2", "mamba3", "mamba3_mimo", "retnet", "rwkv6", "rwkv7",
        "rwkv7_core", "short_conv", "coupled"})
    checkOnGpu(model, std::string("route=inner,prompts=70,chunk=64") + moving);
}

namespace {

Program promptProgram(const std::string &target,
                      const std::string &route = "inner",
                      const char *source = nullptr) {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = route;
  options.capacity = 4;
  options.prefill = true;
  options.chunk = 16;
  return need(source ? compileSource(source, "serial.ladle", options)
                     : compileFile(examplePath("gated_delta_rule"), options));
}

} // namespace

TEST_CASE("a graph of a prefill takes other prompts when it is replayed") {
  if (!hasGpu())
    return;
  // In chunks, and token by token.
  auto source = GENERATE(as<const char *>(), nullptr, saturating, feedback);
  Program program = promptProgram("cuda", "inner", source);
  Prompt direct(program), replayed(program);
  cuda::Device device = need(cuda::Device::open(0));
  std::optional<cuda::Graph> graph;
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> calls{
      {{0, 2}, {0, 17, 20}}, {{1, 0}, {0, 40, 56}}, {{2, -1}, {0, 1, 9}}};
  for (const auto &[slots, starts] : calls) {
    direct.set(slots, starts);
    replayed.set(slots, starts);
    need(direct.decoder.prefill(direct.arguments()));
    need(synchronize(gpu));
    if (!graph)
      graph = need(cuda::Graph::record(device, [&] {
        return replayed.decoder.prefill(replayed.arguments(), device.stream());
      }));
    need(graph->replay());
    need(device.synchronize());
    CHECK(direct.answers(starts.back()) == replayed.answers(starts.back()));
  }
  for (int32_t slot : {0, 1, 2}) {
    CHECK(need(replayed.pool.cursor(slot)).length == 0);
    CHECK(need(replayed.pool.cursor(slot)).epoch ==
          need(direct.pool.cursor(slot)).epoch);
  }
}

TEST_CASE("layers on a GPU that share cursors take a prompt each") {
  if (!hasGpu())
    return;
  Program program = promptProgram("cuda");
  Cursors cursors = need(Cursors::create(program, {.slots = 3}));
  PoolOptions sharing;
  sharing.cursors = cursors;
  Prompt first(program, sharing), second(program, sharing), own(program);
  for (Prompt *each : {&first, &second, &own}) {
    each->set({1, 0}, {0, 9, 30});
    need(each->decoder.prefill(each->arguments()));
  }
  // One of them moves by itself.
  StepArguments step;
  step.rows = 2;
  step.readSlots = first.slots.all();
  step.tensors = first.tensors.arguments.tensors;
  for (auto &[name, view] : step.tensors)
    if (view.shape[0] == mostTokens)
      view = view.slice(0, 0, 2);
  CHECK_THAT(first.decoder.step(step).message(),
             Contains("appends entries") && Contains("abandon them between"));
  need(cursors.advance(first.slots.all()));
  need(synchronize(gpu));
  CHECK(first.answers(30) == own.answers(30));
  CHECK(second.answers(30) == own.answers(30));
  CHECK(need(cursors.cursor(1)).epoch == 1);
  need(first.decoder.step(step));
}

TEST_CASE("what a prefill on a GPU refuses") {
  if (!hasGpu())
    return;
  Program program = promptProgram("cuda");
  CHECK(program.prefillsAtOnce());
  Prompt prompt(program);
  prompt.set({0, 1}, {0, 3, 5});
  auto message = [&](auto &&change) {
    PrefillArguments arguments = prompt.arguments();
    change(arguments);
    return prompt.decoder.prefill(arguments).message();
  };
  CHECK(message([](auto &one) { one.rows = 3; }) ==
        "slots has 2 slots, wanted 3");
  CHECK(message([](auto &one) { one.cuSeqlens = one.cuSeqlens.first(2); }) ==
        "cuSeqlens has 2 numbers, wanted 3");
  CHECK(message([](auto &one) { one.tokens = 0; }) ==
        "tokens is 0, wanted 1 to 2147483647, the rows of the tensors: "
        "cuSeqlens is read on the device");
  CHECK_THAT(message([](auto &one) { one.tensors.erase("k"); }),
             Contains("'k'"));
  CHECK(message([](auto &) {}).empty());

  // Of kv_only what follows a prompt has a state.
  Program keeping = promptProgram("cuda", "kv_only");
  Prompt entries(keeping);
  CHECK_THAT(entries.decoder.prefill(entries.arguments()).message(),
             Contains("route 'kv_only' keeps prompts as entries in pages "
                      "alone on a GPU") &&
                 Contains("withRoute(Inner)"));
  CHECK_THAT(Prompt(tinyProgram()).decoder.prefill({}).message(),
             Contains("compiled without prompts"));

  // Tokens that wait for one another all fold.
  CompileOptions options;
  options.preset = "tiny";
  options.target = "cuda";
  options.prefill = true;
  options.route = "kv_only";
  options.page = 8;
  Prompt serial(need(compileSource(saturating, "serial.ladle", options)));
  CHECK_THAT(serial.decoder.prefill(serial.arguments()).message(),
             Contains("if a GPU can answer their tokens at once") &&
                 Contains("withRoute(Inner)"));
  options.route = "inner";
  options.page = 0;
  options.numerics = "chunk";
  Result<Program> byChunk = compileSource(saturating, "serial.ladle", options);
  CHECK(byChunk.status().code() == ErrorCode::Unsupported);
  CHECK_THAT(byChunk.message(),
             Contains("prefills one token after another, which GPUs do not "
                      "where chunks end at their own places"));
}
