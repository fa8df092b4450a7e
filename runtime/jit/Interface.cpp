//===- Interface.cpp - what kernels take, from the IR ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/Interface.h"

using namespace ladle;

RouteKind jit::toRouteKind(Route route) {
  switch (route) {
  case Route::Recurrent:
    return RouteKind::Recurrent;
  case Route::Outer:
    return RouteKind::Outer;
  case Route::Inner:
    return RouteKind::Inner;
  case Route::Adjoint:
    return RouteKind::Adjoint;
  case Route::KvOnly:
    return RouteKind::KvOnly;
  }
  llvm_unreachable("every route has a kind");
}

Route jit::toRoute(RouteKind route) {
  switch (route) {
  case RouteKind::Recurrent:
    return Route::Recurrent;
  case RouteKind::Outer:
    return Route::Outer;
  case RouteKind::Inner:
    return Route::Inner;
  case RouteKind::Adjoint:
    return Route::Adjoint;
  case RouteKind::KvOnly:
    return Route::KvOnly;
  }
  llvm_unreachable("every kind is a route");
}

DType jit::dtypeOf(mlir::Type type) {
  if (type.isBF16())
    return DType::BF16;
  if (type.isF16())
    return DType::F16;
  assert(type.isF32() && "verifiers admit no other type");
  return DType::F32;
}

TensorSpec jit::specOf(llvm::StringRef name, mlir::Type type) {
  auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  return {name.str(), dtypeOf(tensor.getElementType()),
          tensor.getShape().vec()};
}

Signature jit::signatureOf(RecurrenceOp recurrence, StateLayout layout) {
  Signature signature;
  signature.name = recurrence.getSymName().str();
  auto count = [&](int64_t heads) {
    signature.heads = std::max(signature.heads, heads);
  };
  for (mlir::BlockArgument argument : recurrence.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    std::string name = recurrence.getArgumentName(index).str();
    if (auto state = llvm::dyn_cast<StateType>(argument.getType())) {
      signature.states.push_back({name, state.getHeads(), state.getKeySize(),
                                  state.getValueSize(),
                                  dtypeOf(state.getElementType()), layout});
      count(state.getHeads());
      continue;
    }
    TensorSpec spec = specOf(name, argument.getType());
    count(spec.shape.front());
    switch (recurrence.getArgumentKind(index)) {
    case ArgumentKind::Param:
      signature.params.push_back(spec);
      break;
    case ArgumentKind::Carry:
      signature.carries.push_back(spec);
      break;
    default:
      signature.tokens.push_back(spec);
    }
  }
  for (auto [name, type] : llvm::zip(
           recurrence.getOutputNames().getAsValueRange<mlir::StringAttr>(),
           recurrence.getOutputTypes().getAsValueRange<mlir::TypeAttr>())) {
    signature.outputs.push_back(specOf(name, type));
    count(signature.outputs.back().shape.front());
  }
  return signature;
}

std::vector<TensorSpec> jit::fieldsOf(StepOp step) {
  std::vector<TensorSpec> fields;
  auto buffers = step.getArgumentsOfKind(ArgumentKind::Buffer);
  for (mlir::BlockArgument argument : buffers) {
    auto buffer = llvm::cast<BufferType>(argument.getType());
    for (FieldAttr field : buffer.getFields()) {
      std::string name;
      if (buffers.size() > 1)
        name.append(step.getArgumentName(argument.getArgNumber())).append(".");
      name.append(field.getName());
      fields.push_back(
          {name, dtypeOf(field.getElementType()), field.getShape().vec()});
    }
  }
  return fields;
}
