//===- MixedTimer.cpp - mixed batches, replayed ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MixedTimer.h"

#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;

MixedTimer::MixedTimer(DraftSpec given, MixedRows of,
                       const measure::Gpu &device)
    : spec(std::move(given)), rows(std::move(of)), gpu(device) {}
MixedTimer::~MixedTimer() = default;

Result<std::unique_ptr<MixedTimer>> MixedTimer::create(const DraftSpec &spec,
                                                       MixedRows rows,
                                                       const measure::Gpu &gpu,
                                                       const Options &options) {
  std::unique_ptr<MixedTimer> timer(new MixedTimer(spec, std::move(rows), gpu));
  if (Status status = timer->prepare(options); !status)
    return status;
  return timer;
}

std::vector<int64_t> MixedTimer::draftsOfRows() const {
  std::vector<int64_t> drafts;
  for (const MixedRow &row : rows.rows)
    drafts.push_back(row.drafts);
  return drafts;
}

std::vector<size_t> MixedTimer::allRows() const {
  std::vector<size_t> all(rows.rows.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Result<MixedTimer::Call>
MixedTimer::makeCall(const std::vector<size_t> &of,
                     const std::vector<int64_t> &drafts, bool accepts) const {
  std::vector<int32_t> slots, starts{0}, numAccepted;
  for (size_t row : of) {
    bool isPadding = rows.rows[row].isPadding();
    if (drafts[row] == 0 && !isPadding)
      continue;
    slots.push_back(isPadding ? -1 : static_cast<int32_t>(row));
    starts.push_back(starts.back() + static_cast<int32_t>(drafts[row]));
    numAccepted.push_back(accepts ? static_cast<int32_t>(drafts[row]) : 0);
  }
  auto count = static_cast<int64_t>(slots.size());
  // Of padding alone there is room for a draft that nobody has.
  int64_t all = std::max<int64_t>(starts.back(), 1);
  DeviceId device = layers->device();
  Result<DeviceTensor> made[] = {numbersOn(device, std::move(slots)),
                                 numbersOn(device, std::move(starts)),
                                 numbersOn(device, std::move(numAccepted))};
  for (const Result<DeviceTensor> &each : made)
    if (!each)
      return each.status();
  return Call{std::move(*made[0]), std::move(*made[1]), std::move(*made[2]),
              count, all};
}

VerifyArguments MixedTimer::argumentsOf(const Call &call) {
  VerifyArguments given;
  given.rows = call.rows;
  given.slots = numbersOf(call.slots);
  given.cuSeqlens = numbersOf(call.starts);
  given.drafts = call.drafts;
  return given;
}

Status MixedTimer::commit(const Call &call) {
  return layers->commit(numbersOf(call.slots), numbersOf(call.numAccepted), {});
}

//===----------------------------------------------------------------------===//
// Where rows stand
//===----------------------------------------------------------------------===//

/// Pages for the entries of each row, and states for those that have one: of a
/// program without pages all of it is there.
Status MixedTimer::reserve(const std::vector<int64_t> &entries) {
  std::vector<int32_t> slots, counts;
  for (size_t row = 0; row < entries.size(); ++row)
    if (entries[row] > 0) {
      slots.push_back(static_cast<int32_t>(row));
      counts.push_back(static_cast<int32_t>(entries[row]));
    }
  return spec.page ? layers->cursors.reserve(slots, counts) : Status();
}

Status MixedTimer::append(std::vector<int64_t> entries) {
  std::vector<int64_t> now(entries.size());
  for (;;) {
    for (size_t row = 0; row < entries.size(); ++row) {
      now[row] = std::min(entries[row], spec.drafts);
      entries[row] -= now[row];
    }
    std::vector<size_t> some;
    for (size_t row = 0; row < now.size(); ++row)
      if (now[row] > 0)
        some.push_back(row);
    if (some.empty())
      return Status();
    if (Status status = reserve(now); !status)
      return status;
    Result<Call> call = makeCall(some, now, /*accepts=*/true);
    if (!call)
      return call.status();
    if (Status status = layers->verifyEach(argumentsOf(*call)); !status)
      return status;
    if (Status status = commit(*call); !status)
      return status;
    if (Status status = gpu.device().synchronize(); !status)
      return status;
  }
}

/// States of the rows that have one are what tokens left behind; all rows then
/// have their entries.
Status MixedTimer::fillRows() {
  std::vector<int64_t> first(rows.rows.size()), then(rows.rows.size());
  std::vector<int32_t> withState;
  for (size_t row = 0; row < rows.rows.size(); ++row) {
    const MixedRow &each = rows.rows[row];
    then[row] = each.fill;
    if (each.isPadding() || !each.hasState)
      continue;
    first[row] = spec.threshold;
    withState.push_back(static_cast<int32_t>(row));
  }
  // So many make a row fold, which is how it comes to a state.
  if (Status status = reserve(first); !status)
    return status;
  if (Status status = append(first); !status)
    return status;
  if (Status status = layers->flush(withState); !status)
    return status;
  if (Status status = append(then); !status)
    return status;
  if (Status status = reserve(draftsOfRows()); !status)
    return status;
  for (size_t row = 0; row < rows.rows.size(); ++row) {
    Result<Cursor> cursor = layers->cursors.cursor(static_cast<int32_t>(row));
    if (!cursor)
      return cursor.status();
    epochs.push_back(cursor->epoch);
    const MixedRow &each = rows.rows[row];
    bool hasState = !spec.page || cursor->epoch > 0;
    if (!each.isPadding() &&
        (cursor->length != each.fill || hasState != each.hasState))
      return Status(ErrorCode::Internal,
                    fmt::format("row {} has {} entries and {} state, wanted {} "
                                "and {}",
                                row, cursor->length, hasState ? "a" : "no",
                                each.fill, each.hasState ? "one" : "none"));
  }
  return Status();
}

Status MixedTimer::checkFolds() {
  Result<Call> call = makeCall(allRows(), draftsOfRows(), /*accepts=*/false);
  if (!call)
    return call.status();
  // A simulated graph has verified nothing.
  if (Status status = layers->verifyEach(argumentsOf(*call)); !status)
    return status;
  if (Status status = commit(*call); !status)
    return status;
  for (size_t row = 0; row < rows.rows.size(); ++row) {
    Result<Cursor> cursor = layers->cursors.cursor(static_cast<int32_t>(row));
    if (!cursor)
      return cursor.status();
    const MixedRow &each = rows.rows[row];
    int64_t folds = cursor->epoch - epochs[row];
    int64_t left = each.isPadding() || each.folds ? 0 : each.fill;
    if (folds != (each.folds ? 1 : 0) || cursor->length != left)
      return Status(ErrorCode::Internal,
                    fmt::format("row {} ({}) has folded {} times and has {} "
                                "entries left, wanted {} and {}",
                                row, rows.parts[each.part], folds,
                                cursor->length, each.folds ? 1 : 0, left));
    epochs[row] = cursor->epoch;
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

Status MixedTimer::prepare(const Options &options) {
  DraftLayers::Options layered;
  layered.cursors.slots = spec.batch;
  layered.cursors.foldThreshold = spec.threshold;
  if (spec.page) {
    layered.cursors.crossover = spec.threshold;
    // Rows that may come to one with their next token take it before.
    layered.cursors.states = spec.batch;
  }
  layered.batchBytes = options.batchBytes;
  layered.drafts = spec.batch * spec.drafts;
  layered.startsEarly = options.startsEarly;
  layered.restSeconds = options.restSeconds;
  Result<DraftLayers> made =
      DraftLayers::create(spec.source, spec.programOptions(), gpu, layered);
  if (!made)
    return made.status();
  layers.emplace(std::move(*made));
  return fillRows();
}

Result<std::vector<double>> MixedTimer::time(const std::vector<size_t> &of,
                                             double leastSeconds,
                                             int64_t count) {
  Result<Call> call = makeCall(of, draftsOfRows(), /*accepts=*/false);
  if (!call)
    return call.status();
  int64_t steps = layers->stepsOf(leastSeconds, layers->count());
  return layers->time([&] { return layers->verify(argumentsOf(*call), steps); },
                      steps, count);
}

Result<int64_t> MixedTimer::countNodes() {
  Result<Call> call = makeCall(allRows(), draftsOfRows(), /*accepts=*/false);
  if (!call)
    return call.status();
  Result<cuda::Graph> graph = cuda::Graph::record(
      gpu.device(), [&] { return layers->verify(argumentsOf(*call), 1); });
  if (!graph)
    return graph.status();
  return graph->nodes();
}
