//===- Explain.cpp - ladle explain ----------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/Pipelines.h"
#include "passes/analysis/CostModel.h"
#include "passes/analysis/HistoryForm.h"
#include "passes/analysis/MathNotation.h"
#include "runtime/cuda/DeviceCursors.h"
#include "runtime/jit/Interface.h"
#include "runtime/tune/TunedTable.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/ExplainAttention.h"
#include "tools/ladle/Source.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace ladle;
using namespace ladle::tool;

namespace {

class Explanation {
public:
  Explanation(const ExplainOptions &options, ModuleOp module,
              RecurrenceOp recurrence, const HistoryForm &history,
              const Machine &machine, int64_t drafts)
      : drafts(drafts), options(options), recurrence(recurrence),
        history(history), machine(machine),
        costs(collectCosts(module, recurrence.getSymName())) {}

  void print(raw_ostream &os);
  llvm::json::Object toJSON();

private:
  void printHistory(raw_ostream &os);
  void printClasses(raw_ostream &os);
  void printRoutes(raw_ostream &os);
  void printBufferSizes(raw_ostream &os);
  void printCrossings(raw_ostream &os);
  void printSpeculation(raw_ostream &os);
  void printMemory(raw_ostream &os);
  int64_t threshold(const RouteCost &cost, int64_t batch) const {
    return cost.decodeFold && cost.route != Route::KvOnly
               ? cost.bestThreshold(machine, batch, options.source.capacity)
               : 1;
  }
  std::string describe(std::optional<RouteChoice> choice) const;
  /// What was chosen on such a machine by measuring, if somebody has.
  std::optional<tune::TunedChoice> findTuned(int64_t batch,
                                             int64_t ofDrafts = 0) const {
    std::string card = machine.name == "h200" ? "NVIDIA H200" : "";
    return tune::lookupTuned(
        card,
        jit::signatureOf(recurrence,
                         *parseStateLayout(options.source.stateLayout)),
        options.source.entryType, batch, ofDrafts);
  }

  /// Where kv_only and the choice for long sequences cross.
  struct KvOnly {
    int64_t tokens;
    double entryBytes, pageBytes, stateBytes;
  };
  static constexpr int64_t kPage = 16;
  std::optional<KvOnly> findKvOnly() const;
  /// By a route with a ring.
  SequenceMemory memoryOf(const RouteCost &cost) const;
  llvm::json::Object memoryToJSON() const;

  int64_t drafts;
  const ExplainOptions &options;
  RecurrenceOp recurrence;
  const HistoryForm &history;
  Machine machine;
  std::vector<RouteCost> costs;
};

} // namespace

/// The line of the source that a location names.
static unsigned lineOf(Location loc) {
  unsigned line = 0;
  loc->walk([&](Location each) {
    if (auto file = dyn_cast<FileLineColLoc>(each))
      line = file.getLine();
    return line ? WalkResult::interrupt() : WalkResult::advance();
  });
  return line;
}

//===----------------------------------------------------------------------===//
// Mathematics
//===----------------------------------------------------------------------===//

void Explanation::printHistory(raw_ostream &os) {
  MathNotation math(recurrence);
  os << "history form\n";
  for (const StateHistory &state : history.getStates()) {
    std::string name = sourceName(recurrence, state.state);
    auto type = cast<StateType>(state.state.getType());
    bool decays = state.decay != nullptr;
    bool vector =
        decays && cast<RankedTensorType>(state.decay.getType()).getRank() > 1;
    os << "  " << name << "_t = " << (decays ? "γ_t " : "")
       << (vector ? "∘ " : "") << name << "_0";
    for (size_t i = 0; i < state.writes.size(); ++i) {
      std::string index = state.writes.size() > 1 ? std::to_string(i + 1) : "";
      os << " + Σ_j "
         << (decays ? (vector ? "((γ_t/γ_j) ∘ " : "(γ_t/γ_j) ")
                    : (vector ? "(" : ""))
         << "k" << index << "_j" << (vector ? ")" : "") << " u" << index
         << "_jᵀ";
    }
    os << "        " << type.getHeads() << " heads, " << type.getKeySize()
       << " × " << type.getValueSize() << " " << type.getElementType();
    if (options.source.stateLayout == toString(StateLayout::DkDv))
      os << ", dv contiguous";
    os << "\n";
    if (decays)
      os << "    γ_t = Π_{j≤t} " << math.renderFactor(state.decay) << "_j\n";
    for (auto [i, write] : llvm::enumerate(state.writes)) {
      std::string index = state.writes.size() > 1 ? std::to_string(i + 1) : "";
      os << "    k" << index << " = " << math.render(write.key) << ",  u"
         << index << " = " << math.render(write.value) << "\n";
    }
  }
  auto names = recurrence.getOutputNames().getAsValueRange<StringAttr>();
  for (auto [name, value] : llvm::zip(names, recurrence.getYieldedOutputs()))
    os << "  " << name << " = " << math.render(value) << "\n";
  SmallVector<std::string> definitions = math.takeDefinitions();
  if (!definitions.empty())
    os << "  where\n";
  for (const std::string &line : definitions)
    os << "    " << line << "\n";
}

void Explanation::printClasses(raw_ostream &os) {
  os << "operands\n";
  auto line = [&](StringRef what, Value value, OperandClass type,
                  Operation *op) {
    MathNotation math(recurrence);
    os << "  line " << lineOf(op->getLoc()) << ": " << what << " "
       << math.render(value) << " is " << stringifyOperandClass(type) << "\n";
  };
  for (const StateHistory &state : history.getStates()) {
    if (state.decay)
      line("decay", state.decay, state.decayClass, state.decayOp);
    for (const StateWrite &write : state.writes) {
      line("key", write.key, write.keyClass, write.op);
      line("value", write.value, write.valueClass, write.op);
    }
    for (ReadOp read : state.reads)
      line("query", read.getQuery(), history.getClass(read.getQuery()), read);
  }
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

/// 1234567 as "1.23 MB".
static std::string humanBytes(double bytes) {
  const char *units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit)
    bytes /= 1000;
  return llvm::formatv("{0:F2} {1}", bytes, units[unit]).str();
}

void Explanation::printRoutes(raw_ostream &os) {
  os << "routes, bytes and flops of a token and row at the best m ≤ "
     << options.source.capacity << " for batch " << options.batches.back()
     << " on " << machine.name << "\n";
  os << llvm::formatv("  {0,-10} {1,4} {2,14} {3,12} {4,14}\n", "route", "m",
                      "bytes", "", "flops");
  for (const RouteCost &cost : costs) {
    int64_t m = threshold(cost, options.batches.back());
    os << llvm::formatv("  {0,-10} {1,4} {2,14:F0} {3,12} {4,14:F0}\n",
                        stringifyRoute(cost.route), m, cost.cycleBytes(m),
                        humanBytes(cost.cycleBytes(m)), cost.cycleFlops(m));
  }
  for (unsigned i = 0; i <= getMaxEnumValForRoute(); ++i) {
    auto route = static_cast<Route>(i);
    if (auto obstacle = history.getObstacle(route))
      os << "  " << stringifyRoute(route) << " is not legal: line "
         << lineOf(obstacle->op->getLoc()) << ": " << obstacle->reason << "; "
         << obstacle->wayOut << "\n";
  }
}

void Explanation::printBufferSizes(raw_ostream &os) {
  os << "buffer size m with the fewest bytes\n";
  constexpr int64_t limit = 4096;
  for (const RouteCost &cost : costs) {
    if (!cost.fold || cost.route == Route::KvOnly)
      continue;
    int64_t fused = 1;
    for (int64_t m = 2; m <= limit; ++m)
      if (cost.cycleBytes(m) < cost.cycleBytes(fused))
        fused = m;
    os << llvm::formatv("  {0,-10} {1} when the fold answers a token, {2} when "
                        "it is a pass of its own\n",
                        stringifyRoute(cost.route), fused,
                        cost.bestSeparateThreshold(limit));
  }
}

std::string Explanation::describe(std::optional<RouteChoice> choice) const {
  if (!choice)
    return "none";
  const RouteCost &cost = costs[choice->index];
  std::string text = stringifyRoute(cost.route).str();
  if (cost.decodeFold && cost.route != Route::KvOnly)
    text += " m=" + std::to_string(choice->threshold);
  return text;
}

SequenceMemory Explanation::memoryOf(const RouteCost &cost) const {
  SequenceMemory memory =
      sequenceMemory(recurrence, cost, options.source.capacity, drafts);
  memory.cursors = static_cast<double>(
      DeviceCursors::slotBytes(options.source.capacity, drafts));
  return memory;
}

std::optional<Explanation::KvOnly> Explanation::findKvOnly() const {
  constexpr int64_t limit = 1 << 20;
  std::optional<int64_t> tokens = findCrossover(
      costs, machine, options.batches.back(), options.source.capacity, limit);
  if (!tokens)
    return std::nullopt;
  double entry = 0;
  for (const RouteCost &cost : costs)
    if (cost.route == Route::KvOnly)
      entry = cost.decode.entryWritten;
  return KvOnly{*tokens, entry * double(*tokens),
                entry * double(llvm::alignTo(*tokens, kPage)),
                memoryOf(costs.front()).state};
}

void Explanation::printCrossings(raw_ostream &os) {
  int64_t capacity = options.source.capacity;
  os << "choice by batch\n";
  for (int64_t batch : options.batches) {
    auto choice = chooseRoute(costs, machine, batch, 0, capacity);
    os << llvm::formatv("  {0,6}: {1}, {2:F2} µs a step predicted\n", batch,
                        describe(choice), choice ? choice->seconds * 1e6 : 0);
    if (auto tuned = findTuned(batch))
      os << llvm::formatv(
          "          tuned on {0} for batch {1}: {2}, {3:F2} µs "
          "a step\n",
          tuned->date, tuned->batch, tuned->candidate.str(),
          tuned->seconds * 1e6);
  }
  std::string last;
  for (int64_t batch = 1; batch <= 65536; batch *= 2) {
    std::string now = describe(chooseRoute(costs, machine, batch, 0, capacity));
    if (!last.empty() && now != last)
      os << "  from batch " << batch << " on: " << now << "\n";
    last = now;
  }
  if (auto crossover = findKvOnly()) {
    os << "  kv_only is cheaper up to a context of " << crossover->tokens
       << " tokens (batch " << options.batches.back()
       << "): " << humanBytes(crossover->entryBytes) << " of entries, "
       << humanBytes(crossover->pageBytes) << " in pages of " << kPage
       << ", a state is " << humanBytes(crossover->stateBytes) << "\n";
  }
}

void Explanation::printSpeculation(raw_ostream &os) {
  double most = drafts;
  // Committed entries from one fold to the next, when all drafts are accepted.
  auto entries = std::max<int64_t>(0, options.source.capacity - 2 * drafts);
  os << "speculation, " << drafts
     << " drafts a row, L = " << options.source.capacity << "\n";
  os << llvm::formatv(
      "  {0,-10} {1,14} {2,18} {3,18}\n", "route", "verify, h = 0",
      llvm::formatv("verify, h = {0}", entries).str(), "with a fold");
  for (const RouteCost &cost : costs) {
    if (!cost.verify) {
      os << llvm::formatv("  {0,-10} {1,14:F0} one draft after another\n",
                          stringifyRoute(cost.route),
                          most * cost.decode.bytes(0));
      continue;
    }
    os << llvm::formatv("  {0,-10} {1,14:F0} {2,18:F0} {3,18:F0}\n",
                        stringifyRoute(cost.route), cost.verify->bytes(0),
                        cost.verify->bytes(entries),
                        cost.verifyFold->bytes(entries));
  }
  for (int64_t batch : options.batches) {
    auto choice =
        chooseRoute(costs, machine, batch, 0, options.source.capacity - drafts,
                    /*threshold=*/0, drafts);
    os << llvm::formatv("  batch {0}: {1}, {2:F2} µs a step predicted, half of "
                        "the drafts accepted\n",
                        batch, describe(choice),
                        choice ? choice->seconds * 1e6 : 0);
    if (auto tuned = findTuned(batch, drafts))
      os << llvm::formatv(
          "  batch {0}: tuned on {1} for batch {2}, {3:F0} % of "
          "drafts accepted: {4}, {5:F2} µs a step\n",
          batch, tuned->date, tuned->batch, 100 * tuned->acceptance,
          tuned->candidate.str(), tuned->seconds * 1e6);
  }
  printMemory(os);
}

/// What a request needs, and how many there is room for, against a state a
/// draft.
void Explanation::printMemory(raw_ostream &os) {
  int64_t layers = options.layers;
  bool keepsEntries = llvm::any_of(
      costs, [](const RouteCost &cost) { return cost.decodeFold.has_value(); });
  os << "memory of a request with " << drafts << " drafts, ";
  if (keepsEntries)
    os << options.source.capacity << " entries, ";
  os << layers << (layers == 1 ? " layer" : " layers");
  if (keepsEntries)
    os << ": gain is how many times the requests of a state a draft\n";
  else
    os << ": no route keeps entries, and each draft takes a state\n";
  bool hasBudget = options.memory > 0;
  std::string held =
      hasBudget ? "in " + humanBytes(options.memory) : std::string();
  auto line = [&](StringRef route, const std::string &state,
                  const std::string &entries, const std::string &carries,
                  const std::string &cursors, double all, double gain) {
    os << llvm::formatv("  {0,-15} {1,10} {2,10} {3,10} {4,10} {5,10} {6,6:F2}",
                        route, state, entries, carries, cursors,
                        humanBytes(all), gain);
    if (hasBudget)
      os << llvm::formatv(" {0,14}",
                          SequenceMemory::countIn(options.memory, all));
    os << "\n";
  };
  os << llvm::formatv("  {0,-15} {1,10} {2,10} {3,10} {4,10} {5,10} {6,6}",
                      "route", "state", "entries", "carries", "cursors", "all",
                      "gain");
  if (hasBudget)
    os << llvm::formatv(" {0,14}", held);
  os << "\n";
  for (const RouteCost &cost : costs) {
    if (!cost.decodeFold)
      continue;
    SequenceMemory memory = memoryOf(cost);
    auto inAll = [&](double ofLayer) {
      return humanBytes(ofLayer * static_cast<double>(layers));
    };
    line(stringifyRoute(cost.route), inAll(memory.state), inAll(memory.entries),
         inAll(memory.carries), humanBytes(memory.cursors),
         memory.bytes(layers), memory.gain(layers));
  }
  line("a state a draft", "", "", "", "",
       memoryOf(costs.front()).bytesOfStates(layers), 1);
}

llvm::json::Object Explanation::memoryToJSON() const {
  llvm::json::Array routes;
  llvm::json::Object result{{"drafts", drafts},
                            {"capacity", options.source.capacity},
                            {"layers", options.layers}};
  double states = memoryOf(costs.front()).bytesOfStates(options.layers);
  result["state_a_draft"] = states;
  if (options.memory > 0)
    result["requests_of_a_state_a_draft"] =
        SequenceMemory::countIn(options.memory, states);
  for (const RouteCost &cost : costs) {
    if (!cost.decodeFold)
      continue;
    SequenceMemory memory = memoryOf(cost);
    double bytes = memory.bytes(options.layers);
    llvm::json::Object route{
        {"route", stringifyRoute(cost.route)}, {"state", memory.state},
        {"entries", memory.entries},           {"carries", memory.carries},
        {"cursors", memory.cursors},           {"bytes", bytes},
        {"gain", memory.gain(options.layers)}};
    if (options.memory > 0)
      route["requests"] = SequenceMemory::countIn(options.memory, bytes);
    routes.push_back(std::move(route));
  }
  result["routes"] = std::move(routes);
  return result;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

void Explanation::print(raw_ostream &os) {
  os << recurrence.getSymName() << "\n\n";
  printHistory(os);
  os << "\n";
  printClasses(os);
  os << "\n";
  printRoutes(os);
  os << "\n";
  printBufferSizes(os);
  os << "\n";
  printCrossings(os);
  if (drafts) {
    os << "\n";
    printSpeculation(os);
  }
}

/// What a step of a row moves and computes, as the model has it.
static llvm::json::Value toJSON(const StepCost &cost) {
  return llvm::json::Object{{"state_read", cost.stateRead},
                            {"state_written", cost.stateWritten},
                            {"entry_read", cost.entryRead},
                            {"entry_written", cost.entryWritten},
                            {"input_read", cost.inputRead},
                            {"output_written", cost.outputWritten},
                            {"carry_moved", cost.carryMoved},
                            {"flops", cost.flops},
                            {"flops_per_entry", cost.flopsPerEntry},
                            {"ranked", cost.areRanked}};
}

llvm::json::Object Explanation::toJSON() {
  llvm::json::Array routes;
  for (const RouteCost &cost : costs) {
    int64_t m = threshold(cost, options.batches.back());
    llvm::json::Object steps{{"decode", ::toJSON(cost.decode)}};
    if (cost.decodeFold)
      steps["decode_fold"] = ::toJSON(*cost.decodeFold);
    if (cost.verify)
      steps["verify"] = ::toJSON(*cost.verify);
    if (cost.verifyFold)
      steps["verify_fold"] = ::toJSON(*cost.verifyFold);
    routes.push_back(llvm::json::Object{{"route", stringifyRoute(cost.route)},
                                        {"m", m},
                                        {"bytes", cost.cycleBytes(m)},
                                        {"flops", cost.cycleFlops(m)},
                                        {"steps", std::move(steps)}});
    if (cost.verify)
      (*routes.back().getAsObject())["verify"] =
          llvm::json::Object{{"drafts", drafts},
                             {"bytes", cost.verify->bytes(0)},
                             {"bytes_an_entry", cost.verify->entryRead},
                             {"fold_bytes", cost.verifyFold->bytes(0)},
                             {"flops", cost.verify->flopsAt(0)}};
  }
  llvm::json::Array choices;
  for (int64_t batch : options.batches) {
    // Of all that are in the result, drafts are asked for.
    int64_t ofDrafts = options.drafts.value_or(0);
    auto choice = chooseRoute(costs, machine, batch, 0,
                              options.source.capacity - ofDrafts,
                              /*threshold=*/0, ofDrafts);
    if (choice)
      choices.push_back(llvm::json::Object{
          {"batch", batch},
          {"route", stringifyRoute(costs[choice->index].route)},
          {"m", choice->threshold},
          {"seconds", choice->seconds}});
  }
  llvm::json::Array tunedChoices;
  for (int64_t batch : options.batches)
    if (auto tuned = findTuned(batch)) {
      llvm::json::Object schedule;
      for (const auto &[name, value] : tuned->candidate.schedule)
        schedule[name] = value;
      tunedChoices.push_back(
          llvm::json::Object{{"batch", batch},
                             {"tuned_for", tuned->batch},
                             {"route", tuned->candidate.route},
                             {"m", tuned->candidate.threshold},
                             {"schedule", std::move(schedule)},
                             {"seconds", tuned->seconds}});
    }
  llvm::json::Object result{{"recurrence", recurrence.getSymName()},
                            {"machine", machine.name},
                            {"tuned", std::move(tunedChoices)},
                            {"routes", std::move(routes)},
                            {"choices", std::move(choices)}};
  if (drafts)
    result["memory"] = memoryToJSON();
  if (auto crossover = findKvOnly())
    result["kv_only"] =
        llvm::json::Object{{"batch", options.batches.back()},
                           {"crossover", crossover->tokens},
                           {"entry_bytes", crossover->entryBytes},
                           {"page", kPage},
                           {"page_bytes", crossover->pageBytes},
                           {"state_bytes", crossover->stateBytes}};
  return result;
}

int ladle::tool::explain(const ExplainOptions &options) {
  std::optional<Machine> machine = Machine::named(options.machine);
  if (!machine) {
    llvm::errs() << "error: unknown machine '" << options.machine
                 << "'\nnote: machines are cpu and h200\n";
    return 2;
  }
  for (int64_t batch : options.batches)
    if (batch < 1) {
      llvm::errs() << "error: a batch must be positive, got " << batch << "\n";
      return 2;
    }
  SourceOptions taken = options.source;
  taken.takesAttention = true;
  Source source(taken, /*showRemarks=*/false);
  if (!source.module)
    return 1;
  if (!source.module->getOps<AttentionOp>().empty())
    return explainAttention(source, options);
  if (Status status =
          refuse(options.source, {"--false-positive"},
                 {"attentions that match", "the file declares a recurrence"});
      !status) {
    printError(status);
    return 2;
  }
  DecodePipelineOptions pipeline;
  pipeline.capacity = options.source.capacity;
  pipeline.entryType = options.source.entryType;
  pipeline.stateLayout = options.source.stateLayout;
  pipeline.drafts = options.drafts.value_or(
      std::min<int64_t>(4, options.source.capacity / 2));
  if (options.source.capacity < 2 * pipeline.drafts) {
    llvm::errs() << "error: " << pipeline.drafts
                 << " drafts need a capacity of twice as many entries, got "
                 << options.source.capacity
                 << "\nnote: set --capacity or fewer --drafts\n";
    return 2;
  }
  PassManager manager(&source.context);
  buildStepPipeline(manager, pipeline);
  if (failed(manager.run(*source.module)))
    return 1;
  for (RecurrenceOp recurrence : source.module->getOps<RecurrenceOp>()) {
    FailureOr<HistoryForm> history = HistoryForm::get(recurrence);
    if (failed(history))
      return 1;
    Explanation explanation(options, *source.module, recurrence, *history,
                            *machine, pipeline.drafts);
    if (options.json)
      llvm::outs() << llvm::json::Value(explanation.toJSON()) << "\n";
    else
      explanation.print(llvm::outs());
  }
  return 0;
}
