//===- BytesTest.cpp - bytes that kernels touch, against the model --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the text of the kernels on the emulator and counts the distinct bytes of
// global memory that a step reads, and those that it writes: what a cache of
// unlimited size would leave of its traffic. The cost model must predict that
// number, to the byte.
//
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Decoding.h"
#include "tests/codegen/cuda/Emulator.h"
#include "tests/numerics/Examples.h"
#include "tools/ladle/Plan.h"

#include <atomic>
#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;
using Kind = GpuArgument::Kind;

//===----------------------------------------------------------------------===//
// Counting
//===----------------------------------------------------------------------===//

namespace {

/// Which bytes of some allocations were read and written.
class Touched {
public:
  void watch(const void *begin, size_t bytes) {
    for (const Range &range : ranges)
      if (range.begin == begin)
        return;
    ranges.push_back({static_cast<const char *>(begin),
                      std::vector<std::atomic<unsigned char>>(bytes)});
  }
  void forget() {
    for (Range &range : ranges)
      for (auto &flag : range.flags)
        flag = 0;
  }
  /// Called by the kernels, from several threads.
  void note(const void *address, unsigned bytes, bool writes) {
    for (Range &range : ranges) {
      size_t offset = static_cast<const char *>(address) - range.begin;
      if (offset < range.flags.size())
        for (size_t i = offset; i < offset + bytes; ++i)
          range.flags[i] |= writes ? 2 : 1;
    }
  }
  int64_t read() const { return count(1); }
  int64_t written() const { return count(2); }

private:
  struct Range {
    const char *begin;
    std::vector<std::atomic<unsigned char>> flags;
  };
  int64_t count(unsigned char bit) const {
    int64_t sum = 0;
    for (const Range &range : ranges)
      for (const auto &flag : range.flags)
        sum += (flag & bit) != 0;
    return sum;
  }
  std::vector<Range> ranges;
};

/// The accesses of every kernel go through this.
Touched *watching = nullptr;
void noteAccess(const void *address, unsigned bytes, bool writes) {
  watching->note(address, bytes, writes);
}

/// The text with a call at the head of every kernel that puts a listener before
/// the one that the emulator has set.
std::string addListener(const std::string &text) {
  std::string hook = R"(
#define LADLE_UNSEEN __attribute__((no_sanitize("thread"), noinline)) static
using LadleScheduler = ladle::emulation::Scheduler;
static void (*ladle_listener)(const void *, unsigned, bool);
static void (*ladle_next)(LadleScheduler &, const void *, unsigned, bool);
LADLE_UNSEEN void ladle_note(LadleScheduler &s, const void *address,
                             unsigned bytes, bool writes) {
  ladle_listener(address, bytes, writes);
  ladle_next(s, address, bytes, writes);
}
LADLE_UNSEEN void ladle_listen() {
  LadleScheduler *s = ladle::emulation::scheduler;
  if (s->access != ladle_note) {
    ladle_next = s->access;
    s->access = ladle_note;
  }
}
extern "C" __global__ void set_listener(
    void (*listener)(const void *, unsigned, bool)) {
  ladle_listener = listener;
}
)";
  std::string result;
  size_t at = text.find('\n') + 1; // behind the prelude
  result = text.substr(0, at) + hook;
  for (size_t kernel;
       (kernel = text.find("__global__", at)) != std::string::npos;) {
    size_t body = text.find(") {\n", kernel) + 4;
    result += text.substr(at, body - at) + "  ladle_listen();\n";
    at = body;
  }
  return result + text.substr(at);
}

/// Everything but parameters, which all rows share.
class CountingEmulator : public Executor {
public:
  std::string load(const GpuProgram &program) override {
    arguments = program.arguments;
    module.emplace(addListener(program.text), /*optimises=*/true);
    void (*listener)(const void *, unsigned, bool) = noteAccess;
    void *values[] = {&listener};
    llvm::Error error = module->launch("set_listener", {}, {}, values);
    return error ? llvm::toString(std::move(error)) : "";
  }

  std::string run(const Launch &launch) override {
    const int32_t *reads = launch.readSlots.data();
    const int32_t *writes = launch.writeSlots.data();
    const int32_t *cursors = launch.cursors.data();
    const int32_t *threshold = &launch.threshold;
    int32_t pad = launch.padSlot;
    std::vector<void *> values{&reads, &writes, &cursors, &threshold, &pad};
    for (size_t i = 0; i < launch.tensors.size(); ++i) {
      Tensor &tensor = launch.tensors[i];
      if (arguments[i].kind != Kind::Param)
        touched.watch(tensor.bytes.data(), tensor.bytes.size());
      values.push_back(&tensor.pointer);
      for (size_t k = 0; k < tensor.dynamic; ++k)
        values.push_back(&tensor.strides[k]);
    }
    watching = &touched;
    llvm::Error error = module->launch(
        launch.kernel.name,
        {launch.kernel.gridBlocks, static_cast<unsigned>(launch.rows), 1},
        {launch.kernel.threads, 1, 1}, values.data(), {},
        launch.kernel.cluster);
    return error ? llvm::toString(std::move(error)) : "";
  }

  Touched touched;

private:
  std::vector<GpuArgument> arguments;
  std::optional<EmulatedModule> module;
};

} // namespace

//===----------------------------------------------------------------------===//
// Against the model
//===----------------------------------------------------------------------===//

static constexpr int64_t kRows = 4; ///< of a Decoding, none of them padding

TEST_CASE("kernels touch the bytes that the cost model predicts", "[cuda]") {
  auto model =
      GENERATE(as<std::string>(), "linear_attention", "retnet", "mamba2", "gla",
               "gated_delta_rule", "gated_delta_net", "kda", "rwkv7", "mamba3");
  auto route = GENERATE(as<std::string>(), "recurrent", "outer", "inner",
                        "adjoint", "kv_only");
  auto entries = GENERATE(as<std::string>(), "f32", "bf16");
  if (entries == "bf16" &&
      (model != "gated_delta_rule" || route == "recurrent"))
    return;
  CAPTURE(model, route, entries);
  bool grows = route == "kv_only";
  int threshold = grows ? 4 : 3;
  tool::SourceOptions source;
  source.file = examplePath(model);
  source.preset = "tiny";
  source.entryType = entries;
  source.capacity = threshold;
  std::optional<tool::Planner> planner = tool::Planner::create(source);
  REQUIRE(planner);
  tool::RunPlan plan =
      planner->plan(tool::Bandwidth{1e9, 1e9}, 1, kRows, threshold);
  const tool::RoutePlan *predicted = nullptr;
  for (const tool::RoutePlan &each : plan.routes)
    if (each.route == route && each.isLegal())
      predicted = &each;
  if (!predicted)
    return;

  GpuRequest request;
  request.path = source.file;
  request.elaboration.preset = source.preset;
  request.route = route;
  request.entryType = entries;
  request.capacity = threshold;
  CountingEmulator emulator;
  // A buffer that grows is never folded.
  Decoding decoding(request, grows ? 100 : threshold, emulator);
  int64_t steps = static_cast<int64_t>(predicted->bytesByFill.size());
  for (int64_t fill = 0; fill < steps; ++fill) {
    CAPTURE(fill, predicted->bytesByFill);
    emulator.touched.forget();
    decoding.step(fill, /*padded=*/-1);
    auto counted = static_cast<double>(emulator.touched.read() +
                                       emulator.touched.written());
    double expected = kRows * predicted->bytesByFill[fill];
    // Numbers of entries are loaded before a row's length is known: those of
    // the whole ring, of which the model counts the entries that there are.
    double unused =
        kRows * decoding.numberBytes() * static_cast<double>(threshold - fill);
    // Where no state decays, nothing does by the decay of the oldest entry.
    if (route == "kv_only" && fill > 0)
      unused -= kRows * decoding.vectorDecayBytes();
    CHECK(counted == expected + unused);
  }
}
