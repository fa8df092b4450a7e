/* Decodes with EdgeInfinite from C, without LLVM and without Ladle's libraries:
 *
 *   ladle emit edge_infinite.ladle --preset small --stage object -o build
 *   cc -O2 -Ibuild main.c build/edge_infinite.o -lm -o decode
 *   ./decode 1000          decodes so many tokens, and says what that took
 *   ./decode --check 200   compares every answer with Algorithm 1 in float64
 *   ./decode --prompt 4096 answers a prompt, in pieces of 512 tokens
 *
 * Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 */
#define _POSIX_C_SOURCE 199309L
#include "edge_infinite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum {
  Q = EDGE_INFINITE_q_DIM0,
  KV = EDGE_INFINITE_CACHE_HEADS,
  R = EDGE_INFINITE_w1_DIM1,
  D = EDGE_INFINITE_KEY_SIZE,
  SINKS = EDGE_INFINITE_SINKS,
  WINDOW = EDGE_INFINITE_WINDOW,
  SEGMENT = EDGE_INFINITE_SEGMENT
};

static void *take(size_t bytes) {
  void *memory = calloc(1, bytes);
  if (memory)
    return memory;
  fprintf(stderr, "no memory for %zu bytes\n", bytes);
  exit(1);
}

/* Numbers in [-1, 1), the same everywhere. */
static float draw(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(int32_t)state / 2147483648.0f;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

static const float *draw_weights(size_t count, float scale) {
  float *weights = take(count * sizeof *weights);
  for (size_t i = 0; i < count; ++i)
    weights[i] = scale * draw();
  return weights;
}

static void draw_token(uint16_t *into, size_t count) {
  for (size_t i = 0; i < count; ++i)
    into[i] = to_bf16(2 * draw());
}

/* Algorithm 1 of the paper for one head of the query: q, the keys and values of
 * all tokens so far, of which `folded` segments stand in the memory. */
static double feature(double x) { return x > 0 ? x + 1 : exp(x); }

static void reference(const edge_infinite_arguments *given, int head,
                      const uint16_t *keys, const uint16_t *values,
                      long length, long folded, double *answer) {
  const uint16_t *q = given->q + head * D;
  int kv = head / (Q / KV);
  long end = folded ? SINKS + folded * SEGMENT : 0;
  double sum = 0, weight = 0;
  double *dot = take(3 * D * sizeof *dot), *recalled = dot + D,
         *passed = dot + 2 * D, *hidden = take(R * sizeof *hidden);
  for (long t = 0; t < length; ++t) {
    const uint16_t *k = keys + (t * KV + kv) * D, *v = values + (t * KV + kv) * D;
    int isFolded = t >= SINKS && t < end;
    double product = 0;
    for (int c = 0; c < D; ++c)
      product += isFolded
                     ? feature(from_bf16(q[c])) * feature(from_bf16(k[c]))
                     : from_bf16(q[c]) * from_bf16(k[c]);
    double share = isFolded ? product : exp(product / sqrt(D));
    *(isFolded ? &weight : &sum) += share;
    for (int c = 0; c < D; ++c)
      (isFolded ? recalled : dot)[c] += share * from_bf16(v[c]);
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; folded && c < D; ++c)
      hidden[r] += given->w1[r * D + c] * recalled[c] / weight;
    hidden[r] = fmax(hidden[r] + given->b1[r], 0);
  }
  for (int c = 0; c < D; ++c) {
    double gate = folded ? 1 / (1 + exp(-given->g[c])) : 0;
    passed[c] = given->b2[c];
    for (int r = 0; r < R; ++r)
      passed[c] += given->w2[c * R + r] * hidden[r];
    answer[c] = gate * passed[c] + (1 - gate) * dot[c] / sum;
  }
  free(dot);
  free(hidden);
}

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A prompt of any length takes the memory of one piece of it. */
static int answer_prompt(edge_infinite *sequence,
                         edge_infinite_arguments *given, long tokens) {
  enum { PIECE = 512 };
  uint16_t *q = take((size_t)PIECE * Q * D * 2);
  uint16_t *k = take((size_t)PIECE * KV * D * 2);
  uint16_t *v = take((size_t)PIECE * KV * D * 2);
  given->q = q;
  given->k = k;
  given->v = v;
  given->o = take((size_t)PIECE * Q * D * 2);
  double passed = 0, busy = 0;
  for (long t = 0; t < tokens; t += PIECE) {
    long count = tokens - t < PIECE ? tokens - t : PIECE;
    draw_token(q, (size_t)count * Q * D);
    draw_token(k, (size_t)count * KV * D);
    draw_token(v, (size_t)count * KV * D);
    double begin = seconds(CLOCK_MONOTONIC);
    double busy_before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    edge_infinite_prefill(sequence, given, count);
    passed += seconds(CLOCK_MONOTONIC) - begin;
    busy += seconds(CLOCK_PROCESS_CPUTIME_ID) - busy_before;
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("%ld tokens, %ld segments folded, %ld bytes of memory\n", tokens,
         (long)sequence->segments, (long)EDGE_INFINITE_BYTES);
  printf("%.3f seconds to the last answer, %.3f of a processor, %ld kB "
         "resident at the peak\n",
         passed, busy, (long)usage.ru_maxrss);
  return 0;
}

int main(int argc, char **argv) {
  int checks = argc > 1 && strcmp(argv[1], "--check") == 0;
  int prompts = argc > 1 && strcmp(argv[1], "--prompt") == 0;
  int flags = checks || prompts;
  long tokens = argc > 1 + flags ? atol(argv[1 + flags]) : 1000;
  if (tokens < 2) {
    fprintf(stderr, "usage: %s [--check | --prompt] tokens, 2 at least\n",
            argv[0]);
    return 2;
  }
  edge_infinite sequence;
  edge_infinite_init(&sequence, take(EDGE_INFINITE_BYTES));
  edge_infinite_arguments given = {
      .w1 = draw_weights((size_t)R * D, 0.2f), .b1 = draw_weights(R, 0.2f),
      .w2 = draw_weights((size_t)D * R, 0.2f), .b2 = draw_weights(D, 0.2f),
      .g = draw_weights(D, 2)};
  if (prompts)
    return answer_prompt(&sequence, &given, tokens);
  uint16_t *q = take((size_t)tokens * Q * D * 2);
  uint16_t *k = take((size_t)tokens * KV * D * 2);
  uint16_t *v = take((size_t)tokens * KV * D * 2);
  uint16_t *o = take((size_t)tokens * Q * D * 2);
  draw_token(q, (size_t)tokens * Q * D);
  draw_token(k, (size_t)tokens * KV * D);
  draw_token(v, (size_t)tokens * KV * D);
  given.q = q;
  given.k = k;
  given.v = v;
  given.o = o;

  /* The first half is a prompt, the rest comes token by token. */
  long prompt = tokens / 2;
  double worst = 0, *answer = take(D * sizeof *answer);
  edge_infinite_prefill(&sequence, &given, prompt);
  double begin = seconds(CLOCK_MONOTONIC);
  for (long t = prompt; t < tokens; ++t) {
    given.q = q + t * Q * D;
    given.k = k + t * KV * D;
    given.v = v + t * KV * D;
    given.o = o + t * Q * D;
    edge_infinite_step(&sequence, &given);
    for (int head = 0; checks && head < Q; ++head) {
      double error = 0, norm = 0;
      reference(&given, head, k, v, t + 1, (long)sequence.segments, answer);
      for (int c = 0; c < D; ++c) {
        error += pow(from_bf16(given.o[head * D + c]) - answer[c], 2);
        norm += answer[c] * answer[c];
      }
      worst = fmax(worst, sqrt(error / norm));
    }
  }
  double passed = seconds(CLOCK_MONOTONIC) - begin;
  printf("%ld tokens, %ld segments folded, %ld bytes of memory\n", tokens,
         (long)sequence.segments, (long)EDGE_INFINITE_BYTES);
  if (checks) {
    /* Answers are stored as bf16, of which half a step is 2^-9. */
    printf("largest relative error: %.1e\n", worst);
    return !(worst < 4e-3);
  }
  printf("%.1f microseconds a token\n",
         1e6 * passed / (double)(tokens - prompt));
  return 0;
}
