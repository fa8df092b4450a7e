//===- ConvertToLLVM.cpp - upstream dialects into LLVM --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LowerToLLVM.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/X86Vector/Transforms.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/MapVector.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTTOLLVM
#include "codegen/cpu/Passes.h.inc"
} // namespace ladle

using namespace mlir;

namespace {

/// A cache line: a vector of 512 bits that straddles two is loaded twice.
constexpr uint64_t kScratchAlignment = 64;

void populatePatterns(const LLVMTypeConverter &converter,
                      RewritePatternSet &patterns) {
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  index::populateIndexToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns,
                                       /*approximateLog1p=*/false);
  populateVectorToLLVMConversionPatterns(converter, patterns,
                                         /*reassociateFPReductions=*/true);
  populateX86VectorLegalizeForLLVMExportPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
}

/// Names each kind of operation that is left, at the first of its kind. A
/// function is only left because of a type in its signature, for which one of
/// the others is mostly the cause.
LogicalResult verifyOnlyLLVM(ModuleOp module) {
  llvm::SmallMapVector<OperationName, Operation *, 4> left, functions;
  module.walk([&](Operation *op) {
    if (isa<func::FuncOp, func::ReturnOp>(op))
      functions.insert({op->getName(), op});
    else if (!isa<ModuleOp, UnrealizedConversionCastOp>(op) &&
             !isa_and_present<LLVM::LLVMDialect>(op->getDialect()))
      left.insert({op->getName(), op});
  });
  if (left.empty())
    left = std::move(functions);
  for (auto [name, op] : left) {
    InFlightDiagnostic diagnostic =
        op->emitOpError("cannot be lowered to LLVM");
    if (name.getDialectNamespace() == "ladle")
      diagnostic.attachNote() << "run convert-ladle-to-cpu first";
    else
      diagnostic.attachNote()
          << "kernels are made of func, scf, vector, memref, arith, math and "
             "index";
  }
  return success(left.empty());
}

/// Of numbers and vectors of bf16: LLVM 22 takes some that are only moved to
/// f32 and back, which without bf16 instructions are calls of a function that
/// is not there.
Type asIntegers(Type type) {
  if (!getElementTypeOrSelf(type).isBF16())
    return {};
  Type integer = IntegerType::get(type.getContext(), 16);
  auto vector = dyn_cast<VectorType>(type);
  return vector ? vector.clone(integer) : integer;
}

/// They are moved as what their bits are.
void moveBF16AsIntegers(ModuleOp module) {
  module.walk([](Operation *op) {
    OpBuilder b(op);
    if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
      Type type = load.getType(), integers = asIntegers(type);
      if (!integers)
        return;
      load.getResult().setType(integers);
      b.setInsertionPointAfter(load);
      auto cast = LLVM::BitcastOp::create(b, load.getLoc(), type, load);
      load.getResult().replaceAllUsesExcept(cast, cast);
    } else if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
      if (Type integers = asIntegers(store.getValue().getType()))
        store.getValueMutable().assign(LLVM::BitcastOp::create(
            b, store.getLoc(), integers, store.getValue()));
    }
  });
}

struct ConvertToLLVM : public ladle::impl::ConvertToLLVMBase<ConvertToLLVM> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    module.walk([](memref::AllocaOp op) {
      if (!op.getAlignment())
        op.setAlignment(kScratchAlignment);
    });

    MLIRContext &context = getContext();
    LowerToLLVMOptions options(&context);
    LLVMTypeConverter converter(&context, options);
    RewritePatternSet patterns(&context);
    populatePatterns(converter, patterns);
    LLVMConversionTarget target(context);
    target.addLegalOp<ModuleOp>();
    configureX86VectorLegalizeForExportTarget(target);
    if (failed(applyPartialConversion(module, target, std::move(patterns))) ||
        failed(verifyOnlyLLVM(module)))
      return signalPassFailure();
    moveBF16AsIntegers(module);

    SmallVector<UnrealizedConversionCastOp> casts;
    module.walk(
        [&](UnrealizedConversionCastOp cast) { casts.push_back(cast); });
    SmallVector<UnrealizedConversionCastOp> remaining;
    reconcileUnrealizedCasts(casts, &remaining);
    for (UnrealizedConversionCastOp cast : remaining) {
      cast.emitError() << "type " << cast.getOperandTypes().front()
                       << " cannot be lowered to LLVM";
      signalPassFailure();
    }
  }
};

} // namespace
