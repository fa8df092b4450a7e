//===- ObjectLoaderTest.cpp - objects into the process --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/ObjectLoader.h"
#include "tests/codegen/JitSupport.h"

#include <catch2/catch.hpp>

using namespace ladle::test;

static const char *increment = R"(
func.func @increment(%x: memref<1xf32>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %v = memref.load %x[%c0] : memref<1xf32>
  %w = arith.addf %v, %one : f32
  memref.store %w, %x[%c0] : memref<1xf32>
  return
}
)";

static std::string messageOf(llvm::StringRef object,
                             const std::vector<std::string> &symbols) {
  auto loaded = ladle::loadObject(object, symbols);
  return loaded ? "" : llvm::toString(loaded.takeError());
}

TEST_CASE("code lives as long as its owner, whatever became of the object") {
  std::string object = compile(increment);
  auto loaded = ladle::loadObject(object, {"increment__packed"});
  REQUIRE(static_cast<bool>(loaded));
  object.assign(object.size(), '\0');
  std::vector<float> x{41};
  Descriptor<1> dx = describe(x);
  void *arguments[] = {&dx};
  reinterpret_cast<Kernel>(loaded->addresses[0])(arguments);
  CHECK(x[0] == 42);
}

TEST_CASE("an object can be loaded twice") {
  std::string object = compile(increment);
  CHECK(messageOf(object, {"increment__packed"}) == "");
  CHECK(messageOf(object, {"increment__packed"}) == "");
}

TEST_CASE("a symbol that is not there is named") {
  std::string object = compile(increment);
  CHECK_THAT(messageOf(object, {"decrement__packed"}),
             Catch::Contains("decrement__packed"));
}

TEST_CASE("a function that kernels may not call is named") {
  std::string object = compile(R"(
func.func @allocates(%y: memref<1xindex>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %n = memref.load %y[%c0] : memref<1xindex>
  %x = memref.alloc(%n) : memref<?xf32>
  %p = memref.extract_aligned_pointer_as_index %x : memref<?xf32> -> index
  memref.store %p, %y[%c0] : memref<1xindex>
  return
}
)");
  CHECK_THAT(messageOf(object, {"allocates__packed"}),
             Catch::Contains("malloc"));
}

TEST_CASE("damaged objects are errors") {
  std::string object = compile(increment);
  CHECK(messageOf("", {"increment__packed"}) != "");
  CHECK(messageOf("not an object", {"increment__packed"}) != "");
  CHECK(messageOf(object.substr(0, object.size() / 2), {"increment__packed"}) !=
        "");
}
