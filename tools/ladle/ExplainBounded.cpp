//===- ExplainBounded.cpp - what a bounded attention moves and keeps ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "tools/ladle/ExplainAttention.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace ladle;
using llvm::formatv;

static constexpr int64_t contexts[] = {1 << 12, 1 << 15, 1 << 17, 1 << 20};

namespace {

/// The bytes of a sequence and of a step, from shapes and types alone.
class BoundedBytes {
public:
  explicit BoundedBytes(AttentionStepOp step);

  /// Of a sequence, whatever its length; of it the cache, the memory and what
  /// tells which token leaves.
  double slot() const { return cache + memory + notes; }
  /// Tokens that a step attends to: on average between two folds.
  double kept(double context) const;
  /// That a step reads and writes, folds shared by all steps between them.
  double step(double context) const;
  /// From which length on it moves less than attention to all tokens.
  double breakEven() const;

  int64_t heads = 0, cacheHeads = 0, capacity = 0;
  /// Of a cache that evicts, and of a segmented one.
  bool evicts = false;
  int64_t budget = 0, sinks = 0, window = 0, segment = 0;
  double token = 0; ///< of the cache, all its heads
  double cache = 0, memory = 0, notes = 0;

private:
  double noted = 0; ///< bytes of a kept token that choosing reads and writes
};

} // namespace

static double bytesOf(mlir::Type type) {
  return type.getIntOrFloatBitWidth() / 8.0;
}

BoundedBytes::BoundedBytes(AttentionStepOp step) {
  auto type = llvm::cast<BufferType>(step.getCache().getType());
  for (FieldAttr field : type.getFields())
    token += static_cast<double>(field.getShape()[0] * field.getShape()[1]) *
             bytesOf(field.getElementType());
  cacheHeads = type.getFields()[0].getShape()[0];
  capacity = type.getCapacity();
  cache = static_cast<double>(capacity) * token;
  heads = llvm::cast<mlir::RankedTensorType>(
              llvm::cast<mlir::TypeAttr>(step.getOutputTypes()[0]).getValue())
              .getDimSize(0);
  auto ofHeads = static_cast<double>(cacheHeads);
  if (mlir::Value store = step.getMemory()) {
    auto held = llvm::cast<MemoryType>(store.getType());
    auto keys = static_cast<double>(held.getKeySize());
    auto values = static_cast<double>(held.getValueSize());
    memory =
        ofHeads * (keys * values * bytesOf(held.getElementType()) + 4 * keys);
    // The sum of values, the number of tokens and the spread of their keys.
    if (held.getKind() == MemoryKind::Taylor)
      memory += ofHeads * (4 * values + 8);
  }
  bool notesWeights = false;
  double queries = 0;
  step.walk([&](EvictFromOp evict) {
    evicts = true;
    budget = static_cast<int64_t>(evict.getBudget());
    queries = static_cast<double>(evict.getQueries());
  });
  step.walk([&](FoldFromOp fold) {
    sinks = static_cast<int64_t>(fold.getSinks());
    window = static_cast<int64_t>(fold.getWindow());
    segment = static_cast<int64_t>(fold.getSegment());
  });
  step.walk([&](NoteWeightsOp) { notesWeights = true; });
  if (!evicts)
    return;
  // The order of the tokens and their positions, and their weights: as they
  // are on the host.
  constexpr double ofPlace = 4 + 8, ofWeight = 4;
  if (notesWeights)
    noted = ofHeads * ofWeight * (queries > 0 ? queries + 1 : 2);
  notes = ofHeads * static_cast<double>(capacity) *
          (ofPlace + (notesWeights ? ofWeight * std::max(queries, 1.0) : 0.0));
}

double BoundedBytes::kept(double context) const {
  if (evicts)
    return std::min(context, static_cast<double>(budget));
  auto others = static_cast<double>(sinks + window);
  auto full = static_cast<double>(segment);
  return context < others + full ? context : others + full / 2;
}

double BoundedBytes::step(double context) const {
  double attended = kept(context);
  if (attended == context)
    return attended * token;
  if (evicts)
    return attended * (token + noted) + 2 * memory;
  // A fold reads each token once more, and changes the memory.
  return attended * token + memory + token +
         2 * memory / static_cast<double>(segment);
}

double BoundedBytes::breakEven() const {
  auto least = static_cast<double>(evicts ? budget : sinks + window + segment);
  return std::max(std::ceil(step(least + 1) / token), least + 1);
}

static std::string showBytes(double bytes) {
  return bytes < 1e6   ? formatv("{0:f1} KB", bytes / 1e3).str()
         : bytes < 1e9 ? formatv("{0:f1} MB", bytes / 1e6).str()
                       : formatv("{0:f2} GB", bytes / 1e9).str();
}

static void print(AttentionStepOp step, const BoundedBytes &bytes,
                  llvm::raw_ostream &os) {
  os << "attention " << step.getAttention() << ": " << bytes.heads
     << " heads, of which " << bytes.heads / bytes.cacheHeads
     << " share one of the cache; ";
  if (bytes.evicts)
    os << "a budget of " << bytes.budget << " tokens\n\n";
  else
    os << bytes.sinks << " sinks, a window of " << bytes.window
       << ", segments of " << bytes.segment << "\n\n";
  os << formatv("  a cached token is {0}\n", showBytes(bytes.token))
     << formatv("  a sequence takes {0}, whatever its length: a cache of {1}",
                showBytes(bytes.slot()), showBytes(bytes.cache));
  if (bytes.memory > 0)
    os << formatv(", a memory of {0}", showBytes(bytes.memory));
  if (bytes.notes > 0)
    os << formatv(", {0} to choose by", showBytes(bytes.notes));
  os << "\n\n  bytes of a token and row, what leaves the cache shared out\n"
     << formatv("  {0,10} {1,10} {2,12} {3,12}\n", "context", "attended",
                "bytes", "all tokens");
  for (int64_t context : contexts) {
    auto tokens = static_cast<double>(context);
    os << formatv("  {0,10} {1,10:f0} {2,12} {3,12}\n", context,
                  bytes.kept(tokens), showBytes(bytes.step(tokens)),
                  showBytes(tokens * bytes.token));
  }
  os << formatv("\n  less than attention to all tokens from {0:f0} on\n",
                bytes.breakEven());
}

static llvm::json::Value toJSON(AttentionStepOp step,
                                const BoundedBytes &bytes) {
  llvm::json::Array lines;
  for (int64_t context : contexts) {
    auto tokens = static_cast<double>(context);
    lines.push_back(llvm::json::Object{{"context", context},
                                       {"attended", bytes.kept(tokens)},
                                       {"bytes", bytes.step(tokens)},
                                       {"all_tokens", tokens * bytes.token}});
  }
  return llvm::json::Object{
      {"attention", step.getAttention()}, {"heads", bytes.heads},
      {"cache_heads", bytes.cacheHeads},  {"capacity", bytes.capacity},
      {"bytes_of_token", bytes.token},    {"bytes_of_sequence", bytes.slot()},
      {"cache_bytes", bytes.cache},       {"memory_bytes", bytes.memory},
      {"bytes", std::move(lines)},        {"break_even", bytes.breakEven()}};
}

void ladle::tool::explainBounded(AttentionStepOp step, bool json) {
  BoundedBytes bytes(step);
  if (json)
    llvm::outs() << toJSON(step, bytes) << "\n";
  else
    print(step, bytes, llvm::outs());
}
