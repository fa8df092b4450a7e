//===- LinearAttention.cpp - a program written by hand --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"
#include "runtime/Kernels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

using namespace ladle;
using namespace ladle::test;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {

/// An element of a descriptor, as compiled code would address it.
template <typename... Indices> float &at(void *argument, Indices... indices) {
  auto *memory = static_cast<MemoryDescriptor *>(argument);
  constexpr size_t rank = sizeof...(indices);
  int64_t index[] = {static_cast<int64_t>(indices)...};
  int64_t offset = memory->offset;
  for (size_t i = 0; i < rank; ++i) {
    assert(index[i] < memory->sizesAndStrides[i] && "outside the memory");
    offset += index[i] * memory->sizesAndStrides[rank + i];
  }
  return static_cast<float *>(memory->aligned)[offset];
}

/// The arguments in the order of the interface.
struct Arguments {
  Arguments(void **all, bool usesBuffer) {
    // States, carries and entries have the same slots without drafts.
    int64_t *integers[] = {&row,    &readSlot,  &writeSlot, &base,
                           &length, &headBegin, &headEnd};
    for (size_t i = 0; i < std::size(integers); ++i)
      *integers[i] = *static_cast<int64_t *>(all[i]);
    void **next = all + taskIntegers;
    for (void **argument : {&bias, &q, &k, &v, &a, &s, &previous, &state})
      *argument = *next++;
    if (usesBuffer)
      for (void **argument : {&keys, &values, &decays})
        *argument = *next++;
    y = *next++;
    z = *next++;
  }
  int64_t row, readSlot, writeSlot, base, length, headBegin, headEnd;
  void *bias, *q, *k, *v, *a, *s, *previous, *state, *y, *z;
  void *keys = nullptr, *values = nullptr, *decays = nullptr;
};

using State = float[valueSize][keySize];

void applyEntry(State &s, float decay, const float *key, const float *value) {
  for (int64_t v = 0; v < valueSize; ++v)
    for (int64_t k = 0; k < keySize; ++k)
      s[v][k] = decay * s[v][k] + key[k] * value[v];
}

/// The state of the read slot with all its entries.
void loadState(const Arguments &args, int64_t h, RouteKind route, State &s) {
  for (int64_t v = 0; v < valueSize; ++v)
    for (int64_t k = 0; k < keySize; ++k)
      s[v][k] = route == RouteKind::KvOnly
                    ? 0.0f
                    : at(args.state, args.readSlot, h, v, k);
  if (!args.keys)
    return;
  for (int64_t j = 0; j < args.length; ++j) {
    int64_t entry = (args.base + j) % capacity;
    applyEntry(s, at(args.decays, args.readSlot, h, entry),
               &at(args.keys, args.readSlot, h, entry, 0),
               &at(args.values, args.readSlot, h, entry, 0));
  }
}

void storeState(const Arguments &args, int64_t h, const State &s) {
  for (int64_t v = 0; v < valueSize; ++v)
    for (int64_t k = 0; k < keySize; ++k)
      at(args.state, args.writeSlot, h, v, k) = s[v][k];
}

void append(const Arguments &args, int64_t h, const float *value) {
  int64_t entry = (args.base + args.length) % capacity;
  at(args.decays, args.writeSlot, h, entry) = at(args.a, args.row, h);
  std::copy_n(&at(args.k, args.row, h, 0), keySize,
              &at(args.keys, args.writeSlot, h, entry, 0));
  std::copy_n(value, valueSize, &at(args.values, args.writeSlot, h, entry, 0));
}

template <RouteKind route, FormKind form> void kernel(void **arguments) {
  constexpr bool usesBuffer = route != RouteKind::Recurrent;
  Arguments args(arguments, usesBuffer);
  for (int64_t h = args.headBegin; h < args.headEnd; ++h) {
    State s;
    loadState(args, h, route, s);
    if (form == FormKind::Fold) {
      storeState(args, h, s);
      continue;
    }
    const float *value = &at(args.v, args.row, h, 0);
    applyEntry(s, at(args.a, args.row, h), &at(args.k, args.row, h, 0), value);
    for (int64_t v = 0; v < valueSize; ++v) {
      float sum = 0;
      for (int64_t k = 0; k < keySize; ++k)
        sum += s[v][k] * at(args.q, args.row, h, k);
      at(args.y, args.row, h, v) = sum + at(args.bias, h) +
                                   at(args.previous, args.readSlot, h, v) +
                                   at(args.s, args.row, 0, v);
    }
    at(args.z, args.row, h) = at(args.a, args.row, h);
    for (int64_t v = 0; v < valueSize; ++v)
      at(args.previous, args.writeSlot, h, v) = value[v];
    if (usesBuffer && form == FormKind::Decode)
      append(args, h, value);
    else
      storeState(args, h, s);
  }
}

template <RouteKind route> RouteKernels buffered() {
  return {route, kernel<route, FormKind::Decode>,
          kernel<route, FormKind::DecodeFold>, kernel<route, FormKind::Fold>,
          /*usesBuffer=*/true};
}

} // namespace

Program test::linearAttention(RouteKind route) {
  ProgramImpl impl;
  Signature &signature = impl.signature;
  signature.name = "linear_attention";
  signature.heads = heads;
  signature.params = {{"bias", DType::F32, {heads}}};
  signature.tokens = {{"q", DType::F32, {heads, keySize}},
                      {"k", DType::F32, {heads, keySize}},
                      {"v", DType::F32, {heads, valueSize}},
                      {"a", DType::F32, {heads}},
                      {"s", DType::F32, {1, valueSize}}};
  signature.carries = {{"prev", DType::F32, {heads, valueSize}}};
  signature.outputs = {{"y", DType::F32, {heads, valueSize}},
                       {"z", DType::F32, {heads}}};
  signature.states = {{"S", heads, keySize, valueSize, DType::F32}};
  impl.route = route;
  impl.capacity = capacity;
  impl.fields = {{"k", DType::F32, {heads, keySize}},
                 {"u", DType::F32, {heads, valueSize}},
                 {"decay", DType::F32, {heads}}};
  impl.routes = {
      {RouteKind::Recurrent, kernel<RouteKind::Recurrent, FormKind::Decode>},
      buffered<RouteKind::Inner>(),
      buffered<RouteKind::KvOnly>()};
  Result<Program> program = Program::create(std::move(impl));
  INFO(program.message());
  REQUIRE(program.ok());
  return *program;
}

//===----------------------------------------------------------------------===//
// Inputs and the reference
//===----------------------------------------------------------------------===//

Token test::makeToken(uint32_t sequence, uint32_t time) {
  std::mt19937 generator(sequence * 7919 + time);
  std::uniform_real_distribution<float> value(-1, 1), decay(0.5, 1);
  Token token;
  for (int64_t h = 0; h < heads; ++h) {
    for (float &x : token.q[h])
      x = value(generator);
    for (float &x : token.k[h])
      x = value(generator);
    for (float &x : token.v[h])
      x = value(generator);
    token.a[h] = decay(generator);
  }
  for (float &x : token.s)
    x = value(generator);
  return token;
}

static float biasOf(int64_t head) { return 0.25f * static_cast<float>(head); }

std::vector<float> Reference::step(const Token &token) {
  std::vector<float> y;
  for (int64_t h = 0; h < heads; ++h) {
    applyEntry(state[h], token.a[h], token.k[h], token.v[h]);
    for (int64_t v = 0; v < valueSize; ++v) {
      float sum = 0;
      for (int64_t k = 0; k < keySize; ++k)
        sum += state[h][v][k] * token.q[h][k];
      y.push_back(sum + biasOf(h) + previous[h][v] + token.s[v]);
      previous[h][v] = token.v[h][v];
    }
  }
  return y;
}

Batch::Batch(int64_t rows)
    : qs(rows * heads * keySize), ks(rows * heads * keySize),
      vs(rows * heads * valueSize), as(rows * heads), ss(rows * valueSize),
      ys(rows * heads * valueSize, 99.0f), zs(rows * heads, 99.0f) {
  for (int64_t h = 0; h < heads; ++h)
    bias.push_back(biasOf(h));
  auto view = [](std::vector<float> &values, std::vector<int64_t> shape) {
    return TensorView::dense(values, DType::F32, std::move(shape));
  };
  arguments.rows = rows;
  arguments.tensors = {{"bias", view(bias, {heads})},
                       {"q", view(qs, {rows, heads, keySize})},
                       {"k", view(ks, {rows, heads, keySize})},
                       {"v", view(vs, {rows, heads, valueSize})},
                       {"a", view(as, {rows, heads})},
                       {"s", view(ss, {rows, 1, valueSize})},
                       {"y", view(ys, {rows, heads, valueSize})},
                       {"z", view(zs, {rows, heads})}};
}

void Batch::set(int64_t row, const Token &token) {
  auto put = [row](std::vector<float> &values, const float *from,
                   int64_t count) {
    std::copy_n(from, count, values.begin() + row * count);
  };
  put(qs, token.q[0], heads * keySize);
  put(ks, token.k[0], heads * keySize);
  put(vs, token.v[0], heads * valueSize);
  put(as, token.a, heads);
  put(ss, token.s, valueSize);
}

std::vector<float> Batch::y(int64_t row) const {
  auto begin = ys.begin() + row * heads * valueSize;
  return {begin, begin + heads * valueSize};
}

std::vector<float> Batch::z(int64_t row) const {
  return {zs.begin() + row * heads, zs.begin() + (row + 1) * heads};
}

const StepArguments &Batch::with(std::vector<int32_t> readSlots,
                                 std::vector<int32_t> writeSlots) {
  reads = std::move(readSlots);
  writes = std::move(writeSlots);
  arguments.readSlots = reads;
  arguments.writeSlots = writes;
  return arguments;
}

Pool test::makePool(const Program &program, int64_t slots,
                    PoolOptions options) {
  options.slots = slots;
  Result<Pool> pool = Pool::create(program, options);
  INFO(pool.message());
  REQUIRE(pool.ok());
  return std::move(*pool);
}

std::vector<float> test::decodeOne(const Program &program, Pool &pool,
                                   int32_t slot, uint32_t sequence,
                                   uint32_t time, int32_t writeSlot) {
  Batch batch(1);
  batch.set(0, makeToken(sequence, time));
  Status status = decode(
      program, pool, batch.with({slot}, {writeSlot < 0 ? slot : writeSlot}));
  INFO(status.message());
  REQUIRE(status.ok());
  return batch.y(0);
}
