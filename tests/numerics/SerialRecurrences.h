//===- SerialRecurrences.h - tokens that wait for those before --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recurrences whose tokens cannot be answered at once: what one writes depends
// on what it reads in another way than by a matrix.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_SERIALRECURRENCES_H
#define LADLE_TESTS_NUMERICS_SERIALRECURRENCES_H

namespace ladle::test {

/// A value that is not affine in a read.
inline constexpr const char *saturating = R"(recurrence saturating(H, D) {
  preset "tiny" { H = 2, D = 12 }
  token q[H, D], k[H, D], v[H, D] : bf16
  token a[H] : f32
  state S[H, D, D] : f32
  S = decay(S, sigmoid(a))
  S = write(S, l2norm(k), tanh(v - read(S, l2norm(k))))
  out y[H, D] : f32 = read(S, l2norm(q))
})";

/// A carry that depends on a read.
inline constexpr const char *feedback = R"(recurrence feedback(H, D) {
  preset "tiny" { H = 2, D = 12 }
  token q[H, D], k[H, D], v[H, D] : bf16
  carry last[H, D] : f32
  state S[H, D, D] : f32
  let y0 = read(S, l2norm(q)) * 0.5
  S = decay(S, 0.5)
  S = write(S, l2norm(k), v + tanh(last))
  last = y0
  out y[H, D] : f32 = y0
})";

/// A decay that comes from a read.
inline constexpr const char *gatedByState = R"(recurrence gated_by_state(H, D) {
  preset "tiny" { H = 2, D = 12 }
  token q[H, D], k[H, D], v[H, D] : bf16
  state S[H, D, D] : f32
  let seen = read(S, l2norm(k))
  S = decay(S, sigmoid(mean(seen)) * 0.9)
  S = write(S, l2norm(k), v)
  out y[H, D] : f32 = read(S, l2norm(q))
})";

/// Carries that heads share, a window of keys and a number, beside a value that
/// is not affine in a read.
inline constexpr const char *sharedCarries = R"(recurrence shared(H, G, D, W) {
  preset "tiny" { H = 4, G = 2, D = 12, W = 3 }
  param w[G, W + 1, D] : f32
  token q[H, D], k[G, D], v[H, D] : bf16
  carry window[G, W, D] : bf16
  carry norm[G] : f32
  state S[H, D, D] : f32
  let kc = l2norm(silu(conv(window, k, w)))
  window = shift(window, k)
  let total = norm * 0.5 + dot(k, k)
  norm = total
  S = write(S, kc, tanh(v - read(S, kc)) * rsqrt(total + 1))
  out y[H, D] : f32 = read(S, l2norm(q))
  out n[G] : f32 = total
})";

/// Two states, each of which waits for the other.
inline constexpr const char *entangled = R"(recurrence entangled(H, D) {
  preset "tiny" { H = 2, D = 12 }
  token q[H, D], k[H, D], v[H, D] : bf16
  state S[H, D, D] : f32
  state T[H, D, D] : bf16
  let kn = l2norm(k)
  let found = tanh(read(T, kn))
  S = write(decay(S, 0.9), kn, v - found)
  T = write(decay(T, exp(-exp(mean(v)))), kn, tanh(v - 0.5 * read(S, kn)))
  out y[H, D] : f32 = read(S, l2norm(q)) + read(T, l2norm(q))
})";

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_SERIALRECURRENCES_H
