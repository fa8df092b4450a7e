//===- EmitObject.cpp - kernels as object files ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/EmitObject.h"
#include "codegen/cpu/LowerToLLVM.h"
#include "codegen/cpu/ObjectEmitter.h"
#include "frontend/Diagnostics.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "passes/Pipelines.h"
#include "tools/ladle/CHeader.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace ladle;
using namespace ladle::tool;

/// Writes a file of the folder that was asked for, or says why not.
static bool write(const tool::EmitOptions &options, const std::string &name,
                  llvm::StringRef contents) {
  llvm::SmallString<128> path(options.output);
  llvm::sys::path::append(path, name);
  std::error_code error = llvm::sys::fs::create_directories(options.output);
  if (!error) {
    llvm::raw_fd_ostream file(path, error);
    if (!error) {
      file << contents;
      file.close();
      error = file.error();
      file.clear_error();
    }
  }
  if (error)
    llvm::errs() << "error: cannot write '" << path << "': " << error.message()
                 << '\n';
  return !error;
}

static void reportProcessor(llvm::StringRef name) {
  llvm::errs() << "error: no processor '" << name << "' of "
               << CpuTarget::architecture() << "\nnote: ";
  frontend::Suggestion suggestion(name);
  std::vector<llvm::StringRef> all = CpuTarget::names();
  for (llvm::StringRef each : all)
    suggestion.consider(each);
  if (!suggestion.get().empty())
    llvm::errs() << "did you mean '" << suggestion.get() << "'?\n";
  else
    llvm::errs() << "there are native, " << llvm::join(all, ", ") << "\n";
}

/// What has to be linked with an object file.
static std::set<std::string>
undefinedSymbols(const llvm::SmallVectorImpl<char> &object) {
  std::set<std::string> names;
  auto file = llvm::object::ObjectFile::createObjectFile(
      llvm::MemoryBufferRef({object.data(), object.size()}, "object"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return names;
  }
  for (const llvm::object::SymbolRef &symbol : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (flags && name && !name->empty() &&
        (*flags & llvm::object::SymbolRef::SF_Undefined))
      names.insert(name->str());
    llvm::consumeError(flags.takeError());
    llvm::consumeError(name.takeError());
  }
  return names;
}

/// The comment that a header opens with. What an object needs depends on the
/// processor: those without an instruction call a function.
static std::string introduction(const std::string &origin,
                                const std::set<std::string> &needed) {
  llvm::SmallVector<std::string> plain, numbers, compilers;
  for (const std::string &name : needed) {
    auto &kind = name.starts_with("__")    ? compilers
                 : name.starts_with("mem") ? plain
                                           : numbers;
    kind.push_back(name);
  }
  std::string text = "/* " + origin +
                     "\n *\n * Made by `ladle emit --stage object`. Link the "
                     "object file of the same name,\n * which needs";
  text += needed.empty() ? " no library.\n" : "\n";
  for (auto [library, names] : {std::pair("the C library", &plain),
                                {"libm", &numbers},
                                {"the compiler's runtime", &compilers}})
    if (!names->empty())
      text += llvm::formatv(" *   of {0}: {1}\n", library,
                            llvm::join(*names, ", "));
  return text + " * Numbers of 16 bits are uint16_t.\n */\n";
}

int tool::emitObjectFile(Source &source, const tool::EmitOptions &options) {
  if (options.output.empty()) {
    llvm::errs() << "error: --stage object writes files, and --output is not "
                    "given\nnote: -o . writes them here\n";
    return 2;
  }
  std::optional<CpuTarget> target = CpuTarget::host();
  if (options.cpu != "native")
    target = CpuTarget::named(options.cpu);
  if (!target) {
    reportProcessor(options.cpu);
    return 2;
  }
  AttentionOp attention = *source.module->getOps<AttentionOp>().begin();
  std::string name = attention.getSymName().str();
  std::string origin = llvm::formatv(
      "Attention '{0}' of {1}, for the processor '{2}'.", name,
      llvm::sys::path::filename(options.source.file), options.cpu);
  std::optional<std::string> header = cHeader(attention);
  if (!header)
    return 1;

  mlir::DialectRegistry registry;
  registerCpuCodegenDialects(registry);
  source.context.appendDialectRegistry(registry);
  mlir::PassManager manager(&source.context);
  buildAttentionPipeline(manager, {});
  ConvertLadleAttentionToCPUOptions kernel;
  kernel.lanes = target->lanes();
  kernel.dotsBF16 = target->dotsBF16();
  kernel.asksAgain = target->forgetsRequests();
  buildAttentionKernelPipeline(manager, kernel);
  LowerToLLVMOptions lowering(*target);
  buildLowerToLLVMPipeline(manager, lowering);
  if (failed(manager.run(*source.module)))
    return 1;
  // Others see the entry alone.
  for (auto function : source.module->getOps<mlir::LLVM::LLVMFuncOp>())
    if (!function.isExternal() && !function.getName().ends_with(kPackedSuffix))
      function.setLinkage(mlir::LLVM::Linkage::Internal);
  auto object = emitObject(*source.module, ladle::EmitOptions{*target});
  if (failed(object))
    return 1;
  return write(options, name + ".o", {object->data(), object->size()}) &&
                 write(options, name + ".h",
                       introduction(origin, undefinedSymbols(*object)) +
                           *header)
             ? 0
             : 2;
}
