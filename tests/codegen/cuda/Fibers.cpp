//===- Fibers.cpp - many stacks on one thread -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Fibers.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

using ladle::test::Fibers;

namespace {

/// Below each stack, so that one that overflows faults.
constexpr size_t guardBytes = 4 << 10;
constexpr size_t strideBytes = Fibers::stackBytes + guardBytes;

thread_local Fibers *running = nullptr;

} // namespace

#ifdef __x86_64__
// swapcontext makes a system call each time; this keeps what the ABI asks for.
extern "C" void ladleSwitchStack(void **save, void *to);
asm(R"(
.text
.globl ladleSwitchStack
.type ladleSwitchStack,@function
ladleSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ladleSwitchStack, .-ladleSwitchStack
)");
#endif

Fibers::Fibers(size_t count) : fibers(count) {
  void *memory = ::mmap(nullptr, count * strideBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("no memory for the stacks of fibers");
    std::abort();
  }
  stacks = static_cast<char *>(memory);
  for (size_t i = 0; i < count; ++i)
    ::mprotect(stacks + i * strideBytes, guardBytes, PROT_NONE);
}

Fibers::~Fibers() { ::munmap(stacks, fibers.size() * strideBytes); }

char *Fibers::stack(size_t i) const {
  return stacks + i * strideBytes + guardBytes;
}

void Fibers::start() {
  Fiber &fiber = running->fibers[running->current];
  fiber.entry(fiber.argument);
  std::abort(); // It must not return: there is nothing below.
}

void Fibers::prepare(size_t i, void (*entry)(void *), void *argument) {
  Fiber &fiber = fibers[i];
  fiber.entry = entry;
  fiber.argument = argument;
#ifdef __x86_64__
  // What ladleSwitchStack pops: six registers and the address of `start`,
  // which then finds the stack aligned as after a call.
  auto **top = reinterpret_cast<void **>(stack(i) + stackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(&Fibers::start);
  for (int saved = 0; saved < 6; ++saved)
    *--top = nullptr;
  fiber.context = static_cast<void *>(top);
#else
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack(i);
  fiber.context.uc_stack.ss_size = stackBytes;
  fiber.context.uc_link = nullptr;
  ::makecontext(&fiber.context, &Fibers::start, 0);
#endif
}

void Fibers::resume(size_t i) {
  running = this;
  current = i;
#ifdef __x86_64__
  ladleSwitchStack(&main.context, fibers[i].context);
#else
  ::swapcontext(&main.context, &fibers[i].context);
#endif
}

void Fibers::suspend() {
#ifdef __x86_64__
  ladleSwitchStack(&fibers[current].context, main.context);
#else
  ::swapcontext(&fibers[current].context, &main.context);
#endif
}
