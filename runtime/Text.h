//===- Text.h - how messages show shapes and lists --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TEXT_H
#define LADLE_RUNTIME_TEXT_H

#include <cstdint>
#include <fmt/format.h>
#include <span>
#include <string>

namespace ladle {

/// "[8, 32, 128]".
inline std::string shapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "'a', 'b', 'c'" of the names of `items`, or "none".
template <typename Items> std::string namesText(const Items &items) {
  std::string text;
  for (const auto &item : items)
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", item.name);
  return text.empty() ? "none" : text;
}

} // namespace ladle

#endif // LADLE_RUNTIME_TEXT_H
