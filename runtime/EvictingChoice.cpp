//===- EvictingChoice.cpp - what a prompt leaves in a cache ---------------===//
//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Convert.h"
#include "runtime/HostEvicting.h"
#include "runtime/Text.h"

#include <cmath>
#include <cstring>

using namespace ladle;

/// The softmax of the queries of a window, summed over the heads of the group.
static void addWeights(const ScoreWindow &window, int64_t group, int64_t query,
                       int64_t visible, float *weights) {
  for (int64_t g = 0; g < group; ++g) {
    const float *scores =
        window.scores.data() + (query * group + g) * window.stride;
    float most = *std::max_element(scores, scores + visible);
    double sum = 0;
    for (int64_t i = 0; i < visible; ++i)
      sum += std::exp(scores[i] - most);
    for (int64_t i = 0; i < visible; ++i)
      weights[i] += static_cast<float>(std::exp(scores[i] - most) / sum);
  }
}

LayerPreference HostEvicting::finish(const Prompt &prompt, int64_t head,
                                     const Window &window,
                                     std::span<const float> sums, int worker) {
  int64_t count = prompt.count(), after = prompt.before + count;
  Candidates all = slots.candidates(prompt.slot, head, prompt.before);
  auto held = static_cast<int64_t>(all.count());
  int64_t rows = bounded.observes ? std::min(bounded.queries, count) : 0;
  for (int64_t i = 0; i < count; ++i)
    all.positions.push_back(prompt.before + i);
  int64_t size = held + count;
  if (!sums.empty()) {
    std::vector<float> before = std::move(all.weights);
    EvictingSlots::Head cache = slots.head(prompt.slot, head);
    all.weights.assign(sums.begin() + held, sums.begin() + size);
    all.weights.insert(all.weights.begin(), before.begin(), before.end());
    for (int64_t i = 0; i < held; ++i)
      all.weights[i] += sums[cache.order[i]];
  } else {
    // What earlier queries gave is not looked at any more.
    all.weights.assign(static_cast<size_t>(rows * size), 0);
    for (int64_t row = 0; row < rows; ++row)
      addWeights(window, group(), window.queries - rows + row,
                 held + count - rows + row + 1,
                 all.weights.data() + row * size);
  }
  all.seen.clear();
  for (int64_t position : all.positions)
    all.seen.push_back(std::min(rows, after - position));

  EvictionNumbers numbers = slots.numbers();
  std::vector<double> salience = saliences(numbers, all);
  LayerPreference result;
  if (preference)
    result = preferenceOfHead(prompt, head, window, all, salience);
  keep(prompt, head, all,
       chooseKept(numbers, all, salience, after,
                  pool.cursors[prompt.slot].budget),
       rows, worker);
  return result;
}

/// Folds what is not among `kept`, and makes the rest what the head holds.
void HostEvicting::keep(const Prompt &prompt, int64_t head,
                        const Candidates &all, std::span<const int32_t> kept,
                        int64_t seen, int which) {
  EvictingSlots::Head cache = slots.head(prompt.slot, head);
  int64_t held = *cache.held, size = static_cast<int64_t>(all.count());
  Worker &worker = workers[which];
  worker.leaving.clear();
  for (int64_t i = 0, next = 0; i < size; ++i) {
    if (next < static_cast<int64_t>(kept.size()) && kept[next] == i)
      ++next;
    else
      worker.leaving.push_back(i < held ? cache.order[i]
                                        : static_cast<int32_t>(~(i - held)));
  }
  if (bounded.prefillFold && !worker.leaving.empty()) {
    worker.task = {};
    worker.task.slot = prompt.slot;
    worker.task.head = head;
    worker.task.first = prompt.begin;
    worker.task.listed = static_cast<int64_t>(worker.leaving.size());
    describeRows(worker.leavingMemory, worker.leaving.data(),
                 {worker.task.listed});
    bounded.prefillFold(worker.list.data());
  }
  std::vector<int32_t> entries = slots.compact(prompt.slot, head, kept);
  int64_t room = bounded.capacity;
  int64_t rows = size ? static_cast<int64_t>(all.weights.size()) / size : 0;
  if (cache.weights)
    std::fill_n(cache.weights, std::max<int64_t>(bounded.queries, 1) * room, 0);
  for (size_t i = 0; i < kept.size(); ++i) {
    cache.positions[entries[i]] = all.positions[kept[i]];
    for (int64_t row = 0; cache.weights && row < rows; ++row)
      cache.weights[row * room + entries[i]] =
          all.weights[row * size + kept[i]];
    if (kept[i] < held)
      continue;
    int64_t at = (prompt.slot * made.cacheHeads + head) * room + entries[i];
    for (auto [name, array, width] :
         {std::tuple{&made.keyName, &pool.keys, made.keySize},
          std::tuple{&made.valueName, &pool.values, made.valueSize}}) {
      DType dtype;
      const char *from =
          tokenAt(*name, prompt.begin + kept[i] - held, head, dtype);
      int64_t bytes = width * array->elementBytes;
      std::memcpy(static_cast<char *>(array->memory.data()) + at * bytes, from,
                  static_cast<size_t>(bytes));
    }
  }
  if (cache.seen)
    *cache.seen = seen;
}

const char *HostEvicting::tokenAt(const std::string &name, int64_t row,
                                  int64_t head, DType &dtype) const {
  size_t which = made.signature.params.size();
  for (const TensorSpec &spec : made.signature.tokens) {
    dtype = spec.dtype;
    if (spec.name == name)
      break;
    ++which;
  }
  const MemoryDescriptor &from = arguments[which];
  const int64_t *strides = from.sizesAndStrides + 3;
  return static_cast<const char *>(from.aligned) +
         (row * strides[0] + head * strides[1]) * sizeInBytes(dtype);
}

//===----------------------------------------------------------------------===//
// Budgets
//===----------------------------------------------------------------------===//

Status HostEvicting::checkBudgets(std::span<const int32_t> slots,
                                  std::span<const int32_t> budgets) const {
  auto invalid = [](std::string message) {
    return Status(ErrorCode::InvalidArgument, std::move(message));
  };
  if (budgets.size() != slots.size())
    return invalid(fmt::format("budgets has {} numbers, wanted {}, one for "
                               "each slot",
                               budgets.size(), slots.size()));
  std::vector<bool> isNamed(static_cast<size_t>(pool.slots), false);
  for (size_t i = 0; i < slots.size(); ++i) {
    int32_t slot = slots[i];
    if (slot < 0)
      continue;
    if (slot >= pool.slots)
      return invalid(fmt::format("slots[{}] is {}, wanted {} at most", i, slot,
                                 pool.slots - 1));
    if (isNamed[slot])
      return invalid(fmt::format("slots[{}] is {}, which is named before, "
                                 "wanted each slot once",
                                 i, slot));
    isNamed[slot] = true;
    if (Status status =
            checkBudget(bounded, budgets[i], fmt::format("budgets[{}]", i));
        !status)
      return status;
  }
  return Status();
}

Status HostEvicting::setBudget(int32_t slot, int64_t budget) {
  if (Status status = pool.checkSlot(slot); !status)
    return status;
  if (Status status = checkBudget(bounded, budget); !status)
    return status;
  AttentionPoolImpl::Cursor &cursor = pool.cursors[slot];
  prepare(slot);
  cursor.budget = budget;
  Prompt nothing;
  nothing.slot = slot;
  nothing.before = cursor.length;
  threads.forEach(made.cacheHeads, [&](int64_t head, int worker) {
    Candidates all = slots.candidates(slot, head, cursor.length);
    if (static_cast<int64_t>(all.count()) <= budget)
      return;
    EvictingSlots::Head cache = slots.head(slot, head);
    EvictionNumbers numbers = slots.numbers();
    keep(nothing, head, all,
         chooseKept(numbers, all, saliences(numbers, all), cursor.length,
                    budget),
         cache.seen ? *cache.seen : 0, worker);
  });
  return Status();
}

//===----------------------------------------------------------------------===//
// The preference of a layer
//===----------------------------------------------------------------------===//

std::vector<float> HostEvicting::vectorOf(const Prompt &prompt, int64_t head,
                                          int64_t candidate,
                                          bool isValue) const {
  EvictingSlots::Head cache = slots.head(prompt.slot, head);
  int64_t width = isValue ? made.valueSize : made.keySize;
  DType dtype = isValue ? made.valueType : made.keyType;
  const char *from = nullptr;
  if (candidate < *cache.held) {
    const AttentionPoolImpl::Array &array = isValue ? pool.values : pool.keys;
    int64_t at = (prompt.slot * made.cacheHeads + head) * bounded.capacity +
                 cache.order[candidate];
    from = static_cast<const char *>(array.memory.data()) +
           at * width * array.elementBytes;
  } else {
    from = tokenAt(isValue ? made.valueName : made.keyName,
                   prompt.begin + candidate - *cache.held, head, dtype);
  }
  std::vector<float> result;
  for (int64_t c = 0; c < width; ++c)
    result.push_back(loadFloat(dtype, from + c * sizeInBytes(dtype)));
  return result;
}

static double normOf(std::span<const float> vector) {
  double sum = 0;
  for (float element : vector)
    sum += static_cast<double>(element) * element;
  return std::sqrt(sum);
}

LayerPreference
HostEvicting::preferenceOfHead(const Prompt &prompt, int64_t head,
                               const Window &window, const Candidates &all,
                               std::span<const double> salience) const {
  auto size = static_cast<int64_t>(all.count());
  int64_t after = prompt.before + prompt.count();
  std::vector<uint8_t> isKept(static_cast<size_t>(size), 0);
  for (int32_t i :
       chooseKept(slots.numbers(), all, salience, after, preference->budget))
    isKept[i] = 1;
  std::vector<double> norms, sum(static_cast<size_t>(made.keySize), 0);
  double squares = 0, evicted = 0;
  for (int64_t i = 0; i < size; ++i) {
    norms.push_back(normOf(vectorOf(prompt, head, i, /*isValue=*/true)));
    if (isKept[i] || bounded.limit == 0)
      continue;
    std::vector<float> key = vectorOf(prompt, head, i, /*isValue=*/false);
    for (int64_t c = 0; c < made.keySize; ++c)
      sum[c] += key[c];
    squares += normOf(key) * normOf(key);
    ++evicted;
  }
  double spread = evicted ? squares / evicted : 0;
  for (double each : sum)
    spread -= evicted ? each / evicted * (each / evicted) : 0;

  LayerPreference mean;
  int64_t queries = std::min(preference->queries, prompt.count());
  for (int64_t t = 0; t < queries; ++t)
    for (int64_t g = 0; g < group(); ++g) {
      int64_t place = window.queries - queries + t;
      int64_t row = prompt.end - queries + t;
      PreferenceInputs inputs;
      inputs.tokens = static_cast<size_t>(size - queries + t + 1);
      inputs.scores = std::span(window.scores)
                          .subspan((place * group() + g) * window.stride);
      inputs.isKept = isKept;
      inputs.valueNorms = norms;
      inputs.remembers = bounded.memory == BoundedMemory::Taylor;
      inputs.valueExponent = preference->valueExponent;
      inputs.entropyOfExact = preference->entropyOfExact;
      if (bounded.limit > 0 && !bounded.queryName.empty()) {
        DType dtype;
        const char *from =
            tokenAt(bounded.queryName, row, head * group() + g, dtype);
        std::vector<float> query;
        for (int64_t c = 0; c < made.keySize; ++c)
          query.push_back(loadFloat(dtype, from + c * sizeInBytes(dtype)));
        inputs.isFirstOrder = std::abs(bounded.scale) * normOf(query) *
                                  std::sqrt(std::max(spread, 0.0)) <=
                              bounded.limit;
      }
      LayerPreference each = preferenceOf(inputs);
      auto terms = static_cast<double>(queries * group());
      mean.disturbance += each.disturbance / terms;
      mean.entropy += each.entropy / terms;
    }
  return mean;
}
