//===- CpuTarget.h - the processor to compile for ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CPU_CPUTARGET_H
#define LADLE_CODEGEN_CPU_CPUTARGET_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace ladle {

/// A processor as LLVM names it.
struct CpuTarget {
  std::string triple;
  std::string cpu;      ///< "sapphirerapids"; "generic" is always right
  std::string features; ///< "+avx2,+fma,-avx512f"

  /// The processor that this runs on, with all that it offers.
  static const CpuTarget &host();
  /// One of this architecture by its name, x86-64-v3 say; nothing if there is
  /// none, and code for it would be refused deep in LLVM.
  static std::optional<CpuTarget> named(llvm::StringRef cpu);
  /// The names of this architecture's processors; empty if they are not known.
  static std::vector<llvm::StringRef> names();
  /// This architecture as people write it: x86-64.
  static std::string architecture();

  bool has(llvm::StringRef feature) const;
  /// Whether one instruction multiplies and adds.
  bool fusesProducts() const;
  /// Whether pairs of bf16 are multiplied faster than what they are as f32:
  /// Zen starts one vdpbf16ps a cycle, which is as many products as its
  /// multiplications of f32 take two cycles for. Intel's cores start one in two
  /// cycles, and four of those multiplications.
  bool dotsBF16() const;
  /// Whether a request into the second cache may be forgotten where many are on
  /// their way. Intel's servers seem to: asked again, in loops of their own, a
  /// core got 5 % more of what it streams.
  bool forgetsRequests() const;
  /// f32 numbers in a vector register. Where these are narrow there are
  /// also few of them.
  int64_t lanes() const { return has("avx512f") ? 16 : 8; }
};

} // namespace ladle

#endif // LADLE_CODEGEN_CPU_CPUTARGET_H
