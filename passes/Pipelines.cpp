//===- Pipelines.cpp - stages of the compiler -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/Pipelines.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace ladle;

void ladle::buildSpecPipeline(OpPassManager &pm) {
  OpPassManager &spec = pm.nest<RecurrenceOp>();
  spec.addPass(createNormalizeReads());
  spec.addPass(createCSEPass());
  spec.addPass(createDeriveHistory());
}

void ladle::buildStepPipeline(OpPassManager &pm,
                              const DecodePipelineOptions &options) {
  buildSpecPipeline(pm);
  if (options.approximates)
    pm.addNestedPass<RecurrenceOp>(createApproximateDecays());
  BuildDecodeOptions build;
  for (Route route : options.routes)
    build.routes.push_back(stringifyRoute(route).str());
  build.capacity = options.capacity;
  build.page = options.page;
  build.entryType = options.entryType;
  build.stateLayout = options.stateLayout;
  build.drafts = options.drafts;
  pm.addPass(createBuildDecode(build));
  if (options.drafts) {
    BuildVerifyOptions verify;
    verify.routes = build.routes;
    verify.capacity = options.capacity;
    verify.page = options.page;
    verify.entryType = options.entryType;
    verify.stateLayout = options.stateLayout;
    verify.drafts = options.drafts;
    pm.addPass(createBuildVerify(verify));
  }
  if (options.chunk) {
    BuildPrefillOptions prefill;
    prefill.routes = build.routes;
    prefill.capacity = options.capacity;
    prefill.page = options.page;
    prefill.entryType = options.entryType;
    prefill.stateLayout = options.stateLayout;
    prefill.drafts = options.drafts;
    prefill.chunk = options.chunk;
    prefill.carriesState = options.carriesState;
    prefill.foldsByChunk = options.carriesState && options.foldsByChunk;
    prefill.scansPrompts = options.scansPrompts;
    pm.addPass(createBuildPrefill(prefill));
  }
  OpPassManager &step = pm.nest<StepOp>();
  ExpandFunctionsOptions expand;
  expand.approximate = options.approximates;
  step.addPass(createExpandFunctions(expand));
  step.addPass(createCanonicalizerPass());
  step.addPass(createCSEPass());
}

void ladle::buildAttentionPipeline(OpPassManager &pm,
                                   const AttentionPipelineOptions &options) {
  FuseMatchAmendCompleteOptions fuse;
  fuse.summaryType = options.summaryType;
  pm.addPass(createFuseMatchAmendComplete(fuse));
  pm.addPass(createBuildBoundedAttention());
  OpPassManager &step = pm.nest<AttentionStepOp>();
  step.addPass(createExpandFunctions());
  step.addPass(createCanonicalizerPass());
  step.addPass(createCSEPass());
}

void ladle::buildAttentionKernelPipeline(
    OpPassManager &pm, const ConvertLadleAttentionToCPUOptions &lowering) {
  pm.addPass(createConvertLadleAttentionToCPU(lowering));
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  function.addPass(createLoopInvariantCodeMotionPass());
}

void ladle::buildAttentionGPUPipeline(
    OpPassManager &pm, const ConvertLadleAttentionToGPUOptions &lowering) {
  pm.addPass(createConvertLadleAttentionToGPU(lowering));
  OpPassManager &kernel = pm.nest<gpu::GPUModuleOp>().nest<gpu::GPUFuncOp>();
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createLoopInvariantCodeMotionPass());
}

void ladle::buildKernelPipeline(OpPassManager &pm,
                                const DecodePipelineOptions &options) {
  LadleScheduleOptions schedule;
  schedule.tileRows = options.tileRows;
  pm.addNestedPass<StepOp>(createLadleSchedule(schedule));
  pm.addPass(createConvertLadleToCPU());
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  function.addPass(createLoopInvariantCodeMotionPass());
}

void ladle::buildCPUPipeline(OpPassManager &pm,
                             const DecodePipelineOptions &options) {
  buildStepPipeline(pm, options);
  buildKernelPipeline(pm, options);
}

void ladle::buildGPUStepPipeline(OpPassManager &pm,
                                 const DecodePipelineOptions &options) {
  // Prompts that stay entries lie in pages, or behind the last whole chunk.
  DecodePipelineOptions carrying = options;
  carrying.carriesState = options.page > 0 || options.foldsByChunk;
  carrying.scansPrompts = carrying.approximates = true;
  buildStepPipeline(pm, carrying);
}

void ladle::buildGPUKernelPipeline(OpPassManager &pm,
                                   const ConvertLadleToGPUOptions &lowering) {
  ReadUpdatesOptions updates;
  updates.batch = lowering.batch;
  pm.addNestedPass<StepOp>(createReadUpdates(updates));
  pm.addPass(createConvertLadleToGPU(lowering));
  OpPassManager &kernel = pm.nest<gpu::GPUModuleOp>().nest<gpu::GPUFuncOp>();
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
}

void ladle::buildGPUPipeline(OpPassManager &pm,
                             const DecodePipelineOptions &options,
                             const ConvertLadleToGPUOptions &lowering) {
  buildGPUStepPipeline(pm, options);
  buildGPUKernelPipeline(pm, lowering);
}

namespace {
/// The options of the pipelines on the command line of ladle-opt.
struct CommandLineOptions : PassPipelineOptions<CommandLineOptions> {
  ListOption<std::string> routes{
      *this, "routes",
      llvm::cl::desc("routes to build; none stands for every legal route")};
  Option<int64_t> capacity{*this, "capacity",
                           llvm::cl::desc("entries that a ring holds"),
                           llvm::cl::init(16)};
  Option<int64_t> page{*this, "page",
                       llvm::cl::desc("entries of a page; 0 for none"),
                       llvm::cl::init(0)};
  Option<std::string> entryType{*this, "entry-type",
                                llvm::cl::desc("f32, bf16 or f16"),
                                llvm::cl::init("f32")};
  Option<std::string> stateLayout{*this, "state-layout",
                                  llvm::cl::desc("dv_dk or dk_dv"),
                                  llvm::cl::init("dv_dk")};
  Option<int64_t> drafts{*this, "drafts",
                         llvm::cl::desc("the most drafts of a row"),
                         llvm::cl::init(0)};
  Option<int64_t> chunk{*this, "chunk",
                        llvm::cl::desc("tokens of a prompt that are answered "
                                       "at once; 0 builds no prefill"),
                        llvm::cl::init(0)};
  Option<int64_t> tileRows{*this, "tile-rows",
                           llvm::cl::desc("rows of the state in a tile"),
                           llvm::cl::init(16)};

  DecodePipelineOptions get() const {
    DecodePipelineOptions options;
    for (const std::string &name : routes)
      if (std::optional<Route> route = symbolizeRoute(name))
        options.routes.push_back(*route);
      else
        llvm::errs() << "ignoring unknown route '" << name << "'\n";
    options.capacity = capacity;
    options.page = page;
    options.entryType = entryType;
    options.stateLayout = stateLayout;
    options.drafts = drafts;
    options.chunk = chunk;
    options.tileRows = tileRows;
    return options;
  }
};
} // namespace

void ladle::registerLadlePipelines() {
  PassPipelineRegistration<>("ladle-to-history",
                             "normal form and history of recurrences",
                             buildSpecPipeline);
  PassPipelineRegistration<CommandLineOptions>(
      "ladle-to-steps", "recurrences to steps",
      [](OpPassManager &pm, const CommandLineOptions &options) {
        buildStepPipeline(pm, options.get());
      });
  PassPipelineRegistration<CommandLineOptions>(
      "ladle-to-cpu", "recurrences to functions over memrefs",
      [](OpPassManager &pm, const CommandLineOptions &options) {
        buildCPUPipeline(pm, options.get());
      });
  PassPipelineRegistration<CommandLineOptions>(
      "ladle-to-gpu", "recurrences to GPU kernels",
      [](OpPassManager &pm, const CommandLineOptions &options) {
        buildGPUPipeline(pm, options.get());
      });
}
