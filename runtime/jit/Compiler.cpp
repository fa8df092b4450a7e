//===- Compiler.cpp - source text into objects ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/Compiler.h"
#include "codegen/cpu/LowerToLLVM.h"
#include "codegen/cpu/ObjectEmitter.h"
#include "dialect/LadleDialect.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "passes/Pipelines.h"
#include "passes/analysis/CostModel.h"
#include "passes/cpu/ScheduleInfo.h"
#include "runtime/jit/BuildGpuProgram.h"
#include "runtime/jit/CheckOptions.h"
#include "runtime/jit/Interface.h"
#include "runtime/tune/Problem.h"

#include <numeric>
#include <thread>

using namespace ladle;
using namespace ladle::jit;

struct jit::Compiler::Impl {
  Impl(std::string_view text, std::string_view name,
       const CompileOptions &options);

  /// Nothing but an error if it does not elaborate.
  Status elaborate();
  Status run(mlir::ModuleOp module,
             llvm::function_ref<void(mlir::OpPassManager &)> build);
  /// The diagnostics so far, as what went wrong.
  Status failure();
  DecodePipelineOptions pipelineOptions(llvm::ArrayRef<Route> routes) const;

  const CompileOptions &options;
  mlir::MLIRContext context;
  llvm::SourceMgr sourceManager;
  std::string diagnostics;
  llvm::raw_string_ostream stream;
  std::unique_ptr<mlir::SourceMgrDiagnosticHandler> handler;
  mlir::OwningOpRef<mlir::ModuleOp> spec;
};

jit::Compiler::Impl::Impl(std::string_view text, std::string_view name,
                          const CompileOptions &options)
    // Kernels are small: threads of MLIR's own would cost more than they gain.
    : options(options), context(mlir::MLIRContext::Threading::DISABLED),
      stream(diagnostics) {
  mlir::DialectRegistry registry;
  registerCpuCodegenDialects(registry);
  registry.insert<LadleDialect>();
  context.appendDialectRegistry(registry);
  context.printOpOnDiagnostic(false);

  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text, name), llvm::SMLoc());
  frontend::printDiagnosticsInto(sourceManager, stream);
  handler = std::make_unique<mlir::SourceMgrDiagnosticHandler>(
      sourceManager, &context, stream, [](mlir::Location) { return true; });
  // Remarks explain choices to who asks; here nobody does.
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &diagnostic) {
    return mlir::success(diagnostic.getSeverity() ==
                         mlir::DiagnosticSeverity::Remark);
  });
}

Status jit::Compiler::Impl::failure() {
  if (diagnostics.empty())
    return Status(ErrorCode::Internal, "the compiler failed without a reason");
  return Status(ErrorCode::InvalidArgument, diagnostics);
}

Status jit::Compiler::Impl::elaborate() {
  if (spec)
    return Status();
  frontend::ElaborationOptions elaboration;
  elaboration.recurrence = options.recurrence;
  elaboration.preset = options.preset;
  elaboration.sizes = options.sizes;
  elaboration.options = options.options;
  if (!options.stateType.empty())
    elaboration.stateTypes["*"] = options.stateType;
  elaboration.tokenTypes = options.tokenTypes;
  spec = frontend::compileToSpec(context, sourceManager, elaboration);
  return spec ? Status() : failure();
}

Status jit::Compiler::Impl::run(
    mlir::ModuleOp module,
    llvm::function_ref<void(mlir::OpPassManager &)> build) {
  mlir::PassManager manager(&context);
  // The tests of the passes verify; here it would only cost time.
  manager.enableVerifier(false);
  build(manager);
  return succeeded(manager.run(module)) ? Status() : failure();
}

DecodePipelineOptions
jit::Compiler::Impl::pipelineOptions(llvm::ArrayRef<Route> routes) const {
  DecodePipelineOptions pipeline;
  pipeline.routes.assign(routes.begin(), routes.end());
  pipeline.capacity = options.capacity;
  pipeline.page = options.page;
  pipeline.entryType = options.entryType;
  pipeline.stateLayout = options.stateLayout;
  pipeline.drafts = options.drafts;
  pipeline.chunk = options.prefill ? options.chunk : 0;
  pipeline.foldsByChunk = foldsByChunk(options);
  return pipeline;
}

jit::Compiler::Compiler(std::string_view text, std::string_view name,
                        const CompileOptions &options)
    : impl(std::make_unique<Impl>(text, name, options)) {}
jit::Compiler::~Compiler() = default;

static StateLayout layoutOf(const CompileOptions &options) {
  return parseStateLayout(options.stateLayout).value_or(StateLayout::DvDk);
}

/// Bandwidths of the caller's go before what is known of the machine.
static Machine machineOf(const CompileOptions &options,
                         const Machine::Card *gpu) {
  constexpr double giga = 1e9;
  if (gpu) {
    Machine::Card card = *gpu;
    if (options.readBandwidth > 0)
      card.read = options.readBandwidth * giga;
    if (options.updateBandwidth > 0)
      card.update = options.updateBandwidth * giga;
    return Machine::gpu(card);
  }
  Machine machine = Machine::cpu(std::thread::hardware_concurrency());
  if (options.readBandwidth > 0)
    machine.readBandwidth = machine.scatteredBandwidth =
        options.readBandwidth * giga;
  if (options.updateBandwidth > 0)
    machine.updateBandwidth = options.updateBandwidth * giga;
  machine.drafts = machine;
  return machine;
}

Result<Plan> jit::Compiler::plan(const Machine::Card *gpu) {
  const CompileOptions &options = impl->options;
  if (Status status = impl->elaborate(); !status)
    return status;
  mlir::OwningOpRef<mlir::ModuleOp> module = impl->spec->clone();
  if (Status status = impl->run(*module,
                                [&](mlir::OpPassManager &manager) {
                                  // Costs are those of the other forms.
                                  DecodePipelineOptions pipeline =
                                      impl->pipelineOptions({});
                                  pipeline.chunk = 0;
                                  buildStepPipeline(manager, pipeline);
                                });
      !status)
    return status;

  auto recurrence = *module->getOps<RecurrenceOp>().begin();
  std::vector<RouteCost> costs = collectCosts(*module, recurrence.getSymName());
  Machine machine = machineOf(options, gpu);
  // Those that drafts leave to committed history.
  int64_t mostEntries = options.capacity - options.drafts;
  std::optional<RouteChoice> choice =
      chooseRoute(costs, machine, options.batch, options.context, mostEntries,
                  /*threshold=*/0, options.drafts);
  if (!choice)
    return Status(ErrorCode::InvalidArgument,
                  "no route can decode a context of " +
                      std::to_string(options.context) + " tokens");

  Plan plan;
  plan.shape = tune::describe(signatureOf(recurrence, layoutOf(options)));
  plan.route = toRouteKind(costs[choice->index].route);
  plan.foldThreshold = choice->threshold;
  if (std::optional<int64_t> tokens = findCrossover(
          costs, machine, options.batch, mostEntries, mostEntries))
    plan.crossover = std::max<int64_t>(1, *tokens);
  for (const RouteCost &cost : costs) {
    // A route that never folds within its buffer has a cycle of the context.
    int64_t m =
        cost.route == Route::KvOnly ? std::max<int64_t>(options.context, 1)
        : cost.decodeFold ? cost.bestThreshold(machine, options.batch,
                                               mostEntries, options.drafts)
                          : 1;
    plan.routes.push_back(
        {toRouteKind(cost.route), m,
         cost.seconds(machine, static_cast<double>(options.batch), m),
         cost.cycleBytes(static_cast<double>(m)),
         cost.cycleFlops(static_cast<double>(m))});
  }
  return plan;
}

std::vector<std::string> RouteObject::symbols() const {
  std::vector<std::string> list;
  for (const std::string *symbol : {&decode, &decodeFold, &fold, &verify,
                                    &verifyFold, &prefillFold, &prefillEntries})
    if (!symbol->empty())
      list.push_back(*symbol);
  return list;
}

Result<RouteObject> jit::Compiler::compile(RouteKind kind) {
  if (Status status = impl->elaborate(); !status)
    return status;
  mlir::OwningOpRef<mlir::ModuleOp> module = impl->spec->clone();
  DecodePipelineOptions pipeline = impl->pipelineOptions(toRoute(kind));
  if (Status status = impl->run(*module,
                                [&](mlir::OpPassManager &manager) {
                                  buildStepPipeline(manager, pipeline);
                                });
      !status)
    return status;

  RouteObject result;
  result.route = kind;
  result.signature = signatureOf(*module->getOps<RecurrenceOp>().begin(),
                                 layoutOf(impl->options));
  for (StepOp step : module->getOps<StepOp>()) {
    std::string symbol = (step.getSymName() + kPackedSuffix).str();
    switch (step.getForm()) {
    case Form::Decode:
      result.decode = symbol;
      result.fields = fieldsOf(step);
      break;
    case Form::DecodeFold:
      result.decodeFold = symbol;
      break;
    case Form::Fold:
      result.fold = symbol;
      break;
    case Form::Verify:
      result.verify = symbol;
      break;
    case Form::VerifyFold:
      result.verifyFold = symbol;
      break;
    case Form::PrefillFold:
      result.prefillFold = symbol;
      break;
    case Form::PrefillEntries:
      result.prefillEntries = symbol;
      break;
    case Form::PrefillScan: // of GPUs alone
      break;
    }
  }

  LowerToLLVMOptions lowering(CpuTarget::host());
  if (Status status = impl->run(*module,
                                [&](mlir::OpPassManager &manager) {
                                  buildKernelPipeline(manager, pipeline);
                                });
      !status)
    return status;
  // The groups of the forms divide one another or the head count.
  for (mlir::Operation &op : *module->getBody()) {
    if (auto group = op.getAttrOfType<mlir::IntegerAttr>(kHeadGroupAttr))
      result.headGroup = std::lcm(result.headGroup, group.getInt());
    auto raise = [&](int64_t &bytes, llvm::StringRef name) {
      if (auto attr = op.getAttrOfType<mlir::IntegerAttr>(name))
        bytes = std::max(bytes, attr.getInt());
    };
    raise(result.workspaceBytes, kWorkspaceAttr);
    raise(result.workspacePerHead, kWorkspacePerHeadAttr);
  }
  if (Status status = impl->run(*module,
                                [&](mlir::OpPassManager &manager) {
                                  buildLowerToLLVMPipeline(manager, lowering);
                                });
      !status)
    return status;

  auto object = emitObject(*module);
  if (failed(object))
    return impl->failure();
  result.object.assign(object->begin(), object->end());
  result.warnings = impl->diagnostics;
  return result;
}

Result<RouteObject> jit::Compiler::compileForGpu(RouteKind kind,
                                                 const GpuLayout &layout,
                                                 bool answersShortRows) {
  if (Status status = impl->elaborate(); !status)
    return status;
  mlir::OwningOpRef<mlir::ModuleOp> module = impl->spec->clone();
  llvm::SmallVector<Route> routes{toRoute(kind)};
  if (answersShortRows)
    routes.push_back(Route::KvOnly);
  GpuProgram program;
  if (failed(buildGpuProgram(*module, impl->pipelineOptions(routes),
                             optionsOf(layout), program)))
    return impl->failure();
  // Once there is a state, kv_only has handed over to inner.
  if (impl->options.prefill && !program.prefill && kind != RouteKind::KvOnly)
    return Status(ErrorCode::Unsupported,
                  "route '" + std::string(toString(kind)) +
                      "' prefills one token after another, which GPUs do not "
                      "where chunks end at their own places: compile without "
                      "numerics chunk, or for the target cpu\n" +
                      impl->diagnostics);
  RouteObject result;
  result.route = kind;
  result.headGroup = program.headGroup();
  result.gpuStep = {program.decode};
  result.gpuFold = program.fold;
  result.gpuVerify = program.verify;
  result.gpuDraft = program.draft;
  result.gpuDraftFold = program.draftFold;
  result.gpuPrefill = program.prefill;
  result.gpuPrepare = program.prepare;
  result.gpuArguments = std::move(program.arguments);
  result.signature = std::move(program.signature);
  result.fields = std::move(program.fields);
  result.object = std::move(program.text);
  result.warnings = impl->diagnostics;
  return result;
}
