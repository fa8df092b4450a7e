//===- emulation.h - CUDA C++ as the CPU reads it ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tests on machines without a GPU. A kernel's text includes this in place
// of what NVRTC brings along, and is compiled to a shared object. Whoever
// loads it (tests/codegen/cuda/Emulator.cpp) runs every CUDA thread as a fiber
// and is called, through `Scheduler`, where threads meet. This header is kept
// small because it is compiled again with every kernel.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_EMULATION_H
#define LADLE_CODEGEN_CUDA_EMULATION_H

#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming)
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
// NOLINTEND(readability-identifier-naming)

namespace ladle::emulation {

/// Where threads wait for others.
enum class Point {
  Shuffle,
  WarpBarrier,
  PartBarrier,
  BlockBarrier,
  Copies,
  Cluster
};

/// A bulk copy that goes on while the block does.
struct Copy {
  const void *counter;
  void *to;
  const void *from;
  std::size_t bytes;
  bool isWaitedFor = false;
};

/// One for an OS thread: the fiber that runs on it, and how it calls back.
struct Scheduler {
  uint3 threadIndex, blockIndex;
  dim3 blockSize, gridSize;
  /// 0 to 31; the threads of the last warp may be fewer.
  unsigned lane;
  /// A value for each lane of the warp.
  unsigned long long *slots;
  /// Copies that nobody has waited for; those of a counter are made when all
  /// threads wait for it at Point::Copies, which orders no other accesses. So
  /// are those that some thread waits for apart.
  Copy copies[128];
  int copyCount = 0;
  const void *waitedCopies = nullptr;

  /// Set ahead of Point::PartBarrier: which one, and who meets there.
  int part = 0, partThreads = 0;

  /// The shared memory of each block of the cluster, in which this one has a
  /// rank.
  char *shared[8];
  unsigned rank;

  /// The stack of the fiber that runs, whose accesses are nobody else's affair.
  const char *stack = nullptr;
  std::size_t stackBytes = 0;

  /// Returns when all threads of the warp, of a part of the block, of the
  /// block, or of the cluster, are there. Does not return if that never
  /// happens.
  void (*wait)(Scheduler &, Point, int line);
  /// Does not return.
  void (*misaligned)(Scheduler &, const void *address, unsigned alignment);
  /// Told of every access to memory, if the text was compiled so.
  void (*access)(Scheduler &, const void *address, unsigned bytes, bool writes);
  /// Of this thread: 16 bytes that come when their group is waited for, the end
  /// of a group, and a wait for all but the last so many; −1 is for everything.
  void (*copyPart)(Scheduler &, void *to, const void *from);
  void (*endGroup)(Scheduler &);
  void (*waitForGroups)(Scheduler &, int pending);
};

} // namespace ladle::emulation

#ifdef LADLE_EMULATION

namespace ladle::emulation {

/// Set before a fiber runs. Of each shared object its own.
static thread_local Scheduler *scheduler = nullptr;

/// Calls a kernel with arguments as cuLaunchKernel takes them. Reading them is
/// no access of the kernel.
template <class... Args, std::size_t... I>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(Args...),
                                                 void *const *arguments,
                                                 std::index_sequence<I...>) {
  kernel(*static_cast<Args *>(arguments[I])...);
}
template <class... Args>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(Args...),
                                                 void *const *arguments) {
  call(kernel, arguments, std::index_sequence_for<Args...>());
}

/// `source` maps a lane and the last lane of its group to a lane; where that
/// is beyond the group, the thread keeps its value.
template <class T, class F>
__attribute__((no_sanitize("thread"))) T shuffle(T v, int width, int line,
                                                 F source) {
  static_assert(sizeof(T) <= sizeof(unsigned long long));
  Scheduler &s = *scheduler;
  int lane = static_cast<int>(s.lane), first = lane & ~(width - 1);
  int last = first + width - 1, from = source(lane, first, last);
  unsigned long long *slots = s.slots;
  std::memcpy(&slots[lane], &v, sizeof v);
  s.wait(s, Point::Shuffle, line);
  if (from >= 0)
    std::memcpy(&v, &slots[from & 31], sizeof v);
  return v;
}

/// What every lane of the warp points at. What lies on their stacks is there
/// until `leave`.
template <class T>
__attribute__((no_sanitize("thread"))) void
gather(const T *mine, const T *(&all)[32], int line) {
  Scheduler &s = *scheduler;
  unsigned long long *slots = s.slots;
  slots[s.lane] = reinterpret_cast<std::size_t>(mine);
  s.wait(s, Point::Shuffle, line);
  for (int lane = 0; lane < 32; ++lane)
    all[lane] = reinterpret_cast<const T *>(slots[lane]);
}
inline void leave(int line) {
  Scheduler &s = *scheduler;
  s.wait(s, Point::Shuffle, line);
}

/// What a GPU asks of addresses, and a CPU does not.
inline void check_aligned(const void *address, unsigned alignment) {
  Scheduler &s = *scheduler;
  if (reinterpret_cast<std::size_t>(address) % alignment)
    s.misaligned(s, address, alignment);
}

/// What bulk copies ask of addresses and sizes.
inline void check_copy(const void *to, const void *from, std::size_t bytes) {
  if (reinterpret_cast<std::size_t>(to) % 16 ||
      reinterpret_cast<std::size_t>(from) % 16 || bytes % 16)
    __builtin_trap();
}

/// By one thread; until it is waited for, the memory is all ones.
__attribute__((no_sanitize("thread"))) inline void
start_part(void *to, const void *from) {
  check_copy(to, from, 16);
  Scheduler &s = *scheduler;
  if (s.access) {
    s.access(s, from, 16, false);
    s.access(s, to, 16, true);
  }
  __builtin_memset(to, 0xff, 16);
  s.copyPart(s, to, from);
}

/// By all threads; until it is waited for, the memory is all ones.
__attribute__((no_sanitize("thread"))) inline void
start_copy(const void *counter, void *to, const void *from, std::size_t bytes) {
  check_copy(to, from, bytes);
  Scheduler &s = *scheduler;
  if (s.threadIndex.x != 0 || bytes == 0)
    return;
  if (s.copyCount == sizeof s.copies / sizeof s.copies[0])
    __builtin_trap();
  if (s.access)
    s.access(s, from, static_cast<unsigned>(bytes), false);
  __builtin_memset(to, 0xff, bytes);
  s.copies[s.copyCount++] = {counter, to, from, bytes};
}

} // namespace ladle::emulation

//===----------------------------------------------------------------------===//
// Words of CUDA
//===----------------------------------------------------------------------===//

#define __global__
#define __device__
#define __host__
#define __constant__ static
// Blocks that run at the same time run on different OS threads.
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (::ladle::emulation::scheduler->threadIndex)
#define blockIdx (::ladle::emulation::scheduler->blockIndex)
#define blockDim (::ladle::emulation::scheduler->blockSize)
#define gridDim (::ladle::emulation::scheduler->gridSize)
inline constexpr int warpSize = 32;

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

//===----------------------------------------------------------------------===//
// Where threads meet
//===----------------------------------------------------------------------===//

// The lines are those of the calls.
inline void __syncthreads(int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.wait(s, ladle::emulation::Point::BlockBarrier, line);
}
inline void __syncwarp(unsigned = ~0u, int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.wait(s, ladle::emulation::Point::WarpBarrier, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned, T v, int mask, int width = 32,
                         int line = __builtin_LINE()) {
  return ladle::emulation::shuffle(
      v, width, line, [=](int lane, int first, int last) {
        return (lane ^ mask) <= last ? lane ^ mask : -1;
      });
}
template <class T>
inline T __shfl_up_sync(unsigned, T v, unsigned delta, int width = 32,
                        int line = __builtin_LINE()) {
  return ladle::emulation::shuffle(v, width, line,
                                   [=](int lane, int first, int last) {
                                     int from = lane - static_cast<int>(delta);
                                     return from >= first ? from : -1;
                                   });
}
template <class T>
inline T __shfl_down_sync(unsigned, T v, unsigned delta, int width = 32,
                          int line = __builtin_LINE()) {
  return ladle::emulation::shuffle(v, width, line,
                                   [=](int lane, int first, int last) {
                                     int from = lane + static_cast<int>(delta);
                                     return from <= last ? from : -1;
                                   });
}
template <class T>
inline T __shfl_sync(unsigned, T v, int index, int width = 32,
                     int line = __builtin_LINE()) {
  return ladle::emulation::shuffle(v, width, line,
                                   [=](int lane, int first, int last) {
                                     return first + (index & (width - 1));
                                   });
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }

template <class To, class From> inline To ladleBitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned x) { return ladleBitCast<float>(x); }
inline unsigned __float_as_uint(float x) { return ladleBitCast<unsigned>(x); }
inline float __int_as_float(int x) { return ladleBitCast<float>(x); }
inline int __float_as_int(float x) { return ladleBitCast<int>(x); }

// In full precision: what a GPU approximates is not imitated.
inline float sinpif(float x) {
  return static_cast<float>(std::sin(3.14159265358979323846 * x));
}
inline float cospif(float x) {
  return static_cast<float>(std::cos(3.14159265358979323846 * x));
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
template <class T> inline T min(T x, T y) { return y < x ? y : x; }
template <class T> inline T max(T x, T y) { return x < y ? y : x; }

//===----------------------------------------------------------------------===//
// Every access to memory
//===----------------------------------------------------------------------===//

// ThreadSanitizer's instrumentation without its runtime: these functions are
// called in its place.
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if __has_feature(thread_sanitizer) || defined(__SANITIZE_THREAD__)

namespace ladle::emulation {
__attribute__((no_sanitize("thread"), always_inline)) inline void
note(const void *address, std::size_t bytes, bool writes) {
  Scheduler *s = scheduler;
  if (reinterpret_cast<std::size_t>(address) -
          reinterpret_cast<std::size_t>(s->stack) >=
      s->stackBytes)
    s->access(*s, address, static_cast<unsigned>(bytes), writes);
}
} // namespace ladle::emulation

#define LADLE_HOOK                                                             \
  extern "C" __attribute__((no_sanitize("thread"), used)) inline void
#define LADLE_ACCESS(NAME, BYTES, WRITES)                                      \
  LADLE_HOOK __tsan_##NAME##BYTES(void *address) {                             \
    ladle::emulation::note(address, BYTES, WRITES);                            \
  }
#define LADLE_ACCESSES(BYTES)                                                  \
  LADLE_ACCESS(read, BYTES, false)                                             \
  LADLE_ACCESS(write, BYTES, true)                                             \
  LADLE_ACCESS(read_write, BYTES, true)                                        \
  LADLE_ACCESS(unaligned_read, BYTES, false)                                   \
  LADLE_ACCESS(unaligned_write, BYTES, true)                                   \
  LADLE_ACCESS(unaligned_read_write, BYTES, true)
LADLE_ACCESSES(1)
LADLE_ACCESSES(2)
LADLE_ACCESSES(4)
LADLE_ACCESSES(8)
LADLE_ACCESSES(16)
#undef LADLE_ACCESSES
#undef LADLE_ACCESS

LADLE_HOOK __tsan_init() {}
#undef LADLE_HOOK
extern "C" __attribute__((no_sanitize("thread"), used)) inline void *
__tsan_memcpy(void *to, const void *from, std::size_t bytes) {
  ladle::emulation::note(from, bytes, false);
  ladle::emulation::note(to, bytes, true);
  return __builtin_memcpy(to, from, bytes);
}
extern "C" __attribute__((no_sanitize("thread"), used)) inline void *
__tsan_memset(void *to, int value, std::size_t bytes) {
  ladle::emulation::note(to, bytes, true);
  return __builtin_memset(to, value, bytes);
}

// Of other functions, those of atomics would be called again.
extern "C" __attribute__((disable_sanitizer_instrumentation, used)) inline int
__tsan_atomic32_fetch_add(volatile int *at, int value, int) {
  ladle::emulation::note(const_cast<int *>(at), sizeof(int), true);
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

#endif // thread_sanitizer

#endif // LADLE_EMULATION

#endif // LADLE_CODEGEN_CUDA_EMULATION_H
