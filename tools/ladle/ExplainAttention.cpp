//===- ExplainAttention.cpp - ladle explain of an attention ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/ExplainAttention.h"
#include "dialect/LadleOps.h"
#include "passes/Pipelines.h"
#include "tools/ladle/AttentionBytes.h"
#include "tools/ladle/Errors.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace ladle;
using ladle::tool::AttentionBytes;
using llvm::formatv;

//===----------------------------------------------------------------------===//
// Chance
//===----------------------------------------------------------------------===//

/// P(a, x), the regularised incomplete gamma function, for x below a + 1: its
/// series there has terms that shrink from the first.
static double lowerGamma(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < 10000 && term > sum * 1e-17; ++n)
    sum += term *= x / (a + n);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

double ladle::tool::tauOfChance(double chance, int64_t size) {
  // Two random queries are √(2d) apart, and ‖q − q'‖² / 2 is χ² of d: chances
  // below a half lie below d.
  double a = static_cast<double>(size) / 2, low = 0, high = a;
  for (int i = 0; i < 200; ++i) {
    double middle = (low + high) / 2;
    (middle > 0 && lowerGamma(a, middle) > chance ? high : low) = middle;
  }
  return 1 - std::sqrt(high / a);
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

namespace {

/// Of a plan, with the ring that it has.
class Bytes : public AttentionBytes {
public:
  explicit Bytes(AttentionStepOp step);
  RingType ring;
  double gap = 0; ///< how far back a match lies on average
};

} // namespace

static double bytesOf(mlir::Type type) {
  return type.getIntOrFloatBitWidth() / 8.0;
}

Bytes::Bytes(AttentionStepOp step) {
  auto cache = llvm::cast<BufferType>(step.getCache().getType());
  for (FieldAttr field : cache.getFields())
    token += static_cast<double>(field.getShape()[0] * field.getShape()[1]) *
             bytesOf(field.getElementType());
  cacheHeads = cache.getFields()[0].getShape()[0];
  auto output = llvm::cast<mlir::RankedTensorType>(
      llvm::cast<mlir::TypeAttr>(step.getOutputTypes()[0]).getValue());
  heads = output.getDimSize(0);
  if (!step.getRing())
    return;
  ring = llvm::cast<RingType>(step.getRing().getType());
  auto count = static_cast<double>(heads);
  auto parts = static_cast<double>(ring.getParts());
  double query =
      static_cast<double>(ring.getQuerySize()) * bytesOf(ring.getQueryType());
  candidate = count * query;
  // A / Z and the log-sum-exp of each part, the depth, where the first ends.
  stored = count * (parts * (static_cast<double>(ring.getValueSize()) *
                                 bytesOf(ring.getValueType()) +
                             4) +
                    4 + (parts > 1 ? 8 : 0) + (ring.getRotated() ? query : 0));
  left = candidate + stored;
  window = gap = static_cast<double>(ring.getCapacity());
  step.walk([&](FindOp find) {
    if (uint64_t most = find.getMaxGap())
      gap = std::min(window, static_cast<double>(most));
  });
  gap /= 2;
  band = static_cast<double>(ring.getParts() == 2 ? *step.getWideBand()
                                                  : *step.getBand());
  sinks = static_cast<double>(*step.getSinks());
  hasRing = true;
  ringBytes = window * left + (ring.getEstimates() ? 8 * count : 0);
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

static std::string showBytes(double bytes) {
  return bytes < 1e6   ? formatv("{0:f1} KB", bytes / 1e3).str()
         : bytes < 1e9 ? formatv("{0:f1} MB", bytes / 1e6).str()
                       : formatv("{0:f2} GB", bytes / 1e9).str();
}

/// "1e-06", or "2.5e-04".
static std::string showChance(double chance) {
  std::string brief = formatv("{0:e0}", chance);
  return std::stod(brief) == chance ? brief : formatv("{0:e1}", chance).str();
}

static constexpr int64_t contexts[] = {1 << 12, 1 << 15, 1 << 17, 1 << 20};

static void print(AttentionStepOp step, const Bytes &bytes,
                  llvm::ArrayRef<double> chances, llvm::raw_ostream &os) {
  os << "attention " << step.getAttention() << ": " << bytes.heads
     << " heads, of which " << bytes.heads / bytes.cacheHeads
     << " share one of the cache; pages of " << step.getPageSize()
     << " tokens\n\n";
  os << formatv("  a cached token is {0}\n", showBytes(bytes.token));
  if (!bytes.ring) {
    os << "  nothing is reused: a token reads the cache once\n\n"
       << formatv("  {0,10} {1,12}\n", "context", "bytes");
    for (int64_t context : contexts)
      os << formatv("  {0,10} {1,12}\n", context,
                    showBytes(bytes.miss(static_cast<double>(context))));
    return;
  }
  os << formatv("  the rings of a sequence are {0}: {1:f0} queries with "
                "{2} each, as much as {3:f0} cached tokens\n\n",
                showBytes(bytes.ringBytes), bytes.window,
                bytes.ring.getParts() == 1 ? "1 summary" : "2 summaries",
                bytes.ringBytes / bytes.token)
     << formatv("  bytes of a token and row, all heads alike; a hit is {0:f0} "
                "tokens back\n",
                bytes.gap)
     << formatv("  {0,10} {1,12} {2,12} {3,12}\n", "context", "hit", "miss",
                "no match");
  for (int64_t context : contexts)
    os << formatv("  {0,10} {1,12} {2,12} {3,12}\n", context,
                  showBytes(bytes.hit(static_cast<double>(context), bytes.gap)),
                  showBytes(bytes.miss(static_cast<double>(context))),
                  showBytes(static_cast<double>(context) * bytes.token));
  os << formatv("\n  a hit pays from p - r = {0:f0} on; with skip = {0:f0} "
                "shorter contexts are not searched\n",
                std::ceil(bytes.breakEven()));
  os << formatv("\n  tau, if random queries of {0} dimensions shall match with "
                "a chance of\n  {1,10} {2,12} {3,16}\n",
                bytes.ring.getQuerySize(), "a pair", "tau", "of the window");
  for (double chance : chances)
    os << formatv("  {0,10} {1,12:f3} {2,16:e1}\n", showChance(chance),
                  tool::tauOfChance(chance, bytes.ring.getQuerySize()),
                  -std::expm1(bytes.window * std::log1p(-chance)));
}

static llvm::json::Value toJSON(AttentionStepOp step, const Bytes &bytes,
                                llvm::ArrayRef<double> chances) {
  llvm::json::Object all{
      {"attention", step.getAttention()},
      {"heads", bytes.heads},
      {"cache_heads", bytes.cacheHeads},
      {"page_size", static_cast<int64_t>(step.getPageSize())},
      {"bytes_of_token", bytes.token}};
  llvm::json::Array lines;
  for (int64_t context : contexts) {
    llvm::json::Object line{{"context", context},
                            {"miss", bytes.miss(static_cast<double>(context))}};
    if (bytes.ring)
      line["hit"] = bytes.hit(static_cast<double>(context), bytes.gap);
    lines.push_back(std::move(line));
  }
  all["bytes"] = std::move(lines);
  if (!bytes.ring)
    return all;
  all["ring_bytes"] = bytes.ringBytes;
  all["break_even"] = std::ceil(bytes.breakEven());
  llvm::json::Array taus;
  for (double chance : chances)
    taus.push_back(llvm::json::Object{
        {"chance", chance},
        {"tau", tool::tauOfChance(chance, bytes.ring.getQuerySize())}});
  all["tau"] = std::move(taus);
  return all;
}

int ladle::tool::explainAttention(Source &source,
                                  const ExplainOptions &options) {
  if (Status status = refuse(options.source,
                             {"--batch", "--machine", "--drafts", "--layers",
                              "--memory", "--capacity", "--state-layout"});
      !status) {
    printError(status);
    return 2;
  }
  AttentionPipelineOptions pipeline;
  pipeline.summaryType = options.source.entryType;
  mlir::PassManager manager(&source.context);
  buildAttentionPipeline(manager, pipeline);
  if (failed(manager.run(*source.module)))
    return 1;
  std::vector<double> chances = options.chances;
  if (chances.empty())
    chances = {1e-2, 1e-4, 1e-6, 1e-9};
  for (AttentionStepOp step : source.module->getOps<AttentionStepOp>()) {
    if (step.getForm() != AttentionForm::Decode)
      continue;
    if (!step.getRing()) {
      std::string reason = "'" + step.getAttention().str() + "' does not";
      Status status = refuse(options.source, {"--false-positive"},
                             {"attentions that match", reason});
      if (status)
        status = refuseEntries(options.source);
      if (!status) {
        printError(status);
        return 2;
      }
    }
    if (step.isBounded()) {
      explainBounded(step, options.json);
      continue;
    }
    if (Status status = refuseStates(options.source); !status) {
      printError(status);
      return 2;
    }
    Bytes bytes(step);
    if (options.json)
      llvm::outs() << toJSON(step, bytes, chances) << "\n";
    else
      print(step, bytes, chances, llvm::outs());
  }
  return 0;
}
