//===- DeviceErrorsTest.cpp - steps that a GPU refuses --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {
/// Checks that a step is refused, bound or not, and that nothing has run.
struct Refused {
  Program program = tinyProgram();
  Pool pool = makePool(program, 3);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors{program, 2};

  Refused() { tensors.fill({1, 2}, {0, 0}); }
  TensorView &operator[](const char *name) {
    return tensors.arguments.tensors[name];
  }
  void check(const std::string &message) {
    EmulatedGpu *emulated = emulatedGpu();
    if (emulated)
      emulated->takeLaunches();
    for (const Status &status : {decoder.step(tensors.arguments),
                                 decoder.bind(tensors.arguments).status()}) {
      CHECK(status.code() == ErrorCode::InvalidArgument);
      CHECK_THAT(status.message(), Contains(message));
    }
    if (emulated)
      CHECK(emulated->takeLaunches().empty());
    CHECK(need(pool.cursor(0)).length == 0);
  }
};
} // namespace

TEST_CASE("arguments that a GPU cannot take are named") {
  if (!hasGpu())
    return;
  Refused refused;
  SECTION("memory of the host") {
    refused["q"].device = cpu;
    refused.check("argument 'q' is in memory of cpu, wanted cuda:0");
  }
  SECTION("memory of another device") {
    refused["o"].device = {DeviceKind::Cuda, 1};
    refused.check("argument 'o' is in memory of cuda:1, wanted cuda:0");
  }
  SECTION("a wrong shape") {
    refused["v"].shape[2] += 1;
    refused.check("argument 'v' is bf16 [2, 4, 21], wanted bf16 [2, 4, 20]");
  }
  SECTION("a wrong type") {
    refused["g"].dtype = DType::BF16;
    refused.check("argument 'g' is bf16 [2, 4], wanted f32 [2, 4]");
  }
  SECTION("a stride along the last dimension") {
    refused["k"].strides.back() = 2;
    refused.check("argument 'k' has stride 2 along its last dimension");
  }
  SECTION("a stride that kernels have no room for") {
    refused["v"].strides[0] = int64_t(1) << 31;
    refused.check("argument 'v' has stride 2147483648 along dimension 0, "
                  "wanted at most 2147483647");
  }
  SECTION("misaligned memory") {
    refused["beta"].data = static_cast<char *>(refused["beta"].data) + 2;
    refused.check("argument 'beta' is at");
  }
  SECTION("a missing argument") {
    refused.tensors.arguments.tensors.erase("k");
    refused.check("argument 'k' is missing; 'gated_delta_rule' takes");
  }
  SECTION("an output that overlaps itself") {
    refused["o"].strides[0] = 0;
    refused.check("argument 'o' overlaps itself");
  }
  SECTION("less than no rows") {
    refused.tensors.arguments.rows = -1;
    refused.check("rows is -1, wanted 0 to 2147483647");
  }
  SECTION("too few slots") {
    auto &slots = refused.tensors.arguments.readSlots;
    slots = slots.first(1);
    refused.check("readSlots has 1 slots, wanted 2");
  }
}

TEST_CASE("a bound step looks where memory lies") {
  if (!hasGpu())
    return;
  Refused refused;
  static float host[1024];
  refused["beta"].data = host;
  CHECK_THAT(refused.decoder.bind(refused.tensors.arguments).message(),
             Contains("argument 'beta' is at") &&
                 Contains("which is not memory of cuda:0"));
  refused["beta"] = Tensors(refused.program, 2).arguments.tensors["g"];
  std::vector<int32_t> slots{0, 1};
  refused.tensors.arguments.readSlots = slots;
  CHECK_THAT(refused.decoder.bind(refused.tensors.arguments).message(),
             Contains("readSlots is at") && Contains("not memory of cuda:0"));
}

TEST_CASE("a part of a group of heads is refused") {
  if (!hasGpu())
    return;
  Refused refused;
  DecoderOptions options;
  options.headEnd = 3;
  CHECK(Decoder::create(refused.program, refused.pool, options).message() ==
        "heads 0 to 3, wanted a range of multiples of 2 within 0 to 4");
}

TEST_CASE("what the driver refuses is an error, and nothing more") {
  if (!hasGpu() || !emulatedGpu())
    return;
  Refused refused;
  constexpr int outOfMemory = 2;
  emulatedGpu()->failNext("cuMemAlloc_v2", outOfMemory);
  PoolOptions options;
  options.slots = 2;
  Result<Pool> pool = Pool::create(refused.program, options);
  CHECK(pool.status().code() == ErrorCode::ResourceExhausted);
  CHECK_THAT(pool.message(), Contains("no memory for") && Contains("of 'S'"));
  emulatedGpu()->failNext("cuLaunchKernel", 1);
  CHECK(refused.decoder.step(refused.tensors.arguments).message() ==
        "cuLaunchKernel failed with code 1: invalid argument\n"
        "note: repeat with: ladle bench 'examples/gated_delta_rule.ladle' "
        "--device gpu --preset 'tiny' --states f32 --routes inner --entries "
        "f32 --m 4 --batch 256");
  need(refused.decoder.step(refused.tensors.arguments));
}

TEST_CASE("memory goes back to the device") {
  if (!hasGpu() || !emulatedGpu())
    return;
  int64_t before = emulatedGpu()->liveBytes();
  {
    Refused refused;
    CHECK(emulatedGpu()->liveBytes() > before);
  }
  CHECK(emulatedGpu()->liveBytes() == before);
}
