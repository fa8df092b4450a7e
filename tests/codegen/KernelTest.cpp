//===- KernelTest.cpp - compiled kernels compute --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/JitSupport.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace ladle::test;

static const char *matvec = R"(
func.func @matvec(%first: index, %last: index, %a: memref<?x64xf32>,
                  %x: memref<64xf32>, %y: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<16xf32>
  scf.for %r = %first to %last step %c1 {
    %sum = scf.for %k = %c0 to %c64 step %c16
        iter_args(%acc = %zero) -> (vector<16xf32>) {
      %av = vector.load %a[%r, %k] : memref<?x64xf32>, vector<16xf32>
      %xv = vector.load %x[%k] : memref<64xf32>, vector<16xf32>
      %next = vector.fma %av, %xv, %acc : vector<16xf32>
      scf.yield %next : vector<16xf32>
    }
    %v = vector.reduction <add>, %sum : vector<16xf32> into f32
    memref.store %v, %y[%r] : memref<?xf32>
  }
  return
}
)";

TEST_CASE("a packed kernel computes the rows that it is asked for") {
  constexpr int64_t rows = 5, columns = 64;
  std::vector<float> a(rows * columns), x(columns), y(rows, -1.0f);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = std::sin(0.1f * i);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::cos(0.3f * i);

  Jit compiled = jit(matvec, {"matvec"});
  REQUIRE(compiled.error == "");
  int64_t first = 1, last = 4;
  Descriptor<2> da{a.data(), a.data(), 0, {rows, columns}, {columns, 1}};
  Descriptor<1> dx = describe(x), dy = describe(y);
  void *arguments[] = {&first, &last, &da, &dx, &dy};
  compiled.kernels[0](arguments);

  CHECK(y[0] == -1.0f);
  CHECK(y[4] == -1.0f);
  for (int64_t r = first; r < last; ++r) {
    double expected = 0;
    for (int64_t k = 0; k < columns; ++k)
      expected += static_cast<double>(a[r * columns + k]) * x[k];
    CHECK(y[r] == Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("a descriptor's offset and strides are obeyed") {
  Jit compiled = jit(R"(
func.func @copy(%n: index, %x: memref<?xf32, strided<[?], offset: ?>>,
                %y: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %v = memref.load %x[%i] : memref<?xf32, strided<[?], offset: ?>>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
)",
                     {"copy"});
  REQUIRE(compiled.error == "");
  std::vector<float> x{0, 1, 2, 3, 4, 5, 6}, y(3);
  int64_t n = 3;
  Descriptor<1> dx{x.data(), x.data(), 1, {3}, {2}}, dy = describe(y);
  void *arguments[] = {&n, &dx, &dy};
  compiled.kernels[0](arguments);
  CHECK(y == std::vector<float>{1, 3, 5});
}

/// Rounds the first `width` numbers of x to a narrower type.
static std::string roundTo(const std::string &type, int64_t width) {
  std::string n = std::to_string(width);
  return "func.func @round(%x: memref<?xf32>, %t: memref<?x" + type +
         ">, %y: memref<?xf32>) attributes {llvm.emit_c_interface} {\n"
         "  %c0 = arith.constant 0 : index\n"
         "  %a = vector.load %x[%c0] : memref<?xf32>, vector<" +
         n +
         "xf32>\n"
         "  %b = arith.truncf %a : vector<" +
         n + "xf32> to vector<" + n + "x" + type +
         ">\n"
         "  vector.store %b, %t[%c0] : memref<?x" +
         type + ">, vector<" + n + "x" + type +
         ">\n"
         "  %c = vector.load %t[%c0] : memref<?x" +
         type + ">, vector<" + n + "x" + type +
         ">\n"
         "  %d = arith.extf %c : vector<" +
         n + "x" + type + "> to vector<" + n +
         "xf32>\n"
         "  vector.store %d, %y[%c0] : memref<?xf32>, vector<" +
         n +
         "xf32>\n"
         "  return\n}\n";
}

static std::vector<float> runRound(Kernel kernel, std::vector<float> x) {
  std::vector<float> y(x.size(), -1.0f);
  std::vector<uint16_t> narrow(x.size());
  Descriptor<1> dx = describe(x), dt = describe(narrow), dy = describe(y);
  void *arguments[] = {&dx, &dt, &dy};
  kernel(arguments);
  return y;
}

TEST_CASE("bf16 rounds to nearest even") {
  bool withoutInstructions = GENERATE(false, true);
  Jit compiled = jit(roundTo("bf16", 16), {"round"}, withoutInstructions);
  REQUIRE(compiled.error == "");
  std::vector<float> x(16, 0.0f);
  x[0] = 1.00390625f; // half way between 1 and 1.0078125: even is 1
  x[1] = 1.01171875f; // half way between 1.0078125 and 1.015625
  x[2] = -3.14159265f;
  x[3] = INFINITY;
  x[4] = NAN;
  std::vector<float> y = runRound(compiled.kernels[0], x);
  CHECK(y[0] == 1.0f);
  CHECK(y[1] == 1.015625f);
  CHECK(y[2] == -3.140625f);
  CHECK(y[3] == INFINITY);
  CHECK(std::isnan(y[4]));
}

TEST_CASE("narrow types have vectors of every width") {
  std::string type = GENERATE("bf16", "f16");
  for (int64_t width : {1, 2, 3, 8, 24, 33, 40, 48, 128}) {
    INFO(type << " " << width);
    Jit compiled = jit(roundTo(type, width), {"round"});
    REQUIRE(compiled.error == "");
    std::vector<float> x(width);
    for (int64_t i = 0; i < width; ++i)
      x[i] = 0.5f * static_cast<float>(i); // exact in both
    CHECK(runRound(compiled.kernels[0], x) == x);
  }
}

TEST_CASE("bf16 calls no functions where there are no instructions for it") {
  // Read in one block, stored in another; of either of two blocks.
  std::string text = assemble(R"(
func.func @carry(%x: memref<?xbf16>, %y: memref<?xbf16>, %i: index)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %a = memref.load %x[%i] : memref<?xbf16>
  %b = arith.extf %a : bf16 to f32
  %c = arith.mulf %b, %b : f32
  %d = arith.truncf %c : f32 to bf16
  %first = arith.cmpi eq, %i, %c0 : index
  scf.if %first {
    memref.store %a, %y[%i] : memref<?xbf16>
  }
  %e = scf.if %first -> bf16 {
    %l = memref.load %y[%c0] : memref<?xbf16>
    scf.yield %l : bf16
  } else {
    scf.yield %zero : bf16
  }
  memref.store %d, %x[%i] : memref<?xbf16>
  memref.store %e, %x[%c0] : memref<?xbf16>
  return
}
)",
                              "x86-64-v3", /*expandBF16=*/true);
  CHECK(text.find("carry__packed") != std::string::npos);
  CHECK(text.find("bf2") == std::string::npos);
}

TEST_CASE("a kernel can be compiled for another processor") {
  std::string wide = assemble(matvec, "x86-64-v4");
  CHECK(wide.find("%zmm") != std::string::npos);
  CHECK(wide.find("matvec__packed") != std::string::npos);
  std::string narrow = assemble(matvec, "x86-64-v3");
  CHECK(narrow.find("%ymm") != std::string::npos);
  CHECK(narrow.find("%zmm") == std::string::npos);
}

TEST_CASE("a product and a sum become one instruction") {
  std::string text = assemble(R"(
func.func @axpy(%x: memref<?xf32>, %y: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %a = vector.load %x[%c0] : memref<?xf32>, vector<16xf32>
  %b = vector.load %y[%c0] : memref<?xf32>, vector<16xf32>
  %p = arith.mulf %a, %a : vector<16xf32>
  %s = arith.addf %p, %b : vector<16xf32>
  vector.store %s, %y[%c0] : memref<?xf32>, vector<16xf32>
  return
}
)",
                              "x86-64-v4");
  CHECK(text.find("vfmadd") != std::string::npos);
  CHECK(text.find("vmulps") == std::string::npos);
}

static const char *sumOfRows = R"(
func.func @sum_rows(%x: memref<?x96xf32>, %y: memref<96xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<96xf32>
  %rows = memref.dim %x, %c0 : memref<?x96xf32>
  %sum = scf.for %i = %c0 to %rows step %c1 iter_args(%so_far = %zero)
      -> vector<96xf32> {
    %row = vector.load %x[%i, %c0] : memref<?x96xf32>, vector<96xf32>
    %next = arith.addf %so_far, %row : vector<96xf32>
    scf.yield %next : vector<96xf32>
  }
  vector.store %sum, %y[%c0] : memref<96xf32>, vector<96xf32>
  return
}
)";

TEST_CASE("a vector whose width is no power of two stays in vectors") {
  std::string text = assemble(sumOfRows, "x86-64-v4");
  CHECK(text.find("%zmm") != std::string::npos);
  for (const char *scalar : {"vinsertps", "vmovss", "vaddss"})
    CHECK(text.find(scalar) == std::string::npos);

  Jit code = jit(sumOfRows, {"sum_rows"});
  REQUIRE(code.error.empty());
  std::vector<float> x(size_t(3) * 96), y(96);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(i);
  Descriptor<2> rows{x.data(), x.data(), 0, {3, 96}, {96, 1}};
  Descriptor<1> sum = describe(y);
  void *arguments[] = {&rows, &sum};
  code.kernels[0](arguments);
  for (size_t i = 0; i < y.size(); ++i)
    REQUIRE(y[i] == float(3 * i + 288));
}
