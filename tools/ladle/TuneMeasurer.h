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

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNEMEASURER_H
