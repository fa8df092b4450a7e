//===- JitSupport.cpp - kernels for tests ---------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/JitSupport.h"
#include "codegen/cpu/LowerToLLVM.h"
#include "codegen/cpu/ObjectEmitter.h"
#include "codegen/cpu/ObjectLoader.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

static std::string emit(const std::string &text, bool expandBF16,
                        const ladle::EmitOptions &options) {
  DialectRegistry registry;
  ladle::registerCpuCodegenDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return "";
  PassManager manager(&context);
  ladle::LowerToLLVMOptions lowering;
  lowering.expandBF16 = expandBF16;
  ladle::buildLowerToLLVMPipeline(manager, lowering);
  if (failed(manager.run(*module)))
    return "";
  auto result = ladle::emitObject(*module, options);
  return succeeded(result) ? std::string(result->begin(), result->end()) : "";
}

std::string ladle::test::compile(const std::string &text, bool expandBF16) {
  // Without instructions for it there is no other way.
  return emit(text, expandBF16 || !ladle::CpuTarget::host().has("avx512bf16"),
              {});
}

std::string ladle::test::assemble(const std::string &text,
                                  const std::string &cpu, bool expandBF16) {
  return emit(text, expandBF16,
              {{"x86_64-unknown-linux-gnu", cpu, ""}, EmitKind::Assembly});
}

ladle::test::Jit ladle::test::jit(const std::string &text,
                                  const std::vector<std::string> &names,
                                  bool expandBF16) {
  Jit result;
  std::string object = compile(text, expandBF16);
  if (object.empty()) {
    result.error = "does not compile";
    return result;
  }
  std::vector<std::string> symbols;
  symbols.reserve(names.size());
  for (const std::string &name : names)
    symbols.push_back(name + kPackedSuffix.str());
  auto loaded = loadObject(object, symbols);
  if (!loaded) {
    result.error = llvm::toString(loaded.takeError());
    return result;
  }
  for (void *address : loaded->addresses)
    result.kernels.push_back(reinterpret_cast<Kernel>(address));
  result.owner = loaded->owner;
  return result;
}
