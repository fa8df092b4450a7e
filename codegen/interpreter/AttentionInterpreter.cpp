//===- AttentionInterpreter.cpp - the oracle of attentions ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/AttentionInterpreter.h"

#include "codegen/interpreter/TokenCompiler.h"

#include <cassert>
#include <cmath>

using namespace ladle;
using namespace ladle::interpreter;
using llvm::ArrayRef;

struct AttentionInterpreter::Summary {
  double most = -INFINITY, sum = 0;
  std::vector<double> values, squares; // Σ w v and Σ (w v)²
};

//===----------------------------------------------------------------------===//
// From the IR
//===----------------------------------------------------------------------===//

static mlir::Value widened(mlir::Value value) {
  if (auto extended = value.getDefiningOp<mlir::arith::ExtFOp>())
    return extended.getIn();
  return value;
}

llvm::FailureOr<AttentionInterpreter>
AttentionInterpreter::create(AttentionOp op, Precision precision) {
  AttentionInterpreter made;
  made.precision = precision;
  made.name = op.getSymName().str();
  made.pageSize = static_cast<int64_t>(op.getPageSize());
  llvm::DenseMap<mlir::Value, size_t> places;
  for (mlir::BlockArgument argument : op.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    ArgumentKind kind = op.getArgumentKind(index);
    if (kind == ArgumentKind::Buffer)
      continue;
    auto &infos = kind == ArgumentKind::Param ? made.params : made.tokens;
    places[argument] = infos.size();
    infos.push_back(describe(op.getArgumentName(index), argument.getType()));
  }
  auto place = [&](mlir::Value value,
                   mlir::Operation *at) -> llvm::FailureOr<size_t> {
    auto found = places.find(widened(value));
    if (found != places.end())
      return found->second;
    return at->emitError("the interpreter knows operands that are arguments");
  };
  if (op.getOutputNames().size() != 1)
    return op.emitError("the interpreter knows one output");
  made.output =
      describe(llvm::cast<mlir::StringAttr>(op.getOutputNames()[0]).getValue(),
               llvm::cast<mlir::TypeAttr>(op.getOutputTypes()[0]).getValue());

  mlir::Value result = op.getYield().getValues().front();
  if (auto rounded = result.getDefiningOp<mlir::arith::TruncFOp>())
    result = rounded.getIn();
  auto normalize = result.getDefiningOp<NormalizeOp>();
  if (!normalize)
    return op.emitError("the interpreter knows outputs of ladle.normalize");
  mlir::Value summary = normalize.getSummary();
  AttentionNumbers &numbers = made.numbers;
  if (auto complete = summary.getDefiningOp<CompleteOp>()) {
    auto match = complete.getPrefix().getDefiningOp<MatchOp>();
    if (!match)
      return complete.emitError(
          "the interpreter knows prefixes of ladle.match");
    auto matched = place(match.getQuery(), match);
    if (failed(matched))
      return llvm::failure();
    made.matchQuery.emplace(*matched);
    if (match.getMoment()) {
      auto moment = place(match.getMoment(), match);
      if (failed(moment))
        return llvm::failure();
      made.moment.emplace(*moment);
    }
    numbers.window = static_cast<int64_t>(match.getWindow());
    numbers.tau = match.getTau().convertToDouble();
    numbers.maxGap = static_cast<int64_t>(match.getMaxGap());
    numbers.maxChain = static_cast<int64_t>(match.getMaxChain());
    numbers.skip = static_cast<int64_t>(match.getSkip());
    if (match.getDrift())
      numbers.drift = match.getDrift()->convertToDouble();
    numbers.band = static_cast<int64_t>(complete.getBand());
    numbers.sinks = static_cast<int64_t>(complete.getSinks());
    numbers.wideBand = complete.getWideBand();
    numbers.wideGap = complete.getWideGap();
    summary = complete.getAll();
  }
  auto softmax = summary.getDefiningOp<SoftmaxOp>();
  auto append = softmax ? softmax.getCache().getDefiningOp<CacheTokenOp>()
                        : CacheTokenOp();
  if (!append)
    return op.emitError("the interpreter knows softmax over the cache with "
                        "this token");
  numbers.scale = softmax.getScale().convertToDouble();
  for (auto [value, into] :
       {std::pair<mlir::Value, size_t *>{softmax.getQuery(), &made.query},
        {append.getValues()[0], &made.key},
        {append.getValues()[1], &made.value}}) {
    auto found = place(value, softmax);
    if (failed(found))
      return llvm::failure();
    *into = *found;
  }
  return made;
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

AttentionInterpreter::Summary
AttentionInterpreter::attend(const Row &row, ArrayRef<double> query,
                             int64_t head, int64_t begin, int64_t end) const {
  int64_t keySize = tokens[key].shape[1], valueSize = tokens[value].shape[1];
  int64_t from = head / (getHeads() / tokens[key].shape[0]);
  Summary summary;
  summary.values.assign(valueSize, 0);
  summary.squares.assign(valueSize, 0);
  std::vector<double> scores;
  for (int64_t i = begin; i < end; ++i) {
    double score = 0;
    for (int64_t c = 0; c < keySize; ++c)
      score += query[head * keySize + c] * row.keys[i][from * keySize + c];
    scores.push_back(score * numbers.scale);
    summary.most = std::fmax(summary.most, scores.back());
  }
  for (int64_t i = begin; i < end; ++i) {
    double weight = std::exp(scores[i - begin] - summary.most);
    summary.sum += weight;
    for (int64_t c = 0; c < valueSize; ++c) {
      double term = weight * row.values[i][from * valueSize + c];
      summary.values[c] += term;
      summary.squares[c] += term * term;
    }
  }
  return summary;
}

void AttentionInterpreter::merge(Summary &into, const Summary &other) const {
  if (other.sum == 0)
    return;
  double most = std::fmax(into.most, other.most);
  double mine = into.sum == 0 ? 0 : std::exp(into.most - most);
  double theirs = std::exp(other.most - most);
  into.most = most;
  into.sum = into.sum * mine + other.sum * theirs;
  for (size_t c = 0; c < into.values.size(); ++c) {
    into.values[c] = into.values[c] * mine + other.values[c] * theirs;
    into.squares[c] =
        into.squares[c] * mine * mine + other.squares[c] * theirs * theirs;
  }
}

AttentionInterpreter::Summary
AttentionInterpreter::fromStored(const Stored &stored) {
  bool isEmpty = stored.logSum == -INFINITY;
  return {stored.logSum, isEmpty ? 0.0 : 1.0, stored.values, stored.squares};
}

AttentionInterpreter::Stored
AttentionInterpreter::toStored(const Summary &summary) const {
  Stored stored;
  stored.values = summary.values;
  bool isEmpty = summary.sum == 0;
  for (double &element : stored.values)
    element = roundTo(isEmpty ? 0.0 : element / summary.sum, precision);
  stored.squares = summary.squares;
  for (double &element : stored.squares)
    element = isEmpty ? 0.0 : element / (summary.sum * summary.sum);
  stored.logSum = isEmpty ? -INFINITY : summary.most + std::log(summary.sum);
  return stored;
}

//===----------------------------------------------------------------------===//
// A token
//===----------------------------------------------------------------------===//

void AttentionInterpreter::Row::restart() {
  for (std::optional<Entry> &entry : entries)
    entry.reset();
  llvm::fill(moments, 0);
  llvm::fill(counted, 0);
  for (std::vector<double> &each : squares)
    llvm::fill(each, INFINITY);
}

void AttentionInterpreter::Row::truncate(size_t length, size_t window) {
  size_t end = keys.size();
  keys.resize(length);
  values.resize(length);
  entries.resize(length);
  squares.resize(length);
  for (size_t position = 0; position + window < end && position < length;
       ++position)
    entries[position].reset();
  if (length == 0 || !entries.back()) {
    restart();
    return;
  }
  for (size_t head = 0; head < moments.size(); ++head) {
    double sum = 0;
    counted[head] = 0;
    for (const std::vector<double> &each : squares)
      if (std::isfinite(each[head])) {
        sum += each[head];
        ++counted[head];
      }
    moments[head] = counted[head] ? sum / double(counted[head]) : 0;
  }
}

AttentionInterpreter::Row AttentionInterpreter::makeRow() const {
  Row row;
  row.moments.assign(getHeads(), 0);
  row.counted.assign(getHeads(), 0);
  return row;
}

static double squaredDistance(ArrayRef<double> a, ArrayRef<double> b) {
  double sum = 0;
  for (auto [x, y] : llvm::zip_equal(a, b))
    sum += (x - y) * (x - y);
  return sum;
}

AttentionInterpreter::Found
AttentionInterpreter::find(const Row &row, const Arrays &paramValues,
                           const Arrays &tokenValues, int64_t head) const {
  Found found;
  int64_t size = tokens[query].shape[1];
  auto part = [&](const std::vector<double> &all) {
    return ArrayRef(all).slice(head * size, size);
  };
  double mean = moment ? paramValues[*moment][head] : row.moments[head];
  auto limitOf = [&](double share) {
    return 2 * (1 - share) * (1 - share) * mean;
  };
  found.limit = limitOf(numbers.tau);
  auto position = static_cast<int64_t>(row.entries.size());
  int64_t most = numbers.window;
  if (numbers.maxGap)
    most = std::min(most, numbers.maxGap);
  double nearest = found.limit;
  for (int64_t p = position - 1;
       p >= std::max<int64_t>(0, position - most) && row.entries[p]; --p) {
    if (numbers.tau >= 1 ||
        (numbers.skip && p + 1 - numbers.band - numbers.sinks < numbers.skip))
      break;
    double square = squaredDistance(part(tokenValues[*matchQuery]),
                                    part(row.entries[p]->query));
    found.squares.push_back(square);
    if (square < nearest) {
      nearest = square;
      found.position = p;
    }
  }
  if (found.position < 0)
    return found;
  const Entry &entry = *row.entries[found.position];
  if (numbers.maxChain && entry.depths[head] >= numbers.maxChain)
    found.position = -1;
  if (numbers.drift) {
    found.drift =
        squaredDistance(part(tokenValues[query]), part(entry.rotated));
    found.driftLimit = limitOf(*numbers.drift);
    if (!(found.drift < found.driftLimit))
      found.position = -1;
  }
  return found;
}

/// Answers a head, whose match is a position or −1, and leaves its summaries in
/// `left`.
AttentionInterpreter::Summary
AttentionInterpreter::answer(const Row &row, const Arrays &tokenValues,
                             int64_t head, int64_t match, Entry *left) const {
  ArrayRef<double> queries = tokenValues[query];
  auto end = static_cast<int64_t>(row.keys.size());
  int64_t sinks = std::min(numbers.sinks, end);
  int64_t bandEnd = std::max(end - numbers.band, sinks);
  Summary first, second;
  first.values.assign(tokens[value].shape[1], 0);
  first.squares = first.values;
  second = first;
  int64_t outerEnd = bandEnd;
  auto freshen = [&](Summary &into, int64_t from, int64_t to) {
    merge(into, attend(row, queries, head, std::min(from, to), to));
  };
  if (!numbers.wideBand) {
    int64_t from = sinks;
    if (match >= 0) {
      merge(first, fromStored(row.entries[match]->outer[head]));
      from = std::max(match + 1 - numbers.band, numbers.sinks);
    }
    freshen(first, from, bandEnd);
  } else {
    outerEnd = std::max(end - *numbers.wideBand, sinks);
    int64_t from = sinks, firstEnd = outerEnd;
    bool isNear = match >= 0 && end - 1 - match <= *numbers.wideGap;
    if (match >= 0) {
      const Entry &entry = *row.entries[match];
      merge(first, fromStored(entry.outer[head]));
      from = std::max(entry.outerEnds[head], sinks);
      if (isNear) {
        from = std::max(match + 1 - numbers.band, numbers.sinks);
        bool isInside = from > outerEnd;
        merge(isInside ? second : first, fromStored(entry.inner[head]));
        if (isInside)
          firstEnd = entry.outerEnds[head];
      }
    }
    if (from <= outerEnd)
      freshen(first, from, outerEnd);
    freshen(second, std::max(from, outerEnd), bandEnd);
    outerEnd = firstEnd;
  }
  if (left) {
    left->outer.push_back(toStored(first));
    left->inner.push_back(toStored(second));
    left->outerEnds.push_back(outerEnd);
    left->depths.push_back(match >= 0 ? row.entries[match]->depths[head] + 1
                                      : 0);
  }
  Summary all = attend(row, queries, head, 0, sinks);
  merge(all, first);
  merge(all, second);
  freshen(all, bandEnd, end);
  for (double &element : all.values)
    element = all.sum == 0 ? 0 : element / all.sum;
  for (double &element : all.squares)
    element = all.sum == 0 ? 0 : element / (all.sum * all.sum);
  return all;
}

std::vector<AttentionInterpreter::Found> AttentionInterpreter::step(
    Row &row, const Arrays &paramValues, const Arrays &tokenValues,
    std::vector<double> &result, std::optional<ArrayRef<int64_t>> matches,
    bool isPrompt, bool leaves) const {
  assert(tokenValues.size() == tokens.size() && "one array a token");
  row.keys.push_back(tokenValues[key]);
  row.values.push_back(tokenValues[value]);
  std::vector<Found> found(getHeads());
  result.clear();
  row.terms.clear();
  Entry left;
  for (int64_t head = 0; head < getHeads(); ++head) {
    if (reuses() && !isPrompt)
      found[head] = find(row, paramValues, tokenValues, head);
    int64_t match = isPrompt  ? -1
                    : matches ? (*matches)[head]
                              : found[head].position;
    if (match >= 0 && !row.entries[match])
      match = -1;
    Summary part =
        answer(row, tokenValues, head, match, reuses() ? &left : nullptr);
    llvm::append_range(result, part.values);
    for (double square : part.squares)
      row.terms.push_back(std::sqrt(square));
  }
  row.squares.emplace_back(getHeads(), INFINITY);
  if (!reuses() || !leaves) {
    row.entries.emplace_back();
    return found;
  }
  left.query = tokenValues[*matchQuery];
  left.rotated = tokenValues[query];
  int64_t size = tokens[query].shape[1];
  for (int64_t head = 0; head < getHeads(); ++head) {
    llvm::MutableArrayRef<double> its =
        llvm::MutableArrayRef(left.query).slice(head * size, size);
    double square = 0;
    for (double element : its)
      square += element * element;
    // What is no number in f32 counts for nothing, and nothing is near it.
    if (!std::isfinite(static_cast<float>(square))) {
      llvm::fill(its, NAN);
      continue;
    }
    row.squares.back()[head] = square;
    double &mean = row.moments[head];
    mean += (square - mean) / static_cast<double>(++row.counted[head]);
  }
  row.entries.emplace_back(std::move(left));
  return found;
}
