//===- Convert.h - float types ----------------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CONVERT_H
#define LADLE_RUNTIME_CONVERT_H

#include "ladle/types.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace ladle {

/// Reads a float of type `dtype` (f32, bf16 or f16).
inline float loadFloat(DType dtype, const void *from) {
  if (dtype == DType::F32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  if (dtype == DType::F16)
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Writes `value` as `dtype`, to nearest, ties to even.
inline void storeFloat(DType dtype, float value, void *to) {
  if (dtype == DType::F32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  uint16_t bits;
  if (dtype == DType::F16) {
    bits = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  } else {
    // __bf16 has no arithmetic in every compiler that we support.
    uint32_t wide = std::bit_cast<uint32_t>(value);
    bits =
        std::isnan(value)
            ? static_cast<uint16_t>(wide >> 16 | 0x40)
            : static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  std::memcpy(to, &bits, sizeof(bits));
}

} // namespace ladle

#endif // LADLE_RUNTIME_CONVERT_H
