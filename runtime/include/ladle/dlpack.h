//===- dlpack.h - tensors of other frameworks -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Needs `dlpack/dlpack.h` (https://github.com/dmlc/dlpack), which nothing else
// of Ladle does.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DLPACK_H
#define LADLE_DLPACK_H

#include "ladle/tensor.h"

#include <dlpack/dlpack.h>

namespace ladle {

/// A view of a tensor in the memory of the host or of a CUDA device.
/// Unsupported is another device or type.
inline Result<TensorView> fromDLPack(const DLTensor &tensor) {
  if (tensor.device.device_type != kDLCPU &&
      tensor.device.device_type != kDLCUDA)
    return Status(ErrorCode::Unsupported,
                  "dlpack tensor is neither in host memory nor on cuda");
  auto is = [&](int code, int bits) {
    return tensor.dtype.code == code && tensor.dtype.bits == bits &&
           tensor.dtype.lanes == 1;
  };
  std::optional<DType> dtype;
  if (is(kDLFloat, 32))
    dtype = DType::F32;
  else if (is(kDLBfloat, 16))
    dtype = DType::BF16;
  else if (is(kDLFloat, 16))
    dtype = DType::F16;
  else if (is(kDLInt, 32))
    dtype = DType::I32;
  else if (is(kDLInt, 64))
    dtype = DType::I64;
  else if (is(kDLUInt, 8))
    dtype = DType::U8;
  else
    return Status(ErrorCode::Unsupported,
                  "dlpack tensor is none of f32, bf16, f16, i32, i64, u8");
  TensorView view = TensorView::dense(
      static_cast<char *>(tensor.data) + tensor.byte_offset, *dtype,
      std::vector<int64_t>(tensor.shape, tensor.shape + tensor.ndim),
      {static_cast<DeviceKind>(tensor.device.device_type),
       tensor.device.device_id});
  if (tensor.strides)
    view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  return view;
}

/// The same memory for others. Points into `view`, which must outlive it.
inline DLTensor toDLPack(TensorView &view) {
  auto type = [&]() -> DLDataType {
    auto bits = static_cast<uint8_t>(sizeInBytes(view.dtype) * 8);
    switch (view.dtype) {
    case DType::F32:
    case DType::F16:
      return {kDLFloat, bits, 1};
    case DType::BF16:
      return {kDLBfloat, bits, 1};
    case DType::I32:
    case DType::I64:
      return {kDLInt, bits, 1};
    case DType::U8:
      break;
    }
    return {kDLUInt, bits, 1};
  };
  DLTensor tensor{};
  tensor.data = view.data;
  tensor.device = {static_cast<DLDeviceType>(view.device.kind),
                   view.device.index};
  tensor.ndim = static_cast<int32_t>(view.rank());
  tensor.dtype = type();
  tensor.shape = view.shape.data();
  tensor.strides = view.strides.data();
  return tensor;
}

} // namespace ladle

#endif // LADLE_DLPACK_H
