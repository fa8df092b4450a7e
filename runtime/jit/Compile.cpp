//===- Compile.cpp - from a .ladle file to a program ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "codegen/DiskCache.h"
#include "ladle/version.h"
#include "runtime/Kernels.h"
#include "runtime/jit/CheckOptions.h"
#include "runtime/jit/Manifest.h"
#include "runtime/jit/Target.h"
#include "runtime/tune/TunedTable.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/MemoryBuffer.h"

#include <numeric>
#include <thread>

using namespace ladle;
using jit::foldsByChunk;
using jit::LoadedRoute;
namespace json = llvm::json;

namespace {

class Timer {
public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start)
        .count();
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
};

/// One call of the interface: looks into the cache first, and starts a compiler
/// only when something is not there.
class Compilation {
public:
  Compilation(std::string_view text, std::string_view name,
              const CompileOptions &options, jit::Target target);

  bool isForGpu() const { return target.isGpu(); }
  Result<jit::Plan> plan();
  /// Of a GPU: what was tuned for the shape and the batch, if anything was. A
  /// route that the caller did not choose becomes the tuned one.
  void applyTuning(jit::Plan &plan);
  /// Leaves the routes with a buffer to choose from: those that can fold by
  /// chunks, and verify drafts on a GPU.
  Status keepBuffered(jit::Plan &plan) const;
  /// The kernels of several routes. Those that are not in the cache are
  /// compiled at the same time.
  Result<std::vector<LoadedRoute>> load(llvm::ArrayRef<RouteKind> routes);
  Result<Program> link(RouteKind route, std::vector<LoadedRoute> routes,
                       const jit::Plan *plan) const;
  std::string makeManifest(RouteKind route, llvm::ArrayRef<LoadedRoute> routes,
                           const jit::Plan *plan) const;

private:
  std::string makeReproducer(RouteKind route, const Signature &signature) const;
  std::string makeKey(llvm::ArrayRef<llvm::StringRef> more) const;
  std::string kernelKey(RouteKind route) const {
    std::string layout;
    for (const auto &[name, value] : layoutOf(route))
      layout += name + "=" + std::to_string(value) + " ";
    return makeKey({"kernels", toString(route),
                    answersShortRows(route) ? "short rows" : "", layout});
  }
  /// Whether its kernel that verifies answers rows of kv_only.
  bool answersShortRows(RouteKind route) const {
    return hasShortRows && toString(route) == options.longRoute;
  }
  jit::GpuLayout layoutOf(RouteKind route) const;
  std::optional<LoadedRoute> lookup(RouteKind route) const;
  Result<LoadedRoute> compile(RouteKind route, jit::Compiler &compiler) const;
  jit::Compiler &getCompiler();
  void store(const std::string &key,
             llvm::ArrayRef<llvm::StringRef> parts) const;

  std::string_view text, name;
  const CompileOptions &options;
  jit::Target target;
  DiskCache cache;
  /// Of a GPU, from `load` on.
  std::shared_ptr<const GpuCode> gpu;
  /// Of steps, and of steps that verify the program's drafts.
  std::optional<tune::TunedChoice> tuned, tunedForDrafts;
  int64_t crossover = 0; ///< of a plan
  /// Whether rows of kv_only go on by another route on a GPU, from `load` on.
  bool hasShortRows = false;
  std::unique_ptr<jit::Compiler> compiler;
};

} // namespace

Compilation::Compilation(std::string_view text, std::string_view name,
                         const CompileOptions &options, jit::Target target)
    : text(text), name(name), options(options), target(std::move(target)),
      cache(options.useDiskCache ? DiskCache::openDefault() : DiskCache("")) {}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

/// A number in full precision.
static std::string exactText(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%a", value);
  return text;
}

std::string Compilation::makeKey(llvm::ArrayRef<llvm::StringRef> more) const {
  // The name of the file is in no key: it shows in diagnostics alone, and
  // nothing with an error is stored.
  std::vector<std::string> parts{version(),
                                 jit::compilerFingerprint(),
                                 LLVM_VERSION_STRING,
                                 std::string(text),
                                 options.recurrence,
                                 options.preset,
                                 options.stateType,
                                 options.entryType,
                                 options.stateLayout,
                                 std::to_string(options.capacity),
                                 std::to_string(options.page),
                                 std::to_string(options.drafts),
                                 std::to_string(options.prefill),
                                 std::to_string(options.chunk),
                                 options.numerics};
  parts.push_back(std::to_string(options.sizes.size()));
  for (const auto &[size, value] : options.sizes) {
    parts.push_back(size);
    parts.push_back(std::to_string(value));
  }
  parts.push_back(std::to_string(options.options.size()));
  for (const auto &[option, value] : options.options) {
    parts.push_back(option);
    parts.push_back(exactText(value));
  }
  for (const auto &[token, type] : options.tokenTypes) {
    parts.push_back(token);
    parts.push_back(type);
  }
  llvm::append_range(parts, target.keyParts());
  llvm::SmallVector<llvm::StringRef> views(parts.begin(), parts.end());
  views.append(more.begin(), more.end());
  return DiskCache::makeKey(views);
}

void Compilation::store(const std::string &key,
                        llvm::ArrayRef<llvm::StringRef> parts) const {
  // A cache that cannot be written costs time, and is no error.
  if (options.useDiskCache)
    llvm::consumeError(cache.store(key, parts));
}

std::optional<LoadedRoute> Compilation::lookup(RouteKind route) const {
  Timer timer;
  std::optional<DiskCache::Entry> entry = cache.lookup(kernelKey(route));
  if (!entry || entry->parts.size() != 2)
    return std::nullopt;
  std::optional<jit::RouteObject> object =
      jit::parseRouteObject(entry->parts[0]);
  if (!object)
    return std::nullopt;
  object->object = entry->parts[1].str();
  Result<LoadedRoute> loaded = target.load(std::move(*object));
  if (!loaded)
    return std::nullopt;
  loaded->cached = true;
  loaded->milliseconds = timer.milliseconds();
  return std::move(*loaded);
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

jit::Compiler &Compilation::getCompiler() {
  if (!compiler)
    compiler = std::make_unique<jit::Compiler>(text, name, options);
  return *compiler;
}

Result<LoadedRoute> Compilation::compile(RouteKind route,
                                         jit::Compiler &compiler) const {
  Timer timer;
  Result<jit::RouteObject> object =
      target.compile(route, compiler, layoutOf(route), answersShortRows(route));
  if (!object)
    return object.status();
  store(kernelKey(route), {jit::serialize(*object), object->object});
  Result<LoadedRoute> loaded = target.load(std::move(*object));
  if (loaded)
    loaded->milliseconds = timer.milliseconds();
  return loaded;
}

Result<jit::Plan> Compilation::plan() {
  std::string key = makeKey(
      {"plan", std::to_string(options.batch), std::to_string(options.context),
       exactText(options.readBandwidth), exactText(options.updateBandwidth),
       target.deviceName(),
       std::to_string(std::thread::hardware_concurrency())});
  if (std::optional<DiskCache::Entry> entry = cache.lookup(key))
    if (entry->parts.size() == 1)
      if (std::optional<jit::Plan> plan = jit::parsePlan(entry->parts[0])) {
        crossover = plan->crossover;
        return std::move(*plan);
      }
  Result<jit::Plan> plan = getCompiler().plan(target.card());
  bool needsBuffer =
      foldsByChunk(options) || (options.drafts > 0 && target.isGpu());
  if (plan && needsBuffer)
    if (Status status = keepBuffered(*plan); !status)
      return status;
  if (!plan)
    return plan;
  crossover = plan->crossover;
  store(key, {jit::serialize(*plan)});
  return plan;
}

Status Compilation::keepBuffered(jit::Plan &plan) const {
  auto isRecurrent = [](auto &each) {
    return each.route == RouteKind::Recurrent;
  };
  // Drafts that no entry can hold have a state each.
  if (!foldsByChunk(options) && llvm::all_of(plan.routes, isRecurrent))
    return Status();
  llvm::erase_if(plan.routes, isRecurrent);
  if (plan.routes.empty())
    return Status(ErrorCode::InvalidArgument,
                  "numerics is 'chunk', expected 'step': no route of the "
                  "recurrence has a buffer, so that every token is folded");
  if (plan.route == RouteKind::Recurrent) {
    auto rank = [](auto &each) { // kv_only is for short contexts
      return std::pair(each.route == RouteKind::KvOnly, each.seconds);
    };
    const jit::RouteSummary &least = *llvm::min_element(
        plan.routes, [&](auto &a, auto &b) { return rank(a) < rank(b); });
    plan.route = least.route;
    plan.foldThreshold = least.foldThreshold;
  }
  if (foldsByChunk(options))
    plan.foldThreshold = options.chunk;
  return Status();
}

void Compilation::applyTuning(jit::Plan &plan) {
  tuned = tune::lookupTuned(target.deviceName(), plan.shape, options.entryType,
                            options.batch);
  if (options.drafts > 0)
    tunedForDrafts =
        tune::lookupTuned(target.deviceName(), plan.shape, options.entryType,
                          options.batch, options.drafts);
  const auto &choice = tunedForDrafts ? tunedForDrafts : tuned;
  std::optional<RouteKind> route =
      choice ? parseRoute(choice->candidate.route) : std::nullopt;
  // Short contexts and bandwidths of the caller's are the model's business.
  if (options.route != "auto" || !route || options.context != 0 ||
      options.readBandwidth > 0 || options.updateBandwidth > 0 ||
      (options.drafts > 0 && *route == RouteKind::Recurrent))
    return;
  plan.route = *route;
  plan.foldThreshold =
      std::min(choice->candidate.threshold, options.capacity - options.drafts);
}

jit::GpuLayout Compilation::layoutOf(RouteKind route) const {
  jit::GpuLayout layout;
  if (!target.isGpu())
    return layout;
  // From so many rows on, blocks fill a GPU however they are laid out.
  constexpr int64_t manyRows = 256;
  layout["batch"] = std::min(options.batch, manyRows);
  auto take = [&](const jit::GpuParameter &parameter,
                  const jit::GpuLayout &from) {
    if (auto found = from.find(parameter.name);
        found != from.end() && found->second != 0)
      layout[parameter.name] = found->second;
  };
  // Older tables may name what there is no more.
  for (const jit::GpuParameter &parameter : jit::gpuParameters()) {
    const auto &choice = parameter.verifies ? tunedForDrafts : tuned;
    if (!options.schedule.empty())
      take(parameter, options.schedule);
    else if (choice && choice->candidate.route == toString(route))
      take(parameter, choice->candidate.schedule);
  }
  return layout;
}

Result<std::vector<LoadedRoute>>
Compilation::load(llvm::ArrayRef<RouteKind> routes) {
  hasShortRows = options.page > 0 && options.drafts > 0 && target.isGpu() &&
                 llvm::is_contained(routes, RouteKind::KvOnly);
  std::vector<std::optional<Result<LoadedRoute>>> found(routes.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < routes.size(); ++i) {
    if (std::optional<LoadedRoute> route = lookup(routes[i]))
      found[i].emplace(std::move(*route));
    else
      missing.push_back(i);
  }
  // Each thread has a compiler of its own: elaborating again takes less time
  // than one kernel, and nothing is shared.
  std::vector<std::thread> threads;
  Result<std::shared_ptr<const GpuCode>> shared = gpu;
  if (target.isGpu())
    threads.emplace_back([&] { shared = target.shared(cache); });
  for (size_t n = 1; n < missing.size(); ++n)
    threads.emplace_back([&, i = missing[n]] {
      jit::Compiler own(text, name, options);
      found[i].emplace(compile(routes[i], own));
    });
  if (!missing.empty())
    found[missing[0]].emplace(compile(routes[missing[0]], getCompiler()));
  for (std::thread &thread : threads)
    thread.join();
  if (!shared)
    return shared.status();
  gpu = *shared;

  std::vector<LoadedRoute> loaded;
  for (std::optional<Result<LoadedRoute>> &route : found) {
    if (!*route)
      return route->status();
    loaded.push_back(std::move(**route));
  }
  return loaded;
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

std::string Compilation::makeManifest(RouteKind route,
                                      llvm::ArrayRef<LoadedRoute> routes,
                                      const jit::Plan *plan) const {
  json::Object manifest{
      {"version", version()},
      {"capacity", options.capacity},
      {"page", options.page},
      {"drafts", options.drafts},
      {"chunk", options.prefill ? options.chunk : 0},
      {"numerics", options.numerics},
      {"entry_type", options.entryType},
      {"state_layout", options.stateLayout},
      {"route", llvm::StringRef(toString(route))},
      {"warnings", routes.front().object.warnings + target.warning()},
      {"milliseconds", target.milliseconds()}};
  target.describe(manifest);
  if (plan) {
    json::Array costs;
    for (const jit::RouteSummary &summary : plan->routes)
      costs.push_back(jit::toJSON(summary));
    manifest["routes"] = std::move(costs);
    manifest["fold_threshold"] = plan->foldThreshold;
  }
  json::Array kernels;
  for (const LoadedRoute &loaded : routes)
    kernels.push_back(json::Object{
        {"route", llvm::StringRef(toString(loaded.object.route))},
        {"bytes", static_cast<int64_t>(loaded.object.object.size())},
        {"cached", loaded.cached},
        {"milliseconds", loaded.milliseconds}});
  for (const LoadedRoute &loaded : routes)
    if (loaded.object.route == RouteKind::KvOnly)
      manifest["crossover"] = crossover;
  for (const auto &[name, choice] :
       {std::pair("tuned", &tuned),
        std::pair("tuned_for_drafts", &tunedForDrafts)})
    if (*choice)
      manifest[name] = json::Object{{"choice", (*choice)->candidate.str()},
                                    {"batch", (*choice)->batch},
                                    {"date", (*choice)->date}};
  manifest["kernels"] = std::move(kernels);
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(manifest));
  return text;
}

/// What `ladle bench` compares with the interpreter and times.
std::string Compilation::makeReproducer(RouteKind route,
                                        const Signature &signature) const {
  if (!target.isGpu() || !options.recurrence.empty() ||
      !options.options.empty() || !options.tokenTypes.empty())
    return "";
  std::string text = "ladle bench '" + std::string(name) + "' --device gpu";
  if (!options.preset.empty())
    text += " --preset '" + options.preset + "'";
  for (const auto &[size, value] : options.sizes)
    text += " --set " + size + "=" + std::to_string(value);
  if (!signature.states.empty())
    text += " --states " + std::string(toString(signature.states[0].dtype));
  if (options.stateLayout != toString(StateLayout::DvDk))
    text += " --state-layout " + options.stateLayout;
  text +=
      " --routes " + std::string(toString(route)) + " --entries " +
      options.entryType + " --m " +
      std::to_string(options.capacity - options.drafts) +
      (options.drafts ? " --drafts " + std::to_string(options.drafts) : "") +
      " --batch " + std::to_string(std::min<int64_t>(options.batch, 65535));
  jit::GpuLayout layout = layoutOf(route);
  layout.erase("batch"); // the same that the batch stands for
  std::string schedule;
  for (const auto &[parameter, value] : layout)
    schedule += (schedule.empty() ? " --schedule " : ",") + parameter + "=" +
                std::to_string(value);
  return text + schedule;
}

Result<Program> Compilation::link(RouteKind route,
                                  std::vector<LoadedRoute> routes,
                                  const jit::Plan *plan) const {
  ProgramImpl impl;
  impl.signature = routes.front().object.signature;
  impl.drafts = options.drafts;
  impl.chunk = options.prefill ? options.chunk : 0;
  impl.foldsByChunk = foldsByChunk(options);
  impl.route = route;
  impl.longRoute = *parseRoute(options.longRoute);
  impl.manifest = makeManifest(route, routes, plan);
  impl.reproducer = makeReproducer(route, impl.signature);
  auto code = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const LoadedRoute &loaded : routes) {
    const jit::RouteObject &object = loaded.object;
    if (object.usesBuffer()) {
      if (!impl.fields.empty() && impl.fields != object.fields)
        return Status(ErrorCode::InvalidArgument,
                      "route '" + std::string(toString(object.route)) +
                          "' caches other entries than the routes before it; "
                          "compile it into a program of its own");
      impl.fields = object.fields;
      impl.capacity = options.capacity;
      impl.page = options.page;
    }
    if (object.route == RouteKind::KvOnly && object.usesBuffer())
      impl.crossover = crossover;
    impl.headGroup = std::lcm(impl.headGroup, object.headGroup);
    RouteKernels kernels;
    kernels.route = object.route;
    kernels.usesBuffer = object.usesBuffer();
    kernels.gpu = loaded.gpu;
    if (!gpu) {
      size_t next = 0;
      for (auto [symbol, function] : std::initializer_list<
               std::pair<const std::string &, KernelFunction &>>{
               {object.decode, kernels.decode},
               {object.decodeFold, kernels.decodeFold},
               {object.fold, kernels.fold},
               {object.verify, kernels.verify},
               {object.verifyFold, kernels.verifyFold},
               {object.prefillFold, kernels.prefillFold},
               {object.prefillEntries, kernels.prefillEntries}})
        if (!symbol.empty())
          function =
              reinterpret_cast<KernelFunction>(loaded.code.addresses[next++]);
      kernels.workspaceBytes = object.workspaceBytes;
      kernels.workspacePerHead = object.workspacePerHead;
      code->push_back(loaded.code.owner);
    }
    impl.routes.push_back(kernels);
  }
  impl.code = std::move(code);
  impl.gpu = gpu;
  return Program::create(std::move(impl));
}

/// A route and, for kv_only, the one that takes over after the first fold.
static void addRoute(std::vector<RouteKind> &routes, RouteKind route,
                     const CompileOptions &options) {
  auto add = [&](RouteKind each) {
    if (!llvm::is_contained(routes, each))
      routes.push_back(each);
  };
  add(route);
  if (route == RouteKind::KvOnly)
    add(*parseRoute(options.longRoute));
}

static Result<RouteKind> parseRouteOption(const std::string &text) {
  if (std::optional<RouteKind> route = parseRoute(text))
    return *route;
  return Status(ErrorCode::InvalidArgument,
                "route is '" + text +
                    "', expected auto, recurrent, outer, inner, adjoint or "
                    "kv_only");
}

Result<Program> ladle::compileSource(std::string_view text,
                                     std::string_view name,
                                     const CompileOptions &given) {
  CompileOptions options = jit::complete(given);
  if (Status status = jit::checkOptions(options); !status)
    return status;
  Result<jit::Target> target = jit::Target::choose(options);
  if (!target)
    return target.status();
  if (Status status = jit::checkTarget(options, target->isGpu()); !status)
    return status;
  Compilation compilation(text, name, options, std::move(*target));
  std::optional<jit::Plan> plan;
  RouteKind route;
  bool isGpu = compilation.isForGpu();
  // Where rows of kv_only had better fold is the model's to say.
  bool plansKvOnly =
      options.route == toString(RouteKind::KvOnly) ||
      llvm::is_contained(options.extraRoutes, toString(RouteKind::KvOnly));
  if (options.route == "auto" || isGpu || plansKvOnly) {
    Result<jit::Plan> made = compilation.plan();
    if (!made)
      return made.status();
    if (isGpu)
      compilation.applyTuning(*made);
    plan = std::move(*made);
    route = plan->route;
  }
  if (options.route != "auto") {
    plan.reset();
    Result<RouteKind> parsed = parseRouteOption(options.route);
    if (!parsed)
      return parsed.status();
    route = *parsed;
  }
  std::vector<RouteKind> routes;
  addRoute(routes, route, options);
  for (const std::string &extra : options.extraRoutes) {
    Result<RouteKind> parsed = parseRouteOption(extra);
    if (!parsed)
      return parsed.status();
    addRoute(routes, *parsed, options);
  }
  if (isGpu && options.drafts > 0 && routes.size() > 1 &&
      llvm::is_contained(routes, RouteKind::Recurrent))
    return Status(ErrorCode::Unsupported,
                  "drafts is " + std::to_string(options.drafts) +
                      ", expected 0: 'recurrent' keeps a state for each draft, "
                      "and on a GPU other routes do not know of them; compile "
                      "for it alone, or without it");
  Result<std::vector<LoadedRoute>> loaded = compilation.load(routes);
  if (!loaded)
    return loaded.status();
  return compilation.link(route, std::move(*loaded), plan ? &*plan : nullptr);
}

Result<Program> ladle::compileFile(const std::string &path,
                                   const CompileOptions &options) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/true);
  if (!buffer)
    return Status(ErrorCode::NotFound,
                  "cannot read '" + path + "': " + buffer.getError().message());
  return compileSource((*buffer)->getBuffer(), path, options);
}

Result<std::vector<Program>>
ladle::compileAllRoutes(std::string_view text, std::string_view name,
                        const CompileOptions &given) {
  CompileOptions options = jit::complete(given);
  if (Status status = jit::checkOptions(options); !status)
    return status;
  Result<jit::Target> target = jit::Target::choose(options);
  if (!target)
    return target.status();
  if (Status status = jit::checkTarget(options, target->isGpu()); !status)
    return status;
  Compilation compilation(text, name, options, std::move(*target));
  Result<jit::Plan> plan = compilation.plan();
  if (!plan)
    return plan.status();
  if (compilation.isForGpu())
    compilation.applyTuning(*plan);
  std::vector<RouteKind> routes;
  for (const jit::RouteSummary &summary : plan->routes)
    routes.push_back(summary.route);
  Result<std::vector<LoadedRoute>> loaded = compilation.load(routes);
  if (!loaded)
    return loaded.status();

  std::vector<Program> programs;
  for (const LoadedRoute &each : *loaded) {
    std::vector<LoadedRoute> parts{each};
    if (each.object.route == RouteKind::KvOnly)
      for (const LoadedRoute &other : *loaded)
        if (toString(other.object.route) == options.longRoute)
          parts.push_back(other);
    Result<Program> program =
        compilation.link(each.object.route, std::move(parts), &*plan);
    if (!program)
      return program.status();
    programs.push_back(std::move(*program));
  }
  return programs;
}
