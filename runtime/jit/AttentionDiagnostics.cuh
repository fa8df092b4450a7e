//===- AttentionDiagnostics.cuh - what heads do on a GPU --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launched after the kernels of a step where a decoder keeps diagnostics, and
// nowhere else: it looks at what they have left, as runtime/
// AttentionDiagnostics.cpp does on the CPU, and they do nothing for it. One
// text for all attentions, so that it is compiled once.
//
//===----------------------------------------------------------------------===//

#include "ladle_prelude.cuh"

static constexpr int kThreads = 256, kWarps = 8, kCounts = 4;
// Of the sums of a head.
enum { kBandWeight, kReusedWeight, kMostNorm, kSums };
// DType of runtime/include/ladle/types.h.
enum { kF32, kBF16, kF16 };

LADLE_INLINE float minus_infinity() {
  return __int_as_float(static_cast<int>(0xff800000u));
}

LADLE_INLINE float load_element(const void *from, int type, long long at) {
  if (type == kF32)
    return static_cast<const float *>(from)[at];
  if (type == kBF16)
    return to_float(static_cast<const bf16 *>(from)[at]);
  return to_float(static_cast<const half *>(from)[at]);
}

// Of a vector, by a warp, in double: a bin is then that of the CPU.
LADLE_INLINE double norm_of(const void *from, int type, long long first,
                            int size, int lane) {
  double sum = 0;
  for (int i = lane; i < size; i += 32) {
    const double value = load_element(from, type, first + i);
    sum += value * value;
  }
  for (int mask = 1; mask < 32; mask *= 2)
    sum += shuffle_xor(sum, mask);
  return sqrt(sum);
}

// Where a norm is counted, NormHistogram of the CPU; -1 for NaN, nowhere.
LADLE_INLINE int bin_of(double norm, int bins_of_octave, int lowest_octave,
                        int bins) {
  if (!(norm >= 0))
    return -1;
  const double bin =
      norm > 0 ? floor(bins_of_octave * (log2(norm) - lowest_octave)) : 0.0;
  return static_cast<int>(min(max(bin, 0.0), bins - 1.0));
}

LADLE_INLINE float sum_of_warp(float value) {
  for (int mask = 1; mask < 32; mask *= 2)
    value += shuffle_xor(value, mask);
  return value;
}
LADLE_INLINE float most_of_warp(float value) {
  for (int mask = 1; mask < 32; mask *= 2)
    value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Blocks are the heads of the query, then those of the cache; a warp takes a
// row after another, and what a block has seen is added by it alone, in an
// order that does not change. What kernels leave is named as in
// passes/gpu/AttentionInfo.h. Of pieces of attend i, bit i of `band_attends`
// says that they are the last tokens, and of `front_attends` that they are the
// first; the answer is of these and of the summary that was stored. Without a
// ring, `capacity` 0, heads of the query have tokens alone.
//
// head_counts [heads, 4]: tokens, hits, cached, skipped; head_sums [heads +
// cache heads, 3]: the weights of the band and of what was reused, the largest
// norm; norm_bins [heads + cache heads, bins]: norms of queries, of values.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    ladle_attention_diagnostics(
        const int *row_plans, const int *hits, const int *starts,
        const int *piece_bounds, const float *piece_sums,
        const void *ring_queries, const float *ring_sums,
        const void *value_pages, const int *page_table, long long table_stride,
        long long *head_counts, double *head_sums, long long *norm_bins,
        int rows, int heads, int cache_heads, int share, int parts,
        int capacity, int sinks, int key_size, int value_size, int query_type,
        int value_type, int page_size, int spare_page, int attends,
        int band_attends, int front_attends, int bins_of_octave,
        int lowest_octave, int bins) {
  wait_for_previous();
  let_next_start();
  __shared__ int bins_of_rows[kThreads];
  __shared__ long long counts_of_warps[kWarps][kCounts];
  __shared__ double sums_of_warps[kWarps][kSums];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int head = static_cast<int>(blockIdx.x);
  const bool is_query = head < heads;
  const int cache_head = head - heads;
  long long tokens = 0, hit_tokens = 0, cached = 0, skipped = 0;
  double band_weight = 0, reused_weight = 0, most = 0;

  for (int base = 0; base < rows; base += kThreads) {
    bins_of_rows[thread] = -1;
    block_barrier();
    for (int row = base + warp; row < min(base + kThreads, rows);
         row += kWarps) {
      const int *const plan = row_plans + row * 8LL;
      const int slot = plan[0], position = plan[2];
      if (slot < 0)
        continue;
      double norm;
      if (!is_query) {
        const int page = page_table[slot * table_stride + position / page_size];
        // Its token is lost.
        if (page == spare_page)
          continue;
        const long long token =
            (static_cast<long long>(page) * cache_heads + cache_head) *
                page_size +
            position % page_size;
        norm = norm_of(value_pages, value_type, token * value_size, value_size,
                       lane);
      } else {
        tokens += 1;
        cached += position + 1LL;
        if (capacity == 0)
          continue;
        const long long ring = static_cast<long long>(slot) * heads + head;
        const int entry = plan[3];
        norm = norm_of(ring_queries, query_type,
                       (ring * capacity + entry) * key_size, key_size, lane);
        const long long at = static_cast<long long>(row) * heads + head;
        const bool is_hit = hits[at] >= 0;
        if (is_hit) {
          hit_tokens += 1;
          skipped += max(0, starts[at] - sinks);
        }

        // Weights are relative to the largest exponent of all that there is.
        const int *const bounds =
            piece_bounds +
            (static_cast<long long>(row) * (heads / share) + head / share) *
                (2LL * attends);
        const float *const sums = piece_sums + head % share * 2;
        float largest = minus_infinity();
        for (int i = 0; i < attends; ++i) {
          const int last = bounds[2 * i + 1];
          for (int piece = bounds[2 * i] + lane; piece < last; piece += 32) {
            const float *const sum = sums + piece * (2LL * share);
            if (sum[1] > 0)
              largest = fmaxf(largest, sum[0]);
          }
        }
        const float *const stored = ring_sums + ring * parts * capacity + entry;
        for (int part = 0; part < parts; ++part)
          largest =
              fmaxf(largest, stored[static_cast<long long>(part) * capacity]);
        largest = most_of_warp(largest);
        float band = 0, attended = 0, answer = 0;
        for (int i = 0; i < attends; ++i) {
          float part = 0;
          const int last = bounds[2 * i + 1];
          for (int piece = bounds[2 * i] + lane; piece < last; piece += 32) {
            const float *const sum = sums + piece * (2LL * share);
            if (sum[1] > 0)
              part += expf(sum[0] - largest) * sum[1];
          }
          attended += part;
          band += band_attends >> i & 1 ? part : 0;
          answer += (band_attends | front_attends) >> i & 1 ? part : 0;
        }
        attended = sum_of_warp(attended);
        band = sum_of_warp(band);
        answer = sum_of_warp(answer);
        for (int part = 0; part < parts; ++part)
          answer +=
              expf(stored[static_cast<long long>(part) * capacity] - largest);
        // Neither 0 nor infinite nor NaN.
        if (answer > 0 && answer * 0 == 0) {
          band_weight += static_cast<double>(band) / answer;
          if (is_hit)
            reused_weight +=
                max(0.0, 1 - static_cast<double>(attended) / answer);
        }
      }
      most = norm > most ? norm : most;
      if (lane == 0)
        bins_of_rows[row - base] =
            bin_of(norm, bins_of_octave, lowest_octave, bins);
    }
    block_barrier();
    // The first thread of a bin adds those of all.
    const int bin = bins_of_rows[thread];
    int same = 0;
    bool is_first = bin >= 0;
    for (int i = 0; is_first && i < min(kThreads, rows - base); ++i)
      if (bins_of_rows[i] == bin) {
        is_first = i >= thread;
        ++same;
      }
    if (is_first)
      norm_bins[static_cast<long long>(head) * bins + bin] += same;
    block_barrier();
  }

  if (lane == 0) {
    counts_of_warps[warp][0] = tokens;
    counts_of_warps[warp][1] = hit_tokens;
    counts_of_warps[warp][2] = cached;
    counts_of_warps[warp][3] = skipped;
    sums_of_warps[warp][kBandWeight] = band_weight;
    sums_of_warps[warp][kReusedWeight] = reused_weight;
    sums_of_warps[warp][kMostNorm] = most;
  }
  block_barrier();
  if (is_query && thread < kCounts) {
    long long all = 0;
    for (int i = 0; i < kWarps; ++i)
      all += counts_of_warps[i][thread];
    head_counts[head * kCounts + thread] += all;
  }
  if (thread < kSums) {
    double &to = head_sums[head * kSums + thread];
    double all = to;
    for (int i = 0; i < kWarps; ++i) {
      const double one = sums_of_warps[i][thread];
      all = thread == kMostNorm ? max(all, one) : all + one;
    }
    to = all;
  }
}
