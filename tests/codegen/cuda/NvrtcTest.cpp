//===- NvrtcTest.cpp - cubins, their resources and errors -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/Prelude.h"
#include "codegen/cuda/RegisterBounds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

using namespace ladle;

namespace {

/// Nothing on a machine without NVRTC, where the test says so and passes.
std::optional<Nvrtc> openOrSkip() {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (nvrtc)
    return *nvrtc;
  WARN("skipped: " << llvm::toString(nvrtc.takeError()));
  return std::nullopt;
}

bool supports(const Nvrtc &nvrtc, int arch) {
  std::vector<int> archs = nvrtc.archs();
  return std::find(archs.begin(), archs.end(), arch) != archs.end();
}

Cubin compile(const Nvrtc &nvrtc, const std::string &source,
              const CubinOptions &options) {
  auto cubin = nvrtc.compile(source, "kernel.cu", options);
  if (!cubin)
    FAIL(llvm::toString(cubin.takeError()));
  return std::move(*cubin);
}

/// All of the prelude: what is not used is not looked at.
const char *const everything = R"(#include "ladle_prelude.cuh"
extern "C" __global__ void __launch_bounds__(128)
    halves(const half *__restrict__ x, bf16 *__restrict__ y, long long n) {
  __shared__ __align__(16) float s[128];
  long long i = (blockIdx.x * 128LL + threadIdx.x) * 8;
  if (i + 8 > n) return;
  Vec<half, 8> a = load_vector<8>(x + i), b = load_vector_streaming<8>(x);
  float sum = 0;
  for (int j = 0; j < 8; ++j) sum += to_float(a[j]) * to_float(b[j]);
  sum += shuffle_xor(sum, 1, 8) + shuffle_up(sum, 2) + shuffle_down(sum, 1);
  sum += to_float(shuffle_index(from_float<bf16>(sum), 3, 16));
  s[threadIdx.x] = sum;
  block_barrier();
  Vec<bf16, 8> c;
  for (int j = 0; j < 8; ++j) c[j] = from_float<bf16>(s[127 - threadIdx.x] + j);
  store_vector(y + i, c);
  store_vector_streaming(y + n + i, c);
}
extern "C" __global__ void one(float *x) { x[threadIdx.x] += 1; }
)";

} // namespace

TEST_CASE("a kernel is compiled for each architecture") {
  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  CHECK(nvrtc->version().first >= 12);
  CHECK_FALSE(nvrtc->path().empty());
  for (auto [arch, number] : {std::pair("sm_75", 75),
                              {"sm_80", 80},
                              {"sm_90a", 90},
                              {"sm_100a", 100},
                              {"sm_120", 120}}) {
    if (!supports(*nvrtc, number))
      continue;
    INFO(arch);
    Cubin cubin = compile(*nvrtc, everything, {arch, {}});
    CHECK(llvm::StringRef(cubin.image)
              .starts_with("\x7f"
                           "ELF"));
    REQUIRE(cubin.kernels.size() == 2);
    CHECK(cubin.kernels[0].name == "halves");
    CHECK(cubin.kernels[0].registers > cubin.kernels[1].registers);
    // From Hopper on a block has 1 KiB more, which the report may count.
    CHECK(cubin.kernels[0].sharedBytes % 1024 == 512);
    CHECK(cubin.kernels[1].name == "one");
    CHECK(cubin.kernels[1].registers > 0);
    CHECK(cubin.kernels[1].spillStores == 0);
    Cubin split = compile(*nvrtc, everything, {arch, {}, /*splits=*/true});
    REQUIRE(split.kernels.size() == 2);
    CHECK(split.kernels[0].registers == cubin.kernels[0].registers);
  }
}

TEST_CASE("vectors are moved 16 bytes at a time") {
  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  auto ptx = nvrtc->ptx(everything, "kernel.cu", {"sm_90a", {}});
  if (!ptx)
    FAIL(llvm::toString(ptx.takeError()));
  CHECK_THAT(*ptx, Catch::Contains(".target sm_90a"));
  CHECK_THAT(*ptx, Catch::Contains("ld.global.nc.v4.u32") ||
                       Catch::Contains("ld.global.v4.u32") ||
                       Catch::Contains("ld.global.nc.v4.b32"));
  CHECK_THAT(*ptx, Catch::Contains("ld.global.cs.v4."));
  CHECK_THAT(*ptx, Catch::Contains("st.global.cs.v4."));
  CHECK_THAT(*ptx, Catch::Contains("cvt.rn.bf16.f32"));
}

/// The body of a kernel whose threads hold 96 numbers at once.
static const char *const manyNumbers = R"((float *p) {
  float a[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) a[i] = p[threadIdx.x * 96 + i];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; i++) p[threadIdx.x * 96 + i] = a[95 - i] * a[i];
})";

TEST_CASE("registers that do not suffice are reported as spills") {
  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  const std::string source =
      std::string("extern \"C\" __global__ void __launch_bounds__(128) spill") +
      manyNumbers;
  // The bound on the threads of a block overrides the option.
  std::string unbounded = source;
  unbounded.erase(unbounded.find("__launch_bounds__(128)"), 22);
  CubinOptions options{"sm_80", {"--maxrregcount=32"}};
  Cubin cubin;
  // NVRTC keeps what it has compiled, and not what it has reported.
  for (int time : {1, 2}) {
    CAPTURE(time);
    cubin = compile(*nvrtc, unbounded, options);
    REQUIRE(cubin.kernels.size() == 1);
    CHECK(cubin.kernels[0].registers <= 32);
    CHECK(cubin.kernels[0].spillStores > 0);
    CHECK(cubin.kernels[0].spillLoads > 0);
    CHECK(cubin.kernels[0].stackBytes > 0);
  }

  cubin = compile(*nvrtc, source, {"sm_80", {}});
  CHECK(cubin.kernels[0].registers > 32);
  CHECK(cubin.kernels[0].spillStores == 0);
}

TEST_CASE("what spills has more registers, and fewer blocks") {
  std::string text = "__launch_bounds__(128, 6) one(float *p);\n"
                     "__launch_bounds__(64) two(float *p);\n"
                     "__launch_bounds__(64, 4) full(float *p);\n"
                     "__launch_bounds__(256, 1) alone(float *p);\n"
                     "__launch_bounds__(128, 6) other(float *p);\n";
  auto kernel = [](const char *name, int registers, int spilled) {
    return KernelResources{name, registers, spilled, spilled, spilled, 0};
  };
  CHECK(withFewerBlocks(text, {kernel("one", 80, 0), kernel("two", 80, 0)})
            .empty());
  CHECK(withFewerBlocks(text, {kernel("full", 255, 8)}).empty());
  CHECK(withFewerBlocks(text, {kernel("alone", 248, 8)}).empty());
  CHECK(withFewerBlocks(text, {kernel("unknown", 80, 8)}).empty());
  CHECK(
      withFewerBlocks(text, {kernel("one", 80, 8), kernel("two", 74, 8),
                             kernel("full", 255, 8), kernel("other", 80, 0)}) ==
      "__launch_bounds__(128, 5) one(float *p);\n"
      "__launch_bounds__(64, 11) two(float *p);\n"
      "__launch_bounds__(64, 4) full(float *p);\n"
      "__launch_bounds__(256, 1) alone(float *p);\n"
      "__launch_bounds__(128, 6) other(float *p);\n");

  // The bounds of some say what they may spill.
  text = "__launch_bounds__(128, 5) LADLE_MAY_SPILL(32) some(float *p);\n";
  std::vector<KernelResources> some{kernel("some", 96, 32),
                                    kernel("other", 96, 32)};
  findSpillsAllowed(text, some);
  CHECK(some[0].maySpill == 32);
  CHECK(!some[0].spills());
  CHECK(some[1].maySpill == 0);
  CHECK(some[1].spills());
  CHECK(withFewerBlocks(text, some).empty());
  some[0].spillStores = 36;
  CHECK(some[0].spills());
  CHECK(withFewerBlocks(text, some) ==
        "__launch_bounds__(128, 4) LADLE_MAY_SPILL(32) some(float *p);\n");

  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  const std::string source =
      std::string(
          "extern \"C\" __global__ void __launch_bounds__(128, 12) product") +
      manyNumbers;
  CubinOptions options{"sm_90a", {}};
  CHECK(compile(*nvrtc, source, options).kernels[0].spillStores > 0);
  auto within = compileWithinRegisters(*nvrtc, source, "product.cu", options);
  REQUIRE(bool(within));
  CHECK(within->kernels[0].registers > 40);
  CHECK(within->kernels[0].spillStores + within->kernels[0].spillLoads == 0);
  auto faulty = compileWithinRegisters(*nvrtc, "x", "faulty.cu", options);
  CHECK(!faulty);
  llvm::consumeError(faulty.takeError());
}

TEST_CASE("an error shows the line and the place") {
  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  const char *source = "#include \"ladle_prelude.cuh\"\n"
                       "extern \"C\" __global__ void f(float *p) {\n"
                       "  p[0] = lambda + 1;\n"
                       "}\n";
  auto cubin = nvrtc->compile(source, "step.cu", {"sm_80", {}});
  std::string message = llvm::toString(cubin.takeError());
  CHECK_THAT(message,
             Catch::Contains("step.cu(3): error: identifier \"lambda\""));
  CHECK_THAT(message, Catch::Contains("    p[0] = lambda + 1;\n"
                                      "           ^"));
  // What it was compiled with: without what NVRTC keeps, which has no report.
  if (nvrtc->version() >= std::pair(12, 9))
    CHECK_THAT(message, Catch::Contains("--no-cache"));
}

TEST_CASE("an architecture that NVRTC does not know is an error") {
  auto nvrtc = openOrSkip();
  if (!nvrtc)
    return;
  auto cubin = nvrtc->compile("", "step.cu", {"sm_33", {}});
  CHECK_THAT(llvm::toString(cubin.takeError()), Catch::Contains("sm_33"));
}

TEST_CASE("a file that is not NVRTC is an error that names it") {
  const char *before = std::getenv("LADLE_NVRTC");
  std::string kept = before ? before : "";
  for (const char *file : {"/nonexistent/libnvrtc.so", "libm.so.6"}) {
    ::setenv("LADLE_NVRTC", file, 1);
    auto nvrtc = Nvrtc::open();
    std::string message = llvm::toString(nvrtc.takeError());
    CHECK_THAT(message, Catch::Contains("LADLE_NVRTC"));
    CHECK_THAT(message, Catch::Contains(file));
  }
  before ? ::setenv("LADLE_NVRTC", kept.c_str(), 1) : ::unsetenv("LADLE_NVRTC");
}

TEST_CASE("the report of ptxas is read") {
  auto kernels = parsePtxasReport(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'step' for 'sm_90a'\n"
      "ptxas info    : Function properties for step\n"
      "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers, 16 bytes "
      "cumulative stack size, 1280 bytes smem, 400 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'flush' for 'sm_90a'\n"
      "ptxas info    : Used 8 registers\n");
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "flush");
  CHECK(kernels[0].registers == 8);
  CHECK(kernels[0].sharedBytes == 0);
  CHECK(kernels[1].registers == 32);
  CHECK(kernels[1].stackBytes == 16);
  CHECK(kernels[1].spillStores == 8);
  CHECK(kernels[1].spillLoads == 4);
  CHECK(kernels[1].sharedBytes == 1280);
}
