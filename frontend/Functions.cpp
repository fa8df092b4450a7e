//===- Functions.cpp - the function library ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Functions.h"

#include "dialect/LadleOps.h"
#include "frontend/ValueBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace ladle::frontend;
using mlir::Value;
namespace arith = mlir::arith;
namespace math = mlir::math;

static constexpr double defaultEps = 1e-6;

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

std::optional<Shape> ladle::frontend::checkBroadcast(const Shape &lhs,
                                                     const Shape &rhs,
                                                     llvm::SMLoc loc,
                                                     llvm::SMRange range,
                                                     Diagnostics &diagnostics) {
  if (std::optional<Shape> result = broadcastShapes(lhs, rhs))
    return result;
  if (!headsDivide(lhs, rhs)) {
    auto heads = [](const Shape &shape) {
      return std::to_string(shape.getNumHeads()) + " heads (" +
             shape.head->name + ")";
    };
    diagnostics.error(loc, heads(lhs) + " and " + heads(rhs) + " do not divide",
                      range);
    diagnostics.note(loc, "grouped heads need one count to be a multiple of "
                          "the other; a dimension that stands first "
                          "everywhere counts heads");
    return std::nullopt;
  }
  diagnostics.error(
      loc, "shapes " + lhs.str() + " and " + rhs.str() + " do not match",
      range);
  diagnostics.note(loc,
                   "dimensions match by name: " + formatDims(lhs.features) +
                       " or " + formatDims(rhs.features) +
                       " has to contain the other, in the same order");
  return std::nullopt;
}

static std::optional<Shape> sameAsFirst(const CallExpr &call,
                                        Diagnostics &diagnostics) {
  return call.args[0]->shape;
}

static std::optional<Shape> broadcastAll(const CallExpr &call,
                                         Diagnostics &diagnostics) {
  std::optional<Shape> result = call.args[0]->shape;
  for (const ExprPtr &arg : llvm::drop_begin(call.args))
    if (result)
      result = checkBroadcast(*result, arg->shape, arg->loc, arg->range,
                              diagnostics);
  return result;
}

/// Reports unless the value has a dimension besides heads.
static bool requireFeature(const CallExpr &call, const Expr &arg,
                           Diagnostics &diagnostics) {
  if (!arg.shape.features.empty())
    return true;
  diagnostics.error(arg.loc,
                    quote(call.callee) +
                        " needs a dimension besides heads, "
                        "but its argument is " +
                        arg.shape.str(),
                    arg.range);
  diagnostics.note(arg.loc, "it works along the last dimension of x[H, D]; "
                            "heads never mix");
  return false;
}

/// norm(x[, eps])
static std::optional<Shape> normShape(const CallExpr &call,
                                      Diagnostics &diagnostics) {
  if (!requireFeature(call, *call.args[0], diagnostics))
    return std::nullopt;
  if (call.args.size() == 2) {
    const Expr &eps = *call.args[1];
    if (!eps.constant || *eps.constant < 0) {
      diagnostics.error(
          eps.loc,
          "eps of " + quote(call.callee) + " is " +
              (eps.constant ? formatNumber(*eps.constant) : "not a constant"),
          eps.range);
      diagnostics.note(eps.loc, "give a number or an option, zero or more");
      return std::nullopt;
    }
  }
  return call.args[0]->shape;
}

/// `W + 1` as the name of a dimension; empty if it is none.
static std::string getDimName(const Expr &expr) {
  if (auto *name = llvm::dyn_cast<NameExpr>(&expr))
    return name->name.str();
  if (auto *number = llvm::dyn_cast<NumberExpr>(&expr))
    return formatNumber(number->value);
  if (auto *binary = llvm::dyn_cast<BinaryExpr>(&expr)) {
    std::string lhs = getDimName(*binary->lhs);
    std::string rhs = getDimName(*binary->rhs);
    if (!lhs.empty() && !rhs.empty())
      return lhs + binary->op + rhs;
  }
  return {};
}

/// Which feature `sum(x[, Dim])` reduces, or -1.
static int64_t getReducedFeature(const CallExpr &call) {
  llvm::ArrayRef<Dim> features = call.args[0]->shape.features;
  if (call.args.size() == 1)
    return static_cast<int64_t>(features.size()) - 1;
  const Dim *found =
      llvm::find(features, Dim{getDimName(*call.args[1]), /*size=*/1});
  return found == features.end() ? -1 : found - features.begin();
}

/// reduce(x[, Dim])
static std::optional<Shape> reduceShape(const CallExpr &call,
                                        Diagnostics &diagnostics) {
  if (!requireFeature(call, *call.args[0], diagnostics))
    return std::nullopt;
  Shape result = call.args[0]->shape;
  int64_t feature = getReducedFeature(call);
  if (feature < 0) {
    const Expr &dim = *call.args[1];
    diagnostics.error(dim.loc,
                      quote(getDimName(dim)) +
                          " is not a dimension of the first "
                          "argument, which is " +
                          result.str(),
                      dim.range);
    diagnostics.note(dim.loc, "name one of " + formatDims(result.features) +
                                  "; heads never mix");
    return std::nullopt;
  }
  result.features.erase(result.features.begin() + feature);
  return result;
}

/// dot(x, y)
static std::optional<Shape> dotShape(const CallExpr &call,
                                     Diagnostics &diagnostics) {
  for (const ExprPtr &arg : call.args)
    if (!requireFeature(call, *arg, diagnostics))
      return std::nullopt;
  const Shape &lhs = call.args[0]->shape, &rhs = call.args[1]->shape;
  if (!(lhs.features.back() == rhs.features.back())) {
    diagnostics.error(call.loc,
                      "the last dimensions of " + lhs.str() + " and " +
                          rhs.str() + " differ",
                      call.range);
    diagnostics.note(call.loc, "a dot product sums over the last dimension of "
                               "both arguments");
    return std::nullopt;
  }
  std::optional<Shape> product =
      checkBroadcast(lhs, rhs, call.loc, call.range, diagnostics);
  return product ? std::optional(product->dropLastFeature()) : std::nullopt;
}

/// rotate(x, angle)
static std::optional<Shape> rotateShape(const CallExpr &call,
                                        Diagnostics &diagnostics) {
  const Expr &x = *call.args[0], &angle = *call.args[1];
  if (!requireFeature(call, x, diagnostics) ||
      !requireFeature(call, angle, diagnostics))
    return std::nullopt;
  const Dim &channels = x.shape.features.back();
  const Dim &angles = angle.shape.features.back();
  if (2 * angles.size > channels.size) {
    diagnostics.error(angle.loc,
                      llvm::Twine(angles.size) + " angles (" + angles.name +
                          ") rotate " + llvm::Twine(2 * angles.size) +
                          " channels, but " + channels.name + " has " +
                          llvm::Twine(channels.size),
                      angle.range);
    diagnostics.note(angle.loc, "an angle rotates a pair of channels: give at "
                                "most half as many angles as channels");
    return std::nullopt;
  }
  std::optional<Shape> result =
      checkBroadcast(x.shape.dropLastFeature(), angle.shape.dropLastFeature(),
                     angle.loc, angle.range, diagnostics);
  if (result)
    result->features.push_back(channels);
  return result;
}

/// Checks that the first argument is a window [H, W, D] and `x` a row of it.
static bool checkWindow(const CallExpr &call, Diagnostics &diagnostics) {
  const Expr &window = *call.args[0], &x = *call.args[1];
  if (window.shape.features.size() != 2) {
    diagnostics.error(window.loc,
                      "the window of " + quote(call.callee) + " is " +
                          window.shape.str(),
                      window.range);
    diagnostics.note(window.loc, "a window keeps the last W rows, oldest "
                                 "first: carry window[H, W, D] : f32");
    return false;
  }
  llvm::ArrayRef<Dim> row = llvm::ArrayRef(window.shape.features).drop_front();
  if (llvm::ArrayRef<Dim>(x.shape.features) != row) {
    diagnostics.error(x.loc,
                      "a row of the window " + window.shape.str() +
                          " has features " + formatDims(row) +
                          ", but the value is " + x.shape.str(),
                      x.range);
    diagnostics.note(x.loc, "the window is the first argument, the value the "
                            "second");
    return false;
  }
  return true;
}

/// shift(window, x)
static std::optional<Shape> shiftShape(const CallExpr &call,
                                       Diagnostics &diagnostics) {
  if (!checkWindow(call, diagnostics))
    return std::nullopt;
  const Shape &window = call.args[0]->shape;
  std::optional<Shape> result =
      checkBroadcast(window, call.args[1]->shape, call.args[1]->loc,
                     call.args[1]->range, diagnostics);
  return result;
}

/// conv(window, x, weight)
static std::optional<Shape> convShape(const CallExpr &call,
                                      Diagnostics &diagnostics) {
  if (!checkWindow(call, diagnostics))
    return std::nullopt;
  const Shape &window = call.args[0]->shape;
  const Expr &weight = *call.args[2];
  llvm::ArrayRef<Dim> taps = weight.shape.features;
  if (taps.size() != 2 || taps[0].size != window.features[0].size + 1 ||
      !(taps[1] == window.features[1])) {
    auto describe = [](const Shape &shape) {
      std::string text = shape.str();
      if (shape.features.empty())
        return text;
      const Dim &rows = shape.features[0];
      std::string size = std::to_string(rows.size);
      return rows.name == size ? text
                               : text + " with " + rows.name + " = " + size;
    };
    diagnostics.error(weight.loc,
                      "the weight is " + describe(weight.shape) +
                          ", the window " + describe(window),
                      weight.range);
    diagnostics.note(weight.loc,
                     "a weight has one row more than the window: weight[H, " +
                         window.features[0].name + " + 1, " +
                         window.features[1].name +
                         "]; write 1 for H to share it by all heads");
    return std::nullopt;
  }
  Shape row = window;
  row.features.erase(row.features.begin());
  Shape heads;
  heads.head = weight.shape.head;
  for (const Shape &other : {call.args[1]->shape, heads}) {
    std::optional<Shape> joint =
        checkBroadcast(row, other, call.loc, call.range, diagnostics);
    if (!joint)
      return std::nullopt;
    row = *joint;
  }
  return row;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

using Builder = ValueBuilder;

template <typename OpTy>
static Value buildUnary(Builder &builder, const CallExpr &call) {
  return builder.create<OpTy>(builder.emitAs(*call.args[0], call.shape));
}

template <typename OpTy>
static Value buildBinary(Builder &builder, const CallExpr &call) {
  Value lhs = builder.emitAs(*call.args[0], call.shape);
  Value rhs = builder.emitAs(*call.args[1], call.shape);
  return builder.create<OpTy>(lhs, rhs);
}

static Value buildSquare(Builder &builder, const CallExpr &call) {
  Value x = builder.emitAs(*call.args[0], call.shape);
  return builder.create<arith::MulFOp>(x, x);
}

static Value buildReciprocal(Builder &builder, const CallExpr &call) {
  Value x = builder.emitAs(*call.args[0], call.shape);
  return builder.create<arith::DivFOp>(builder.constant(1, call.shape), x);
}

static Value buildRelu(Builder &builder, const CallExpr &call) {
  Value x = builder.emitAs(*call.args[0], call.shape);
  return builder.create<arith::MaximumFOp>(x, builder.constant(0, call.shape));
}

static Value buildClamp(Builder &builder, const CallExpr &call) {
  Value result = builder.emitAs(*call.args[0], call.shape);
  result = builder.create<arith::MaximumFOp>(
      result, builder.emitAs(*call.args[1], call.shape));
  if (call.args.size() == 3)
    result = builder.create<arith::MinimumFOp>(
        result, builder.emitAs(*call.args[2], call.shape));
  return result;
}

static double getEps(const CallExpr &call) {
  return call.args.size() == 2 ? *call.args[1]->constant : defaultEps;
}

static Value buildL2Norm(Builder &builder, const CallExpr &call) {
  Value x = builder.emit(*call.args[0]);
  return builder.create<ladle::L2NormOp>(x, llvm::APFloat(getEps(call)));
}

static Value buildSum(Builder &builder, const CallExpr &call) {
  return builder.sum(builder.emit(*call.args[0]), getReducedFeature(call));
}

static Value buildMean(Builder &builder, const CallExpr &call) {
  int64_t feature = getReducedFeature(call);
  int64_t size = call.args[0]->shape.features[feature].size;
  Value sum = builder.sum(builder.emit(*call.args[0]), feature);
  return builder.create<arith::MulFOp>(
      sum, builder.constant(1.0 / static_cast<double>(size), call.shape));
}

/// x rsqrt(mean x² + eps)
static Value buildRmsNorm(Builder &builder, const CallExpr &call) {
  Shape scalar = call.shape.dropLastFeature();
  int64_t last = static_cast<int64_t>(scalar.features.size());
  double size = static_cast<double>(call.shape.features.back().size);
  Value x = builder.emit(*call.args[0]);
  Value sum = builder.sum(builder.create<arith::MulFOp>(x, x), last);
  Value mean =
      builder.create<arith::MulFOp>(sum, builder.constant(1.0 / size, scalar));
  Value shifted = builder.create<arith::AddFOp>(
      mean, builder.constant(getEps(call), scalar));
  Value scale = builder.create<math::RsqrtOp>(shifted);
  return builder.create<arith::MulFOp>(
      x, builder.broadcast(scale, scalar, call.shape));
}

static Value buildDot(Builder &builder, const CallExpr &call) {
  Shape product = *broadcastShapes(call.args[0]->shape, call.args[1]->shape);
  Value lhs = builder.emitAs(*call.args[0], product);
  Value rhs = builder.emitAs(*call.args[1], product);
  return builder.sum(builder.create<arith::MulFOp>(lhs, rhs),
                     static_cast<int64_t>(product.features.size()) - 1);
}

static Value buildRotate(Builder &builder, const CallExpr &call) {
  // The last dimension of the angle is matched by place: its name may be that
  // of another one of x.
  Shape from = call.args[1]->shape, to = call.shape;
  from.features.back().name.clear();
  to.features.back() = from.features.back();
  Value x = builder.emitAs(*call.args[0], call.shape);
  Value angle = builder.broadcast(builder.emit(*call.args[1]), from, to);
  return builder.create<ladle::RotateOp>(x, angle);
}

static Value buildShift(Builder &builder, const CallExpr &call) {
  Shape row = call.shape;
  row.features.erase(row.features.begin());
  Value window = builder.emitAs(*call.args[0], call.shape);
  return builder.create<ladle::ShiftOp>(window,
                                        builder.emitAs(*call.args[1], row));
}

static Value buildConv(Builder &builder, const CallExpr &call) {
  auto emitWithHeads = [&](const Expr &arg) {
    Shape shape = arg.shape;
    shape.head = call.shape.head;
    return builder.emitAs(arg, shape);
  };
  Value window = emitWithHeads(*call.args[0]);
  Value x = emitWithHeads(*call.args[1]);
  return builder.create<ladle::ConvOp>(window, x, emitWithHeads(*call.args[2]));
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

using Numbers = llvm::ArrayRef<double>;

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

static double foldExp(Numbers x) { return std::exp(x[0]); }
static double foldLog(Numbers x) { return std::log(x[0]); }
static double foldSqrt(Numbers x) { return std::sqrt(x[0]); }
static double foldRsqrt(Numbers x) { return 1 / std::sqrt(x[0]); }
static double foldSigmoid(Numbers x) { return sigmoid(x[0]); }
static double foldSilu(Numbers x) { return x[0] * sigmoid(x[0]); }
static double foldSoftplus(Numbers x) {
  return std::max(x[0], 0.0) + std::log1p(std::exp(-std::abs(x[0])));
}
static double foldTanh(Numbers x) { return std::tanh(x[0]); }
static double foldRelu(Numbers x) { return std::max(x[0], 0.0); }
static double foldElu(Numbers x) { return x[0] > 0 ? x[0] : std::expm1(x[0]); }
static double foldAbs(Numbers x) { return std::abs(x[0]); }
static double foldCos(Numbers x) { return std::cos(x[0]); }
static double foldSin(Numbers x) { return std::sin(x[0]); }
static double foldSquare(Numbers x) { return x[0] * x[0]; }
static double foldReciprocal(Numbers x) { return 1 / x[0]; }
static double foldMax(Numbers x) { return std::max(x[0], x[1]); }
static double foldMin(Numbers x) { return std::min(x[0], x[1]); }
static double foldClamp(Numbers x) {
  double result = std::max(x[0], x[1]);
  return x.size() == 3 ? std::min(result, x[2]) : result;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

static constexpr auto one = sameAsFirst;
static constexpr auto all = broadcastAll;

static const Function functions[] = {
    // Elementwise, of one value.
    {"exp", 1, 1, "exp(x)", one, buildUnary<math::ExpOp>, foldExp},
    {"log", 1, 1, "log(x)", one, buildUnary<math::LogOp>, foldLog},
    {"sqrt", 1, 1, "sqrt(x)", one, buildUnary<math::SqrtOp>, foldSqrt},
    {"rsqrt", 1, 1, "rsqrt(x)", one, buildUnary<math::RsqrtOp>, foldRsqrt},
    {"sigmoid", 1, 1, "sigmoid(x)", one, buildUnary<ladle::SigmoidOp>,
     foldSigmoid},
    {"silu", 1, 1, "silu(x)", one, buildUnary<ladle::SiluOp>, foldSilu},
    {"softplus", 1, 1, "softplus(x)", one, buildUnary<ladle::SoftplusOp>,
     foldSoftplus},
    {"tanh", 1, 1, "tanh(x)", one, buildUnary<math::TanhOp>, foldTanh},
    {"relu", 1, 1, "relu(x)", one, buildRelu, foldRelu},
    {"elu", 1, 1, "elu(x)", one, buildUnary<ladle::EluOp>, foldElu},
    {"abs", 1, 1, "abs(x)", one, buildUnary<math::AbsFOp>, foldAbs},
    {"cos", 1, 1, "cos(x)", one, buildUnary<math::CosOp>, foldCos},
    {"sin", 1, 1, "sin(x)", one, buildUnary<math::SinOp>, foldSin},
    {"square", 1, 1, "square(x)", one, buildSquare, foldSquare},
    {"reciprocal", 1, 1, "reciprocal(x)", one, buildReciprocal, foldReciprocal},
    // Elementwise, of several.
    {"max", 2, 2, "max(x, y)", all, buildBinary<arith::MaximumFOp>, foldMax},
    {"min", 2, 2, "min(x, y)", all, buildBinary<arith::MinimumFOp>, foldMin},
    {"clamp", 2, 3, "clamp(x, low[, high])", all, buildClamp, foldClamp},
    // Along the last dimension, or a named one.
    {"l2norm", 1, 2, "l2norm(x[, eps])", normShape, buildL2Norm},
    {"rmsnorm", 1, 2, "rmsnorm(x[, eps])", normShape, buildRmsNorm},
    {"sum", 1, 2, "sum(x[, Dim])", reduceShape, buildSum, nullptr,
     /*takesDim=*/true},
    {"mean", 1, 2, "mean(x[, Dim])", reduceShape, buildMean, nullptr,
     /*takesDim=*/true},
    {"dot", 2, 2, "dot(x, y)", dotShape, buildDot},
    // Positions and windows.
    {"rotate", 2, 2, "rotate(x, angle)", rotateShape, buildRotate},
    {"shift", 2, 2, "shift(window, x)", shiftShape, buildShift},
    {"conv", 3, 3, "conv(window, x, weight)", convShape, buildConv},
};

llvm::ArrayRef<Function> ladle::frontend::getFunctions() { return functions; }

const Function *ladle::frontend::lookupFunction(llvm::StringRef name) {
  const Function *found =
      llvm::find_if(functions, [&](const Function &function) {
        return function.name == name;
      });
  return found == std::end(functions) ? nullptr : found;
}
