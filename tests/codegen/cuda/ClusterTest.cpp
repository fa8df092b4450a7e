//===- ClusterTest.cpp - clusters of blocks on the CPU --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Emulator.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace ladle::test;
using Catch::Matchers::Contains;

/// Runs `body` in blocks of 32 threads, so many of a cluster, with 256 ints of
/// output `y` and 32 of shared memory `s`.
static std::string run(const std::string &body, std::vector<int> &y,
                       unsigned blocks, unsigned blocksOfCluster) {
  EmulatedModule module(R"(#include "ladle_prelude.cuh"
extern "C" __global__ void kernel(int *y) {
  __shared__ __align__(16) int s[32];
  int thread = threadIdx.x, rank = blockIdx.x % 4;
)" + body + "}");
  y.assign(256, -1);
  int *data = y.data();
  void *arguments[] = {&data};
  return llvm::toString(module.launch(
      "kernel", {blocks}, {32}, arguments,
      Allocation{y.data(), y.size() * sizeof(int)}, blocksOfCluster));
}

TEST_CASE("blocks of a cluster read one another's shared memory") {
  std::vector<int> y;
  CHECK(run(R"(
  s[thread] = 100 * (int)blockIdx.x + thread;
  cluster_arrive();
  cluster_wait();
  y[blockIdx.x * 32 + thread] = cluster_memory(s, (rank + 1) % 4)[thread];
  cluster_arrive();
  cluster_wait();
)",
            y, 8, 4) == "");
  for (int i = 0; i < 256; ++i) {
    int block = i / 32, neighbour = block / 4 * 4 + (block + 1) % 4;
    CHECK(y[i] == 100 * neighbour + i % 32);
  }
}

TEST_CASE("blocks of a cluster write to the first one") {
  std::vector<int> y;
  CHECK(run(R"(
  cluster_arrive();
  cluster_wait();
  if (thread == 0)
    cluster_memory(s, 0)[rank] = 7 + rank;
  cluster_arrive();
  cluster_wait();
  if (rank == 0 && thread < 4)
    y[thread] = s[thread];
)",
            y, 4, 4) == "");
  CHECK(std::vector<int>(y.begin(), y.begin() + 4) ==
        std::vector<int>{7, 8, 9, 10});
}

TEST_CASE("a cluster of one block is a block") {
  std::vector<int> y;
  CHECK(run(R"(
  s[thread] = thread;
  cluster_arrive();
  cluster_wait();
  y[thread] = cluster_memory(s, 0)[31 - thread];
)",
            y, 1, 1) == "");
  CHECK(y[0] == 31);
}

TEST_CASE("races of blocks of a cluster are reported") {
  std::vector<int> y;
  CHECK_THAT(run(R"(
  s[thread] = thread;
  cluster_arrive();
  cluster_wait();
  if (rank == 1)
    y[thread] = cluster_memory(s, 0)[thread];
  if (rank == 0)
    s[thread] = 1;
)",
                 y, 2, 2),
             Contains("another block of the cluster accessed since the barrier"
                      " at line 8"));
  CHECK_THAT(run(R"(
  cluster_memory(s, 0)[thread] = rank;
)",
                 y, 2, 2),
             Contains("race in shared memory") &&
                 Contains("before any barrier"));
}

TEST_CASE("a barrier of a cluster that a block never reaches is reported") {
  std::vector<int> y;
  CHECK_THAT(run(R"(
  if (rank == 0) {
    cluster_arrive();
    cluster_wait();
  }
)",
                 y, 2, 2),
             Contains("divergent cluster") && Contains("has returned") &&
                 Contains("in line 8"));
}

TEST_CASE("clusters divide the blocks along x") {
  std::vector<int> y;
  CHECK_THAT(run("", y, 6, 4),
             Contains("clusters of 4 blocks along x, of which "
                      "there are 6"));
}
