//===- Families.h - the families of reference models ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A family is one source file. Each function returns null for a model that is
// not of its family.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_FAMILIES_H
#define LADLE_TESTS_MODELS_FAMILIES_H

#include "tests/models/Reference.h"

namespace ladle::reference {

using Family = std::unique_ptr<Reference>(const std::string &model,
                                          const ReferenceShape &shape);

/// linear_attention, retnet, lightning, gla, rwkv6, mamba, mamba2
Family makeAdditive;
/// delta_net, gated_delta_rule, gated_delta_net, kda, kda_lower_bound, gdn2
Family makeDelta;
/// short_conv, coupled
Family makeComposite;
/// rwkv7
Family makeRwkv7;
/// mamba3, mamba3_mimo
Family makeMamba3;

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_FAMILIES_H
