//===- Types.cpp - names and sizes of element types and routes ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/types.h"

#include <array>

using namespace ladle;

std::string_view ladle::toString(DType dtype) {
  static constexpr std::array<std::string_view, 6> names = {
      "f32", "bf16", "f16", "i32", "i64", "u8"};
  return names[static_cast<size_t>(dtype)];
}

int64_t ladle::sizeInBytes(DType dtype) {
  static constexpr std::array<int64_t, 6> sizes = {4, 2, 2, 4, 8, 1};
  return sizes[static_cast<size_t>(dtype)];
}

bool ladle::isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

std::string ladle::toString(DeviceId device) {
  return device.kind == DeviceKind::Cpu
             ? "cpu"
             : "cuda:" + std::to_string(device.index);
}

static constexpr std::array<std::string_view, 5> routeNames = {
    "recurrent", "outer", "inner", "adjoint", "kv_only"};

std::string_view ladle::toString(RouteKind route) {
  return routeNames[static_cast<size_t>(route)];
}

std::optional<RouteKind> ladle::parseRoute(std::string_view text) {
  for (size_t i = 0; i < routeNames.size(); ++i)
    if (routeNames[i] == text)
      return static_cast<RouteKind>(i);
  return std::nullopt;
}

std::string_view ladle::toString(FormKind form) {
  static constexpr std::array<std::string_view, 7> names = {
      "decode",      "decode_fold",  "fold",           "verify",
      "verify_fold", "prefill_fold", "prefill_entries"};
  return names[static_cast<size_t>(form)];
}

static constexpr std::array<std::string_view, 2> layoutNames = {"dv_dk",
                                                                "dk_dv"};

std::string_view ladle::toString(StateLayout layout) {
  return layoutNames[static_cast<size_t>(layout)];
}

std::optional<StateLayout> ladle::parseStateLayout(std::string_view text) {
  for (size_t i = 0; i < layoutNames.size(); ++i)
    if (layoutNames[i] == text)
      return static_cast<StateLayout>(i);
  return std::nullopt;
}
