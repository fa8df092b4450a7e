//===- Host.cpp - the machine that this runs on ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Host.h"
#include "runtime/Memory.h"
#include "runtime/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sched.h>
#include <unistd.h>

using namespace ladle;
using namespace ladle::tool;

/// The text after `key` and a colon in a file of such lines.
static std::string findLine(const char *path, const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0)
      continue;
    size_t colon = line.find(':');
    size_t text = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && text != std::string::npos)
      return line.substr(text);
  }
  return "";
}

static int64_t kibibytes(const std::string &text) {
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10) << 10;
}

Host Host::describe() {
  Host host;
  host.processor = findLine("/proc/cpuinfo", "model name");
  if (host.processor.empty())
    host.processor = "unknown processor";
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    host.cores = std::max(1, CPU_COUNT(&set));
  auto cache = [](int name) -> int64_t { return std::max(0L, sysconf(name)); };
  host.level1 = cache(_SC_LEVEL1_DCACHE_SIZE);
  host.level2 = cache(_SC_LEVEL2_CACHE_SIZE);
  host.lastLevel = std::max({cache(_SC_LEVEL4_CACHE_SIZE),
                             cache(_SC_LEVEL3_CACHE_SIZE), host.level2});
  host.memory = kibibytes(findLine("/proc/meminfo", "MemTotal"));
  host.availableMemory = kibibytes(findLine("/proc/meminfo", "MemAvailable"));
  return host;
}

Host Host::describe(const DeviceInfo &device) {
  Host host;
  host.processor = device.name;
  host.cores = device.multiprocessors;
  host.level2 = host.lastLevel = device.cacheBytes;
  host.memory = device.memoryBytes;
  host.availableMemory = device.freeBytes;
  return host;
}

//===----------------------------------------------------------------------===//
// Bandwidth
//===----------------------------------------------------------------------===//

namespace {
using Line = uint64_t __attribute__((vector_size(64)));
constexpr int64_t pieceBytes = 128 << 10;
constexpr int64_t pieceLines = pieceBytes / sizeof(Line);
} // namespace

/// Eight independent chains, so that loads and not their sum take the time. Of
/// so many parts of the piece at once, each asked for so many lines ahead.
template <int64_t parts, int64_t ahead>
[[gnu::always_inline]] static inline uint64_t readParts(const void *piece) {
  const auto *lines = static_cast<const Line *>(piece);
  Line sums[8] = {};
  constexpr int64_t partLines = pieceLines / parts;
  for (int64_t i = 0; i < partLines; i += 8 / parts)
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t j = 0; j < 8 / parts; ++j) {
        const Line *line = lines + part * partLines + i + j;
        if constexpr (ahead != 0)
          __builtin_prefetch(line + ahead, /*rw=*/0, /*locality=*/2);
        sums[part * (8 / parts) + j] ^= *line;
      }
  Line sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^
             sums[6] ^ sums[7];
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}
[[gnu::always_inline]] static inline uint64_t readPlain(const void *piece) {
  return readParts<1, 0>(piece);
}
[[gnu::always_inline]] static inline uint64_t readAhead(const void *piece) {
  return readParts<1, 64>(piece);
}
[[gnu::always_inline]] static inline uint64_t readHalves(const void *piece) {
  return readParts<2, 32>(piece);
}

[[gnu::always_inline]] static inline uint64_t updateLines(Line *lines) {
  for (int64_t i = 0; i < pieceLines; ++i)
    lines[i] += 1;
  return 0;
}

// The compiler vectorises for the whole family of processors; the kernels are
// compiled for this one, so the ceiling has to be too.
#if defined(__x86_64__)
#define LADLE_WIDE(FEATURES) [[gnu::target(FEATURES)]]
#define LADLE_VARIANTS(NAME, POINTER)                                          \
  LADLE_WIDE("avx512f") static uint64_t NAME##512(POINTER lines) {             \
    return NAME(lines);                                                        \
  }                                                                            \
  LADLE_WIDE("avx2") static uint64_t NAME##256(POINTER lines) {                \
    return NAME(lines);                                                        \
  }                                                                            \
  static uint64_t NAME##Best(POINTER lines) {                                  \
    if (__builtin_cpu_supports("avx512f"))                                     \
      return NAME##512(lines);                                                 \
    if (__builtin_cpu_supports("avx2"))                                        \
      return NAME##256(lines);                                                 \
    return NAME(lines);                                                        \
  }
#else
#define LADLE_VARIANTS(NAME, POINTER)                                          \
  static uint64_t NAME##Best(POINTER lines) { return NAME(lines); }
#endif

LADLE_VARIANTS(readPlain, const void *)
LADLE_VARIANTS(readAhead, const void *)
LADLE_VARIANTS(readHalves, const void *)
LADLE_VARIANTS(updateLines, Line *)

MemoryStream::MemoryStream(int64_t wanted, int threads)
    : pieces(std::max<int64_t>(1, wanted / pieceBytes)),
      memory(std::make_unique<Memory>()),
      threads(std::make_unique<ThreadPool>(threads)) {
  if (!memory->allocate(pieces * pieceBytes))
    pieces = 0;
  // Memory that was never written is one shared page of zeros.
  update();
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 3; ++round)
    for (Way each : {readPlainBest, readAheadBest, readHalvesBest})
      if (double time = read(each); time < least) {
        least = time;
        way = each;
      }
}

MemoryStream::~MemoryStream() = default;

int64_t MemoryStream::bytes() const { return pieces * pieceBytes; }

template <typename Body> double MemoryStream::pass(const Body &body) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  auto *lines = static_cast<Line *>(memory->data());
  threads->forEach(
      pieces, [&](int64_t piece, int) { body(lines + piece * pieceLines); });
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double MemoryStream::read(Way by) {
  std::atomic<uint64_t> sink = 0;
  return pass([&](const void *lines) {
    sink.fetch_xor(by(lines), std::memory_order_relaxed);
  });
}

double MemoryStream::read() { return read(way); }

double MemoryStream::update() {
  return pass([](Line *lines) { updateLinesBest(lines); });
}

Bandwidth tool::measureBandwidth(int64_t bytes, int threads, double seconds) {
  MemoryStream stream(bytes, threads);
  if (stream.bytes() == 0)
    return {};
  auto best = [&](auto pass) {
    double least = std::numeric_limits<double>::infinity(), total = 0;
    for (int i = 0; i < 3 || total < seconds; ++i) {
      double time = pass();
      total += time;
      least = std::min(least, time);
    }
    return static_cast<double>(stream.bytes()) / least;
  };
  return {best([&] { return stream.read(); }),
          2 * best([&] { return stream.update(); })};
}
