//===- prompt_budgets.h - layers share budgets as they finish ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SLAKE's budgets of layers for a call of prompts: each layer's prompts are
// answered, and then all layers so far keep what their shares of the total are.
// On a GPU the host takes no part in it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PROMPT_BUDGETS_H
#define LADLE_PROMPT_BUDGETS_H

#include "ladle/attention.h"
#include "ladle/budgets.h"

namespace ladle {

struct PromptBudgetOptions {
  LayerBudgetOptions layers; ///< of each row
  PreferenceExponents exponents;
  int64_t rows = 1; ///< of a call of prompts
};

/// LayerBudgets of each row of a call of prompts, and the decoders of the
/// layers, which lower the budgets of its slots.
class PromptBudgets {
public:
  /// For decoders of `program`. InvalidArgument for what LayerBudgets::create
  /// refuses, `least` or `most` that slots may not have, or no rows.
  static Result<PromptBudgets> create(const AttentionProgram &program,
                                      const PromptBudgetOptions &options);
  PromptBudgets(PromptBudgets &&) noexcept;
  PromptBudgets &operator=(PromptBudgets &&) noexcept;
  ~PromptBudgets();

  /// Takes in the next layer, whose decoder has just answered its prompts, and
  /// sets the budgets of `slots` [rows] in all layers so far, whose decoders
  /// must not move. Slots are as in the call of prompts, and on a GPU in its
  /// memory; a negative one has no share. There it is launches alone, which a
  /// graph can capture, and a replay begins with the first layer again.
  /// InvalidArgument if all layers are there, the decoder has no preferences
  /// (AttentionDecoderOptions::preference), or another number of rows, or for
  /// slots that a layer refuses (AttentionDecoder::setBudgets). A layer that is
  /// refused can be added again.
  Status add(AttentionDecoder &decoder, std::span<const int32_t> slots,
             void *stream = nullptr);
  /// The next layer is the first one again.
  void restart();

  /// Of a layer that is there, a number a row. On a GPU it waits for the
  /// device, and is empty if that has failed.
  std::vector<int64_t> budgets(int64_t layer) const;

private:
  struct Impl;
  explicit PromptBudgets(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ladle

#endif // LADLE_PROMPT_BUDGETS_H
