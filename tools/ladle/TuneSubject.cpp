//===- TuneSubject.cpp - what steps are tuned -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/TuneSubject.h"
#include "tools/ladle/TuneMeasurer.h"

using namespace ladle;
using namespace ladle::tool;
using tune::Candidate;

namespace {

class Tokens : public TuneSubject {
public:
  explicit Tokens(const SourceOptions &source) : source(source) {}

  bool isValid(const Candidate &candidate) override {
    return plan(candidate, Rates::gpu(""), 1).has_value();
  }
  std::string obstacle(const Candidate &candidate) override {
    auto found = plan(candidate, Rates::gpu(""), 1);
    return found ? found->obstacle : "the file has errors";
  }
  tune::Expectation expect(const Candidate &candidate, const Rates &rates,
                           int64_t batch) override {
    auto found = plan(candidate, rates, batch);
    if (!found)
      return {};
    return {found->seconds,
            found->leastSeconds(rates.bandwidth) * static_cast<double>(batch)};
  }
  std::optional<Candidate> choose(const std::vector<Candidate> &candidates,
                                  const std::string &card,
                                  int64_t batch) override {
    return chooseByModel(plans, card, source, candidates, batch);
  }
  Result<jit::GpuProgram> compile(const Candidate &candidate) override {
    return compileSpec(specOf(source, candidate));
  }
  std::unique_ptr<tune::Measurer> makeMeasurer(const measure::Gpu &gpu,
                                               const Rates &rates,
                                               int64_t batch) override {
    return std::make_unique<GpuMeasurer>(gpu, plans, source, rates, batch);
  }

private:
  std::optional<RoutePlan> plan(const Candidate &candidate, const Rates &rates,
                                int64_t batch) {
    return plans.plan(specOf(source, candidate), rates, batch);
  }
  SourceOptions source;
  GpuPlans plans;
};

class Drafts : public TuneSubject {
public:
  Drafts(const SourceOptions &source, int64_t drafts, double acceptance)
      : source(source), drafts(drafts),
        accepted(acceptance * static_cast<double>(drafts)) {}

  bool isValid(const Candidate &candidate) override {
    return plans.find(specOf(candidate, 1)) != nullptr;
  }
  std::string obstacle(const Candidate &candidate) override {
    return plan(candidate, Rates::gpu(""), 1).obstacle;
  }
  tune::Expectation expect(const Candidate &candidate, const Rates &rates,
                           int64_t batch) override {
    DraftPlan found = plan(candidate, rates, batch);
    return {found.predicted, found.limit};
  }
  std::optional<Candidate> choose(const std::vector<Candidate> &candidates,
                                  const std::string &card,
                                  int64_t batch) override {
    return chooseLeast(candidates, [&](const Candidate &candidate) {
      DraftPlan found = plan(candidate, Rates::gpu(card), batch);
      return found.obstacle.empty() ? std::optional(found.predicted)
                                    : std::nullopt;
    });
  }
  Result<jit::GpuProgram> compile(const Candidate &candidate) override {
    return specOf(candidate, 1).compile();
  }
  std::unique_ptr<tune::Measurer> makeMeasurer(const measure::Gpu &gpu,
                                               const Rates &rates,
                                               int64_t batch) override {
    auto make = [this, batch](const Candidate &candidate) {
      return specOf(candidate, batch);
    };
    return std::make_unique<DraftMeasurer>(gpu, plans, make, rates, accepted);
  }

private:
  DraftSpec specOf(const Candidate &candidate, int64_t batch) const {
    DraftSpec spec{source, candidate.route,   drafts, candidate.threshold,
                   batch,  candidate.schedule};
    spec.room = candidate.capacity;
    return spec;
  }
  DraftPlan plan(const Candidate &candidate, const Rates &rates,
                 int64_t batch) {
    const Planner *planner = plans.find(specOf(candidate, batch));
    if (!planner)
      return {"the file has errors", 0, 0};
    return planner->draftPlan(candidate.route, rates, batch,
                              candidate.threshold, accepted);
  }
  SourceOptions source;
  int64_t drafts;
  double accepted; ///< a step, on average
  DraftPlans plans;
};

} // namespace

std::unique_ptr<TuneSubject> tool::tuneTokens(const SourceOptions &source) {
  return std::make_unique<Tokens>(source);
}

std::unique_ptr<TuneSubject> tool::tuneDrafts(const SourceOptions &source,
                                              int64_t drafts,
                                              double acceptance) {
  return std::make_unique<Drafts>(source, drafts, acceptance);
}
