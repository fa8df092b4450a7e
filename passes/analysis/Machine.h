//===- Machine.h - what the time of a step is predicted from ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header knows nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_MACHINE_H
#define LADLE_PASSES_ANALYSIS_MACHINE_H

#include <optional>
#include <string>
#include <string_view>

namespace ladle {

/// Bytes and flops a second that kernels get, which is less than the memory
/// gives to kernels that do nothing else.
struct StepRates {
  double readBandwidth = 0;      ///< of states that are read alone
  double updateBandwidth = 0;    ///< of states in place, read and write counted
  double scatteredBandwidth = 0; ///< of entries, tokens and outputs
  double flopRate = 0;           ///< f32, with conversions on the way
  double launch = 0;       ///< seconds of a step at least: a launch, and trips
                           ///< to memory that depend on each other
  double entryLatency = 0; ///< more of them, if there are entries
  /// Where drafts are several vectors each, which few of a step's products
  /// leave to tensor cores; 0 for the same.
  double rankedFlopRate = 0;
};

/// What steps of a token get, and what those do that verify drafts at once.
struct Machine : StepRates {
  std::string name;
  StepRates drafts;

  /// NVIDIA H200, as fitted to what `ladle bench` has measured there.
  static Machine h200();
  /// A processor core count of an ordinary server; `ladle run` replaces the
  /// bandwidths by what it measures.
  static Machine cpu(unsigned cores);
  /// "cpu" or "h200".
  static std::optional<Machine> named(std::string_view name);

  /// A GPU. Zeros are unknown.
  struct Card {
    std::string name;            ///< "NVIDIA H200"
    double nominal = 0;          ///< bytes a second of its memory's clock
    double read = 0, update = 0; ///< what streaming kernels get of them
    int multiprocessors = 0;
  };
  /// A card that has been fitted, or else the H200 with its rates in the ratio
  /// of the cards' memory and multiprocessors.
  static Machine gpu(const Card &card);
};

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_MACHINE_H
