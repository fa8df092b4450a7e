//===- ObjectEmitter.h - the LLVM dialect into an object --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CPU_OBJECTEMITTER_H
#define LADLE_CODEGEN_CPU_OBJECTEMITTER_H

#include "codegen/cpu/CpuTarget.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

namespace ladle {

enum class EmitKind { LLVMIR, Assembly, Object };

struct EmitOptions {
  CpuTarget target = CpuTarget::host();
  EmitKind kind = EmitKind::Object;
  /// The pipeline of -O3 in place of Ladle's own. Kernels come scheduled and
  /// vectorised: what it adds is mostly unrolling, which doubles their size and
  /// the time to compile them.
  bool fullPipeline = false;
};

/// Optimises a module of the LLVM dialect and gives an object file, assembly
/// or LLVM IR. Products may be contracted into sums. Fails with a diagnostic.
mlir::FailureOr<llvm::SmallVector<char, 0>>
emitObject(mlir::ModuleOp module, const EmitOptions &options = {});

} // namespace ladle

#endif // LADLE_CODEGEN_CPU_OBJECTEMITTER_H
