//===- ParserFuzzer.cpp - no input crashes the frontend ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The entry point of libFuzzer, which RunCorpus.cpp calls without it.
//
//===----------------------------------------------------------------------===//

#include "frontend/Frontend.h"
#include "mlir/IR/Verifier.h"

#include <memory>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer names it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A context keeps every type and attribute it has seen: renew it at times.
  constexpr unsigned inputsPerContext = 512;
  static std::unique_ptr<mlir::MLIRContext> context;
  static unsigned numInputs = 0;
  if (numInputs++ % inputsPerContext == 0)
    context = std::make_unique<mlir::MLIRContext>(
        mlir::MLIRContext::Threading::DISABLED);

  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  llvm::SourceMgr sourceManager;
  sourceManager.setDiagHandler([](const llvm::SMDiagnostic &, void *) {});
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text, "input.ladle"), llvm::SMLoc());
  ladle::frontend::ElaborationOptions options;
  options.takesAttention = true;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      ladle::frontend::compileToSpec(*context, sourceManager, options);
  // What the checker accepts is valid IR, or the checker lacks a check.
  if (module && mlir::failed(mlir::verify(*module)))
    abort();
  return 0;
}
