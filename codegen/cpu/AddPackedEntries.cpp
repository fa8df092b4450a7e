//===- AddPackedEntries.cpp - one array of arguments ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LowerToLLVM.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {
#define GEN_PASS_DEF_ADDPACKEDENTRIES
#include "codegen/cpu/Passes.h.inc"
} // namespace ladle

using namespace mlir;

namespace {

/// What func-to-llvm puts before the name of a function with
/// llvm.emit_c_interface.
constexpr StringLiteral kInterfacePrefix = "_mlir_ciface_";

void addEntry(LLVM::LLVMFuncOp interface, StringRef name) {
  ImplicitLocOpBuilder b(interface.getLoc(), interface->getContext());
  b.setInsertionPointAfter(interface);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), {pointer});
  auto entry =
      LLVM::LLVMFuncOp::create(b, (name + ladle::kPackedSuffix).str(), type);
  b.setInsertionPointToStart(entry.addEntryBlock(b));

  Value array = entry.getArgument(0);
  SmallVector<Value> arguments;
  for (auto [index, wanted] : llvm::enumerate(interface.getArgumentTypes())) {
    Value slot = array;
    if (index)
      slot = LLVM::GEPOp::create(
          b, pointer, pointer, array,
          ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    Value argument = LLVM::LoadOp::create(b, pointer, slot);
    if (wanted != pointer)
      argument = LLVM::LoadOp::create(b, wanted, argument);
    arguments.push_back(argument);
  }
  LLVM::CallOp::create(b, interface, arguments);
  LLVM::ReturnOp::create(b, ValueRange());
}

struct AddPackedEntries
    : public ladle::impl::AddPackedEntriesBase<AddPackedEntries> {
  void runOnOperation() override {
    SmallVector<LLVM::LLVMFuncOp> functions;
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (!function.isExternal())
        functions.push_back(function);

    for (LLVM::LLVMFuncOp function : functions) {
      function.setLinkage(LLVM::Linkage::Internal);
      // Others have attributes that say so.
      function.setAlwaysInline(!function.getPassthrough());
      StringRef name = function.getName();
      if (!name.consume_front(kInterfacePrefix))
        continue;
      if (!isa<LLVM::LLVMVoidType>(
              function.getFunctionType().getReturnType())) {
        function.emitError() << "kernel '" << name << "' returns a value";
        return signalPassFailure();
      }
      addEntry(function, name);
    }
  }
};

} // namespace
