//===- ObjectEmitter.cpp - the LLVM dialect into an object ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/ObjectEmitter.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/Scalarizer.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace ladle;

static std::unique_ptr<llvm::TargetMachine>
createMachine(const CpuTarget &target, std::string &error) {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;

  llvm::Triple triple(target.triple);
  const llvm::Target *llvmTarget =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// What holds for every kernel, whoever built it.
static void annotate(llvm::Module &module) {
  for (llvm::Function &function : module) {
    // Without exceptions there is nothing to unwind, and no table for it.
    function.setDoesNotThrow();
    // The x86 back end contracts only what the instructions allow.
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (llvm::isa<llvm::FPMathOperator>(instruction))
        instruction.setHasAllowContract(true);
  }
}

/// Kernels come with their loops tiled and their vectors formed. What is left
/// is the rubble of lowering: descriptors as aggregates, addresses computed
/// anew for each access.
static llvm::ModulePassManager buildKernelPipeline() {
  llvm::FunctionPassManager functions;
  functions.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  functions.addPass(llvm::EarlyCSEPass());
  functions.addPass(llvm::InstCombinePass());
  functions.addPass(llvm::SimplifyCFGPass());
  functions.addPass(llvm::createFunctionToLoopPassAdaptor(
      llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  functions.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  functions.addPass(llvm::InstCombinePass());
  functions.addPass(llvm::SimplifyCFGPass());
  functions.addPass(llvm::ADCEPass());

  llvm::ModulePassManager modules;
  modules.addPass(llvm::AlwaysInlinerPass(/*InsertLifetime=*/false));
  modules.addPass(llvm::GlobalDCEPass());
  modules.addPass(
      llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
  return modules;
}

static bool hasOddWidth(llvm::Type *type) {
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector && !llvm::isPowerOf2_32(vector->getNumElements());
}

namespace {
/// Splits vectors of functions that have any whose width is no power of two:
/// such a one goes from block to block as so many scalars.
struct SplitOddVectors : llvm::PassInfoMixin<SplitOddVectors> {
  static llvm::PreservedAnalyses run(llvm::Function &function,
                                     llvm::FunctionAnalysisManager &analyses) {
    if (llvm::none_of(llvm::instructions(function),
                      [](const llvm::Instruction &each) {
                        return hasOddWidth(each.getType());
                      }))
      return llvm::PreservedAnalyses::all();
    llvm::ScalarizerPassOptions options;
    options.ScalarizeMinBits = 512;
    options.ScalarizeLoadStore = true;
    return llvm::ScalarizerPass(options).run(function, analyses);
  }
};
} // namespace

static void optimize(llvm::Module &module, llvm::TargetMachine &machine,
                     bool fullPipeline) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::ModulePassManager pipeline;
  pipeline.addPass(llvm::createModuleToFunctionPassAdaptor(SplitOddVectors()));
  pipeline.addPass(fullPipeline ? builder.buildPerModuleDefaultPipeline(
                                      llvm::OptimizationLevel::O3)
                                : buildKernelPipeline());
  pipeline.run(module, modules);
}

mlir::FailureOr<llvm::SmallVector<char, 0>>
ladle::emitObject(mlir::ModuleOp module, const EmitOptions &options) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      createMachine(options.target, error);
  if (!machine)
    return module.emitError() << "no code generator for '"
                              << options.target.triple << "': " << error;

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule = mlir::translateModuleToLLVMIR(
      module, context, "kernels", /*disableVerification=*/true);
  if (!llvmModule)
    return mlir::failure(); // reported by the translation
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  annotate(*llvmModule);
  optimize(*llvmModule, *machine, options.fullPipeline);

  llvm::SmallVector<char, 0> result;
  llvm::raw_svector_ostream stream(result);
  if (options.kind == EmitKind::LLVMIR) {
    llvmModule->print(stream, nullptr);
    return result;
  }
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   options.kind == EmitKind::Object
                                       ? llvm::CodeGenFileType::ObjectFile
                                       : llvm::CodeGenFileType::AssemblyFile))
    return module.emitError()
           << "no object files for '" << options.target.triple << "'";
  codegen.run(*llvmModule);
  return result;
}
