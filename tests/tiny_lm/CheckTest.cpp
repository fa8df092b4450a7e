//===- CheckTest.cpp - where answers differ -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"

#include <catch2/catch.hpp>

using namespace tinylm;

static Answer answer(const std::string &text, std::vector<float> margins) {
  return {text, std::move(margins)};
}

TEST_CASE("a difference where logits are close is a near tie") {
  std::vector<Answer> plain{answer("abcd", {1, 2, 0.0005f, 3}),
                            answer("same", {1, 1, 1, 1})},
      other{answer("abxx", {}), answer("same", {})};
  Comparison comparison = compare(plain, other, 1e-3f);
  REQUIRE(comparison.divergences.size() == 1);
  CHECK(comparison.divergences[0].request == 0);
  CHECK(comparison.divergences[0].byte == 2);
  CHECK(comparison.divergences[0].margin == 0.0005f);
  CHECK(comparison.equalBytes == 6);
  CHECK(comparison.closest == 1);
  CHECK(comparison.isGood());
  CHECK(!compare(plain, other, 0).isGood());
}

TEST_CASE("a difference where logits are apart is wrong") {
  std::vector<Answer> plain{answer("ab", {1, 0.01f})};
  CHECK(!compare(plain, {answer("ax", {})}, 1e-3f).isGood());
}

TEST_CASE("an answer that is longer or shorter is wrong") {
  std::vector<Answer> plain{answer("ab", {1, 1})};
  CHECK(!compare(plain, {answer("abc", {})}, 1e-3f).isGood());
  CHECK(!compare(plain, {answer("a", {})}, 1e-3f).isGood());
}
