//===- StridesTest.cpp - inputs and outputs as they lie in memory ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;

/// Decodes one token with arguments that `change` has put elsewhere.
template <typename Change> static void checkDecodes(const Change &change) {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  Batch batch(1);
  batch.set(0, makeToken(1, 0));
  change(batch);
  Status status = decode(program, pool, batch.with({0}));
  INFO(status.message());
  REQUIRE(status.ok());
  Reference reference;
  CHECK(*toFloats(batch.arguments.tensors["y"]) ==
        reference.step(makeToken(1, 0)));
}

TEST_CASE("q and k as slices of one packed projection") {
  std::vector<float> packed(heads * 2 * keySize);
  checkDecodes([&](Batch &batch) {
    TensorView both =
        TensorView::dense(packed, DType::F32, {1, heads, 2 * keySize});
    for (auto [name, begin] :
         {std::pair("q", int64_t(0)), std::pair("k", keySize)}) {
      TensorView part = both.slice(2, begin, begin + keySize);
      REQUIRE(copy(batch.arguments.tensors[name], part));
      batch.arguments.tensors[name] = part;
    }
  });
}

TEST_CASE("heads of a number a head may be strided") {
  std::vector<float> spread(heads * 3);
  checkDecodes([&](Batch &batch) {
    TensorView view =
        TensorView::dense(spread, DType::F32, {1, heads, 3}).slice(2, 1, 2);
    view.shape.pop_back();
    view.strides.pop_back();
    REQUIRE(copy(batch.arguments.tensors["a"], view));
    batch.arguments.tensors["a"] = view;
  });
}

TEST_CASE("outputs may be strided") {
  std::vector<float> wide(heads * (valueSize + 2), 99.0f);
  checkDecodes([&](Batch &batch) {
    batch.arguments.tensors["y"] =
        TensorView::dense(wide, DType::F32, {1, heads, valueSize + 2})
            .slice(2, 0, valueSize);
  });
  CHECK(wide[valueSize] == 99.0f);
}

TEST_CASE("padding zeroes strided outputs and nothing between them") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  Batch batch(1);
  std::vector<float> wide(heads * (valueSize + 2), 99.0f);
  batch.arguments.tensors["y"] =
      TensorView::dense(wide, DType::F32, {1, heads, valueSize + 2})
          .slice(2, 0, valueSize);
  REQUIRE(decode(program, pool, batch.with({-1})));
  CHECK(wide[valueSize - 1] == 0.0f);
  CHECK(wide[valueSize] == 99.0f);
  CHECK(wide[valueSize + 2] == 0.0f);
}

TEST_CASE("the dimension of one shared head may be left out") {
  checkDecodes([&](Batch &batch) {
    batch.arguments.tensors["s"] =
        TensorView::dense(batch.ss, DType::F32, {1, valueSize});
  });
}

TEST_CASE("an input may be the same for all rows") {
  Program program = linearAttention();
  Pool pool = makePool(program, 2);
  Batch batch(2);
  batch.set(0, makeToken(1, 0));
  for (auto &[name, view] : batch.arguments.tensors)
    if (name != "bias" && name != "y" && name != "z")
      view.strides[0] = 0;
  REQUIRE(decode(program, pool, batch.with({0, 1})));
  CHECK(batch.y(1) == batch.y(0));
}
