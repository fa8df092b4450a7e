//===- TuneMeasurer.h - candidates on a GPU ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TUNEMEASURER_H
#define LADLE_TOOLS_LADLE_TUNEMEASURER_H

#include "runtime/tune/Tuner.h"
#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/DraftTimer.h"

namespace ladle::tool {

/// Where the tuner's candidates run. The last few stay on the device, so that
/// they can take turns.
class GpuMeasurer : public tune::Measurer {
public:
  GpuMeasurer(const measure::Gpu &gpu, GpuPlans &plans, SourceOptions source,
              const Rates &rates, int64_t batch)
      : plans(plans), programs(gpu), source(std::move(source)), rates(rates),
        batch(batch) {}

  std::string prepare(const tune::Candidate &candidate) override;
  std::string check(const tune::Candidate &candidate) override;
  Result<double> sample(const tune::Candidate &candidate) override;

private:
  struct Entry {
    GpuSubject subject;
    std::unique_ptr<measure::GpuCycle> cycle;
    int64_t lastUse = 0;
  };
  Status record(Entry &entry);
  void forgetAllBut(const tune::Candidate &candidate, size_t count);

  GpuPlans &plans;
  GpuPrograms programs;
  SourceOptions source;
  Rates rates;
  int64_t batch, uses = 0;
  std::map<tune::Candidate, Entry> entries;
};

/// The same for steps that verify, of which so many drafts are accepted on
/// average: a sample is a cycle.
class DraftMeasurer : public tune::Measurer {
public:
  using MakeSpec = std::function<DraftSpec(const tune::Candidate &)>;
  DraftMeasurer(const measure::Gpu &gpu, DraftPlans &plans, MakeSpec specOf,
                const Rates &rates, double accepted)
      : gpu(gpu), plans(plans), specOf(std::move(specOf)), rates(rates),
        accepted(accepted) {}

  std::string prepare(const tune::Candidate &candidate) override;
  std::string check(const tune::Candidate &candidate) override;
  Result<double> sample(const tune::Candidate &candidate) override;

private:
  struct Entry {
    std::unique_ptr<DraftTimer> timer;
    int64_t lastUse = 0;
  };
  Status record(const tune::Candidate &candidate);
  void forgetAllBut(size_t count);

  const measure::Gpu &gpu;
  DraftPlans &plans;
  MakeSpec specOf;
  Rates rates;
  double accepted;
  int64_t uses = 0;
  std::map<tune::Candidate, Entry> entries;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNEMEASURER_H
