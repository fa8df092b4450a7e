//===- ladle-translate.cpp - from sources and to sources --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaPrinter.h"
#include "dialect/LadleDialect.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Support/LogicalResult.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"

namespace cl = llvm::cl;
using ladle::frontend::ElaborationOptions;

static cl::opt<std::string>
    recurrence("recurrence", cl::desc("Recurrence to elaborate (first)"));
static cl::opt<std::string>
    preset("preset", cl::desc("Preset to elaborate with (first)"));
static cl::list<std::string> sets("set", cl::desc("Set a size or an option"),
                                  cl::value_desc("name=number"));
static cl::list<std::string>
    stateTypes("state-type", cl::desc("Store a state, or all (*), in a type"),
               cl::value_desc("name=type"));
static cl::list<std::string>
    tokenTypes("token-type",
               cl::desc("Take a token or output, or all (*), in a type"),
               cl::value_desc("name=type"));
static cl::opt<bool> list("list", cl::desc("List recurrences and presets, as "
                                           "comments, before the IR"));

static bool parsePairs(const cl::list<std::string> &pairs,
                       std::map<std::string, std::string> &result) {
  for (const std::string &pair : pairs) {
    auto [name, value] = llvm::StringRef(pair).split('=');
    if (value.empty()) {
      llvm::errs() << "error: expected name=value, got '" << pair << "'\n";
      return false;
    }
    result[name.str()] = value.str();
  }
  return true;
}

static bool parseOptions(ElaborationOptions &options) {
  options.recurrence = recurrence;
  options.preset = preset;
  std::map<std::string, std::string> numbers;
  if (!parsePairs(stateTypes, options.stateTypes) ||
      !parsePairs(tokenTypes, options.tokenTypes) || !parsePairs(sets, numbers))
    return false;
  for (auto &[name, text] : numbers) {
    double &value = options.options[name];
    if (llvm::StringRef(text).getAsDouble(value)) {
      llvm::errs() << "error: expected a number for " << name << ", got '"
                   << text << "'\n";
      return false;
    }
  }
  return true;
}

static bool printList(llvm::SourceMgr &sourceManager) {
  auto infos = ladle::frontend::listRecurrences(sourceManager);
  if (!infos)
    return false;
  for (const auto &info : *infos) {
    llvm::outs() << (info.isAttention ? "// attention " : "// recurrence ")
                 << info.name << '(' << llvm::join(info.sizes, ", ") << ")\n";
    for (const auto &presetInfo : info.presets) {
      llvm::outs() << "//   preset \"" << presetInfo.name << '"';
      for (auto &[name, value] : presetInfo.values)
        llvm::outs() << ' ' << name << '=' << llvm::format("%g", value);
      llvm::outs() << '\n';
    }
  }
  return true;
}

static mlir::OwningOpRef<mlir::Operation *>
importLadle(llvm::SourceMgr &sourceManager, mlir::MLIRContext *context) {
  ladle::frontend::printDiagnosticsInto(sourceManager, llvm::errs());
  ElaborationOptions options;
  options.takesAttention = true;
  if (!parseOptions(options) || (list && !printList(sourceManager)))
    return {};
  mlir::OwningOpRef<mlir::ModuleOp> module =
      ladle::frontend::compileToSpec(*context, sourceManager, options);
  return module.release().getOperation();
}

int main(int argc, char **argv) {
  mlir::TranslateToMLIRRegistration import(
      "import-ladle", "elaborate a .ladle file into the spec stage",
      importLadle, [](mlir::DialectRegistry &registry) {
        registry.insert<ladle::LadleDialect, mlir::arith::ArithDialect,
                        mlir::math::MathDialect>();
      });
  mlir::TranslateFromMLIRRegistration toCuda(
      "mlir-to-cuda", "print the kernels of GPU modules as CUDA C++",
      [](mlir::Operation *op, llvm::raw_ostream &os) {
        return ladle::printCuda(op, os);
      },
      [](mlir::DialectRegistry &registry) {
        registry.insert<ladle::LadleDialect>();
        ladle::registerCudaPrinterDialects(registry);
      });
  return mlir::failed(
      mlir::mlirTranslateMain(argc, argv, "Ladle translation driver\n"));
}
