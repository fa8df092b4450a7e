//===- Compiler.h - source text into objects --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of ladle_jit that knows MLIR. A program that is found in the disk
// cache never comes here, and what it finds there is what this returns.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_COMPILER_H
#define LADLE_RUNTIME_JIT_COMPILER_H

#include "ladle/compile.h"
#include "passes/analysis/Machine.h"
#include "runtime/cuda/KernelInfo.h"
#include "runtime/jit/GpuLayout.h"

namespace ladle::jit {

/// What the cost model says of a route.
struct RouteSummary {
  RouteKind route = RouteKind::Recurrent;
  int64_t foldThreshold = 1;
  double seconds = 0, bytes = 0, flops = 0;
};

/// The legal routes of a recurrence, and the cheapest.
struct Plan {
  /// What tuning knows the recurrence by.
  std::string shape;
  RouteKind route = RouteKind::Recurrent;
  int64_t foldThreshold = 1;
  int64_t crossover = 0; ///< of kv_only, 0 if it is not legal
  std::vector<RouteSummary> routes;
};

/// The kernels of one route.
struct RouteObject {
  RouteKind route = RouteKind::Recurrent;
  Signature signature;
  std::vector<TensorSpec> fields; ///< empty for a route without a buffer
  int64_t headGroup = 1;
  /// Symbols in the object; empty for a form that the route lacks.
  std::string decode, decodeFold, fold, verify, verifyFold, prefillFold,
      prefillEntries;
  int64_t workspaceBytes = 0, workspacePerHead = 0; ///< of the last two
  std::string object; ///< an ELF file; for a GPU a cubin
  std::string warnings;
  /// Of a GPU: the kernels of a step, and of a fold, by their names.
  std::vector<cuda::KernelInfo> gpuStep;
  std::optional<cuda::KernelInfo> gpuFold, gpuVerify, gpuPrefill, gpuPrepare,
      gpuDraft, gpuDraftFold;
  std::vector<cuda::Argument> gpuArguments;

  bool usesBuffer() const { return !fields.empty(); }
  /// The symbols that there are, in the order above.
  std::vector<std::string> symbols() const;
};

/// A hash of the compiler's sources: what another compiler made is not used.
const char *compilerFingerprint();

/// One source, elaborated with one set of options. Not for several threads at
/// once; several compilers may work at once.
class Compiler {
public:
  /// `text` and `name` must outlive the compiler.
  Compiler(std::string_view text, std::string_view name,
           const CompileOptions &options);
  ~Compiler();

  /// By the costs of a GPU, or, if it is null, of this processor.
  Result<Plan> plan(const Machine::Card *gpu);
  Result<RouteObject> compile(RouteKind route);
  /// As far as CUDA C++, which is what `object` holds. In pages, the kernel
  /// that verifies may answer rows of kv_only as well.
  Result<RouteObject> compileForGpu(RouteKind route, const GpuLayout &layout,
                                    bool answersShortRows);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_COMPILER_H
