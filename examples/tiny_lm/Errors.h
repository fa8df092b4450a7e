//===- Errors.h - errors of Ladle as exceptions --------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_ERRORS_H
#define LADLE_EXAMPLES_TINY_LM_ERRORS_H

#include "ladle/status.h"

#include <stdexcept>

namespace tinylm {

inline void orThrow(const ladle::Status &status) {
  if (!status)
    throw std::runtime_error(status.message());
}

template <typename T> T orThrow(ladle::Result<T> result) {
  orThrow(result.status());
  return std::move(*result);
}

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_ERRORS_H
