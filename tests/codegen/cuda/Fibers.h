//===- Fibers.h - many stacks on one thread ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_FIBERS_H
#define LADLE_TESTS_CODEGEN_CUDA_FIBERS_H

#include <cstddef>
#include <vector>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace ladle::test {

/// Functions that are left in the middle and gone on with later. They all
/// belong to the OS thread that made them.
class Fibers {
public:
  static constexpr size_t stackBytes = 512 << 10;

  explicit Fibers(size_t count);
  ~Fibers();
  Fibers(const Fibers &) = delete;
  Fibers &operator=(const Fibers &) = delete;

  /// Fiber `i` is to call `entry(context)`, which must not return. What it
  /// did before is forgotten, without unwinding.
  void prepare(size_t i, void (*entry)(void *), void *context);

  /// Runs fiber `i` until it suspends itself.
  void resume(size_t i);
  /// Called by the fiber that runs.
  void suspend();

  /// Where its stack begins.
  char *stack(size_t i) const;

private:
  static void start();

  struct Fiber {
#ifdef __x86_64__
    void *context = nullptr;
#else
    ucontext_t context;
#endif
    void (*entry)(void *) = nullptr;
    void *argument = nullptr;
  };
  std::vector<Fiber> fibers;
  Fiber main;
  size_t current = 0;
  char *stacks = nullptr;
};

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_FIBERS_H
