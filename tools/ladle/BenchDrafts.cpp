//===- BenchDrafts.cpp - ladle bench --drafts -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that verify drafts, by the calls that an engine makes: layers that take
// turns and share cursors, recorded in graphs. A verify alone leaves the
// cursors where they are, so that it can be replayed at one fill; a cycle
// commits after the layers of a model, and folds when that is due.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Check.h"
#include "runtime/check/Oracle.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/Plan.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

static constexpr int64_t kCeilingBytes = int64_t(2) << 30;
static constexpr double kReplaySeconds = 2e-3;
static constexpr int64_t kMostLaunches = 512;

namespace {

/// int32 numbers in the memory of the device, which graphs hold.
class Numbers {
public:
  static Result<Numbers> create(DeviceId device, std::vector<int32_t> values) {
    Result<DeviceTensor> made = DeviceTensor::copyOf(
        device, TensorView::dense(values, DType::I32,
                                  {static_cast<int64_t>(values.size())}));
    if (!made)
      return made.status();
    return Numbers(std::move(*made));
  }
  std::span<const int32_t> all() const {
    return {memory.as<int32_t>(), static_cast<size_t>(memory.view().count())};
  }

private:
  explicit Numbers(DeviceTensor memory) : memory(std::move(memory)) {}
  DeviceTensor memory;
};

/// What every row of a step has: so many drafts, and so many accepted.
struct Tree {
  static Result<Tree> create(DeviceId device, int64_t rows, int64_t drafts,
                             int64_t accepted, bool branches);
  Numbers starts, parents, numAccepted, path;
  int64_t drafts, taken;
};

struct Layer {
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Decoder> decoder;
};

/// One program on one batch.
class DraftBench {
public:
  DraftBench(const BenchOptions &options, const measure::Gpu &gpu,
             measure::Ceilings &ceilings, Json key)
      : options(options), gpu(gpu), ceilings(ceilings), key(std::move(key)) {}
  /// Appends to `figures`.
  Status run(const CompileOptions &compile, const DraftCost &cost, int64_t rows,
             int64_t threshold, Json &figures);

private:
  Status prepare(const CompileOptions &compile);
  Status fillInputs();
  VerifyArguments arguments(const Tree &tree) const;
  Status verifyAll(const Tree &tree);
  Status setFill(int64_t fill);
  Status timeVerify(const Tree &tree, bool branches, int64_t fill,
                    Json &figures);
  Status timeCycle(const Tree &tree, bool branches, Json &figures);
  double limitAt(int64_t fill, bool folds) const;
  void add(Json figure, const std::vector<double> &samples, double limit,
           Json &figures) const;

  const BenchOptions &options;
  const measure::Gpu &gpu;
  measure::Ceilings &ceilings;
  Json key;
  const DraftCost *cost = nullptr;
  int64_t rows = 1, threshold = 1, steps = 1;
  std::optional<Program> program;
  std::optional<Cursors> cursors;
  std::vector<Layer> layers;
  std::map<std::string, DeviceTensor> memory;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::optional<Numbers> slots;
  std::vector<int32_t> slotNumbers;
};

} // namespace

Result<Tree> Tree::create(DeviceId device, int64_t rows, int64_t drafts,
                          int64_t accepted, bool branches) {
  std::vector<int32_t> starts{0}, parents, taken, path;
  // The accepted path of a tree that branches in two goes down its left side.
  std::vector<int32_t> own;
  for (int64_t i = 0, next = 0; i < accepted && next < drafts; ++i) {
    own.push_back(static_cast<int32_t>(next));
    next = branches ? 2 * next + 1 : next + 1;
  }
  for (int64_t row = 0; row < rows; ++row) {
    starts.push_back(static_cast<int32_t>((row + 1) * drafts));
    for (int64_t draft = 0; draft < drafts; ++draft)
      parents.push_back(static_cast<int32_t>(draft == 0 ? -1
                                             : branches ? (draft - 1) / 2
                                                        : draft - 1));
    taken.push_back(static_cast<int32_t>(own.size()));
    path.insert(path.end(), own.begin(), own.end());
  }
  if (path.empty())
    path.push_back(0);
  Result<Numbers> all[] = {
      Numbers::create(device, starts), Numbers::create(device, parents),
      Numbers::create(device, taken), Numbers::create(device, path)};
  for (const Result<Numbers> &each : all)
    if (!each)
      return each.status();
  return Tree{std::move(*all[0]),
              std::move(*all[1]),
              std::move(*all[2]),
              std::move(*all[3]),
              drafts,
              static_cast<int64_t>(own.size())};
}

//===----------------------------------------------------------------------===//
// Layers and their inputs
//===----------------------------------------------------------------------===//

Status DraftBench::fillInputs() {
  std::ifstream file(options.source.file);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  frontend::ElaborationOptions elaboration;
  elaboration.preset = options.source.preset;
  elaboration.sizes = options.source.sizes;
  std::string messages;
  auto oracle =
      check::compileOracle(options.source.file, text, elaboration, messages);
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  check::RandomInputs random{{}, /*seed=*/1};
  check::Batch batch(program->signature(), rows * options.drafts,
                     /*packed=*/false, check::Batch::gpuAlignment);
  batch.setParams(
      random.draw(oracle->getParams(), 0, check::RandomInputs::params));
  constexpr int64_t kinds = 16;
  for (int64_t kind = 0; kind < kinds; ++kind) {
    auto drawn = random.draw(oracle->getTokens(), kind, 0);
    for (int64_t i = kind; i < rows * options.drafts; i += kinds)
      batch.setTokens(i, drawn);
  }
  for (const auto &[name, view] : batch.getTensors()) {
    Result<DeviceTensor> made = DeviceTensor::copyOf(program->device(), view);
    if (!made)
      return made.status();
    tensors[name] = made->view();
    memory.emplace(name, std::move(*made));
  }
  return Status();
}

Status DraftBench::prepare(const CompileOptions &compile) {
  Result<Program> made = compileFile(options.source.file, compile);
  if (!made)
    return made.status();
  program = std::move(*made);
  CursorOptions cursorOptions;
  cursorOptions.slots = rows;
  cursorOptions.foldThreshold = threshold;
  Result<Cursors> shared = Cursors::create(*program, cursorOptions);
  if (!shared)
    return shared.status();
  cursors = std::move(*shared);
  auto cache = static_cast<double>(gpu.device().cacheBytes());
  double bytes = static_cast<double>(rows) * cost->bytes(0);
  auto count = static_cast<int64_t>(3 * cache / bytes) + 2;
  PoolOptions poolOptions;
  poolOptions.cursors = cursors;
  for (int64_t i = 0; i < count; ++i) {
    Result<Pool> pool = Pool::create(*program, poolOptions);
    if (!pool)
      return pool.status();
    Layer layer;
    layer.pool = std::make_unique<Pool>(std::move(*pool));
    Result<Decoder> decoder = Decoder::create(*program, *layer.pool);
    if (!decoder)
      return decoder.status();
    layer.decoder = std::make_unique<Decoder>(std::move(*decoder));
    layers.push_back(std::move(layer));
  }
  slotNumbers.resize(rows);
  std::iota(slotNumbers.begin(), slotNumbers.end(), 0);
  Result<Numbers> numbers = Numbers::create(program->device(), slotNumbers);
  if (!numbers)
    return numbers.status();
  slots.emplace(std::move(*numbers));
  if (Status status = fillInputs(); !status)
    return status;
  double once = std::max(limitAt(0, false), 1.5e-6);
  int64_t least = std::max<int64_t>({options.modelLayers, count, 1});
  steps = std::clamp<int64_t>(std::llround(kReplaySeconds / once), least,
                              std::max(least, kMostLaunches));
  return Status();
}

VerifyArguments DraftBench::arguments(const Tree &tree) const {
  VerifyArguments result;
  result.rows = rows;
  result.slots = slots->all();
  result.cuSeqlens = tree.starts.all();
  result.parents = tree.parents.all();
  result.drafts = rows * tree.drafts;
  result.tensors = tensors;
  for (const auto *specs :
       {&program->signature().tokens, &program->signature().outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = result.tensors.find(spec.name)->second;
      view = view.slice(0, 0, result.drafts);
    }
  return result;
}

Status DraftBench::verifyAll(const Tree &tree) {
  VerifyArguments given = arguments(tree);
  for (Layer &layer : layers)
    if (Status status = layer.decoder->verify(given, gpu.device().stream());
        !status)
      return status;
  return cursors->commit(slots->all(), tree.numAccepted.all(), tree.path.all(),
                         gpu.device().stream());
}

/// All slots with so many entries behind states that are not zero.
Status DraftBench::setFill(int64_t fill) {
  // Whatever waits is rejected.
  Result<Tree> none =
      Tree::create(program->device(), rows, /*drafts=*/1, /*accepted=*/0,
                   /*branches=*/false);
  if (!none)
    return none.status();
  if (Status status = cursors->commit(slots->all(), none->numAccepted.all(),
                                      none->path.all(), gpu.device().stream());
      !status)
    return status;
  if (Status status = cursors->flush(slotNumbers, gpu.device().stream());
      !status)
    return status;
  for (int64_t left = fill; left > 0;) {
    int64_t count = std::min(left, options.drafts);
    Result<Tree> chain = Tree::create(program->device(), rows, count, count,
                                      /*branches=*/false);
    if (!chain)
      return chain.status();
    if (Status status = verifyAll(*chain); !status)
      return status;
    if (Status status = gpu.device().synchronize(); !status)
      return status;
    left -= count;
  }
  return gpu.device().synchronize();
}

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

double DraftBench::limitAt(int64_t fill, bool folds) const {
  double read = ceilings.read().bytesPerSecond();
  double bytes = folds ? cost->foldBytes(fill) : cost->bytes(fill);
  double updated = folds ? cost->updatedBytes : 0;
  return static_cast<double>(rows) *
         (updated / ceilings.update().bytesPerSecond() +
          (bytes - updated) / read);
}

void DraftBench::add(Json figure, const std::vector<double> &samples,
                     double limit, Json &figures) const {
  auto micro = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  double seconds = measure::median(samples);
  Json all = key;
  all.update(figure);
  all["us_a_step"] = micro(seconds);
  all["limit_us"] = micro(limit);
  all["of_limit"] = std::round(1000 * limit / seconds) / 1000;
  all["layers"] = layers.size();
  for (double each : samples)
    all["samples_us"].push_back(micro(each));
  std::string what =
      figure.contains("accepted")
          ? fmt::format("cycle, {} accepted", figure["accepted"].get<int64_t>())
          : fmt::format("{}, h = {}",
                        figure["folds"].get<bool>() ? "verify and fold"
                                                    : "verify",
                        figure["h"].get<int64_t>());
  fmt::print(
      "{:>8} {:>6} {:>7} {:>3} {:>6} {:>6} {:>22} {:>11} {:>11} {:>6.1f} %\n",
      key["route"].get<std::string>(), key["state"].get<std::string>(),
      key["entry"].get<std::string>(), threshold, rows,
      figure["tree"].get<std::string>(), what, formatTime(seconds),
      formatTime(limit), 100 * limit / seconds);
  std::fflush(stdout);
  figures.push_back(std::move(all));
}

Status DraftBench::timeVerify(const Tree &tree, bool branches, int64_t fill,
                              Json &figures) {
  if (Status status = setFill(fill); !status)
    return status;
  VerifyArguments given = arguments(tree);
  Result<cuda::Graph> graph =
      cuda::Graph::record(gpu.device(), [&]() -> Status {
        for (int64_t i = 0; i < steps; ++i)
          if (Status status = layers[i % layers.size()].decoder->verify(
                  given, gpu.device().stream());
              !status)
            return status;
        return Status();
      });
  if (!graph)
    return graph.status();
  // The first replay uploads the graph.
  if (Status status = graph->replay(); !status)
    return status;
  std::vector<double> samples;
  for (int64_t i = 0; i < options.samples; ++i) {
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    samples.push_back(*seconds / static_cast<double>(steps));
  }
  bool folds = fill > 0 && fill + tree.drafts > threshold;
  add({{"tree", branches ? "tree" : "chain"}, {"h", fill}, {"folds", folds}},
      samples, limitAt(fill, folds), figures);
  return Status();
}

/// A graph verifies in all layers and commits; it is replayed until rows have
/// folded several times.
Status DraftBench::timeCycle(const Tree &tree, bool branches, Json &figures) {
  if (Status status = setFill(0); !status)
    return status;
  VerifyArguments given = arguments(tree);
  auto once = std::max<int64_t>(options.modelLayers,
                                static_cast<int64_t>(layers.size()));
  Result<cuda::Graph> graph =
      cuda::Graph::record(gpu.device(), [&]() -> Status {
        for (int64_t i = 0; i < once; ++i)
          if (Status status = layers[i % layers.size()].decoder->verify(
                  given, gpu.device().stream());
              !status)
            return status;
        return cursors->commit(slots->all(), tree.numAccepted.all(),
                               tree.path.all(), gpu.device().stream());
      });
  if (!graph)
    return graph.status();
  // What the steps of a cycle take at the least.
  std::vector<double> limits;
  int64_t fill = 0;
  do {
    bool folds = fill > 0 && fill + tree.drafts > threshold;
    limits.push_back(limitAt(fill, folds));
    fill = (folds ? 0 : fill) + tree.taken;
  } while (tree.taken > 0 && (limits.size() < 2 || fill != tree.taken));
  auto length = static_cast<int64_t>(limits.size()) - (tree.taken > 0 ? 1 : 0);
  length = std::max<int64_t>(length, 1);
  double limit = 0;
  for (size_t i = limits.size() - static_cast<size_t>(length);
       i < limits.size(); ++i)
    limit += limits[i] / static_cast<double>(length);
  for (int64_t i = 0; i <= length; ++i)
    if (Status status = graph->replay(); !status)
      return status;
  int64_t replays = length * std::max<int64_t>(1, steps / (once * length));
  std::vector<double> samples;
  for (int64_t i = 0; i < options.samples; ++i) {
    Result<double> seconds = graph->time(static_cast<int>(replays));
    if (!seconds)
      return seconds.status();
    samples.push_back(*seconds / static_cast<double>(replays * once));
  }
  add({{"tree", branches ? "tree" : "chain"}, {"accepted", tree.taken}},
      samples, limit, figures);
  return Status();
}

Status DraftBench::run(const CompileOptions &compile, const DraftCost &given,
                       int64_t batch, int64_t m, Json &figures) {
  cost = &given;
  rows = batch;
  threshold = m;
  if (Status status = prepare(compile); !status)
    return status;
  int64_t most = options.drafts;
  for (bool branches : {false, true}) {
    if (branches && most < 3)
      break;
    Result<Tree> tree =
        Tree::create(program->device(), rows, most, 0, branches);
    if (!tree)
      return tree.status();
    std::vector<int64_t> fills{0, m / 2, m};
    fills.erase(std::unique(fills.begin(), fills.end()), fills.end());
    for (int64_t fill : fills)
      if (Status status = timeVerify(*tree, branches, fill, figures); !status)
        return status;
    for (int64_t accepted : {most, most / 2, int64_t(0)}) {
      Result<Tree> decided =
          Tree::create(program->device(), rows, most, accepted, branches);
      if (!decided)
        return decided.status();
      if (Status status = timeCycle(*decided, branches, figures); !status)
        return status;
    }
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Whether the drafts of a configuration are answered right.
static Status checkDrafts(const BenchOptions &options, const std::string &route,
                          const std::string &state, const std::string &entry,
                          int64_t m) {
  check::CheckRequest request;
  request.path = options.source.file;
  std::ifstream file(options.source.file);
  request.source.assign(std::istreambuf_iterator<char>(file), {});
  request.elaboration.preset = options.source.preset;
  request.elaboration.sizes = options.source.sizes;
  request.target = "cuda";
  Result<check::CheckCase> config = check::CheckCase::parse(
      fmt::format("route={},state={},entries={},L={},m={},drafts={},trees=1,"
                  "rows=2,tokens=4,seed=1",
                  route, state, route == "adjoint" ? "f32" : entry,
                  m + options.drafts, m, options.drafts));
  if (!config)
    return config.status();
  Result<check::CheckReport> report = check::checkCases(request, {*config});
  if (!report)
    return report.status();
  return report->passed() ? Status()
                          : Status(ErrorCode::Internal, report->table());
}

static Status benchAll(const BenchOptions &options, const measure::Gpu &gpu) {
  Result<measure::Ceilings> ceilings =
      measure::Ceilings::measure(gpu, kCeilingBytes);
  if (!ceilings)
    return ceilings.status();
  fmt::print("{} {} on {}, driver {}\nceilings: {:.0f} GB/s reading, {:.0f} "
             "GB/s updating in place\n{} drafts a row; one commit in {} steps "
             "of a layer\n\n",
             options.source.file, options.source.preset, gpu.device().name(),
             gpu.driver(), ceilings->read().bytesPerSecond() / 1e9,
             ceilings->update().bytesPerSecond() / 1e9, options.drafts,
             options.modelLayers);
  fmt::print("{:>8} {:>6} {:>7} {:>3} {:>6} {:>6} {:>22} {:>11} {:>11} {:>8}\n",
             "route", "states", "entries", "m", "batch", "drafts", "what",
             "a step", "limit", "of limit");
  Json document{{"schema", "ladle-bench-drafts-1"},
                {"device", gpu.device().name()},
                {"driver", gpu.driver()},
                {"date", today()},
                {"command", options.commandLine},
                {"file", options.source.file},
                {"preset", options.source.preset},
                {"drafts", options.drafts},
                {"model_layers", options.modelLayers},
                {"read_gb_per_s", ceilings->read().bytesPerSecond() / 1e9},
                {"update_gb_per_s", ceilings->update().bytesPerSecond() / 1e9},
                {"figures", Json::array()}};
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {"inner"};
  for (const std::string &state : options.states)
    for (const std::string &entry : options.entries)
      for (int64_t m : options.thresholds) {
        SourceOptions source = options.source;
        source.stateType = state;
        source.entryType = entry;
        source.capacity = std::max(m + options.drafts, 2 * options.drafts);
        auto planner = Planner::create(source, options.drafts);
        if (!planner)
          return Status(ErrorCode::InvalidData, "the file cannot be planned");
        for (const std::string &route : routes) {
          std::optional<DraftCost> cost = planner->draftCost(route);
          if (!cost) {
            fmt::print("{} is left out: it does not verify all drafts of a row "
                       "at once\n",
                       route);
            continue;
          }
          if (!options.skipCheck)
            if (Status status = checkDrafts(options, route, state, entry, m);
                !status)
              return status;
          for (int64_t batch : options.batches) {
            CompileOptions compile;
            compile.preset = options.source.preset;
            compile.sizes.insert(options.source.sizes.begin(),
                                 options.source.sizes.end());
            compile.target = "cuda";
            compile.route = route;
            compile.stateType = state;
            compile.entryType = entry;
            compile.capacity = source.capacity;
            compile.drafts = options.drafts;
            compile.batch = batch;
            DraftBench bench(options, gpu, *ceilings,
                             {{"route", route},
                              {"state", state},
                              {"entry", entry},
                              {"m", m},
                              {"batch", batch}});
            if (Status status =
                    bench.run(compile, *cost, batch, m, document["figures"]);
                !status)
              return status;
          }
        }
      }
  if (!options.json.empty())
    std::ofstream(options.json) << document.dump(1) << '\n';
  return Status();
}

int tool::benchDrafts(const BenchOptions &options, const measure::Gpu &gpu) {
  if (Status status = benchAll(options, gpu); !status) {
    fmt::print(stderr, "error: {}\n", status.message());
    return 1;
  }
  return 0;
}
