//===- BoundedInterpreter.cpp - the oracle of bounded caches --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/BoundedInterpreter.h"

#include "codegen/interpreter/BoundedEviction.h"
#include "codegen/interpreter/TokenCompiler.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace ladle;
using namespace ladle::interpreter;

int64_t SegmentNumbers::foldedAt(int64_t length) const {
  return std::max<int64_t>(0, (length - sinks - window) / segment);
}

namespace ladle::interpreter {

/// Fills an interpreter with the instructions of one attention. Summaries are
/// [heads, 2 + 2 dv]: m, Z, A and Σ (w v)² of each head of the query.
class BoundedCompiler : TokenCompiler {
public:
  BoundedCompiler(AttentionOp op, BoundedInterpreter &program)
      : TokenCompiler(program.initialValues), op(op), program(program) {}
  LogicalResult run();

private:
  using Row = BoundedInterpreter::Row;
  using Head = BoundedInterpreter::Head;
  using Kept = BoundedInterpreter::Kept;

  void emit(std::function<void(double *)> body) override {
    emitRow([body = std::move(body)](Row &row) { body(row.values.data()); });
  }
  void emitRow(BoundedInterpreter::Instruction instruction) {
    target->push_back(std::move(instruction));
  }
  LogicalResult compile(Operation &nested);
  void compileCacheToken(CacheTokenOp append);
  LogicalResult compileFold(FoldSegmentOp fold);
  void compileEvict(EvictOp evict);
  void compileObserve(ObserveOp observe);
  void compileTaylor(TaylorOp taylor);
  void compileSoftmax(SoftmaxOp softmax);
  void compileMerge(MergeOp merge);
  void compileNormalize(NormalizeOp normalize);
  void compileRecall(RecallOp recall);
  void compileOnce(OnceOp once);
  size_t allocateSummary(Value value, size_t heads);

  AttentionOp op;
  BoundedInterpreter &program;
  /// Where instructions go: those of the features of a key go elsewhere.
  std::vector<BoundedInterpreter::Instruction> *target = nullptr;
  llvm::DenseMap<Value, size_t> summaries;
};

} // namespace ladle::interpreter

//===----------------------------------------------------------------------===//
// From the IR
//===----------------------------------------------------------------------===//

FailureOr<BoundedInterpreter> BoundedInterpreter::create(AttentionOp op) {
  if (!op.isBounded())
    return op.emitError("the interpreter of bounded caches got one that grows");
  BoundedInterpreter made;
  if (failed(BoundedCompiler(op, made).run()))
    return failure();
  return made;
}

LogicalResult BoundedCompiler::run() {
  target = &program.instructions;
  program.name = op.getSymName().str();
  auto cache = cast<BufferType>(op.getCache().getType());
  program.heads = cache.getFields()[0].getShape()[0];
  program.keySize = cache.getFields()[0].getShape()[1];
  program.valueSize = cache.getFields()[1].getShape()[1];
  if (Value memory = op.getMemory())
    program.memoryKeySize = cast<MemoryType>(memory.getType()).getKeySize();
  for (BlockArgument argument : op.getBody().getArguments()) {
    if (!isa<RankedTensorType>(argument.getType()))
      continue;
    unsigned index = argument.getArgNumber();
    bool isParam = op.getArgumentKind(index) == ArgumentKind::Param;
    (isParam ? program.params : program.tokens)
        .push_back(describe(op.getArgumentName(index), argument.getType()));
    (isParam ? program.paramOffsets : program.tokenOffsets)
        .push_back(allocate(argument).offset);
  }
  for (Operation &nested : op.getBody().front().without_terminator())
    if (failed(compile(nested)))
      return failure();
  for (auto [name, type, value] :
       llvm::zip(op.getOutputNames().getAsValueRange<StringAttr>(),
                 op.getOutputTypes().getAsValueRange<TypeAttr>(),
                 op.getYield().getValues())) {
    program.outputs.push_back(describe(name, type));
    program.outputOffsets.push_back(get(value).offset);
    program.termOffsets.push_back(termsOf(value));
  }
  return success();
}

LogicalResult BoundedCompiler::compile(Operation &nested) {
  if (FailureOr<bool> isToken = compileToken(nested);
      failed(isToken) || *isToken)
    return isToken;
  return llvm::TypeSwitch<Operation *, LogicalResult>(&nested)
      .Case([&](CacheTokenOp o) { return compileCacheToken(o), success(); })
      .Case([&](FoldSegmentOp o) { return compileFold(o); })
      .Case([&](EvictOp o) { return compileEvict(o), success(); })
      .Case([&](ObserveOp o) { return compileObserve(o), success(); })
      .Case([&](TaylorOp o) { return compileTaylor(o), success(); })
      .Case([&](SoftmaxOp o) { return compileSoftmax(o), success(); })
      .Case([&](MergeOp o) { return compileMerge(o), success(); })
      .Case([&](NormalizeOp o) { return compileNormalize(o), success(); })
      .Case([&](RecallOp o) { return compileRecall(o), success(); })
      .Case([&](OnceOp o) { return compileOnce(o), success(); })
      .Default([](Operation *o) {
        return o->emitError("the interpreter does not know '")
               << o->getName() << "'";
      });
}

void BoundedCompiler::compileCacheToken(CacheTokenOp append) {
  size_t key = get(append.getValues()[0]).offset;
  size_t value = get(append.getValues()[1]).offset;
  size_t keySize = program.keySize, valueSize = program.valueSize;
  emitRow([=](Row &row) {
    for (size_t h = 0; h < row.heads.size(); ++h) {
      const double *k = row.values.data() + key + h * keySize;
      const double *v = row.values.data() + value + h * valueSize;
      row.heads[h].kept.push_back(
          {row.length, {k, k + keySize}, {v, v + valueSize}, {}});
    }
    ++row.length;
  });
}

/// M ← γ M + Σ f(k) vᵀ and z ← γ z + Σ f(k) over a segment, which leaves.
LogicalResult BoundedCompiler::compileFold(FoldSegmentOp fold) {
  program.isSegmented = true;
  SegmentNumbers &numbers = program.segments;
  numbers = {static_cast<int64_t>(fold.getSinks()),
             static_cast<int64_t>(fold.getWindow()),
             static_cast<int64_t>(fold.getSegment())};
  double decay = fold.getDecay().convertToDouble();

  std::vector<BoundedInterpreter::Instruction> features;
  target = &features;
  Region &region = fold.getFeature();
  size_t argument = allocate(region.getArgument(0)).offset;
  for (Operation &nested : region.front().without_terminator()) {
    FailureOr<bool> isToken = compileToken(nested);
    if (failed(isToken))
      return failure();
    if (!*isToken)
      return nested.emitError("the interpreter does not know '")
             << nested.getName() << "' among the features of a key";
  }
  size_t feature =
      get(cast<YieldOp>(region.front().back()).getOperand(0)).offset;
  target = &program.instructions;

  size_t keySize = program.keySize, valueSize = program.valueSize;
  size_t size = program.memoryKeySize;
  program.fold = [=, numbers = numbers](Row &row) {
    while (row.segments < row.mostSegments &&
           row.length - numbers.sinks - row.segments * numbers.segment -
                   row.window >=
               numbers.segment) {
      auto begin = static_cast<size_t>(numbers.sinks);
      for (Head &head : row.heads) {
        for (auto *numbers : {&head.matrix, &head.keySum})
          for (double &number : *numbers)
            number *= decay;
        for (auto *numbers : {&head.matrixSquares, &head.keySquares})
          for (double &number : *numbers)
            number *= decay * decay;
      }
      for (size_t i = begin; i < begin + size_t(numbers.segment); ++i) {
        for (size_t h = 0; h < row.heads.size(); ++h)
          llvm::copy(row.heads[h].kept[i].key,
                     row.values.begin() + argument + h * keySize);
        for (const auto &instruction : features)
          instruction(row);
        for (size_t h = 0; h < row.heads.size(); ++h) {
          Head &head = row.heads[h];
          const double *f = row.values.data() + feature + h * size;
          for (size_t c = 0; c < size; ++c) {
            head.keySum[c] += f[c];
            head.keySquares[c] += f[c] * f[c];
            for (size_t v = 0; v < valueSize; ++v) {
              double term = f[c] * head.kept[i].value[v];
              head.matrix[c * valueSize + v] += term;
              head.matrixSquares[c * valueSize + v] += term * term;
            }
          }
        }
      }
      for (Head &head : row.heads) {
        head.kept.erase(head.kept.begin() + begin,
                        head.kept.begin() + begin + numbers.segment);
        head.count += static_cast<double>(numbers.segment);
      }
      ++row.segments;
    }
  };
  emitRow(program.fold);
  program.answersFrom = program.instructions.size();
  return success();
}

//===----------------------------------------------------------------------===//
// Eviction
//===----------------------------------------------------------------------===//

void BoundedCompiler::compileEvict(EvictOp evict) {
  program.isEvicting = true;
  program.eviction = {static_cast<int64_t>(evict.getBudget()),
                      static_cast<int64_t>(evict.getSinks()),
                      static_cast<int64_t>(evict.getRecent()),
                      static_cast<int64_t>(evict.getQueries()),
                      static_cast<int64_t>(evict.getPool()),
                      evict.getVariance().convertToDouble()};
  emitRow([numbers = program.eviction](Row &row) {
    if (!row.isPrompt)
      ladle::interpreter::evict(row, numbers);
  });
}

void BoundedCompiler::compileObserve(ObserveOp observe) {
  size_t heads = observe.getQuery().getType().getDimSize(0);
  size_t query = get(observe.getQuery()).offset;
  double scale = observe.getScale().convertToDouble();
  emitRow([=](Row &row) {
    ladle::interpreter::observe(row, row.values.data() + query, heads, scale);
  });
}

void BoundedCompiler::compileTaylor(TaylorOp taylor) {
  size_t heads = taylor.getQuery().getType().getDimSize(0);
  size_t query = get(taylor.getQuery()).offset;
  size_t result = allocateSummary(taylor.getResult(), heads);
  size_t keySize = program.keySize, length = 2 + 2 * program.valueSize;
  double scale = taylor.getScale().convertToDouble();
  double limit = taylor.getLimit().convertToDouble();
  emitRow([=](Row &row) {
    size_t group = heads / row.heads.size();
    for (size_t h = 0; h < heads; ++h)
      taylorSummary(row.heads[h / group],
                    row.values.data() + query + h * keySize, scale, limit,
                    row.summaries[result].data() + h * length);
  });
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

size_t BoundedCompiler::allocateSummary(Value value, size_t heads) {
  size_t index = program.summarySizes.size();
  program.summarySizes.push_back(heads * (2 + 2 * program.valueSize));
  summaries[value] = index;
  return index;
}

void BoundedCompiler::compileSoftmax(SoftmaxOp softmax) {
  size_t heads = softmax.getQuery().getType().getDimSize(0);
  size_t query = get(softmax.getQuery()).offset;
  size_t result = allocateSummary(softmax.getResult(), heads);
  size_t keySize = program.keySize, valueSize = program.valueSize;
  double scale = softmax.getScale().convertToDouble();
  emitRow([=](Row &row) {
    size_t group = heads / row.heads.size();
    for (size_t h = 0; h < heads; ++h) {
      double *summary = row.summaries[result].data() + h * (2 + 2 * valueSize);
      std::fill_n(summary, 2 + 2 * valueSize, 0.0);
      summary[0] = -INFINITY;
      const double *q = row.values.data() + query + h * keySize;
      std::vector<double> scores;
      for (const Kept &token : row.heads[h / group].kept) {
        double score = 0;
        for (size_t c = 0; c < keySize; ++c)
          score += q[c] * token.key[c];
        scores.push_back(score * scale);
        summary[0] = std::fmax(summary[0], scores.back());
      }
      for (auto [token, score] : llvm::zip(row.heads[h / group].kept, scores)) {
        double weight = std::exp(score - summary[0]);
        summary[1] += weight;
        for (size_t v = 0; v < valueSize; ++v) {
          double term = weight * token.value[v];
          summary[2 + v] += term;
          summary[2 + valueSize + v] += term * term;
        }
      }
    }
  });
}

void BoundedCompiler::compileMerge(MergeOp merge) {
  size_t lhs = summaries.at(merge.getLhs());
  size_t rhs = summaries.at(merge.getRhs());
  size_t length = 2 + 2 * program.valueSize;
  size_t heads = program.summarySizes[lhs] / length;
  size_t result = allocateSummary(merge.getResult(), heads);
  emitRow([=](Row &row) {
    for (size_t h = 0; h < heads; ++h) {
      const double *a = row.summaries[lhs].data() + h * length;
      const double *b = row.summaries[rhs].data() + h * length;
      double *to = row.summaries[result].data() + h * length;
      double most =
          std::fmax(a[1] != 0 ? a[0] : -INFINITY, b[1] != 0 ? b[0] : -INFINITY);
      double ours = a[1] != 0 ? std::exp(a[0] - most) : 0;
      double theirs = b[1] != 0 ? std::exp(b[0] - most) : 0;
      to[0] = most;
      size_t squares = 2 + (length - 2) / 2;
      for (size_t i = 1; i < squares; ++i)
        to[i] = a[i] * ours + b[i] * theirs;
      for (size_t i = squares; i < length; ++i)
        to[i] = a[i] * ours * ours + b[i] * theirs * theirs;
    }
  });
}

void BoundedCompiler::compileNormalize(NormalizeOp normalize) {
  size_t from = summaries.at(normalize.getSummary());
  size_t valueSize = program.valueSize;
  Slice result = allocate(normalize.getResult());
  Slice terms = allocateTerms(normalize.getResult());
  emitRow([=](Row &row) {
    double *to = row.values.data() + result.offset;
    double *itsTerms = row.values.data() + terms.offset;
    for (size_t h = 0; h < result.size / valueSize; ++h) {
      const double *summary =
          row.summaries[from].data() + h * (2 + 2 * valueSize);
      for (size_t v = 0; v < valueSize; ++v) {
        *to = summary[1] == 0 ? 0 : summary[2 + v] / summary[1];
        double root = std::sqrt(summary[2 + valueSize + v]);
        *itsTerms++ =
            summary[1] == 0 ? 0 : std::max(std::abs(*to), root / summary[1]);
        ++to;
      }
    }
  });
}

//===----------------------------------------------------------------------===//
// Reads of a memory
//===----------------------------------------------------------------------===//

/// f Mᵀ / (f·z); 0 where nothing in memory has a weight. Features may change
/// sign, so that f·z nearly vanishes.
void BoundedCompiler::compileRecall(RecallOp recall) {
  size_t query = get(recall.getQuery()).offset;
  Slice result = allocate(recall.getResult());
  Slice allTerms = allocateTerms(recall.getResult());
  size_t size = program.memoryKeySize, valueSize = program.valueSize;
  emitRow([=](Row &row) {
    double *to = row.values.data() + result.offset;
    double *terms = row.values.data() + allTerms.offset;
    size_t heads = result.size / valueSize, group = heads / row.heads.size();
    for (size_t h = 0; h < heads; ++h, to += valueSize, terms += valueSize) {
      const Head &head = row.heads[h / group];
      const double *f = row.values.data() + query + h * size;
      std::fill_n(to, valueSize, 0.0);
      std::fill_n(terms, valueSize, 0.0);
      double weight = 0, weightSquares = 0;
      for (size_t c = 0; c < size; ++c) {
        weight += f[c] * head.keySum[c];
        weightSquares +=
            f[c] * f[c] *
            std::max(head.keySum[c] * head.keySum[c], head.keySquares[c]);
        for (size_t v = 0; v < valueSize; ++v) {
          double sum = head.matrix[c * valueSize + v];
          to[v] += f[c] * sum;
          terms[v] +=
              f[c] * f[c] *
              std::max(sum * sum, head.matrixSquares[c * valueSize + v]);
        }
      }
      if (weight == 0) {
        std::fill_n(to, valueSize, 0.0);
        std::fill_n(terms, valueSize, 0.0);
        continue;
      }
      // Of a quotient both parts have errors.
      double more =
          std::max(0.0, std::sqrt(weightSquares) / std::abs(weight) - 1);
      for (size_t v = 0; v < valueSize; ++v) {
        to[v] /= weight;
        terms[v] =
            std::max(std::abs(to[v]), std::sqrt(terms[v]) / std::abs(weight)) +
            more * std::abs(to[v]);
      }
    }
  });
}

void BoundedCompiler::compileOnce(OnceOp once) {
  size_t value = get(once.getValue()).offset;
  size_t otherwise = get(once.getOtherwise()).offset;
  size_t valueTerms = termsOf(once.getValue());
  size_t otherTerms = termsOf(once.getOtherwise());
  Slice result = allocate(once.getResult());
  Slice terms = allocateTerms(once.getResult());
  emitRow([=](Row &row) {
    double *values = row.values.data();
    bool holds = row.heads.front().count > 0;
    std::copy_n(values + (holds ? value : otherwise), result.size,
                values + result.offset);
    std::copy_n(values + (holds ? valueTerms : otherTerms), terms.size,
                values + terms.offset);
  });
}

//===----------------------------------------------------------------------===//
// A token
//===----------------------------------------------------------------------===//

BoundedInterpreter::Row BoundedInterpreter::makeRow() const {
  Row row;
  row.heads.resize(heads);
  for (Head &head : row.heads) {
    head.matrix.assign(memoryKeySize * valueSize, 0);
    head.keySum.assign(memoryKeySize, 0);
    head.matrixSquares = head.matrix;
    head.keySquares = head.keySum;
    head.valueSum.assign(memoryKeySize ? valueSize : 0, 0);
    head.valueSquares = head.valueSum;
  }
  row.budget = eviction.budget;
  row.values = initialValues;
  for (size_t size : summarySizes)
    row.summaries.emplace_back(size, 0.0);
  return row;
}

void BoundedInterpreter::answer(Row &row, const Arrays &paramValues,
                                const Arrays &tokenValues, Arrays &results,
                                bool isAnswered) const {
  for (auto [values, offset] : llvm::zip_equal(paramValues, paramOffsets))
    llvm::copy(values, row.values.begin() + offset);
  for (auto [values, offset] : llvm::zip_equal(tokenValues, tokenOffsets))
    llvm::copy(values, row.values.begin() + offset);
  for (const Instruction &instruction :
       ArrayRef(instructions)
           .take_front(isAnswered ? instructions.size() : answersFrom))
    instruction(row);
  results.clear();
  row.terms.clear();
  if (!isAnswered)
    return;
  for (auto [info, offset, itsTerms] :
       llvm::zip_equal(outputs, outputOffsets, termOffsets)) {
    auto begin = row.values.begin();
    results.emplace_back(begin + offset, begin + offset + info.size());
    row.terms.emplace_back(begin + itsTerms, begin + itsTerms + info.size());
  }
}

void BoundedInterpreter::step(Row &row, const Arrays &paramValues,
                              const Arrays &tokenValues,
                              Arrays &results) const {
  row.window = segments.window;
  row.mostSegments = INT64_MAX;
  answer(row, paramValues, tokenValues, results);
}

void BoundedInterpreter::prefill(Row &row, const Arrays &paramValues,
                                 const std::vector<Arrays> &tokenValues,
                                 std::vector<Arrays> &results,
                                 std::vector<Arrays> *terms,
                                 const std::vector<bool> &answered) const {
  if (isSegmented)
    row.mostSegments = segments.foldedAt(
        row.length + static_cast<int64_t>(tokenValues.size()));
  row.window = 1;
  row.isPrompt = true;
  // Its queries alone say what is kept, but for sums of all weights.
  if (isEvicting && eviction.queries > 0)
    for (Head &head : row.heads)
      for (Kept &token : head.kept)
        token.weights.clear();
  results.resize(tokenValues.size());
  if (terms)
    terms->clear();
  for (size_t i = 0; i < tokenValues.size(); ++i) {
    answer(row, paramValues, tokenValues[i], results[i],
           !isSegmented || answered.empty() || answered[i]);
    if (terms)
      terms->push_back(row.terms);
  }
  row.window = 0;
  if (fold)
    fold(row);
  row.isPrompt = false;
  if (isEvicting)
    evict(row, eviction);
}

void BoundedInterpreter::setBudget(Row &row, int64_t budget) const {
  row.budget = budget;
  evict(row, eviction);
}
