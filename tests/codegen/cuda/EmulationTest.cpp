//===- EmulationTest.cpp - CUDA kernels on the CPU ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Emulator.h"

#include <Eigen/Core>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

using namespace ladle::test;

namespace {

EmulatedModule compile(const std::string &kernels) {
  return EmulatedModule("#include \"ladle_prelude.cuh\"\n" + kernels);
}

/// Empty if all went well.
template <typename... Args>
std::string launch(const EmulatedModule &module, Extent grid, Extent block,
                   llvm::ArrayRef<Allocation> memory, Args... args) {
  void *packed[] = {static_cast<void *>(&args)...};
  return llvm::toString(
      module.launch(module.kernels().front(), grid, block, packed, memory));
}

template <typename T> Allocation whole(const std::vector<T> &values) {
  return {values.data(), values.size() * sizeof(T)};
}

/// Of a kernel with one argument, 64 floats, in one block of 64 threads.
std::string messageOf(const std::string &kernel) {
  std::vector<float> x(64);
  return launch(compile(kernel), {1}, {64}, whole(x), x.data());
}

} // namespace

TEST_CASE("saxpy") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void __launch_bounds__(128)
    saxpy(const float *__restrict__ x, float *__restrict__ y, long long n,
          float a, int factor) {
  long long i = (blockIdx.y * gridDim.x + blockIdx.x) * 128LL + threadIdx.x;
  if (i < n) y[i] = a * x[i] * factor + y[i];
})");
  std::vector<float> x(5000), y(5000, 1.0f);
  std::iota(x.begin(), x.end(), 0.0f);
  CHECK(launch(module, {20, 2}, {128}, {whole(x), whole(y)}, x.data(), y.data(),
               (long long)y.size(), 0.5f, 2) == "");
  for (size_t i = 0; i < y.size(); ++i)
    REQUIRE(y[i] == float(i) + 1.0f);
}

TEST_CASE("a block reduces with shuffles and shared memory") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void __launch_bounds__(256)
    sum(const float *x, float *y) {
  __shared__ __align__(16) float s[8];
  Vec<float, 4> v = load_vector_streaming<4>(
      x + (blockIdx.x * 256LL + threadIdx.x) * 4);
  float sum = v[0] + v[1] + v[2] + v[3];
  for (int mask = 16; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask, 32);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
  block_barrier();
  sum = s[threadIdx.x % 8];
  for (int delta = 1; delta < 8; delta *= 2) sum += shuffle_xor(sum, delta, 8);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
})");
  std::vector<float> x(100 * 1024), y(100);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float((i * 2654435761u) % 64);
  REQUIRE(launch(module, {100}, {256}, {whole(x), whole(y)}, x.data(),
                 y.data()) == "");
  for (size_t block = 0; block < y.size(); ++block) {
    auto first = x.begin() + block * 1024;
    CHECK(y[block] == std::accumulate(first, first + 1024, 0.0f));
  }
}

TEST_CASE("shuffles stay in their group") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void lanes(int *y) {
  int i = threadIdx.x;
  y[i] = shuffle_xor(i, 9, 16);
  y[64 + i] = shuffle_up(i, 3, 8);
  y[128 + i] = shuffle_down(i, 3, 8);
  y[192 + i] = shuffle_index(i, 5, 8);
  y[256 + i] = shuffle_index(half{(unsigned short)i}, 5, 8).bits;
  y[320 + i] = __shfl_xor_sync(~0u, i, 4, 4);
})");
  std::vector<int> y(6 * 64);
  REQUIRE(launch(module, {1}, {64}, whole(y), y.data()) == "");
  for (int i = 0; i < 64; ++i) {
    int first = i / 8 * 8;
    CHECK(y[i] == (i ^ 9));
    CHECK(y[64 + i] == (i - 3 >= first ? i - 3 : i));
    CHECK(y[128 + i] == (i + 3 < first + 8 ? i + 3 : i));
    CHECK(y[192 + i] == first + 5);
    CHECK(y[256 + i] == first + 5);
    // A lower group may be read, a higher one not.
    CHECK(y[320 + i] == (i & 4 ? i ^ 4 : i));
  }
}

TEST_CASE("three dimensions count x first") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void number(int *y) {
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x +
               threadIdx.x;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int lane = shuffle_index(thread, 0);
  y[block * 60 + thread] = lane;
})");
  std::vector<int> y(24 * 60, -1);
  REQUIRE(launch(module, {2, 3, 4}, {3, 4, 5}, whole(y), y.data()) == "");
  for (size_t i = 0; i < y.size(); ++i)
    CHECK(y[i] == int(i % 60 / 32 * 32));
}

//===----------------------------------------------------------------------===//
// 16-bit floats
//===----------------------------------------------------------------------===//

namespace {

/// The type's name in a kernel, and what Eigen computes.
template <typename T>
void compareWithEigen(const std::string &type, const std::vector<float> &x) {
  EmulatedModule module = compile("#define TYPE " + type + R"(
extern "C" __global__ void convert(const float *x, unsigned short *y, int n,
                                   const TYPE *all, float *wide, TYPE *back) {
  for (int i = threadIdx.x; i < n; i += 32) y[i] = from_float<TYPE>(x[i]).bits;
  for (int i = threadIdx.x * 8; i < 65536; i += 256) {
    Vec<TYPE, 8> v = load_vector<8>(all + i);
    Vec<float, 8> w;
    for (int j = 0; j < 8; ++j) {
      w[j] = to_float(v[j]);
      v[j] = from_float<TYPE>(w[j]);
    }
    store_vector(wide + i, w);
    store_vector_streaming(back + i, v);
  }
})");
  std::vector<unsigned short> y(x.size()), all(65536), back(65536);
  std::vector<float> wide(65536);
  std::iota(all.begin(), all.end(), 0);
  REQUIRE(launch(module, {1}, {32}, {}, x.data(), y.data(), int(x.size()),
                 all.data(), wide.data(), back.data()) == "");

  size_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    T expected(x[i]), actual;
    std::memcpy(&actual, &y[i], sizeof actual);
    bool same = Eigen::numext::bit_cast<uint16_t>(expected) == y[i];
    bool nan = std::isnan(x[i]) && std::isnan(float(actual));
    wrong += !same && !nan;
  }
  CHECK(wrong == 0);
  for (size_t i = 0; i < all.size(); ++i) {
    T value;
    std::memcpy(&value, &all[i], sizeof value);
    float expected(value);
    if (std::isnan(expected)) {
      wrong += !std::isnan(wide[i]);
      std::memcpy(&value, &back[i], sizeof value);
      wrong += !std::isnan(float(value));
    } else {
      bool same = wide[i] == expected &&
                  std::signbit(wide[i]) == std::signbit(expected);
      wrong += !same + (back[i] != all[i]);
    }
  }
  CHECK(wrong == 0);
}

/// Bit patterns of all kinds, and the neighbourhoods of ties in both types.
std::vector<float> floatsOfAllKinds() {
  std::vector<float> values;
  auto add = [&](uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    values.push_back(value);
  };
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i)
    add(random());
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t tie : {0x1000u, 0x2000u, 0x3000u, 0x8000u, 0x10000u, 0x18000u,
                         0x7fe000u, 0x7ff000u, 0x7f8000u, 0x800000u})
      for (uint32_t step : {~0u, 0u, 1u})
        for (uint32_t sign : {0u, 0x80000000u})
          add(sign | ((exponent << 23) + tie + step));
  // Half's subnormal ties: (i + 1/2) 2^-24.
  for (int i = 0; i < 1024; ++i)
    for (float side : {-1.0f, 0.0f, 1.0f})
      values.push_back(std::nextafter((float(i) + 0.5f) / 16777216.0f, side));
  return values;
}

} // namespace

TEST_CASE("bf16 is Eigen's") {
  compareWithEigen<Eigen::bfloat16>("bf16", floatsOfAllKinds());
}

TEST_CASE("half is Eigen's") {
  compareWithEigen<Eigen::half>("half", floatsOfAllKinds());
}

//===----------------------------------------------------------------------===//
// What kernels must not do
//===----------------------------------------------------------------------===//

TEST_CASE("a barrier that some threads never reach is reported") {
  CHECK(messageOf(R"(extern "C" __global__ void f(float *x) {
  if (threadIdx.x < 40)
    return;
  block_barrier();
})") == "divergent block: thread (40, 0, 0) of block (0, 0, 0) waits at the "
        "barrier in line 5, but thread (0, 0, 0) of block (0, 0, 0) has "
        "returned");
}

TEST_CASE("different barriers are reported") {
  CHECK_THAT(messageOf(R"(extern "C" __global__ void f(float *x) {
  if (threadIdx.x < 32)
    block_barrier();
  else
    block_barrier();
})"),
             Catch::Contains("waits at the barrier in line 4, but thread (32, "
                             "0, 0) of block (0, 0, 0) waits at the barrier in "
                             "line 6"));
}

TEST_CASE("a shuffle that some lanes do not reach is reported") {
  CHECK_THAT(messageOf(R"(extern "C" __global__ void f(float *x) {
  if (threadIdx.x % 32 < 20)
    x[0] = shuffle_down(1.0f, 1);
  else
    block_barrier();
})"),
             Catch::Contains("divergent warp: thread (0, 0, 0) of block (0, 0, "
                             "0) waits at the shuffle in line 4, but thread "
                             "(20, 0, 0) of block (0, 0, 0) waits at the "
                             "barrier in line 6"));
  CHECK_THAT(messageOf(R"(extern "C" __global__ void f(float *x) {
  if (threadIdx.x == 63)
    return;
  x[threadIdx.x] = shuffle_up(1.0f, 1);
})"),
             Catch::Contains("thread (63, 0, 0) of block (0, 0, 0) has "
                             "returned"));
}

TEST_CASE("parts of a block have barriers of their own") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void kernel(float *x) {
  __shared__ float s[128];
  const int i = threadIdx.x;
  if (i < 64) {
    s[i] = 2.0f * i;
    part_barrier(1, 64);
    x[i] = s[63 - i];
    part_barrier(2, 128);
  } else {
    s[i] = 3.0f * i;
    part_barrier(2, 128);
    x[i] = s[i] + s[i - 64];
  }
})");
  std::vector<float> x(128);
  CHECK(launch(module, {1}, {128}, whole(x), x.data()) == "");
  for (int i = 0; i < 64; ++i) {
    CHECK(x[i] == 2.0f * (63 - i));
    CHECK(x[64 + i] == 3.0f * (64 + i) + 2.0f * i);
  }
}

TEST_CASE("what parts of a block do wrong is reported") {
  // The second warp has met nobody.
  CHECK_THAT(messageOf(R"(
extern "C" __global__ void kernel(float *x) {
  __shared__ float s[64];
  s[threadIdx.x] = 1.0f;
  part_barrier(1 + threadIdx.x / 32, 32);
  x[threadIdx.x] = s[63 - threadIdx.x];
})"),
             Catch::Contains("race in shared memory"));
  CHECK_THAT(messageOf(R"(
extern "C" __global__ void kernel(float *x) {
  if (threadIdx.x < 32)
    part_barrier(1, 64);
})"),
             Catch::Contains("divergent part: thread (0, 0, 0)") &&
                 Catch::Contains("for 64 threads at barrier 1, where there are "
                                 "32"));
}

TEST_CASE("a race in shared memory is reported") {
  const std::string before = R"(extern "C" __global__ void f(float *x) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
)";
  const std::string after = R"(
  x[threadIdx.x] = s[threadIdx.x ^ 1];
})";
  CHECK_THAT(messageOf(before + after),
             Catch::Contains("race in shared memory: thread"));
  // A shuffle exchanges registers, and orders nothing in memory.
  CHECK_THAT(messageOf(before + "shuffle_xor(1, 1);" + after),
             Catch::Contains("race"));
  CHECK(messageOf(before + "block_barrier();" + after) == "");
  CHECK(messageOf(before + "__syncwarp();" + after) == "");
  // All may read what is then written.
  CHECK_THAT(messageOf(before + R"(block_barrier();
  x[threadIdx.x] = s[0];
  if (threadIdx.x == 0) s[0] = 2;
})"),
             Catch::Contains("since the barrier at line 5"));
}

TEST_CASE("a bulk copy is there when it was waited for, and orders no more") {
  const std::string copied = R"(extern "C" __global__ void f(float *x) {
  __shared__ __align__(16) long long copies[1];
  __shared__ __align__(16) float s[64], t[64];
  copy_init(copies);
  x[threadIdx.x] = threadIdx.x;
  block_barrier();
  copy(copies, s, x, 64);
)";
  const std::string meets = R"(
  if (s[threadIdx.x ^ 1] != (threadIdx.x ^ 1)) x[64] = 0;
})";
  CHECK(messageOf(copied + "copy_wait(copies);" + meets) == "");
  // Until then the memory is not a number, which the kernel tells by a store
  // out of bounds.
  CHECK_THAT(messageOf(copied + meets), Catch::Contains("out of bounds"));
  CHECK(messageOf(copied + "}") ==
        "unfinished copy: the block ends before 256 bytes that it copies in "
        "bulk are there");
  CHECK_THAT(messageOf(copied + R"(t[threadIdx.x] = 1;
  copy_wait(copies);
  x[threadIdx.x] = t[threadIdx.x ^ 1];
})"),
             Catch::Contains("race in shared memory"));
}

TEST_CASE("what a thread copies is there when its group was waited for") {
  const std::string copied = R"(extern "C" __global__ void f(float *x) {
  __shared__ __align__(16) float s[64 * 8];
  float *mine = s + 8 * threadIdx.x;
  x[threadIdx.x] = threadIdx.x;
  block_barrier();
  copy_16_bytes(mine, x);
  copy_rows_commit();
  copy_16_bytes(mine + 4, x + 4);
  copy_rows_commit();
)";
  const std::string first = "if (mine[1] != 1) x[64] = 0; }",
                    second = "if (mine[5] != 5) x[64] = 0; }";
  CHECK(messageOf(copied + "copy_rows_wait_in_warp<1>();" + first) == "");
  CHECK(messageOf(copied + "copy_rows_wait_in_warp<0>();" + second) == "");
  CHECK(messageOf(copied + "copy_rows_wait();" + second) == "");
  const std::string few = "copy_rows_wait_in_warp<1>();" + second;
  for (const std::string &rest : {second, few})
    CHECK_THAT(messageOf(copied + rest), Catch::Contains("out of bounds"));
  CHECK_THAT(messageOf(copied + "copy_rows_wait_in_warp<2>();" + first),
             Catch::Contains("out of bounds"));
}

TEST_CASE("memory that was not given is not touched") {
  CHECK(messageOf(R"(extern "C" __global__ void f(float *x) {
  float local[4] = {};
  local[threadIdx.x % 4] = 1;
  x[threadIdx.x + 1] = local[threadIdx.x % 3];
})") == "out of bounds: thread (63, 0, 0) of block (0, 0, 0) writes 4 bytes at "
        "byte 256 of the 256 bytes of allocation 0");
}

TEST_CASE("vectors that are not aligned are reported") {
  CHECK_THAT(
      messageOf(R"(extern "C" __global__ void f(float *x) {
  x[threadIdx.x] = load_vector<4>(x + threadIdx.x / 32 * 5)[0];
})"),
      Catch::Contains("misaligned: thread (32, 0, 0) of block (0, 0, 0) "
                      "accesses memory 4 bytes behind a multiple of 16"));
}

TEST_CASE("shared memory begins as NaN in every block") {
  EmulatedModule module = compile(R"(
extern "C" __global__ void f(float *x) {
  __shared__ float s[1];
  x[blockIdx.x] = s[0];
  s[0] = 1;
})");
  std::vector<float> x(50);
  REQUIRE(launch(module, {50}, {1}, whole(x), x.data()) == "");
  for (float value : x)
    CHECK(std::isnan(value));
}

TEST_CASE("a text that does not compile is an error with its line") {
  EmulatedModule module =
      compile("extern \"C\" __global__ void f(float *p) { p[0] = lambda; }\n");
  float *p = nullptr;
  CHECK_THAT(launch(module, {1}, {1}, {}, p), Catch::Contains("kernel.cpp:2:"));
}
