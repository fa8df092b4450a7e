//===- prelude.cuh - what generated CUDA C++ is written in ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Generated code includes this as "ladle_prelude.cuh". NVRTC finds it without
// any include path: it needs neither the toolkit's headers nor a C++ library.
// With LADLE_EMULATION the same text is compiled for the CPU, see emulation.h.
//
//===----------------------------------------------------------------------===//

#pragma once

#ifdef LADLE_EMULATION
#include "emulation.h"
#endif

/// Behind the launch bounds of a kernel, for who compiles it: so many bytes a
/// thread may be spilled before fewer blocks are better.
#define LADLE_MAY_SPILL(BYTES)

#define LADLE_INLINE static __device__ __forceinline__

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

/// A product of 64 bits in one instruction. Factors that a compiler has widened
/// at different places it multiplies in three.
LADLE_INLINE long long wide_product(int a, int b) {
#if defined(__CUDA_ARCH__)
  long long product;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return (long long)a * b;
#endif
}

namespace ladle_detail {
/// The largest power of two, at most 16, that divides the bytes.
template <int Bytes>
constexpr int alignment = Bytes % 16 == 0 ? 16 : Bytes & -Bytes;
} // namespace ladle_detail

template <class T, int N>
struct alignas(ladle_detail::alignment<N * sizeof(T)>) Vec {
  T elements[N];
  __device__ __forceinline__ T &operator[](int i) { return elements[i]; }
  __device__ __forceinline__ const T &operator[](int i) const {
    return elements[i];
  }
};

namespace ladle_detail {

/// What one access moves.
template <int Bytes> struct WordOf;
template <> struct WordOf<1> {
  using type = unsigned char;
};
template <> struct WordOf<2> {
  using type = unsigned short;
};
template <> struct WordOf<4> {
  using type = unsigned int;
};
template <> struct WordOf<8> {
  using type = uint2;
};
template <> struct WordOf<16> {
  using type = uint4;
};
template <class V> using Word = typename WordOf<alignof(V)>::type;

/// How a word is moved.
struct Plain {
  template <class W>
  __device__ __forceinline__ void operator()(W *to, const W *from) const {
    *to = *from;
  }
};
struct StreamingLoad {
  template <class W>
  __device__ __forceinline__ void operator()(W *to, const W *from) const {
    *to = __ldcs(from);
  }
};
struct StreamingStore {
  template <class W>
  __device__ __forceinline__ void operator()(W *to, const W *from) const {
    __stcs(to, *from);
  }
};
/// The L2 cache drops it last.
struct KeptStore {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned long long policy;
  __device__ __forceinline__ KeptStore() {
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;"
                 : "=l"(policy));
  }
  __device__ __forceinline__ void operator()(unsigned short *to,
                                             const unsigned short *from) const {
    asm volatile("st.global.L2::cache_hint.b16 [%0], %1, %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "h"(*from), "l"(policy)
                 : "memory");
  }
  __device__ __forceinline__ void operator()(unsigned int *to,
                                             const unsigned int *from) const {
    asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(*from), "l"(policy)
                 : "memory");
  }
  __device__ __forceinline__ void operator()(uint2 *to,
                                             const uint2 *from) const {
    asm volatile("st.global.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(from->x),
                   "r"(from->y), "l"(policy)
                 : "memory");
  }
  __device__ __forceinline__ void operator()(uint4 *to,
                                             const uint4 *from) const {
    asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(from->x),
                   "r"(from->y), "r"(from->z), "r"(from->w), "l"(policy)
                 : "memory");
  }
#else
  template <class W>
  __device__ __forceinline__ void operator()(W *to, const W *from) const {
    *to = *from;
  }
#endif
};
/// Moves only what is wanted. A word is taken apart where it is used, so that
/// loads that follow one another do not wait for each other.
struct LoadIf {
  bool wanted;
  template <class W>
  __device__ __forceinline__ void operator()(W *to, const W *from) const {
    W word = *to;
    if (wanted)
      word = *from;
    *to = word;
  }
};
/// The same of memory that nobody writes meanwhile. An instruction with a
/// predicate, not behind a branch: loads of one row share its address.
struct LoadConstantIf : LoadIf {
#if defined(__CUDA_ARCH__)
  using LoadIf::operator();
  __device__ __forceinline__ void operator()(unsigned int *to,
                                             const unsigned int *from) const {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n"
                 "@p ld.global.b32 %0, [%1];\n}"
                 : "+r"(*to)
                 : "l"(__cvta_generic_to_global(from)), "r"(int(wanted)));
  }
  __device__ __forceinline__ void operator()(uint2 *to,
                                             const uint2 *from) const {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n"
                 "@p ld.global.v2.b32 {%0, %1}, [%2];\n}"
                 : "+r"(to->x), "+r"(to->y)
                 : "l"(__cvta_generic_to_global(from)), "r"(int(wanted)));
  }
  __device__ __forceinline__ void operator()(uint4 *to,
                                             const uint4 *from) const {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
                 "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(to->x), "+r"(to->y), "+r"(to->z), "+r"(to->w)
                 : "l"(__cvta_generic_to_global(from)), "r"(int(wanted)));
  }
#endif
};
/// A V as the fewest words.
template <class V, class Move>
LADLE_INLINE void move_words(void *to, const void *from, Move move) {
  using W = Word<V>;
#ifdef LADLE_EMULATION
  ladle::emulation::check_aligned(to, alignof(V));
  ladle::emulation::check_aligned(from, alignof(V));
#endif
#pragma unroll
  for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i)
    move(static_cast<W *>(to) + i, static_cast<const W *>(from) + i);
}

} // namespace ladle_detail

/// Elements that bytes of global memory are.
template <class T> LADLE_INLINE T *bytes_as(signed char *p) {
  return reinterpret_cast<T *>(p);
}
template <class T> LADLE_INLINE const T *bytes_as(const signed char *p) {
  return reinterpret_cast<const T *>(p);
}

/// N elements that lie one after the other; `p` is aligned like Vec<T, N>.
template <int N, class T> LADLE_INLINE Vec<T, N> load_vector(const T *p) {
  Vec<T, N> v;
  ladle_detail::move_words<Vec<T, N>>(&v, p, ladle_detail::Plain{});
  return v;
}

/// The same for what is read once: the caches drop it first.
template <int N, class T>
LADLE_INLINE Vec<T, N> load_vector_streaming(const T *p) {
  Vec<T, N> v;
  ladle_detail::move_words<Vec<T, N>>(&v, p, ladle_detail::StreamingLoad{});
  return v;
}

/// The same from global memory that another kernel may be writing: the
/// first-level cache, in which it would grow old, does not get it.
template <int N, class T>
LADLE_INLINE Vec<T, N> load_vector_ahead(const T *p) {
  static_assert(sizeof(T) == sizeof(int));
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#if defined(__CUDA_ARCH__)
    int word;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(word)
                 : "l"(__cvta_generic_to_global(p + i)));
    v[i] = word;
#else
    v[i] = p[i];
#endif
  }
  return v;
}

/// The same from global memory if it is wanted; else N times `otherwise`.
template <int N, class T>
LADLE_INLINE Vec<T, N> load_vector_if(bool wanted, const T *p, T otherwise) {
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = otherwise;
  ladle_detail::move_words<Vec<T, N>>(&v, p, ladle_detail::LoadIf{wanted});
  return v;
}

/// The same from memory that nobody writes while the kernel runs.
template <int N, class T>
LADLE_INLINE Vec<T, N> load_constant_vector_if(bool wanted, const T *p,
                                               T otherwise) {
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = otherwise;
  ladle_detail::move_words<Vec<T, N>>(&v, p,
                                      ladle_detail::LoadConstantIf{{wanted}});
  return v;
}

template <class T, int N>
LADLE_INLINE void store_vector(T *p, const Vec<T, N> &v) {
  ladle_detail::move_words<Vec<T, N>>(p, &v, ladle_detail::Plain{});
}

template <class T, int N>
LADLE_INLINE void store_vector_streaming(T *p, const Vec<T, N> &v) {
  ladle_detail::move_words<Vec<T, N>>(p, &v, ladle_detail::StreamingStore{});
}

/// The same for what the next kernel reads: states and entries that stream
/// through the L2 cache leave it there.
template <class T, int N>
LADLE_INLINE void store_vector_kept(T *p, const Vec<T, N> &v) {
  ladle_detail::move_words<Vec<T, N>>(p, &v, ladle_detail::KeptStore{});
}

template <class T> LADLE_INLINE void store_kept(T *p, const T &v) {
  ladle_detail::move_words<T>(p, &v, ladle_detail::KeptStore{});
}

//===----------------------------------------------------------------------===//
// 16-bit floats: storage only, arithmetic is in float
//===----------------------------------------------------------------------===//

struct bf16 {
  unsigned short bits;
};
struct half {
  unsigned short bits;
};

namespace ladle_detail {

LADLE_INLINE float float_of_bits(unsigned bits) {
  return __uint_as_float(bits);
}
LADLE_INLINE unsigned bits_of_float(float x) { return __float_as_uint(x); }

/// To the nearest, ties to even; NaN stays NaN.
LADLE_INLINE unsigned short bf16_bits(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  unsigned bits = bits_of_float(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<unsigned short>(bits >> 16 | 0x40u);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >>
                                     16);
#endif
}

#ifndef LADLE_EMULATION
LADLE_INLINE unsigned short half_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

LADLE_INLINE float float_of_half(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
#else
LADLE_INLINE unsigned short half_bits(float x) {
  unsigned bits = bits_of_float(x), sign = bits >> 16 & 0x8000u;
  unsigned size = bits & 0x7fffffffu;
  if (size > 0x7f800000u)
    return static_cast<unsigned short>(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  // From 65520 on the nearest is infinity.
  if (size >= 0x477ff000u)
    return static_cast<unsigned short>(sign | 0x7c00u);
  // Below 2^-14 the unit is 2^-24, which is the last place of 0.5.
  if (size < 0x38800000u) {
    float shifted = float_of_bits(size) + 0.5f;
    return static_cast<unsigned short>(sign |
                                       (bits_of_float(shifted) - 0x3f000000u));
  }
  // The exponent's bias goes from 127 to 15.
  size = size - (112u << 23) + 0xfffu + (size >> 13 & 1u);
  return static_cast<unsigned short>(sign | size >> 13);
}

LADLE_INLINE float float_of_half(unsigned short bits) {
  unsigned sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u)
    return float_of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13);
  if (size < 0x400u) {
    float x = static_cast<float>(size) * (1.0f / 16777216.0f);
    return float_of_bits(sign | bits_of_float(x));
  }
  return float_of_bits(sign | ((size << 13) + (112u << 23)));
}
#endif

template <class T> struct From;
template <> struct From<bf16> {
  static __device__ __forceinline__ bf16 convert(float x) {
    return bf16{bf16_bits(x)};
  }
};
template <> struct From<half> {
  static __device__ __forceinline__ half convert(float x) {
    return half{half_bits(x)};
  }
};
template <> struct From<float> {
  static __device__ __forceinline__ float convert(float x) { return x; }
};

} // namespace ladle_detail

// sinf and cosf keep a table on the stack for arguments beyond 1e5. An angle is
// taken in half turns here, as a float and what it lacks of x / pi.
LADLE_INLINE float half_turns(float x) {
  const float inverse_pi = 0.318309873342514038f;
  const float inverse_pi_rest = 1.28412765e-8f;
  const float turns = x * inverse_pi;
  const float rest = fmaf(x, inverse_pi_rest, fmaf(x, inverse_pi, -turns));
  // An even number of half turns changes nothing.
  const float whole = 2.0f * rintf(0.5f * turns);
  return (turns - whole) + rest;
}
LADLE_INLINE float sine(float x) {
  return sinpif(half_turns(x));
}
LADLE_INLINE float cosine(float x) {
  return cospif(half_turns(x));
}

/// a / b for b of 1 and more, within two units in the last place, and 0 for b
/// beyond 2^126: an exact division branches, for what a and b may be, and
/// nothing passes a branch.
LADLE_INLINE float divide_by_large(float a, float b) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
#else
  return a / b;
#endif
}

/// 2^x within 2 units in the last place, and e^x within 2 + 1.2 |x|, for decays
/// and e^x + 1: that of an error in x is as small as they are. 0 where the power
/// is not a normal number.
LADLE_INLINE float approximate_exp2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
LADLE_INLINE float approximate_exp(float x) {
#ifdef __CUDA_ARCH__
  return approximate_exp2(x * 1.44269504f);
#else
  return expf(x);
#endif
}

LADLE_INLINE float to_float(bf16 x) {
  return ladle_detail::float_of_bits(static_cast<unsigned>(x.bits) << 16);
}
LADLE_INLINE float to_float(half x) {
  return ladle_detail::float_of_half(x.bits);
}
LADLE_INLINE float to_float(float x) { return x; }

/// from_float<bf16>(x)
template <class T> LADLE_INLINE T from_float(float x) {
  return ladle_detail::From<T>::convert(x);
}

namespace ladle_detail {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
LADLE_INLINE unsigned pair_from_floats(bf16, float a, float b) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
LADLE_INLINE unsigned pair_from_floats(half, float a, float b) {
  unsigned bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
#else
template <class T> LADLE_INLINE unsigned pair_from_floats(T, float a, float b) {
  return from_float<T>(a).bits | static_cast<unsigned>(from_float<T>(b).bits)
                                     << 16;
}
#endif
} // namespace ladle_detail

/// from_floats<bf16>(v): two elements at once.
template <class T, int N>
LADLE_INLINE Vec<T, N> from_floats(const Vec<float, N> &v) {
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const unsigned pair = ladle_detail::pair_from_floats(T{}, v[i], v[i + 1]);
    result[i].bits = static_cast<unsigned short>(pair);
    result[i + 1].bits = static_cast<unsigned short>(pair >> 16);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Within a warp and a block
//===----------------------------------------------------------------------===//

// The threads of a warp fall into groups of `width`, a power of two. All
// threads of the warp take part, always.
namespace ladle_detail {
constexpr unsigned warp = 0xffffffffu;
} // namespace ladle_detail

#ifdef LADLE_EMULATION
// Messages name the line of the generated text.
#define LADLE_SITE , int ladle_line = __builtin_LINE()
#define LADLE_AT_SITE , ladle_line
#else
#define LADLE_SITE
#define LADLE_AT_SITE
#endif

/// Every thread gets `v` of the thread whose index differs by `mask`.
template <class T>
LADLE_INLINE T shuffle_xor(T v, int mask, int width = 32 LADLE_SITE) {
  return __shfl_xor_sync(ladle_detail::warp, v, mask, width LADLE_AT_SITE);
}
/// `v` of the thread `delta` below; the first `delta` of a group keep theirs.
template <class T>
LADLE_INLINE T shuffle_up(T v, unsigned delta, int width = 32 LADLE_SITE) {
  return __shfl_up_sync(ladle_detail::warp, v, delta, width LADLE_AT_SITE);
}
/// `v` of the thread `delta` above; the last `delta` of a group keep theirs.
template <class T>
LADLE_INLINE T shuffle_down(T v, unsigned delta, int width = 32 LADLE_SITE) {
  return __shfl_down_sync(ladle_detail::warp, v, delta, width LADLE_AT_SITE);
}
/// `v` of the thread `index` of the group.
template <class T>
LADLE_INLINE T shuffle_index(T v, int index, int width = 32 LADLE_SITE) {
  return __shfl_sync(ladle_detail::warp, v, index, width LADLE_AT_SITE);
}

#define LADLE_SHUFFLE_BITS(TYPE, NAME, INDEX)                                  \
  LADLE_INLINE TYPE NAME(TYPE v, INDEX i, int width = 32 LADLE_SITE) {         \
    return TYPE{static_cast<unsigned short>(                                   \
        NAME(static_cast<unsigned>(v.bits), i, width LADLE_AT_SITE))};         \
  }
LADLE_SHUFFLE_BITS(bf16, shuffle_xor, int)
LADLE_SHUFFLE_BITS(half, shuffle_xor, int)
LADLE_SHUFFLE_BITS(bf16, shuffle_up, unsigned)
LADLE_SHUFFLE_BITS(half, shuffle_up, unsigned)
LADLE_SHUFFLE_BITS(bf16, shuffle_down, unsigned)
LADLE_SHUFFLE_BITS(half, shuffle_down, unsigned)
LADLE_SHUFFLE_BITS(bf16, shuffle_index, int)
LADLE_SHUFFLE_BITS(half, shuffle_index, int)
#undef LADLE_SHUFFLE_BITS

/// What a thread has written to shared memory is there for copies and products
/// that take it past the others, once all have met.
LADLE_INLINE void shared_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// No thread of the block goes on before all are here; what was written to
/// memory before, all see after.
#ifdef LADLE_EMULATION
inline void block_barrier(int line = __builtin_LINE()) { __syncthreads(line); }
inline void release_barrier(int line = __builtin_LINE()) {
  __syncthreads(line);
}
inline void warp_barrier(int line = __builtin_LINE()) {
  __syncwarp(ladle_detail::warp, line);
}
inline void part_barrier(int which, int threads,
                         int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.part = which;
  s.partThreads = threads;
  s.wait(s, ladle::emulation::Point::PartBarrier, line);
}
#else
LADLE_INLINE void block_barrier() { __syncthreads(); }
/// Bulk copies may overwrite shared memory that was read or written before.
LADLE_INLINE void release_barrier() {
  shared_fence();
  __syncthreads();
}
/// The same of a warp.
LADLE_INLINE void warp_barrier() { __syncwarp(); }
/// The same of so many threads of the block, whole warps wherever they are, who
/// all name one of 16 barriers; block_barrier has the first.
LADLE_INLINE void part_barrier(int which, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
#endif

/// Of each thread of a group of four warps, which all call it: more than it had,
/// as soon as others have left them, or fewer.
template <int Count, bool IsMore> LADLE_INLINE void set_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) ||                                      \
    defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)
  if (IsMore)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}

/// Between these two no thread of the cluster is waited for; after the second,
/// all have passed the first, and what they wrote before it is there.
/// After a relaxed first, what was written is not said to be there.
#ifdef LADLE_EMULATION
inline void cluster_arrive() {}
inline void cluster_arrive_relaxed() {}
inline void cluster_wait(int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.wait(s, ladle::emulation::Point::Cluster, line);
}
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
LADLE_INLINE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
LADLE_INLINE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
LADLE_INLINE void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
#else
LADLE_INLINE void cluster_arrive() {}
LADLE_INLINE void cluster_arrive_relaxed() {}
LADLE_INLINE void cluster_wait() { __syncthreads(); }
#endif

/// What the block of the cluster with this rank has where this one has `own`,
/// in shared memory. Before sm_90, a block is alone.
template <class T> LADLE_INLINE T *cluster_memory(T *own, int rank) {
#ifdef LADLE_EMULATION
  auto &s = *ladle::emulation::scheduler;
  return reinterpret_cast<T *>(s.shared[rank] + (reinterpret_cast<char *>(own) -
                                                 s.shared[s.rank]));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  T *theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(own), "r"(rank));
  return theirs;
#else
  return own;
#endif
}

/// Adds to a counter of global memory, and returns what it was. Who adds to it
/// later, and its block behind a barrier, finds what this thread's block wrote
/// before the barrier ahead of this.
LADLE_INLINE int arrive(int *counter, int count) {
#if defined(__CUDA_ARCH__)
  int before;
  asm volatile("fence.acq_rel.gpu;\n\t"
               "atom.relaxed.gpu.global.add.s32 %0, [%1], %2;\n\t"
               "fence.acq_rel.gpu;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter)), "r"(count)
               : "memory");
  return before;
#else
  return __atomic_fetch_add(counter, count, __ATOMIC_ACQ_REL);
#endif
}

/// Waits until somebody has added to a counter of global memory, and takes one
/// of what was added. A warp together; it finds what others wrote before that.
LADLE_INLINE void take_arrival(int *counter) {
#if defined(__CUDA_ARCH__)
  int count;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(count)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
  } while (count < 1);
  __syncwarp();
  if (threadIdx.x % 32 == 0)
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], -1;"
                 :
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
#else
  // Kernels run one after the other.
  if (threadIdx.x % 32 == 0 &&
      __atomic_fetch_add(counter, -1, __ATOMIC_ACQ_REL) < 1)
    __builtin_trap();
#endif
}

/// The next kernel of the stream may start, if it was launched to start early:
/// it waits for this one by itself.
LADLE_INLINE void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// All kernels ahead of this one have ended, and what they wrote is there.
LADLE_INLINE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Asks for a line of global memory, which the L2 cache then has. Whoever writes
/// it meanwhile writes what is there.
LADLE_INLINE void prefetch(const void *line) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(line)));
#endif
}

#ifndef LADLE_EMULATION
namespace ladle_detail {
LADLE_INLINE unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
} // namespace ladle_detail
#endif

//===----------------------------------------------------------------------===//
// Tiles of matrices
//===----------------------------------------------------------------------===//

/// c + a·b, by a warp. Thread 4 g + t has of
///  - a, 16 × 16: rows g and g + 8 (inner) at columns 2 t, 2 t + 1, and the
///    same at columns 8 further on;
///  - b, 16 × 8: column g at rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9;
///  - c, 16 × 8: rows g and g + 8 at columns 2 t, 2 t + 1.
#ifdef LADLE_EMULATION
// The stack of a thread is small: one frame for all products, which touch
// nothing but stacks.
template <class T>
__attribute__((noinline, no_sanitize("thread"))) static Vec<float, 4>
multiply_tiles(Vec<T, 8> a, Vec<T, 4> b, Vec<float, 4> c,
               int line = __builtin_LINE()) {
  struct Fragments {
    Vec<T, 8> a;
    Vec<T, 4> b;
  } mine{a, b};
  const Fragments *all[32];
  ladle::emulation::gather(&mine, all, line);
  const int lane = ladle::emulation::scheduler->lane;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; ++k)
      sum += to_float(all[row % 8 * 4 + k % 8 / 2]
                          ->a[k / 8 * 4 + row / 8 * 2 + k % 2]) *
             to_float(all[column * 4 + k % 8 / 2]->b[k / 8 * 2 + k % 2]);
    c[i] = static_cast<float>(sum);
  }
  ladle::emulation::leave(line);
  return c;
}
#else
namespace ladle_detail {
template <class T, int N>
LADLE_INLINE unsigned pair_of(const Vec<T, N> &v, int i) {
  return v[2 * i].bits | static_cast<unsigned>(v[2 * i + 1].bits) << 16;
}
} // namespace ladle_detail

#define LADLE_MULTIPLY_TILES(TYPE, NAME)                                       \
  LADLE_INLINE Vec<float, 4> multiply_tiles(                                   \
      const Vec<TYPE, 8> &a, const Vec<TYPE, 4> &b, Vec<float, 4> c) {         \
    using ladle_detail::pair_of;                                               \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME        \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "         \
                 "{%0, %1, %2, %3};"                                           \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])              \
                 : "r"(pair_of(a, 0)), "r"(pair_of(a, 1)),                     \
                   "r"(pair_of(a, 2)), "r"(pair_of(a, 3)),                     \
                   "r"(pair_of(b, 0)), "r"(pair_of(b, 1)));                    \
    return c;                                                                  \
  }
LADLE_MULTIPLY_TILES(bf16, "bf16")
LADLE_MULTIPLY_TILES(half, "f16")
#undef LADLE_MULTIPLY_TILES
#endif

/// The same of numbers of which tensor cores take 11 significant bits. Thread
/// 4 g + t has of
///  - a, 16 × 8: rows g and g + 8 at column t, and the same at column t + 4;
///  - b, 8 × 8: column g at rows t and t + 4;
///  - c, 16 × 8: rows g and g + 8 at columns 2 t, 2 t + 1.
#ifdef LADLE_EMULATION
__attribute__((noinline, no_sanitize("thread"))) static Vec<float, 4>
multiply_tiles(Vec<float, 4> a, Vec<float, 2> b, Vec<float, 4> c,
               int line = __builtin_LINE()) {
  struct Fragments {
    Vec<float, 4> a;
    Vec<float, 2> b;
  } mine{a, b};
  const Fragments *all[32];
  ladle::emulation::gather(&mine, all, line);
  const int lane = ladle::emulation::scheduler->lane;
  auto cut = [](float x) -> double {
    return __uint_as_float(__float_as_uint(x) & 0xffffe000u);
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 8; ++k)
      sum += cut(all[row % 8 * 4 + k % 4]->a[k / 4 * 2 + row / 8]) *
             cut(all[column * 4 + k % 4]->b[k / 4]);
    c[i] = static_cast<float>(sum);
  }
  ladle::emulation::leave(line);
  return c;
}
#else
LADLE_INLINE Vec<float, 4> multiply_tiles(const Vec<float, 4> &a,
                                          const Vec<float, 2> &b,
                                          Vec<float, 4> c) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
        "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
  return c;
}
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace ladle_detail {
#define LADLE_TILE(T) "+f"(T[0]), "+f"(T[1]), "+f"(T[2]), "+f"(T[3])
#define LADLE_TILES_2(S, I) LADLE_TILE(S[I]), LADLE_TILE(S[I + 1])
#define LADLE_TILES_4(S, I) LADLE_TILES_2(S, I), LADLE_TILES_2(S, I + 2)
#define LADLE_TILES_8(S, I) LADLE_TILES_4(S, I), LADLE_TILES_4(S, I + 4)
#define LADLE_TILES_16(S, I) LADLE_TILES_8(S, I), LADLE_TILES_8(S, I + 8)
#define LADLE_SUMS_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LADLE_SUMS_4                                                           \
  LADLE_SUMS_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LADLE_SUMS_8                                                           \
  LADLE_SUMS_4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "     \
               "%27, %28, %29, %30, %31"
#define LADLE_SUMS_16                                                          \
  LADLE_SUMS_8 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "     \
               "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, "  \
               "%55, %56, %57, %58, %59, %60, %61, %62, %63"
/// Of so many tiles of sums; SIDES are the numbers of a left side's four words
/// and of the right side.
#define LADLE_MULTIPLY_ASYNC(TILES, TYPES, SIDES, LAST)                        \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" TYPES                       \
               " {" LADLE_SUMS_##TILES "}, " SIDES ", 1, 1, 1" LAST ";"        \
               : LADLE_TILES_##TILES(sums, 0)                                  \
               : "r"(a), "r"(b), "r"(c), "r"(d), "l"(right))
#define LADLE_MULTIPLY_IN_WARPGROUP(TILES, COLUMNS, SIDES)                     \
  LADLE_INLINE void multiply_async(Vec<float, 4> (&sums)[TILES],               \
                                   const Vec<float, 4> &left,                  \
                                   unsigned long long right, bool) {           \
    const unsigned a = __float_as_uint(left[0]), b = __float_as_uint(left[1]), \
                   c = __float_as_uint(left[2]), d = __float_as_uint(left[3]); \
    LADLE_MULTIPLY_ASYNC(TILES, COLUMNS "k8.f32.tf32.tf32", SIDES, "");        \
  }                                                                            \
  LADLE_INLINE void multiply_async(                                            \
      Vec<float, 4> (&sums)[TILES], const Vec<bf16, 8> &left,                  \
      unsigned long long right, bool transposed) {                             \
    const unsigned a = pair_of(left, 0), b = pair_of(left, 1),                 \
                   c = pair_of(left, 2), d = pair_of(left, 3);                 \
    if (transposed)                                                            \
      LADLE_MULTIPLY_ASYNC(TILES, COLUMNS "k16.f32.bf16.bf16", SIDES, ", 1");  \
    else                                                                       \
      LADLE_MULTIPLY_ASYNC(TILES, COLUMNS "k16.f32.bf16.bf16", SIDES, ", 0");  \
  }
LADLE_MULTIPLY_IN_WARPGROUP(2, "16", "{%8, %9, %10, %11}, %12")
LADLE_MULTIPLY_IN_WARPGROUP(4, "32", "{%16, %17, %18, %19}, %20")
LADLE_MULTIPLY_IN_WARPGROUP(8, "64", "{%32, %33, %34, %35}, %36")
LADLE_MULTIPLY_IN_WARPGROUP(16, "128", "{%64, %65, %66, %67}, %68")
#undef LADLE_MULTIPLY_IN_WARPGROUP
#undef LADLE_MULTIPLY_ASYNC
#undef LADLE_SUMS_16
#undef LADLE_SUMS_8
#undef LADLE_SUMS_4
#undef LADLE_SUMS_2
#undef LADLE_TILES_16
#undef LADLE_TILES_8
#undef LADLE_TILES_4
#undef LADLE_TILES_2
#undef LADLE_TILE
} // namespace ladle_detail
#else
namespace ladle_detail {
/// A lane's part of 8 columns of a right side.
template <int Across, bool IsTransposed>
LADLE_INLINE Vec<float, 2> right_of_lane(const float *right, int lane) {
  const float *const own = right + lane / 4 * 4 + lane % 4;
  return Vec<float, 2>{own[0], own[Across]};
}
template <int Across, bool IsTransposed>
LADLE_INLINE Vec<bf16, 4> right_of_lane(const bf16 *right, int lane) {
  constexpr int next = IsTransposed ? 8 : 1;
  const bf16 *const own =
      right + lane / 4 * (IsTransposed ? 1 : 8) + lane % 4 * 2 * next;
  return Vec<bf16, 4>{own[0], own[next], own[Across], own[Across + next]};
}
} // namespace ladle_detail
#endif

/// Products of tiles of four warps together, with right sides in shared memory, of
/// which each takes 8 terms of f32, or 16 of bf16. With E of these in 16 bytes,
/// term k of column n of the one that begins at `right` is
/// right + k / E * Across + n / 8 * Along + n % 8 * E + k % E elements from
/// `memory`, or + k % E * 8 + n % 8 if it is transposed. Columns are 8 for each
/// tile of sums. By the asynchronous proxy: who wrote them has called
/// shared_fence().
template <int Across, int Along, bool IsTransposed = false, int Tiles,
          int Products, int N, class T>
LADLE_INLINE void multiply_in_warpgroup(Vec<float, 4> (&sums)[Tiles],
                                        const Vec<T, N> (&lefts)[Products],
                                        const T *memory,
                                        const int (&rights)[Products]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // What is not swizzled has two distances, in units of 16 bytes: of terms and
  // of columns that lie together.
  constexpr int together = 16 / sizeof(T);
  constexpr unsigned long long distances =
      static_cast<unsigned long long>(Across / together) << 16 |
      static_cast<unsigned long long>(Along / together) << 32;
  const unsigned long long first =
      distances | (ladle_detail::shared_address(memory) & 0x3ffff) >> 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < Products; ++i)
    ladle_detail::multiply_async(sums, lefts[i], first + rights[i] / together,
                                 IsTransposed);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
#ifdef LADLE_EMULATION
  ladle::emulation::check_aligned(memory, 16);
#endif
#pragma unroll
  for (int i = 0; i < Products; ++i)
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
      sums[tile] =
          multiply_tiles(lefts[i],
                         ladle_detail::right_of_lane<Across, IsTransposed>(
                             memory + rights[i] + tile * Along,
                             static_cast<int>(threadIdx.x % 32)),
                         sums[tile]);
#endif
}

/// Four tiles of 8 x 8 from shared memory, by a warp: thread 8 i + j names the
/// 16 bytes of row j of tile i. Thread 4 g + t gets of each tile, one after the
/// other, row g at columns 2 t and 2 t + 1, or transposed column g at those
/// rows.
#ifdef LADLE_EMULATION
template <bool IsTransposed, class T>
__attribute__((noinline)) static Vec<T, 8>
load_tiles(const T *row, int line = __builtin_LINE()) {
  ladle::emulation::check_aligned(row, 16);
  const T *all[32];
  ladle::emulation::gather(row, all, line);
  const int g = ladle::emulation::scheduler->lane / 4;
  const int t = ladle::emulation::scheduler->lane % 4;
  Vec<T, 8> result;
  for (int i = 0; i < 8; ++i) {
    const int tile = i / 2, other = 2 * t + i % 2;
    result[i] = IsTransposed ? all[8 * tile + other][g]
                             : all[8 * tile + g][other];
  }
  return result;
}
#else
template <bool IsTransposed, class T>
LADLE_INLINE Vec<T, 8> load_tiles(const T *row) {
  unsigned words[4];
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if (IsTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]),
                   "=r"(words[3])
                 : "r"(from));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]),
                   "=r"(words[3])
                 : "r"(from));
  Vec<T, 8> result;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    result[i].bits = static_cast<unsigned short>(words[i / 2] >> i % 2 * 16);
  return result;
}
#endif

//===----------------------------------------------------------------------===//
// Copies to shared memory that go on while the block does
//===----------------------------------------------------------------------===//

// Copies that are waited for together are counted with a word of shared memory.
// All threads call these alike; addresses and sizes are multiples of 16 bytes.
// On Hopper and later one thread starts a bulk copy, of a warp that the caller
// chooses; before that, and where pieces are small, every thread copies a part.

#ifdef LADLE_EMULATION
inline void copy_init(long long *copies) {
  if (threadIdx.x == 0)
    *copies = 0;
}

template <int Warp = 0, class T>
inline void copy(long long *copies, T *to, const T *from, int count) {
  ladle::emulation::start_copy(copies, to, from, count * sizeof(T));
}
template <int Warp = 0, class T>
inline void copy_streaming(long long *copies, T *to, const T *from, int count) {
  copy(copies, to, from, count);
}
template <int Warp = 0, class T>
inline void copy_kept(long long *copies, T *to, const T *from, int count) {
  copy(copies, to, from, count);
}
template <class T>
inline void copy_back(T *to, const T *from, int count,
                      int line = __builtin_LINE()) {
  ladle::emulation::check_copy(to, from, count * sizeof(T));
  __syncthreads(line);
  constexpr int part = 16 / sizeof(T);
  for (int i = threadIdx.x * part; i < count; i += blockDim.x * part)
    for (int e = 0; e < part; ++e)
      to[i + e] = from[i + e];
}

template <class T>
inline void copy_back_start(T *to, const T *from, int count,
                            int line = __builtin_LINE()) {
  copy_back(to, from, count, line);
}
inline void copy_back_wait() {}

template <class T>
inline void copy_rows(T *to, const T *from, int count, int stride, int each) {
  ladle::emulation::check_copy(to, from, each * sizeof(T));
  ladle::emulation::check_copy(to, from, stride * sizeof(T));
  constexpr int part = 16 / sizeof(T);
  for (int i = threadIdx.x * part; i < count; i += blockDim.x * part)
    std::memcpy(to + i,
                from + static_cast<long long>(i / each) * stride + i % each, 16);
}

template <class T> inline void copy_16_bytes(T *to, const T *from) {
  ladle::emulation::start_part(to, from);
}
inline void copy_wait(long long *copies, int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.waitedCopies = copies;
  s.wait(s, ladle::emulation::Point::Copies, line);
}
template <int Parts> inline void copy_init_parts(long long *copies, int) {
  for (int i = 0; i < Parts; ++i)
    copy_init(copies + i);
}
template <int Warp = 0, class T>
inline void copy_part(long long *copies, T *to, const T *from, int count) {
  copy(copies, to, from, count);
}
template <int Warp = 0, class T>
inline void copy_part_kept(long long *copies, T *to, const T *from, int count) {
  copy(copies, to, from, count);
}
/// Threads wait in one place, but not all for the same part.
inline void copy_part_wait(long long *copies, int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  for (int i = 0; i < s.copyCount; ++i)
    s.copies[i].isWaitedFor |= s.copies[i].counter == copies;
  s.waitedCopies = nullptr;
  s.wait(s, ladle::emulation::Point::Copies, line);
}
inline void copy_rows_wait(int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.waitForGroups(s, -1);
  __syncthreads(line);
}
inline void copy_rows_commit() {
  auto &s = *ladle::emulation::scheduler;
  s.endGroup(s);
}
template <int Groups> inline void copy_rows_wait(int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.waitForGroups(s, Groups);
  __syncthreads(line);
}
template <int Groups>
inline void copy_rows_wait_in_warp(int line = __builtin_LINE()) {
  auto &s = *ladle::emulation::scheduler;
  s.waitForGroups(s, Groups);
  warp_barrier(line);
}

#define LADLE_DYNAMIC_SHARED(NAME, BYTES)                                      \
  __shared__ __align__(128) unsigned char NAME[BYTES]
#else
namespace ladle_detail {
/// When the L2 cache drops what is copied.
enum class Eviction { First, Normal, Last };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/// Before a copy is started: the copies counted so far are not over before it.
LADLE_INLINE void count_copy(long long *copies, unsigned bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(copies)), "r"(bytes)
               : "memory");
}

template <Eviction When> LADLE_INLINE unsigned long long policy() {
  unsigned long long policy;
  if constexpr (When == Eviction::First)
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
                 : "=l"(policy));
  else if constexpr (When == Eviction::Last)
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;"
                 : "=l"(policy));
  else
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;"
                 : "=l"(policy));
  return policy;
}

/// A bulk copy to shared memory, as the L2 cache is told.
LADLE_INLINE void start_copy(long long *copies, void *to, const void *from,
                             unsigned bytes, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4;"
      :
      : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)),
        "r"(bytes), "r"(shared_address(copies)), "l"(policy)
      : "memory");
}

/// A part, which one copy begins.
LADLE_INLINE void start_part(long long *copies, void *to, const void *from,
                             unsigned bytes, unsigned long long policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(copies)), "r"(bytes)
               : "memory");
  start_copy(copies, to, from, bytes, policy);
}
#endif
} // namespace ladle_detail

/// Of this thread; what copy_rows_wait waits for.
LADLE_INLINE void copy_16_bytes(void *to, const void *from) {
  using ladle_detail::shared_address;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from))
               : "memory");
}

LADLE_INLINE void copy_init(long long *copies) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // A thread of each warp says that it has started its copies.
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(ladle_detail::shared_address(copies)),
                   "r"(blockDim.x / 32)
                 : "memory");
    shared_fence();
  }
#endif
}

/// `count` elements, each `each` of them `stride` apart.
template <class T>
LADLE_INLINE void copy_rows(T *to, const T *from, int count, int stride,
                            int each) {
  constexpr int part = 16 / sizeof(T);
  for (int i = threadIdx.x * part; i < count; i += blockDim.x * part)
    copy_16_bytes(to + i, from + i / each * stride + i % each);
}

/// `count` elements.
template <int Warp = 0, class T>
LADLE_INLINE void copy(long long *copies, T *to, const T *from, int count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x == 32 * Warp && count > 0) {
    const unsigned bytes = count * sizeof(T);
    ladle_detail::count_copy(copies, bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];"
        :
        : "r"(ladle_detail::shared_address(to)),
          "l"(__cvta_generic_to_global(from)), "r"(bytes),
          "r"(ladle_detail::shared_address(copies))
        : "memory");
  }
#else
  copy_rows(to, from, count, 1 << 30, 1 << 30);
#endif
}

namespace ladle_detail {
template <int Warp, Eviction When, class T>
LADLE_INLINE void copy_once(long long *copies, T *to, const T *from,
                            int count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x == 32 * Warp && count > 0) {
    count_copy(copies, count * sizeof(T));
    start_copy(copies, to, from, count * sizeof(T), policy<When>());
  }
#else
  copy(copies, to, from, count);
#endif
}

template <int Warp, Eviction When, class T>
LADLE_INLINE void copy_part_once(long long *copies, T *to, const T *from,
                                 int count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x == 32 * Warp)
    start_part(copies, to, from, count * sizeof(T), policy<When>());
#else
  copy_rows(to, from, count, 1 << 30, 1 << 30);
#endif
}
} // namespace ladle_detail

/// The same for what is read once: the L2 cache drops it first, and keeps what
/// the next kernels read.
template <int Warp = 0, class T>
LADLE_INLINE void copy_streaming(long long *copies, T *to, const T *from,
                                 int count) {
  ladle_detail::copy_once<Warp, ladle_detail::Eviction::First>(copies, to, from,
                                                               count);
}

/// The same for what this block writes soon: the L2 cache drops it last, and
/// has it then.
template <int Warp = 0, class T>
LADLE_INLINE void copy_kept(long long *copies, T *to, const T *from,
                            int count) {
  ladle_detail::copy_once<Warp, ladle_detail::Eviction::Last>(copies, to, from,
                                                              count);
}

/// All rows that were copied are there, for all threads.
LADLE_INLINE void copy_rows_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}

/// What this thread has started since the last call is a group.
LADLE_INLINE void copy_rows_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// All groups but the last so many are there, for all threads.
template <int Groups> LADLE_INLINE void copy_rows_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
  __syncthreads();
}
/// Those that a warp has started, for its threads.
template <int Groups> LADLE_INLINE void copy_rows_wait_in_warp() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
  __syncwarp();
}

/// `count` elements that threads have put into shared memory, back to global
/// memory. They are not written again before copy_back_wait.
template <class T>
LADLE_INLINE void copy_back_start(T *to, const T *from, int count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  shared_fence();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)),
                   "r"(ladle_detail::shared_address(from)),
                   "r"(static_cast<unsigned>(count * sizeof(T)))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
#else
  __syncthreads();
  constexpr int part = 16 / sizeof(T);
  for (int i = threadIdx.x * part; i < count; i += blockDim.x * part)
    __stcs(reinterpret_cast<uint4 *>(to + i),
           *reinterpret_cast<const uint4 *>(from + i));
#endif
}

/// Until what was copied back has been read: before a thread copies into it anew,
/// or its block ends and the shared memory with it.
LADLE_INLINE void copy_back_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

/// The same, and waits: nobody writes them again.
template <class T>
LADLE_INLINE void copy_back(T *to, const T *from, int count) {
  copy_back_start(to, from, count);
  copy_back_wait();
}

/// All copies of a part are there, for the threads that wait. As often as one
/// likes.
LADLE_INLINE void copy_part_wait(long long *copies) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const unsigned address = ladle_detail::shared_address(copies);
  unsigned isOver;
  do {
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], 0;\n"
                 "selp.b32 %0, 1, 0, over;\n"
                 "}\n"
                 : "=r"(isOver)
                 : "r"(address)
                 : "memory");
  } while (!isOver);
#else
  copy_rows_wait();
#endif
}

/// All copies that were counted are there, for all threads. Once a block.
LADLE_INLINE void copy_wait(long long *copies) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x % 32 == 0)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(ladle_detail::shared_address(copies))
                 : "memory");
#endif
  copy_part_wait(copies);
}

/// Counters of parts of a tile, each of which `starts` copies begin.
template <int Parts>
LADLE_INLINE void copy_init_parts(long long *copies, int starts) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < Parts; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :
                   : "r"(ladle_detail::shared_address(copies + i)), "r"(starts)
                   : "memory");
    shared_fence();
  }
#endif
}

/// A copy of a part, by a warp that waits for it.
template <int Warp = 0, class T>
LADLE_INLINE void copy_part(long long *copies, T *to, const T *from,
                            int count) {
  ladle_detail::copy_part_once<Warp, ladle_detail::Eviction::Normal>(
      copies, to, from, count);
}

/// The same as copy_kept, of a part.
template <int Warp = 0, class T>
LADLE_INLINE void copy_part_kept(long long *copies, T *to, const T *from,
                                 int count) {
  ladle_detail::copy_part_once<Warp, ladle_detail::Eviction::Last>(
      copies, to, from, count);
}

#define LADLE_DYNAMIC_SHARED(NAME, BYTES)                                      \
  extern __shared__ __align__(128) unsigned char NAME[]
#endif
