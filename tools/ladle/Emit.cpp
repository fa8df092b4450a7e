//===- Emit.cpp - ladle emit ----------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/RegisterBounds.h"
#include "passes/Pipelines.h"
#include "passes/gpu/KernelInfo.h"
#include "runtime/jit/BuildGpuProgram.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/EmitObject.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Source.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle;
using namespace ladle::tool;

static bool isOfCuda(const EmitOptions &options) {
  return options.stage == "cuda" || options.stage == "ptx" ||
         options.stage == "cubin";
}

/// Whether options that say nothing of the stage were left out, or an error.
static bool takesStageOptions(const EmitOptions &options) {
  bool isOfGpu = isOfCuda(options) ||
                 (options.stage == "kernel" && options.target == "cuda");
  std::string reason = "the stage is '" + options.stage + "'";
  if (options.stage == "kernel" && !isOfGpu)
    reason += " of a CPU";
  Status status;
  if (options.stage == "spec" || options.stage == "history")
    status = refuse(options.source,
                    {"--route", "--drafts", "--chunk", "--pages", "--capacity",
                     "--entry", "--state-layout"},
                    {"steps and kernels", reason});
  if (status && options.stage != "kernel" &&
      !(isOfGpu && options.target == "cuda"))
    status = refuse(options.source, {"--target"}, {"kernels", reason});
  if (status && !isOfGpu)
    status = refuse(options.source, {"--arch"}, {"kernels of a GPU", reason});
  for (const jit::GpuParameter &parameter : jit::gpuParameters())
    if (status && !isOfGpu)
      status = refuse(options.source, {parameter.flag()},
                      {"kernels of a GPU", reason});
  if (status && options.stage != "object")
    status =
        refuse(options.source, {"--cpu", "--output"}, {"object files", reason});
  llvm::StringRef arch = options.arch, number = arch;
  if (status && (!number.consume_front("sm_") || number.size() < 2 ||
                 !llvm::all_of(number.rtrim("af"), llvm::isDigit)))
    status = Status(ErrorCode::InvalidArgument,
                    "unknown GPU '" + options.arch +
                        "'\nnote: --arch is sm_80, sm_90a or sm_120, say");
  printError(status);
  return status.ok();
}

/// Prints CUDA text, or what NVRTC makes of it.
static int emitCuda(mlir::ModuleOp module, const EmitOptions &options) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (failed(printCuda(module, stream)))
    return 1;
  if (options.stage == "cuda") {
    llvm::outs() << text;
    return 0;
  }
  auto print = [](llvm::Expected<std::string> result) {
    if (!result) {
      llvm::errs() << "error: " << llvm::toString(result.takeError()) << '\n';
      return 1;
    }
    llvm::outs() << *result;
    return 0;
  };
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc)
    return print(nvrtc.takeError());
  CubinOptions compile;
  compile.arch = options.arch;
  if (options.stage == "ptx")
    return print(nvrtc->ptx(text, "kernels.cu", compile));
  llvm::Expected<Cubin> cubin =
      compileWithinRegisters(*nvrtc, text, "kernels.cu", compile);
  if (!cubin)
    return print(cubin.takeError());
  // What a kernel takes goes where it does not mix with the image.
  for (const KernelResources &kernel : cubin->kernels)
    llvm::errs() << llvm::formatv(
        "{0}: {1} registers, {2} bytes spilled, {3} bytes of shared memory\n",
        kernel.name, kernel.registers, kernel.spillStores + kernel.spillLoads,
        kernel.sharedBytes);
  return print(std::move(cubin->image));
}

/// The forms that `names` say, or nothing and an error.
static std::optional<llvm::SmallVector<Form>>
parseForms(const std::vector<std::string> &names) {
  llvm::SmallVector<Form> forms;
  for (const std::string &name : names) {
    std::optional<Form> form = symbolizeForm(name);
    if (!form) {
      llvm::errs() << "error: unknown form '" << name
                   << "'\nnote: forms are decode, decode_fold, fold, verify, "
                      "verify_fold, prefill_fold, prefill_entries and "
                      "prefill_scan\n";
      return std::nullopt;
    }
    forms.push_back(*form);
  }
  return forms;
}

/// Builds the steps and keeps those of `forms`.
static bool buildForms(mlir::ModuleOp module,
                       const DecodePipelineOptions &pipeline,
                       llvm::ArrayRef<Form> forms) {
  mlir::PassManager manager(module.getContext());
  buildStepPipeline(manager, pipeline);
  if (failed(manager.run(module)))
    return false;
  bool hasAny = forms.empty(), hasBuffer = false;
  for (StepOp step : module.getOps<StepOp>())
    hasBuffer |= step.getRoute() != Route::Recurrent;
  for (StepOp step : llvm::make_early_inc_range(module.getOps<StepOp>())) {
    bool isKept = forms.empty() || llvm::is_contained(forms, step.getForm());
    hasAny |= isKept;
    if (!isKept)
      step.erase();
  }
  if (!hasAny)
    llvm::errs()
        << "error: no route has the form '" << stringifyForm(forms.front())
        << "'\nnote: "
        << (llvm::is_contained(forms, Form::PrefillScan)
                ? "tokens of its prompts are answered in chunks, by "
                  "prefill_fold\n"
            : hasBuffer
                ? "drafts, and tokens of a prompt, that wait for those before "
                  "them are decoded one after another; ladle explain says "
                  "why\n"
                : "a route without a buffer has nothing to fold, and decodes "
                  "drafts one after another\n");
  return hasAny;
}

/// Of all legal routes those with one of the forms, so that kernels of these
/// can be printed where no route is named; none if there are none.
static llvm::SmallVector<Route>
routesWith(mlir::ModuleOp module, const DecodePipelineOptions &pipeline,
           llvm::ArrayRef<Form> forms) {
  llvm::SmallVector<Route> routes;
  mlir::OwningOpRef<mlir::ModuleOp> copy(module.clone());
  mlir::PassManager manager(module.getContext());
  buildStepPipeline(manager, pipeline);
  // What is wrong with the module is said when its kernels are built.
  mlir::ScopedDiagnosticHandler silent(
      module.getContext(), [](mlir::Diagnostic &) { return mlir::success(); });
  if (failed(manager.run(*copy)))
    return routes;
  for (StepOp step : copy->getOps<StepOp>())
    if (llvm::is_contained(forms, step.getForm()) &&
        !llvm::is_contained(routes, step.getRoute()))
      routes.push_back(step.getRoute());
  return routes;
}

static int refuseForms(const EmitOptions &options) {
  llvm::errs() << "error: --form is of steps and kernels, got stage '"
               << options.stage << "'\nnote: leave --form out\n";
  return 2;
}

/// Keeps the steps of these forms, all if there are none.
static bool keepForms(mlir::ModuleOp module,
                      const std::vector<std::string> &names) {
  if (names.empty())
    return true;
  std::vector<std::string> all;
  for (auto step : module.getOps<AttentionStepOp>())
    all.push_back(stringifyAttentionForm(step.getForm()).str());
  for (const std::string &name : names)
    if (!llvm::is_contained(all, name)) {
      auto attention = *module.getOps<AttentionOp>().begin();
      llvm::errs() << "error: attention '" << attention.getSymName()
                   << "' has no form '" << name << "'\nnote: it has "
                   << llvm::join(all, ", ") << '\n';
      return false;
    }
  for (auto step : llvm::make_early_inc_range(module.getOps<AttentionStepOp>()))
    if (!llvm::is_contained(names, stringifyAttentionForm(step.getForm())))
      step.erase();
  return true;
}

/// Whether options that are for recurrences were left out, or an error.
static bool takesOptions(Source &source, const EmitOptions &options) {
  Status status =
      refuse(options.source, {"--route", "--pages", "--chunk", "--drafts",
                              "--capacity", "--state-layout"});
  for (const jit::GpuParameter &parameter : jit::gpuParameters())
    if (status)
      status = refuse(options.source, {parameter.flag()});
  bool isPaged = llvm::none_of(source.module->getOps<AttentionOp>(),
                               [](AttentionOp op) { return op.isBounded(); });
  if (status && isPaged)
    status = refuseStates(options.source);
  bool matches = false;
  source.module->walk([&](MatchOp) { matches = true; });
  if (status && !matches)
    status = refuseEntries(options.source);
  printError(status);
  return status.ok();
}

/// An attention at the stage that is asked for.
static int emitAttention(Source &source, const EmitOptions &options) {
  if (!takesOptions(source, options) || !takesStageOptions(options))
    return 2;
  AttentionPipelineOptions pipeline;
  pipeline.summaryType = options.source.entryType;
  bool isCuda = isOfCuda(options);
  bool isKernel = isCuda || options.stage == "kernel";
  bool hasSteps = options.stage == "step" || isKernel;
  if (!options.forms.empty() && !hasSteps)
    return refuseForms(options);
  if (options.stage == "object")
    return emitObjectFile(source, options);
  if (!hasSteps && options.stage != "spec") {
    llvm::errs() << "error: an attention has no stage '" << options.stage
                 << "'\nnote: its stages are spec, step, kernel, cuda, ptx, "
                    "cubin and object\n";
    return 2;
  }
  mlir::PassManager steps(&source.context), kernels(&source.context);
  if (hasSteps)
    buildAttentionPipeline(steps, pipeline);
  if (failed(steps.run(*source.module)))
    return 1;
  if (!keepForms(*source.module, options.forms))
    return 2;
  if (isCuda || (isKernel && options.target != "cpu")) {
    ConvertLadleAttentionToGPUOptions lowering;
    lowering.shared = jit::sharedBytesOf(options.arch);
    lowering.cluster = jit::clusterBlocksOf(options.arch);
    buildAttentionGPUPipeline(kernels, lowering);
  } else if (isKernel) {
    buildAttentionKernelPipeline(kernels, {});
  }
  if (failed(kernels.run(*source.module)))
    return 1;
  if (isCuda)
    return emitCuda(*source.module, options);
  source.module->print(llvm::outs());
  return 0;
}

int ladle::tool::emit(const EmitOptions &options) {
  DecodePipelineOptions pipeline;
  pipeline.capacity = options.source.capacity;
  pipeline.page = options.page;
  pipeline.entryType = options.source.entryType;
  pipeline.stateLayout = options.source.stateLayout;
  for (const std::string &name : options.routes) {
    std::optional<Route> route = symbolizeRoute(name);
    if (!route) {
      llvm::errs() << "error: unknown route '" << name
                   << "'\nnote: routes are recurrent, outer, inner, adjoint "
                      "and kv_only\n";
      return 2;
    }
    if (!llvm::is_contained(pipeline.routes, *route))
      pipeline.routes.push_back(*route);
  }
  constexpr llvm::StringLiteral stages[] = {
      "spec", "history", "step", "kernel", "cuda", "ptx", "cubin", "object"};
  if (!llvm::is_contained(stages, options.stage)) {
    llvm::errs() << "error: unknown stage '" << options.stage
                 << "'\nnote: stages are spec, history, step, kernel, cuda, "
                    "ptx, cubin and, of attentions, object\n";
    return 2;
  }
  bool isCuda = isOfCuda(options);
  SourceOptions taken = options.source;
  taken.takesAttention = true;
  Source source(taken, /*showRemarks=*/false);
  if (!source.module)
    return 1;
  if (!source.module->getOps<AttentionOp>().empty())
    return emitAttention(source, options);
  if (!takesStageOptions(options))
    return 2;
  auto forms = parseForms(options.forms);
  if (!forms)
    return 2;
  bool verifies = llvm::any_of(*forms, [](Form form) {
    return form == Form::Verify || form == Form::VerifyFold;
  });
  bool scans = llvm::is_contained(*forms, Form::PrefillScan);
  bool prefills =
      scans || llvm::any_of(*forms, [](Form form) {
        return form == Form::PrefillFold || form == Form::PrefillEntries;
      });
  pipeline.drafts = options.drafts.value_or(verifies ? 8 : 0);
  pipeline.chunk = options.chunk.value_or(prefills ? 64 : 0);
  pipeline.scansPrompts = scans;
  bool isForCpu = options.stage == "step" ||
                  (options.stage == "kernel" && options.target == "cpu");
  jit::GpuLayout layout = jit::fittingLayout(options.layout, options.arch);
  if (scans && isForCpu && options.stage == "kernel") {
    llvm::errs() << "error: kernels of the CPU have no form 'prefill_scan'\n"
                    "note: steps decode such a prompt there; a GPU has one "
                    "(--target cuda)\n";
    return 2;
  }
  if (!forms->empty() && !isForCpu) {
    if (options.stage == "spec" || options.stage == "history")
      return refuseForms(options);
    // Those that verify hold both of their forms.
    std::vector<std::string> others;
    llvm::copy_if(
        options.forms, std::back_inserter(others),
        [](llvm::StringRef name) { return !name.starts_with("verify"); });
    Result<int64_t> held = jit::formsOf(others);
    if (!held) {
      llvm::errs() << "error: " << held.message() << '\n';
      return 2;
    }
    layout["forms"] = *held | (verifies ? kVerifyForm : 0);
    if (pipeline.routes.empty())
      pipeline.routes = routesWith(*source.module, pipeline, *forms);
  }
  mlir::PassManager manager(&source.context);
  if (options.stage == "history") {
    buildSpecPipeline(manager);
  } else if (isForCpu) {
    if (!buildForms(*source.module, pipeline, *forms))
      return 1;
    if (options.stage == "kernel")
      buildKernelPipeline(manager, pipeline);
  } else if (options.stage == "kernel" || isCuda) {
    buildGPUPipeline(manager, pipeline, jit::optionsOf(layout));
  } else if (options.stage == "object") {
    llvm::errs() << "error: a recurrence has no stage 'object'\nnote: object "
                    "files are of attentions with a segmented cache\n";
    return 2;
  }
  if (failed(manager.run(*source.module)))
    return 1;
  if (isCuda)
    return emitCuda(*source.module, options);
  source.module->print(llvm::outs());
  return 0;
}
