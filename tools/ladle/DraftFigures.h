//===- DraftFigures.h - A list of timed batches of drafts -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What `ladle bench --drafts` and `--mixed` have in common: a list of specs,
/// each checked and timed unless the file of results has it, until the budget
/// ends.
///
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DRAFTFIGURES_H
#define LADLE_TOOLS_LADLE_DRAFTFIGURES_H

#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/DraftTimer.h"
#include "tools/measure/Ceilings.h"

#include <chrono>

namespace ladle::tool {

class DraftFigures {
public:
  DraftFigures(const BenchOptions &options, const measure::Gpu &gpu,
               const char *schema)
      : options(options), gpu(gpu), schema(schema) {}
  virtual ~DraftFigures() = default;
  /// Takes all of `routes`, of each number of `drafts`, and prints what is left
  /// out and why. Returns the exit status of the tool, whose error it prints.
  int run(const std::vector<int64_t> &drafts,
          const std::vector<std::string> &routes);

protected:
  using Json = nlohmann::ordered_json;

  /// What is taken in place of a spec that is listed.
  virtual Result<DraftSpec> choose(const DraftSpec &spec) { return spec; }
  /// Why it cannot be; empty if it can.
  virtual std::string findObstacle(const DraftSpec &spec) = 0;
  /// Of its kernels: a figure of others is not of it.
  virtual Result<std::string> textOf(const DraftSpec &spec) const = 0;
  virtual bool isStillValid(const Json & /*known*/) const { return true; }
  virtual Result<Json> time(const DraftSpec &spec) = 0;
  virtual void report(const DraftSpec &spec, const Json &result) = 0;
  /// Behind the last of them.
  virtual void summarise() {}
  /// Said behind the ceilings.
  virtual std::string describeSetting() const { return std::string(); }
  Bandwidth bandwidth() const {
    return {ceilings->read().bytesPerSecond(),
            ceilings->update().bytesPerSecond()};
  }

  const BenchOptions &options;
  const measure::Gpu &gpu;
  DraftPlans plans;

private:
  Status takeAll(const std::vector<DraftSpec> &specs);
  Status open();
  Status beginRun();
  Json describeRun() const;
  /// Why it is left out; empty if it was measured or known.
  Result<std::string> take(const DraftSpec &spec);
  Status measure(const DraftSpec &spec, const std::string &kernels);
  bool isOutOfTime() const {
    return options.budget > 0 && elapsed() + longest > options.budget;
  }
  double elapsed() const {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  double longest = 0;
  bool isCutShort = false;
  const char *schema;
  std::optional<BenchStore> store;
  std::optional<measure::Ceilings> ceilings;
};

} // namespace ladle::tool

#endif
