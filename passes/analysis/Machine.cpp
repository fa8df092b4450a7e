//===- Machine.cpp - what the time of a step is predicted from ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/Machine.h"

using namespace ladle;

Machine Machine::h200() {
  // clang-format off
  // bench/fit.py writes these.
  // Of 2026-11-22.
  StepRates tokens{/*readBandwidth=*/4.687e+12,
                   /*updateBandwidth=*/3.781e+12,
                   /*scatteredBandwidth=*/2.402e+12,
                   /*flopRate=*/2.37e+13,
                   /*launch=*/2.863e-06,
                   /*entryLatency=*/1.937e-06};
  // Of 2026-11-30.
  StepRates drafts{/*readBandwidth=*/4.597e+12,
                   /*updateBandwidth=*/4.296e+12,
                   /*scatteredBandwidth=*/2.238e+12,
                   /*flopRate=*/5.084e+13,
                   /*launch=*/4.083e-06,
                   /*entryLatency=*/6.244e-07,
                   /*rankedFlopRate=*/5.109e+12};
  // End.
  // clang-format on
  return {tokens, "h200", drafts};
}

/// The memory of an H200, the best that streaming kernels have got from it, and
/// its size.
static constexpr double h200Nominal = 4.917e12, h200Read = 4.61e12,
                        h200Update = 4.29e12;
static constexpr int h200Multiprocessors = 132;

Machine Machine::gpu(const Card &card) {
  Machine machine = h200();
  if (card.name == "NVIDIA H200")
    return machine;
  if (!card.name.empty())
    machine.name = card.name;
  double reads = card.read > 0      ? card.read / h200Read
                 : card.nominal > 0 ? card.nominal / h200Nominal
                                    : 1;
  double updates = card.update > 0 ? card.update / h200Update : reads;
  for (StepRates *rates :
       {static_cast<StepRates *>(&machine), &machine.drafts}) {
    rates->readBandwidth *= reads;
    rates->scatteredBandwidth *= reads;
    rates->updateBandwidth *= updates;
    if (card.multiprocessors > 0)
      for (double *rate : {&rates->flopRate, &rates->rankedFlopRate})
        *rate *= double(card.multiprocessors) / h200Multiprocessors;
  }
  return machine;
}

Machine Machine::cpu(unsigned cores) {
  double bandwidth = 20e9 * cores;
  StepRates rates{bandwidth, bandwidth, bandwidth, 50e9 * cores, 5e-6, 0};
  return {rates, "cpu", rates};
}

std::optional<Machine> Machine::named(std::string_view name) {
  if (name == "h200")
    return h200();
  if (name == "cpu")
    return cpu(2);
  return std::nullopt;
}
