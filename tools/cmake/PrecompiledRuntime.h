//===- PrecompiledRuntime.h - headers of the runtime ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sources still include what they use; this only makes it cheap.
//
//===----------------------------------------------------------------------===//

#include "runtime/FormatOnce.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
