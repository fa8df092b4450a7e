//===- Interface.h - what kernels take, from the IR -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_INTERFACE_H
#define LADLE_RUNTIME_JIT_INTERFACE_H

#include "dialect/LadleOps.h"
#include "ladle/types.h"

namespace ladle::jit {

/// The compiler's route as the runtime's, and back.
RouteKind toRouteKind(Route route);
Route toRoute(RouteKind route);

/// A storage type, and a tensor of one, as the runtime has them.
DType dtypeOf(mlir::Type type);
TensorSpec specOf(llvm::StringRef name, mlir::Type type);

/// Arguments and results of a recurrence whose states lie like this.
Signature signatureOf(RecurrenceOp recurrence,
                      StateLayout layout = StateLayout::DvDk);

/// The fields of all buffers of a step, in their order; the fields of
/// different states are told apart by the name of the state.
std::vector<TensorSpec> fieldsOf(StepOp step);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_INTERFACE_H
