//===- ErrorsTest.cpp - calls that are refused, and that change nothing ---===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Kernels.h"
#include "tests/runtime/LinearAttention.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;
using Catch::Matchers::Contains;

namespace {

/// A batch of two rows on a pool of three slots with some history, which
/// checks that a step is refused and that nothing has changed.
struct Refused {
  Program program = linearAttention();
  Pool pool = makePool(program, 3);
  Batch batch{2};
  std::vector<int32_t> reads{0, 1}, writes;

  Refused() {
    for (uint32_t time = 0; time < 3; ++time)
      decodeOne(program, pool, 0, 1, time);
  }
  TensorView &operator[](const char *name) {
    return batch.arguments.tensors[name];
  }
  void check(const std::string &message) {
    std::vector<float> state = *toFloats(*pool.state("S"));
    std::vector<float> carry = *toFloats(*pool.carry("prev"));
    Status status = decode(program, pool, batch.with(reads, writes));
    REQUIRE_FALSE(status.ok());
    CHECK(status.code() == ErrorCode::InvalidArgument);
    CHECK_THAT(status.message(), Contains(message));
    CHECK(batch.ys == std::vector<float>(batch.ys.size(), 99.0f));
    CHECK(*toFloats(*pool.state("S")) == state);
    CHECK(*toFloats(*pool.carry("prev")) == carry);
    CHECK(pool.cursor(0)->length == 3);
    CHECK(pool.cursor(1)->length == 0);
  }
};

} // namespace

TEST_CASE_METHOD(Refused, "a missing argument") {
  batch.arguments.tensors.erase("k");
  check("argument 'k' is missing; 'linear_attention' takes parameters 'bias'; "
        "tokens 'q', 'k', 'v', 'a', 's'; outputs 'y', 'z'");
}

TEST_CASE_METHOD(Refused, "an unknown argument") {
  (*this)["beta"] = (*this)["a"];
  check("unknown argument 'beta'; 'linear_attention' takes");
}

TEST_CASE_METHOD(Refused, "a wrong type") {
  (*this)["q"].dtype = DType::BF16;
  check("argument 'q' is bf16 [2, 4, 3], wanted f32 [2, 4, 3]");
}

TEST_CASE_METHOD(Refused, "a wrong shape") {
  (*this)["v"].shape[2] = 4;
  check("argument 'v' is f32 [2, 4, 4], wanted f32 [2, 4, 5]");
}

TEST_CASE_METHOD(Refused, "a wrong number of rows") {
  (*this)["y"].shape[0] = 1;
  check("argument 'y' is f32 [1, 4, 5], wanted f32 [2, 4, 5]");
}

TEST_CASE_METHOD(Refused, "a dimension too few") {
  (*this)["q"] = (*this)["q"][0];
  check("argument 'q' is f32 [4, 3], wanted f32 [2, 4, 3]");
}

TEST_CASE_METHOD(Refused, "strides that do not go with the shape") {
  (*this)["q"].strides.pop_back();
  check("argument 'q' has 2 strides for the 3 dimensions of f32 [2, 4, 3]");
}

TEST_CASE_METHOD(Refused, "a last dimension that is not contiguous") {
  (*this)["q"].strides[2] = 2;
  check("argument 'q' has stride 2 along its last dimension, wanted 1");
}

TEST_CASE_METHOD(Refused, "an output that overlaps itself") {
  (*this)["y"].strides[0] = 0;
  check("argument 'y' overlaps itself: f32 [2, 4, 5] with strides [0, 5, 1]");
}

TEST_CASE_METHOD(Refused, "null memory") {
  (*this)["z"].data = nullptr;
  check("argument 'z' is null");
}

TEST_CASE_METHOD(Refused, "misaligned memory") {
  (*this)["q"].data = reinterpret_cast<char *>(batch.qs.data()) + 2;
  check("which is not a multiple of its 4 bytes an element");
}

TEST_CASE_METHOD(Refused, "a slot out of range") {
  reads = {0, 3};
  check("readSlots[1]: slot 3 is outside of the pool, which has 3");
}

TEST_CASE_METHOD(Refused, "a write slot out of range") {
  writes = {0, 12};
  check("writeSlots[1]: slot 12 is outside of the pool, which has 3");
}

TEST_CASE_METHOD(Refused, "a padded read with a real write") {
  reads = {0, -1};
  writes = {0, 1};
  check("readSlots[1]: slot -1 marks padding");
}

TEST_CASE_METHOD(Refused, "a real read with a padded write") {
  writes = {0, -1};
  check("writeSlots[1]: slot -1 marks padding");
}

TEST_CASE_METHOD(Refused, "two rows that write one slot") {
  reads = {1, 1};
  check("writeSlots[0] and writeSlots[1] are both 1, wanted a slot of its own "
        "for each row");
}

TEST_CASE_METHOD(Refused, "a row that reads what another writes") {
  writes = {1, 2};
  check("readSlots[1] and writeSlots[0] are both 1, wanted that no other row "
        "writes what a row reads");
}

TEST_CASE_METHOD(Refused, "too few slots for the rows") {
  reads = {0};
  check("readSlots has 1 slots, wanted 2");
}

TEST_CASE_METHOD(Refused, "too many write slots for the rows") {
  writes = {0, 1, 2};
  check("writeSlots has 3 slots, wanted 2 or none");
}

TEST_CASE_METHOD(Refused, "entries that the route does not read") {
  program = *program.withRoute(RouteKind::Recurrent);
  check("slot 0 holds 3 entries, which route 'recurrent' does not read; flush "
        "the slot first");
}

TEST_CASE_METHOD(Refused, "a negative number of rows") {
  batch.arguments.rows = -2;
  check("rows is -2, wanted 0 to 2147483647");
}

//===----------------------------------------------------------------------===//
// Pools, decoders and programs
//===----------------------------------------------------------------------===//

static std::string poolError(const PoolOptions &options) {
  return Pool::create(linearAttention(), options).message();
}

TEST_CASE("pool options that do not fit are named") {
  alignas(64) static float memory[300];
  PoolOptions good;
  good.slots = 2;
  PoolOptions options = good;
  options.slots = 0;
  CHECK_THAT(poolError(options), Contains("slots is 0, wanted 1 to"));
  options = good;
  options.padSlot = 3;
  CHECK_THAT(poolError(options), Contains("padSlot is 3"));
  options = good;
  options.foldThreshold = 5;
  CHECK_THAT(poolError(options), Contains("foldThreshold is 5, wanted 1 to 4"));
  options = good;
  options.slotStrides = {59};
  CHECK_THAT(poolError(options),
             Contains("'S' has the slot stride 59, wanted 0 or at least 60"));
  options.slotStrides = {64, 64};
  CHECK_THAT(poolError(options),
             Contains("slotStrides has 2 elements, wanted 1 at most, one for "
                      "each state of 'linear_attention'"));
  options = good;
  options.stateMemory = {memory + 1};
  CHECK_THAT(poolError(options), Contains("'S' is not aligned to 64 bytes"));
}

TEST_CASE("a pool larger than any memory is refused") {
  PoolOptions options;
  options.slots = INT32_MAX;
  options.slotStrides = {INT64_MAX / 4};
  Result<Pool> pool = Pool::create(linearAttention(), options);
  REQUIRE_FALSE(pool.ok());
  CHECK(pool.status().code() == ErrorCode::ResourceExhausted);
}

TEST_CASE("slot calls name a slot out of range and change nothing") {
  Program program = linearAttention();
  Pool pool = makePool(program, 2);
  decodeOne(program, pool, 0, 1, 0);
  std::vector<int32_t> slots{0, 2};
  CHECK_THAT(pool.reset(slots).message(), Contains("slot 2 is outside"));
  CHECK_THAT(pool.flush(program, slots).message(),
             Contains("slot 2 is outside"));
  CHECK(pool.cursor(0)->length == 1);
  CHECK_THAT(pool.exportSlot(program, -1).message(),
             Contains("slot -1 marks padding"));
  CHECK_FALSE(pool.cursor(2).ok());
  CHECK_FALSE(pool.setFoldThreshold(0).ok());
}

TEST_CASE("an import of other contents is refused") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  SlotContents good = *pool.exportSlot(program, 0);
  SlotContents bad = good;
  bad.carries.clear();
  CHECK_THAT(pool.importSlot(0, bad).message(),
             Contains("got 0 carries, wanted 1"));
  bad = good;
  bad.states[0].shape[1] = 6;
  CHECK_THAT(pool.importSlot(0, bad).message(),
             Contains("got 'S' [4, 6, 3], wanted 'S' [4, 5, 3]"));
  bad = good;
  bad.states[0].data.pop_back();
  CHECK_THAT(pool.importSlot(0, bad).message(),
             Contains("'S' has 239 bytes, wanted 240"));
  bad.states[0].dtype = DType::I32;
  CHECK_THAT(pool.importSlot(0, bad).message(),
             Contains("'S' is i32, wanted f32"));
}

TEST_CASE("a head range that does not fit is refused") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  for (auto [begin, end] :
       {std::pair(0, 5), std::pair(2, 2), std::pair(-1, 2)}) {
    DecoderOptions options;
    options.headBegin = begin;
    options.headEnd = end;
    CHECK_THAT(Decoder::create(program, pool, options).message(),
               Contains("wanted a range of multiples of 1 within 0 to 4"));
  }
}

TEST_CASE("a pool of another program is refused") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  ProgramImpl other = program.getImpl();
  other.fields[1].dtype = DType::BF16;
  CHECK_THAT(Decoder::create(*Program::create(other), pool).message(),
             Contains("was made for 4 entries of 'k', 'u', 'decay'"));
  other = program.getImpl();
  other.signature.states[0].dtype = DType::BF16;
  CHECK_THAT(Decoder::create(*Program::create(other), pool).message(),
             Contains("does not have the states and carries"));
}

TEST_CASE("a program that lacks a kernel is refused") {
  const ProgramImpl good = linearAttention().getImpl();
  ProgramImpl bad = good;
  bad.routes[1].decode = nullptr;
  CHECK_THAT(Program::create(bad).message(),
             Contains("route 'inner' has no kernel for decode"));
  bad = good;
  bad.routes[1].fold = nullptr;
  CHECK_THAT(Program::create(bad).message(), Contains("lacks what folds it"));
  bad = good;
  bad.routes.erase(bad.routes.begin() + 1);
  CHECK_THAT(Program::create(bad).message(),
             Contains("'kv_only' needs the kernels of 'inner'"));
  bad = good;
  bad.signature.tokens[0].name = "v";
  CHECK_THAT(Program::create(bad).message(), Contains("two of 'v'"));
  bad = good;
  bad.signature.tokens[0].shape[0] = 3;
  CHECK_THAT(Program::create(bad).message(), Contains("'q' has the shape"));
}

TEST_CASE("a route that was not compiled is named with those that were") {
  CHECK(linearAttention().withRoute(RouteKind::Adjoint).message() ==
        "'linear_attention' was not compiled for route 'adjoint', only for "
        "recurrent, inner, kv_only");
}
