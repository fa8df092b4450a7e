//===- LinearAttention.h - the recurrence of closed forms -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_ANALYSIS_LINEARATTENTION_H
#define LADLE_TESTS_ANALYSIS_LINEARATTENTION_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines.h"
#include "passes/analysis/CostModel.h"
#include "tools/common/RegisterDialects.h"
#include "llvm/Support/FormatVariadic.h"
#include <catch2/catch.hpp>

namespace ladle::test {

/// Linear attention with one head: q and k of n, v of d in bf16, an f32 state
/// of n x d; with a decay, one bf16 number a token, it is that of Mamba-2.
struct LinearAttention {
  explicit LinearAttention(int d) : LinearAttention(d, d, false) {}

  LinearAttention(int n, int d, bool decays) : context(registry()) {
    context.loadAllAvailableDialects();
    std::string n16 = llvm::formatv("tensor<1x{0}xbf16>", n);
    std::string n32 = llvm::formatv("tensor<1x{0}xf32>", n);
    std::string d16 = llvm::formatv("tensor<1x{0}xbf16>", d);
    std::string d32 = llvm::formatv("tensor<1x{0}xf32>", d);
    std::string state = llvm::formatv("!ladle.state<1x{0}x{1}xf32>", n, d);
    std::string text = "ladle.recurrence @f(token %q: " + n16 +
                       ", token %k: " + n16 + ", token %v: " + d16 + ", " +
                       (decays ? "token %g: tensor<1xbf16>, " : "") +
                       "state %S: " + state + ") -> (y: " + d16 + ") {\n";
    text += "%qf = arith.extf %q : " + n16 + " to " + n32 + "\n";
    text += "%kf = arith.extf %k : " + n16 + " to " + n32 + "\n";
    text += "%vf = arith.extf %v : " + d16 + " to " + d32 + "\n";
    std::string from = "%S";
    if (decays) {
      text += "%gf = arith.extf %g : tensor<1xbf16> to tensor<1xf32>\n"
              "%D = ladle.decay %S, %gf : " +
              state.substr(state.find('<')) + ", tensor<1xf32>\n";
      from = "%D";
    }
    text += "%n = ladle.write " + from + ", %kf, %vf : " + state + ", " + n32 +
            ", " + d32 + "\n";
    text +=
        "%r = ladle.read %n, %qf : " + state + ", " + n32 + " -> " + d32 + "\n";
    text += "%y = arith.truncf %r : " + d32 + " to " + d16 + "\n";
    text += "ladle.yield %y, %n : " + d16 + ", " + state + "\n}\n";
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    REQUIRE(module);
    mlir::PassManager manager(&context);
    DecodePipelineOptions options;
    options.drafts = drafts;
    buildStepPipeline(manager, options);
    REQUIRE(mlir::succeeded(manager.run(*module)));
    costs = collectCosts(*module, "f");
  }

  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry result;
    registerDialects(result);
    return result;
  }

  const RouteCost &route(Route route) const {
    for (const RouteCost &cost : costs)
      if (cost.route == route)
        return cost;
    FAIL("route is missing");
    return costs.front();
  }

  static constexpr int64_t drafts = 4;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<RouteCost> costs;
};

} // namespace ladle::test

#endif // LADLE_TESTS_ANALYSIS_LINEARATTENTION_H
