//===- GpuProgram.cpp - a recurrence as CUDA text -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "dialect/LadleOps.h"
#include "frontend/Frontend.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/gpu/ChunkPrepared.h"
#include "passes/gpu/DraftKernel.h"
#include "passes/gpu/KernelInfo.h"
#include "runtime/jit/BuildGpuProgram.h"
#include "runtime/jit/Interface.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

using namespace mlir;
using namespace ladle;
using namespace ladle::jit;

static std::vector<GpuArgument> argumentsOf(StepOp step) {
  std::vector<GpuArgument> arguments;
  std::map<GpuArgument::Kind, size_t> counts;
  auto add = [&](GpuArgument::Kind kind) {
    arguments.push_back({kind, counts[kind]++, 0});
  };
  for (BlockArgument argument : step.getBody().getArguments()) {
    switch (step.getArgumentKind(argument.getArgNumber())) {
    case ArgumentKind::Param:
      add(GpuArgument::Kind::Param);
      break;
    case ArgumentKind::Token:
      add(GpuArgument::Kind::Token);
      break;
    case ArgumentKind::Carry:
      add(GpuArgument::Kind::Carry);
      break;
    case ArgumentKind::Ring:   // of attention alone
    case ArgumentKind::Memory: // likewise
    case ArgumentKind::Drafts: // what is common to kernels has their numbers
      break;
    case ArgumentKind::State:
      add(GpuArgument::Kind::State);
      break;
    case ArgumentKind::Buffer:
      for (size_t i = 0,
                  e = cast<BufferType>(argument.getType()).getFields().size();
           i < e; ++i)
        add(GpuArgument::Kind::Field);
      break;
    }
  }
  for (size_t i = 0; i < step.getOutputTypes().size(); ++i)
    add(GpuArgument::Kind::Output);
  return arguments;
}

static GpuKernelInfo describe(gpu::GPUFuncOp kernel) {
  auto blocks = kernel->getAttrOfType<IntegerAttr>(kGridBlocksAttr);
  auto number = [&](StringRef name, unsigned otherwise) {
    auto attribute = kernel->getAttrOfType<IntegerAttr>(name);
    return attribute ? static_cast<unsigned>(attribute.getInt()) : otherwise;
  };
  return {kernel.getName().str(),
          static_cast<unsigned>(blocks.getInt()),
          static_cast<unsigned>((*kernel.getKnownBlockSize())[0]),
          static_cast<unsigned>(dynamicSharedBytes(kernel)),
          kernel->hasAttr(kStartsEarlyAttr),
          number(kClusterAttr, 1),
          number(kRunsAttr, 0),
          number(kTokensOfRunAttr, 1),
          number(kBytesOfRunAttr, 0),
          number(kBlocksBesideAttr, 1)};
}

int64_t GpuProgram::headGroup() const {
  // Heads that a block takes together stay together.
  int64_t group = 1;
  auto add = [&](int64_t heads, bool isWritten) {
    // What all heads share and none writes is where it is.
    if (heads > 1 || isWritten)
      group = std::lcm(group, signature.heads / heads);
  };
  for (const auto *specs : {&signature.params, &signature.tokens})
    for (const TensorSpec &spec : *specs)
      add(spec.shape[0], false);
  for (const auto *specs : {&signature.carries, &signature.outputs, &fields})
    for (const TensorSpec &spec : *specs)
      add(spec.shape[0], true);
  for (const StateSpec &spec : signature.states)
    add(spec.heads, true);
  return group;
}

/// Of steps of other routes than that which a program is of, keeps those that
/// verify: they become a branch of its kernel.
static void keepStepsOf(Route route, ModuleOp module) {
  for (StepOp step : llvm::make_early_inc_range(module.getOps<StepOp>()))
    if (step.getRoute() != route && !step.verifies())
      step.erase();
}

LogicalResult jit::buildGpuProgram(ModuleOp module,
                                   const DecodePipelineOptions &options,
                                   const ConvertLadleToGPUOptions &lowering,
                                   GpuProgram &program) {
  module.walk([&](RecurrenceOp recurrence) {
    program.signature = signatureOf(
        recurrence,
        parseStateLayout(options.stateLayout).value_or(StateLayout::DvDk));
  });
  PassManager steps(module.getContext());
  buildGPUStepPipeline(steps, options);
  if (failed(steps.run(module)))
    return failure();
  if (options.routes.size() > 1)
    keepStepsOf(options.routes[0], module);
  std::string decode, decodeFold, fold, verify, prefill, prepare, draft,
      draftFold;
  bool keepsPrompts = false;
  module.walk([&](StepOp step) {
    if (options.routes.size() > 1 && step.getRoute() != options.routes[0])
      return;
    switch (step.getForm()) {
    case Form::Decode:
      decode = step.getSymName();
      draft = draftNameOf(step);
      program.fields = fieldsOf(step);
      program.arguments = argumentsOf(step);
      break;
    case Form::DecodeFold:
      decodeFold = step.getSymName();
      program.folds = lowering.forms == 0 || lowering.forms & kDecodeFoldForm;
      break;
    case Form::Fold:
      fold = step.getSymName();
      draftFold = draftNameOf(step);
      break;
    case Form::Verify:
      verify = step.getSymName();
      break;
    case Form::PrefillFold:
    case Form::PrefillScan:
      prefill = step.getSymName();
      prepare = prepareNameOf(step);
      break;
    case Form::PrefillEntries:
      // Of other routes where chunks fold, or on the CPU.
      if (step.getRoute() == Route::KvOnly ? options.page > 0
                                           : options.foldsByChunk) {
        prefill = step.getSymName();
        keepsPrompts = true;
      }
      break;
    case Form::VerifyFold: // a branch of the kernel of the form before
      break;
    }
  });
  PassManager kernels(module.getContext());
  ConvertLadleToGPUOptions withDrafts = lowering;
  withDrafts.drafts = options.drafts;
  buildGPUKernelPipeline(kernels, withDrafts);
  if (failed(kernels.run(module)))
    return failure();
  // Without decode, what folds is a kernel of its own.
  if (lowering.forms != 0 && !(lowering.forms & kDecodeForm))
    decode = decodeFold;
  module.walk([&](gpu::GPUFuncOp function) {
    if (function.getName() == fold)
      program.fold = describe(function);
    if (function.getName() == draftFold)
      program.draftFold = describe(function);
    if (function.getName() == verify)
      program.verify = describe(function);
    else if (function.getName() == draft)
      program.draft = describe(function);
    else if (function.getName() == prefill)
      program.prefill = describe(function);
    else if (function.getName() == prepare)
      program.prepare = describe(function);
    else if (function.getName() == decode)
      program.decode = describe(function);
    else
      return;
    auto next = static_cast<unsigned>(
        function->getAttrOfType<IntegerAttr>(kCommonArgumentsAttr).getInt());
    for (GpuArgument &argument : program.arguments) {
      // Prompts that are folded leave no entries behind.
      if (llvm::is_contained({prefill, prepare}, function.getName()) &&
          !keepsPrompts && argument.kind == GpuArgument::Kind::Field)
        continue;
      if (auto bytes =
              function.getArgAttrOfType<IntegerAttr>(next, kAlignmentAttr))
        argument.alignment = std::max(argument.alignment, bytes.getInt());
      ++next;
    }
  });
  llvm::raw_string_ostream stream(program.text);
  return printCuda(module, stream);
}

std::optional<GpuProgram> jit::compileForGpu(const GpuRequest &request,
                                             std::string &messages) {
  messages = checkLayout(request.layout);
  if (!messages.empty())
    return std::nullopt;
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    llvm::raw_string_ostream stream(messages);
    stream << diagnostic << '\n';
    for (Diagnostic &note : diagnostic.getNotes())
      stream << "note: " << note << '\n';
    return success();
  });
  llvm::SourceMgr sources;
  auto file = llvm::MemoryBuffer::getFile(request.path);
  if (!file) {
    messages = "cannot read '" + request.path + "'";
    return std::nullopt;
  }
  sources.AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  frontend::ElaborationOptions elaboration = request.elaboration;
  if (!request.stateType.empty())
    elaboration.stateTypes["*"] = request.stateType;
  OwningOpRef<ModuleOp> module =
      frontend::compileToSpec(context, sources, elaboration);
  DecodePipelineOptions options;
  options.capacity = request.capacity;
  options.page = request.page;
  options.entryType = request.entryType;
  options.stateLayout = request.stateLayout;
  options.drafts = request.drafts;
  options.chunk = request.chunk;
  if (!module)
    return std::nullopt;
  if (!request.route.empty())
    options.routes.push_back(*symbolizeRoute(request.route));
  if (request.answersShortRows)
    options.routes.push_back(Route::KvOnly);
  GpuProgram program;
  if (failed(buildGpuProgram(*module, options, optionsOf(request.layout),
                             program)))
    return std::nullopt;
  return program;
}
