//===- JitSupport.h - kernels for tests -------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Without headers of MLIR, for files that are compiled with exceptions.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_JITSUPPORT_H
#define LADLE_TESTS_CODEGEN_JITSUPPORT_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ladle::test {

using Kernel = void (*)(void **arguments);

struct Jit {
  std::vector<Kernel> kernels; ///< in the order of the names
  std::shared_ptr<void> owner;
  std::string error; ///< empty on success
};

/// Lowers kernels given as text and loads them. `expandBF16` does without
/// instructions for bf16.
Jit jit(const std::string &text, const std::vector<std::string> &names,
        bool expandBF16 = false);

/// An object file with the packed entries of `text`; empty on an error.
std::string compile(const std::string &text, bool expandBF16 = false);

/// Assembly for a processor by LLVM's name, with a triple of x86-64.
std::string assemble(const std::string &text, const std::string &cpu,
                     bool expandBF16 = false);

/// A dense memref<...> as compiled code takes it.
template <int64_t rank> struct Descriptor {
  void *allocated, *aligned;
  int64_t offset = 0;
  int64_t sizes[rank], strides[rank];
};

template <typename T> Descriptor<1> describe(std::vector<T> &values) {
  return {values.data(),
          values.data(),
          0,
          {static_cast<int64_t>(values.size())},
          {1}};
}

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_JITSUPPORT_H
