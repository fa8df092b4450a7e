//===- BenchFigures.cpp - what a benchmark measures -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/BenchFigures.h"
#include "runtime/tune/TunedTable.h"

using namespace ladle;
using namespace ladle::tool;

static BenchFigure makeFigure(const SourceOptions &source,
                              const tune::Candidate &candidate, int64_t batch) {
  bool buffers = candidate.route != "recurrent";
  return {{source.file, source.recurrence, source.preset, source.sizes,
           source.options, candidate.route, source.stateType,
           buffers ? source.entryType : "", buffers ? candidate.threshold : 1,
           batch, candidate.schedule, source.stateLayout},
          specOf(source, candidate, batch)};
}

/// What was tuned for a batch, or else what the model chooses.
static Result<tune::Candidate>
findPlanned(const BenchOptions &options, const std::string &device,
            GpuPlans &plans, const SourceOptions &source, int64_t batch) {
  std::vector<tune::Candidate> candidates{{"recurrent", 1, options.schedule}};
  for (const char *route : {"inner", "outer", "adjoint"})
    for (int64_t threshold : options.thresholds)
      candidates.push_back({route, threshold, options.schedule});
  Result<jit::GpuProgram> program =
      compileSpec(specOf(source, candidates.front()));
  if (!program)
    return program.status();
  if (auto tuned = tune::lookupTuned(device, program->signature,
                                     source.entryType, batch))
    return tuned->candidate;
  auto chosen = chooseByModel(plans, device, source, candidates, batch);
  if (!chosen)
    return Status(ErrorCode::InvalidArgument, "none of the routes is legal");
  return std::move(*chosen);
}

Result<std::vector<BenchFigure>> tool::listFigures(const BenchOptions &options,
                                                   const std::string &device,
                                                   GpuPlans &plans) {
  std::vector<BenchFigure> figures;
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {"recurrent", "inner", "outer", "adjoint", "kv_only"};
  for (const std::string &state : options.states)
    for (const std::string &entry : options.entries)
      for (int64_t threshold : options.thresholds)
        for (const std::string &route : routes) {
          // A route without a buffer knows neither m nor entries, and what is
          // planned has an m of its own.
          bool isFirst = threshold == options.thresholds.front();
          if ((route == "recurrent" &&
               (!isFirst || entry != options.entries.front())) ||
              (route == "auto" && !isFirst))
            continue;
          for (int64_t batch : options.batches) {
            SourceOptions source = options.source;
            source.stateType = state;
            source.entryType = entry;
            tune::Candidate candidate{route, threshold, options.schedule};
            if (route == "auto") {
              Result<tune::Candidate> planned =
                  findPlanned(options, device, plans, source, batch);
              if (!planned)
                return planned.status();
              candidate = std::move(*planned);
            }
            figures.push_back(makeFigure(source, candidate, batch));
          }
        }
  return figures;
}
