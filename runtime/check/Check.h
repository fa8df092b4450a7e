//===- Check.h - every route of a file against the oracle -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `ladle check` and the property tests run.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_CHECK_H
#define LADLE_RUNTIME_CHECK_CHECK_H

#include "frontend/Options.h"
#include "ladle/compile.h"
#include "runtime/check/CasePlan.h"
#include "runtime/check/CaseRunner.h"
#include "runtime/check/TraceCheck.h"
#include "llvm/Support/ThreadPool.h"

#include <functional>
#include <future>
#include <optional>

namespace ladle::check {

struct CheckRequest {
  std::string path;   ///< of the .ladle file, for messages
  std::string source; ///< its text
  /// Recurrence, preset, sizes and options. Types are up to the cases.
  frontend::ElaborationOptions elaboration;
  InputRanges ranges; ///< of random inputs, before defaultRanges()
  uint64_t seed = 1;
  /// Every size with every case, more tokens, and several covering arrays.
  bool full = false;
  std::string trace;          ///< a safetensors file; empty for none
  std::string target = "cpu"; ///< as in CompileOptions
  /// Cases with so many drafts at most instead of all cases; 0 for all.
  int64_t drafts = 0;
  /// All cases with a buffer have pages of so many entries; 0: some have pages.
  int64_t page = 0;
  /// How kernels of a GPU are laid out, and for how many rows: as in
  /// CompileOptions.
  std::map<std::string, int64_t> schedule;
  int64_t batch = CompileOptions().batch;
  /// Called after each of `total` cases.
  std::function<void(size_t done, size_t total)> progress;
};

/// A route that the recurrence does not have, and why.
struct MissingRoute {
  RouteKind route;
  std::string reason;
};

struct CheckReport {
  std::string name; ///< of the recurrence
  std::vector<CaseResult> cases;
  std::vector<TraceResult> traces;
  std::vector<MissingRoute> missing;
  /// Shell commands that repeat one case: this and the case as text.
  std::string reproducer;

  bool passed() const;
  /// A table of routes and storage types, then what failed with a command that
  /// repeats it.
  std::string table() const;
  std::string json() const;
};

/// Fails if the file does not compile or the trace does not fit; what a route
/// computes wrong is in the report.
Result<CheckReport> check(const CheckRequest &request);

/// Runs the given cases only.
Result<CheckReport> checkCases(const CheckRequest &request,
                               const std::vector<CheckCase> &cases);

/// The routes that the recurrence has.
Result<std::vector<RouteKind>> findRoutes(const CheckRequest &request);

/// Programs and oracles of one file, each compiled once.
class Workbench {
public:
  /// `request` must outlive the workbench.
  explicit Workbench(const CheckRequest &request) : request(request) {}

  /// A program for each route of the recurrence, with the types, capacity and
  /// sizes of `config`. Outputs are float32 whatever the file says, so that
  /// their rounding hides nothing.
  Result<const std::vector<Program> *> getPrograms(const CheckCase &config);
  /// The one that decodes by the route of `config`; NotFound says why there is
  /// none. Other routes are not compiled.
  Result<Program> getProgram(const CheckCase &config);
  /// Has threads compile what getProgram() will be asked for, in this order.
  void compileAhead(const std::vector<CheckCase> &cases);
  Result<const Oracles *> getOracles(const CheckCase &config);

private:
  Result<CompileOptions> makeOptions(const CheckCase &config);
  std::shared_future<Result<Program>> start(const CheckCase &config);

  const CheckRequest &request;
  /// By what they depend on: types, capacity and sizes.
  std::map<std::string, std::vector<Program>> all;
  std::map<std::pair<std::string, RouteKind>,
           std::shared_future<Result<Program>>>
      programs;
  std::map<std::string, Oracles> oracles;
  /// Last, so that it has ended before what it reads goes.
  llvm::DefaultThreadPool threads;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_CHECK_H
