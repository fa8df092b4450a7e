//===- TunedTableTest.cpp - choices by shape and batch --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TunedTable.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace ladle;
using namespace ladle::tune;
namespace fs = std::filesystem;

static Signature makeSignature() {
  Signature signature;
  signature.name = "linear_attention";
  signature.tokens = {{"q", DType::BF16, {16, 128}}};
  signature.outputs = {{"y", DType::BF16, {32, 128}}};
  signature.states = {{"S", 32, 128, 64, DType::F32}};
  return signature;
}

static TunedChoice makeChoice(int64_t batch, int64_t threshold) {
  TunedChoice choice;
  choice.device = "NVIDIA Test 1";
  choice.shape = describe(makeSignature());
  choice.entryType = "bf16";
  choice.batch = batch;
  choice.candidate = {"inner", threshold, {{"threads", 128}}};
  choice.seconds = 1e-6;
  choice.limit = 5e-7;
  choice.date = "2026-01-01";
  return choice;
}

TEST_CASE("a shape is named by all that kernels depend on") {
  Signature signature = makeSignature();
  CHECK(describe(signature) ==
        "linear_attention(; q:bf16[16,128]) S:f32[32,128,64] -> "
        "y:bf16[32,128]");
  signature.states[0].dtype = DType::BF16;
  CHECK(describe(signature) != describe(makeSignature()));
}

TEST_CASE("the nearest batch is taken, within a factor of four") {
  TunedTable table;
  table.add(makeChoice(8, 8));
  table.add(makeChoice(256, 16));
  auto lookup = [&](int64_t batch) -> int64_t {
    auto choice =
        table.lookup("NVIDIA Test 1", describe(makeSignature()), "bf16", batch);
    return choice ? choice->candidate.threshold : 0;
  };
  CHECK(lookup(8) == 8);
  CHECK(lookup(2) == 8);
  CHECK(lookup(1) == 0);
  CHECK(lookup(32) == 8);
  CHECK(lookup(100) == 16);
  CHECK(lookup(256) == 16);
  CHECK(lookup(100000) == 16);
  TunedTable small;
  small.add(makeChoice(8, 8));
  CHECK_FALSE(
      small.lookup("NVIDIA Test 1", describe(makeSignature()), "bf16", 100));
}

TEST_CASE("another device, shape or entry type has no choice") {
  TunedTable table;
  table.add(makeChoice(8, 8));
  std::string shape = describe(makeSignature());
  CHECK(table.lookup("NVIDIA Test 1", shape, "bf16", 8));
  CHECK_FALSE(table.lookup("NVIDIA Test 2", shape, "bf16", 8));
  CHECK_FALSE(table.lookup("NVIDIA Test 1", shape + "x", "bf16", 8));
  CHECK_FALSE(table.lookup("NVIDIA Test 1", shape, "f32", 8));
}

TEST_CASE("a table survives being written, and a choice replaces an older") {
  TunedTable table;
  table.add(makeChoice(8, 8));
  table.add(makeChoice(8, 32));
  CHECK(table.size() == 1);
  Result<TunedTable> again = TunedTable::parse(table.str());
  REQUIRE(again);
  CHECK(again->str() == table.str());
  auto choice =
      again->lookup("NVIDIA Test 1", describe(makeSignature()), "bf16", 8);
  REQUIRE(choice);
  CHECK(choice->candidate == makeChoice(8, 32).candidate);
  CHECK(choice->seconds == Approx(1e-6));
}

TEST_CASE("a choice keeps the size of its rings") {
  TunedTable table;
  TunedChoice larger = makeChoice(8, 24);
  larger.candidate.capacity = 32;
  table.add(larger);
  Result<TunedTable> again = TunedTable::parse(table.str());
  REQUIRE(again);
  auto choice =
      again->lookup("NVIDIA Test 1", describe(makeSignature()), "bf16", 8);
  REQUIRE(choice);
  CHECK(choice->candidate == larger.candidate);
  CHECK(choice->candidate.str() == "inner m=24 L=32 threads=128");
}

TEST_CASE("steps that verify have choices of their own") {
  TunedTable table;
  table.add(makeChoice(8, 8));
  for (int64_t drafts : {2, 4}) {
    TunedChoice choice = makeChoice(8, 8 + drafts);
    choice.drafts = drafts;
    choice.acceptance = 0.5;
    table.add(choice);
  }
  CHECK(table.size() == 3);
  Result<TunedTable> again = TunedTable::parse(table.str());
  REQUIRE(again);
  CHECK(again->str() == table.str());
  auto lookup = [&](int64_t drafts) {
    return again->lookup("NVIDIA Test 1", describe(makeSignature()), "bf16", 8,
                         drafts);
  };
  REQUIRE(lookup(0));
  CHECK(lookup(0)->candidate.threshold == 8);
  REQUIRE(lookup(4));
  CHECK(lookup(4)->candidate.threshold == 12);
  CHECK(lookup(4)->acceptance == 0.5);
  CHECK_FALSE(lookup(3));
}

TEST_CASE("what is no table is refused") {
  CHECK_FALSE(TunedTable::parse("{"));
  CHECK_FALSE(TunedTable::parse("{\"schema\": \"ladle-tuned-0\"}"));
  CHECK_FALSE(TunedTable::parse(
      "{\"schema\": \"ladle-tuned-1\", \"choices\": [{\"device\": 3}]}"));
}

TEST_CASE("every committed table is compiled in, whole") {
  TunedTable all;
  for (const auto &entry : fs::directory_iterator("runtime/tune/tables")) {
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    Result<TunedTable> table = TunedTable::parse(text.str());
    INFO(entry.path());
    REQUIRE(table);
    CHECK(table->str() == text.str());
    all.add(*table);
  }
  CHECK(TunedTable::builtIn().str() == all.str());
}

TEST_CASE("what the user has tuned is found first") {
  fs::path folder = fs::temp_directory_path() / "ladle-tuned-table-test";
  fs::remove_all(folder);
  setenv("LADLE_TUNE_DIR", folder.c_str(), 1);
  auto lookup = [] {
    return lookupTuned("NVIDIA Test 1", makeSignature(), "bf16", 8);
  };
  CHECK_FALSE(lookup());
  REQUIRE(addToTable(userTable(folder.string()), makeChoice(8, 4)));
  REQUIRE(lookup());
  CHECK(lookup()->candidate.threshold == 4);
  std::ofstream(userTable(folder.string())) << "{";
  CHECK_FALSE(lookup());
  CHECK_FALSE(addToTable(userTable(folder.string()), makeChoice(8, 4)));
  unsetenv("LADLE_TUNE_DIR");
  fs::remove_all(folder);
}
