//===- Source.cpp - a .ladle file for a command ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Source.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "tools/common/RegisterDialects.h"
#include "tools/ladle/SourceChoices.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace ladle::tool;

Source::Source(const SourceOptions &options, bool showRemarks)
    : context(mlir::MLIRContext::Threading::DISABLED) {
  mlir::DialectRegistry registry;
  ladle::registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.printOpOnDiagnostic(false);
  context.loadAllAvailableDialects();

  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(options.file);
  if (!buffer) {
    llvm::errs() << "error: cannot read '" << options.file
                 << "': " << buffer.getError().message() << "\n";
    return;
  }
  sourceManager.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  ladle::frontend::printDiagnosticsInto(sourceManager, llvm::errs());
  handler = std::make_unique<mlir::SourceMgrDiagnosticHandler>(
      sourceManager, &context, llvm::errs(),
      [=](mlir::Location) { return true; });
  // Remarks are an answer when somebody asks for an explanation, noise
  // otherwise.
  if (!showRemarks)
    context.getDiagEngine().registerHandler([](mlir::Diagnostic &diagnostic) {
      return mlir::success(diagnostic.getSeverity() ==
                           mlir::DiagnosticSeverity::Remark);
    });
  ladle::frontend::ElaborationOptions elaboration = elaborationOf(options);
  if (!options.stateType.empty())
    elaboration.stateTypes["*"] = options.stateType;
  module = ladle::frontend::compileToSpec(context, sourceManager, elaboration);
}
