//===- Budgets.cuh - layers share out a budget on a GPU ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Behind the kernels of a cache that evicts, whose preferences it reads.
//
//===----------------------------------------------------------------------===//

LADLE_INLINE double sum_of_warp(double value) {
  for (int mask = 1; mask < 32; mask *= 2)
    value += shuffle_xor(value, mask);
  return value;
}

// 1 / x to a double's last bits, of what a float reaches: a division of doubles
// would be a call that spills.
LADLE_INLINE double inverse_of(double x) {
  double inverse = 1.0f / (float)x;
  for (int step = 0; step < 2; ++step)
    inverse *= 2 - x * inverse;
  return inverse;
}

// Of a number that is not negative. pow() would need a stack.
LADLE_INLINE double power_of(double base, double exponent) {
  return exponent == 0 ? 1 : base > 0 ? exp2(exponent * log2(base)) : 0;
}

// What a layer gets if scores are multiplied by `factor`.
LADLE_INLINE double clamped_share(double score, double factor, double least,
                                  double most) {
  return fmin(fmax(score * factor, least), most);
}

// LayerBudgets of ladle/budgets.h: a warp has a row, and a lane every 32nd
// layer. `parts` [rows, parts_of_row, 3] are sums of disturbance and entropy,
// and the number of queries, of layer `layer`, from which its score comes.
// `scores` and `shares` [layers, rows] hold those of the layers before, which
// only ever get less; `exact` and `next_shares` [layers, rows] are for the work
// between. A score that is no number is 0.
extern "C" __global__ void __launch_bounds__(128) ladle_share_budgets(
    const float *__restrict__ parts, double *scores, double *exact, int *shares,
    int *next_shares, double disturbance_exponent, double entropy_exponent,
    long long all, int least, int most, int rows, int parts_of_row,
    int layer) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows)
    return;
  double disturbance = 0, entropy = 0, queries = 0;
  for (int i = lane; i < parts_of_row; i += 32) {
    const float *const part = parts + (row * (long long)parts_of_row + i) * 3;
    disturbance += part[0];
    entropy += part[1];
    queries += part[2];
  }
  disturbance = sum_of_warp(disturbance);
  entropy = sum_of_warp(entropy);
  queries = fmax(sum_of_warp(queries), 1.0);
  const double of_one = inverse_of(queries);
  double score = power_of(disturbance * of_one, disturbance_exponent) *
                 power_of(entropy * of_one, entropy_exponent);
  if (!(score >= 0) || score > 1e300)
    score = 0;
  if (lane == layer % 32) {
    scores[layer * (long long)rows + row] = score;
    shares[layer * (long long)rows + row] = (int)min((long long)most, all);
  }
  warp_barrier();

  // What there is to share, and the largest score.
  const int layers = layer + 1;
  double largest = 0, room = 0;
  for (int i = lane; i < layers; i += 32) {
    largest = fmax(largest, scores[i * (long long)rows + row]);
    room += shares[i * (long long)rows + row];
  }
  for (int mask = 1; mask < 32; mask *= 2)
    largest = fmax(largest, shuffle_xor(largest, mask));
  const double total = fmin(sum_of_warp(room), (double)all);
  // A layer that loses nothing still has a share of what is left over.
  const double of_largest = inverse_of(fmax(largest, 1e-30));
  auto weight_of = [&](int i) {
    const double own = scores[i * (long long)rows + row];
    return largest > 0 ? fmax(own * of_largest, 1e-9) : 1.0;
  };
  auto most_of = [&](int i) {
    return (double)shares[i * (long long)rows + row];
  };

  // The sum of shares grows with the factor of the scores, along a straight
  // line between those at which a layer leaves a bound.
  const double beyond = 1e300;
  double begin = 0, end = 0;
  for (int turn = 0; turn < 2 * layers; ++turn) {
    double next = beyond;
    for (int i = lane; i < layers; i += 32) {
      const double of_weight = inverse_of(weight_of(i));
      const double first = least * of_weight, last = most_of(i) * of_weight;
      next = fmin(next, first > end ? first : beyond);
      next = fmin(next, last > end ? last : beyond);
    }
    for (int mask = 1; mask < 32; mask *= 2)
      next = fmin(next, shuffle_xor(next, mask));
    if (next == beyond)
      break;
    begin = end;
    end = next;
    double sum = 0;
    for (int i = lane; i < layers; i += 32)
      sum += clamped_share(weight_of(i), end, least, most_of(i));
    if (sum_of_warp(sum) >= total)
      break;
  }
  const double middle = begin + (end - begin) / 2;
  double bounded = 0, free = 0;
  for (int i = lane; i < layers; i += 32) {
    const double share = weight_of(i) * middle;
    if (share > least && share < most_of(i))
      free += weight_of(i);
    else
      bounded += clamped_share(weight_of(i), middle, least, most_of(i));
  }
  bounded = sum_of_warp(bounded);
  free = sum_of_warp(free);
  const double factor =
      free > 0 ? (total - bounded) * inverse_of(free) : end;

  // Whole by largest remainder, ties to the first layer.
  double whole = 0;
  for (int i = lane; i < layers; i += 32) {
    const double share = clamped_share(weight_of(i), factor, least, most_of(i));
    exact[i * (long long)rows + row] = share;
    whole += floor(share);
  }
  warp_barrier();
  long long rest = (long long)total - (long long)sum_of_warp(whole);
  auto is_open = [&](int i) {
    return floor(exact[i * (long long)rows + row]) < most_of(i);
  };
  auto remainder_of = [&](int i) {
    const double share = exact[i * (long long)rows + row];
    return share - floor(share);
  };
  for (int i = lane; i < layers; i += 32) {
    int ahead = is_open(i) ? 0 : layers;
    for (int other = 0; other < layers && is_open(i); ++other) {
      const double more = remainder_of(other) - remainder_of(i);
      ahead += is_open(other) && (more > 0 || (more == 0 && other < i));
    }
    const long long at = i * (long long)rows + row;
    next_shares[at] = (int)floor(exact[at]) + (ahead < rest);
  }
  warp_barrier();
  for (int i = lane; i < layers; i += 32)
    shares[i * (long long)rows + row] = next_shares[i * (long long)rows + row];
}
