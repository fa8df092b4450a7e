//===- MemoryLayout.cpp - how a step's arguments lie in memory ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/MemoryLayout.h"

using namespace mlir;
using namespace ladle;

int64_t ladle::componentCount(RankedTensorType type) {
  return type.getRank() < 3 ? 1
                            : ShapedType::getNumElements(
                                  type.getShape().drop_front().drop_back());
}

int64_t ladle::componentCount(FieldAttr field) {
  return field.getShape().size() == 3 ? field.getShape()[1] : 1;
}

MemRefType ladle::memoryType(ArrayRef<int64_t> shape, Type elementType,
                             bool denseWithinOuter, bool hasOuter) {
  SmallVector<int64_t> sizes;
  if (hasOuter)
    sizes.push_back(ShapedType::kDynamic);
  llvm::append_range(sizes, shape);
  SmallVector<int64_t> strides(sizes.size(), ShapedType::kDynamic);
  if (denseWithinOuter) {
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 1;) {
      strides[i] = stride;
      stride *= sizes[i];
    }
  } else if (shape.size() > 1) {
    strides.back() = 1;
  }
  return MemRefType::get(sizes, elementType,
                         StridedLayoutAttr::get(elementType.getContext(),
                                                ShapedType::kDynamic, strides));
}

SmallVector<MemRefType> ladle::memoryTypesOf(StepOp step,
                                             BlockArgument argument) {
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  switch (kind) {
  case ArgumentKind::Param:
  case ArgumentKind::Token:
  case ArgumentKind::Carry: {
    auto tensor = cast<RankedTensorType>(argument.getType());
    return {memoryType(tensor.getShape(), tensor.getElementType(),
                       kind == ArgumentKind::Carry,
                       kind != ArgumentKind::Param)};
  }
  case ArgumentKind::State: {
    auto pool = cast<PoolType>(argument.getType());
    int64_t rows = pool.getValueSize(), columns = pool.getKeySize();
    if (pool.getLayout() == PoolLayout::DkDv)
      std::swap(rows, columns);
    return {memoryType({pool.getHeads(), rows, columns}, pool.getElementType(),
                       /*denseWithinOuter=*/true, /*hasOuter=*/true)};
  }
  case ArgumentKind::Drafts:
    // A chain has no parents to look at, but room to work in.
    if (cast<DraftsType>(argument.getType()).getIsChain())
      return {MemRefType::get({ShapedType::kDynamic},
                              IntegerType::get(argument.getContext(), 8))};
    return {MemRefType::get({cast<DraftsType>(argument.getType()).getMost()},
                            IntegerType::get(argument.getContext(), 32))};
  case ArgumentKind::Ring:
  case ArgumentKind::Memory:
    llvm_unreachable("a step of a recurrence has no rings and no memories");
  case ArgumentKind::Buffer:
    break;
  }
  auto buffer = cast<BufferType>(argument.getType());
  SmallVector<MemRefType> types;
  for (FieldAttr field : buffer.getFields()) {
    SmallVector<int64_t> shape{field.getShape().front(),
                               buffer.isPaged() ? buffer.getPage()
                                                : buffer.getCapacity()};
    llvm::append_range(shape, field.getShape().drop_front());
    types.push_back(memoryType(shape, field.getElementType(),
                               /*denseWithinOuter=*/true, /*hasOuter=*/true));
  }
  return types;
}

MemRefType ladle::memoryTypeOfOutput(RankedTensorType type) {
  return memoryType(type.getShape(), type.getElementType(),
                    /*denseWithinOuter=*/false, /*hasOuter=*/true);
}
