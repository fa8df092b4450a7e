//===- Simulation.h - one case, step by step --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_SIMULATION_H
#define LADLE_RUNTIME_CHECK_SIMULATION_H

#include "ladle/device.h"
#include "runtime/check/Batch.h"
#include "runtime/check/CaseRunner.h"
#include "runtime/check/HostSteps.h"
#include "runtime/check/RoundedRuns.h"

#include <optional>
#include <random>

namespace ladle::check {

using Arrays = interpreter::SpecInterpreter::Arrays;

/// What a slot should hold.
struct Sequence {
  interpreter::SpecInterpreter::Row exact;
  RoundedRuns rounded;
  int64_t length = 0;  ///< entries that are not folded
  bool isFresh = true; ///< there is no state yet
};

/// Memory for the states of a pool with a pattern in the padding.
class PaddedStates {
public:
  static Result<PaddedStates> create(const Program &program, int64_t slots,
                                     int64_t padding);
  void configure(PoolOptions &options) const;
  Status checkPadding() const;

private:
  static constexpr uint8_t pattern = 0x5a;
  struct State {
    DeviceTensor memory; ///< u8 [slots, bytes]
    int64_t elements, elementBytes;
  };
  int64_t slots = 0, padding = 0;
  std::vector<State> states;
};

/// One step: which slots its rows read and write.
struct Plan {
  std::vector<int32_t> read, write;
};

class Simulation {
public:
  Simulation(const CheckCase &config, const Program &program,
             const Oracles &oracles, const RandomInputs &inputs,
             CaseResult &result)
      : config(config), program(program), oracles(oracles), inputs(inputs),
        result(result), signature(program.signature()), random(config.seed),
        batch(signature, config.rows, config.packed, alignment()),
        draftBatch(signature, config.rows * std::max<int64_t>(config.drafts, 1),
                   config.packed, alignment()) {}

  Status createPool();
  Status run(); ///< after createPool()

private:
  int64_t alignment() const {
    return program.device() == DeviceId() ? Batch::hostAlignment
                                          : Batch::gpuAlignment;
  }
  Sequence makeSequence() const;
  Status step(int64_t token);
  Status resetOne(int64_t token);
  Status forkOne();
  /// m of a sequence.
  int64_t limitOf(const Sequence &sequence) const {
    return sequence.isFresh && config.crossover ? config.crossover
                                                : config.threshold;
  }
  Plan makePlan();
  bool chance(uint64_t oneIn) { return random() % oneIn == 0; }
  /// The errors of the outputs by rounding; what they should be in `exact`.
  std::vector<double> advance(Sequence &sequence, RoundedRuns::Token token,
                              const Arrays &tokens, Arrays &exact);
  Status compareOutputs(int64_t row, int64_t token, const Plan &plan,
                        const Arrays &tokens);
  Status compareSlots();
  //===--- SimulateDrafts.cpp ---------------------------------------------===//
  /// What the batch of a step with drafts is.
  struct DraftPlan {
    std::vector<int32_t> slots, starts, parents;
  };
  DraftPlan makeDraftPlan();
  Status verify(int64_t token);
  Status compareDrafts(const DraftPlan &plan, int64_t row, int64_t token,
                       std::vector<Sequence> &nodes);
  /// Accepts some of each row's drafts, whose sequences are `nodes`.
  Status commit(const DraftPlan &plan,
                const std::vector<std::vector<Sequence>> &nodes);
  //===--- SimulatePrompts.cpp --------------------------------------------===//
  struct PromptPlan {
    std::vector<int32_t> slots, starts;
  };
  PromptPlan makePromptPlan();
  Status prefill(int64_t token);
  Status comparePrompt(const PromptPlan &plan, int64_t row,
                       const std::vector<Arrays> &tokens, const Batch &prompts);
  Status checkCursor(int32_t slot, int64_t committed, int64_t drafts) const;

  /// `terms` are what cancels in `exact`, where it is an output.
  void add(FormKind form, const std::vector<double> &actual,
           const std::vector<double> &exact, double rounded, int64_t row,
           const std::string &name, const std::vector<double> &terms = {});

  const CheckCase &config;
  const Program &program;
  const Oracles &oracles;
  const RandomInputs &inputs;
  CaseResult &result;
  const Signature &signature;
  std::mt19937_64 random;
  Batch batch, draftBatch;
  Arrays params;
  std::optional<PaddedStates> padded;
  std::optional<Pool> pool;
  std::optional<HostSteps> decoder;
  /// The first slot that is none of padding, and how many there are.
  int32_t firstSlot = 0, slotCount = 0;
  std::vector<Sequence> sequences; // by slot, from firstSlot on
  int64_t currentToken = -1;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_SIMULATION_H
