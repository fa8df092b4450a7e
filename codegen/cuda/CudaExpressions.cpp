//===- CudaExpressions.cpp - scalars as CUDA C++ --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaExpressions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include <charconv>
#include <limits>

using namespace mlir;
using llvm::formatv;

namespace ladle::cuda {

std::string typeText(Type type) {
  if (auto vector = dyn_cast<VectorType>(type)) {
    std::string element = typeText(vector.getElementType());
    // Of two dimensions are fragments of matrices, one row after the other.
    if (element.empty() || vector.getRank() < 1 || vector.getRank() > 2 ||
        vector.isScalable())
      return "";
    return formatv("Vec<{0}, {1}>", element, vector.getNumElements());
  }
  if (type.isF32())
    return "float";
  if (type.isF16())
    return "half";
  if (type.isBF16())
    return "bf16";
  if (type.isIndex())
    return "int";
  if (!type.isSignlessInteger())
    return "";
  switch (type.getIntOrFloatBitWidth()) {
  case 1:
    return "bool";
  case 8:
    return "signed char";
  case 16:
    return "short";
  case 32:
    return "int";
  case 64:
    return "long long";
  default:
    return "";
  }
}

/// Literals are operands of any operator.
static std::string parenthesized(std::string text) {
  return text.front() == '-' ? "(" + text + ")" : text;
}

static std::string floatLiteral(APFloat value) {
  bool losesInfo;
  value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                &losesInfo);
  if (!value.isFinite())
    return formatv("__int_as_float({0:x})",
                   value.bitcastToAPInt().getZExtValue());
  // The shortest text that reads back as the same number.
  char buffer[32];
  auto end = std::to_chars(buffer, std::end(buffer), value.convertToFloat());
  std::string text(buffer, end.ptr);
  if (StringRef(text).find_first_of(".e") == StringRef::npos)
    text += ".0";
  return parenthesized(text + "f");
}

std::string literal(int64_t value) {
  if (value == std::numeric_limits<int64_t>::min())
    return "(-9223372036854775807LL - 1)";
  bool isLong = value > std::numeric_limits<int32_t>::max() ||
                value <= std::numeric_limits<int32_t>::min();
  return parenthesized(std::to_string(value) + (isLong ? "LL" : ""));
}

std::string literal(TypedAttr value) {
  Type type = value.getType();
  if (auto number = dyn_cast<FloatAttr>(value)) {
    std::string text = floatLiteral(number.getValue());
    if (type.isF32())
      return text;
    return formatv("from_float<{0}>({1})", typeText(type), text);
  }
  auto number = dyn_cast<IntegerAttr>(value);
  if (!number)
    return "";
  if (type.isInteger(1))
    return number.getValue().isZero() ? "false" : "true";
  int64_t integer = number.getValue().getSExtValue();
  if (type.isInteger(64) && llvm::isInt<32>(integer) &&
      integer != std::numeric_limits<int32_t>::min())
    return parenthesized(std::to_string(integer) + "LL");
  if (type.isIndex() && !llvm::isInt<32>(integer))
    return "";
  if (!type.isInteger(64) && integer == std::numeric_limits<int32_t>::min())
    return "(-2147483647 - 1)";
  return literal(integer);
}

static unsigned widthOf(Type type) {
  return type.isIndex() ? 32 : type.getIntOrFloatBitWidth();
}

static std::string asUnsigned(Type type, StringRef operand) {
  switch (widthOf(type)) {
  case 1:
  case 32:
    return formatv("(unsigned){0}", operand);
  case 64:
    return formatv("(unsigned long long){0}", operand);
  default:
    return formatv("(unsigned {0}){1}", type.isInteger(8) ? "char" : "short",
                   operand);
  }
}

/// NaN if either is NaN, as fmaxf and fminf are not.
static std::string nanExtremum(StringRef less, StringRef a, StringRef b) {
  return formatv("{0} {1} {2} || {0} != {0} ? {0} : {2}", a, less, b);
}

static std::string comparison(arith::CmpIPredicate predicate, Type type,
                              StringRef a, StringRef b) {
  using enum arith::CmpIPredicate;
  static constexpr const char *kOperators[] = {"==", "!=", "<",  "<=", ">",
                                               ">=", "<",  "<=", ">",  ">="};
  const char *op = kOperators[static_cast<int>(predicate)];
  if (predicate == eq || predicate == ne)
    return formatv("{0} {1} {2}", a, op, b);
  if (predicate >= ult)
    return formatv("{0} {1} {2}", asUnsigned(type, a), op, asUnsigned(type, b));
  // True is -1 where it is signed.
  return type.isInteger(1) ? "" : formatv("{0} {1} {2}", a, op, b).str();
}

static std::string comparison(arith::CmpFPredicate predicate, StringRef a,
                              StringRef b) {
  using enum arith::CmpFPredicate;
  auto format = [&](const char *text) { return formatv(text, a, b).str(); };
  switch (predicate) {
  case AlwaysFalse:
    return "false";
  case OEQ:
    return format("{0} == {1}");
  case OGT:
    return format("{0} > {1}");
  case OGE:
    return format("{0} >= {1}");
  case OLT:
    return format("{0} < {1}");
  case OLE:
    return format("{0} <= {1}");
  case ONE:
    return format("{0} < {1} || {0} > {1}");
  case ORD:
    return format("{0} == {0} && {1} == {1}");
  case UEQ:
    return format("!({0} < {1} || {0} > {1})");
  case UGT:
    return format("!({0} <= {1})");
  case UGE:
    return format("!({0} < {1})");
  case ULT:
    return format("!({0} >= {1})");
  case ULE:
    return format("!({0} > {1})");
  case UNE:
    return format("{0} != {1}");
  case UNO:
    return format("{0} != {0} || {1} != {1}");
  case AlwaysTrue:
    return "true";
  }
  return "";
}

/// The 16-bit floats are structs of the prelude with their bits.
static std::string bitcast(Type from, Type to, StringRef operand) {
  auto isHalf = [](Type type) { return type.isF16() || type.isBF16(); };
  if (from.isF32() && to.isInteger(32))
    return formatv("__float_as_int({0})", operand);
  if (from.isInteger(32) && to.isF32())
    return formatv("__int_as_float({0})", operand);
  if (isHalf(from) && to.isInteger(16))
    return formatv("(short){0}.bits", operand);
  if (from.isInteger(16) && isHalf(to))
    return formatv("{0}{{(unsigned short){1}}", typeText(to), operand);
  return "";
}

/// From one integer or number to another.
static std::string conversion(Operation *op, Type from, Type to,
                              StringRef operand) {
  bool fromBool = from.isInteger(1);
  std::string target = typeText(to);
  std::string plain = formatv("({0}){1}", target, operand);
  std::string zeroExtended =
      formatv("({0}){1}", target, asUnsigned(from, operand));
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<arith::ExtFOp>([&](auto) -> std::string {
        if (!to.isF32() || !(from.isF16() || from.isBF16()))
          return "";
        return formatv("to_float({0})", operand);
      })
      .Case<arith::TruncFOp>([&](arith::TruncFOp truncate) -> std::string {
        if (!from.isF32() || !(to.isF16() || to.isBF16()) ||
            truncate.getRoundingmode().value_or(
                arith::RoundingMode::to_nearest_even) !=
                arith::RoundingMode::to_nearest_even)
          return "";
        return formatv("from_float<{0}>({1})", target, operand);
      })
      .Case<arith::SIToFPOp, arith::FPToSIOp>([&](auto) -> std::string {
        bool isFloat = from.isF32() || to.isF32();
        return !isFloat || fromBool || to.isInteger(1) ? "" : plain;
      })
      .Case<arith::UIToFPOp>(
          [&](auto) { return to.isF32() ? zeroExtended : std::string(); })
      .Case<arith::FPToUIOp>([&](auto) -> std::string {
        if (!from.isF32() || to.isInteger(1))
          return "";
        return formatv("({0}){1}", target, asUnsigned(to, operand));
      })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp>([&](auto) {
        return widthOf(to) > widthOf(from) ? zeroExtended : plain;
      })
      .Case<arith::ExtSIOp, arith::IndexCastOp>([&](auto) -> std::string {
        return fromBool ? formatv("-({0}){1}", target, operand).str() : plain;
      })
      .Case<arith::TruncIOp>([&](auto) -> std::string {
        return to.isInteger(1) ? formatv("({0} & 1) != 0", operand).str()
                               : plain;
      })
      .Case<arith::BitcastOp>([&](auto) { return bitcast(from, to, operand); })
      .Default(std::string());
}

/// Functions of numbers: the accurate ones, unless the operation allows others.
static StringRef mathFunction(Operation *op) {
  if (auto flags = dyn_cast<arith::ArithFastMathInterface>(op);
      isa<math::ExpOp, math::Exp2Op>(op) &&
      arith::bitEnumContainsAll(flags.getFastMathFlagsAttr().getValue(),
                                arith::FastMathFlags::afn))
    return isa<math::ExpOp>(op) ? "approximate_exp" : "approximate_exp2";
  return llvm::StringSwitch<StringRef>(op->getName().getStringRef())
      .Case("arith.remf", "fmodf")
      .Case("arith.maxnumf", "fmaxf")
      .Case("arith.minnumf", "fminf")
      .Case("math.absf", "fabsf")
      .Case("math.ceil", "ceilf")
      .Case("math.copysign", "copysignf")
      .Case("math.cos", "cosine")
      .Case("math.erf", "erff")
      .Case("math.exp", "expf")
      .Case("math.exp2", "exp2f")
      .Case("math.expm1", "expm1f")
      .Case("math.floor", "floorf")
      .Case("math.fma", "fmaf")
      .Case("math.log", "logf")
      .Case("math.log10", "log10f")
      .Case("math.log1p", "log1pf")
      .Case("math.log2", "log2f")
      .Case("math.powf", "powf")
      .Case("math.round", "roundf")
      .Case("math.roundeven", "rintf")
      .Case("math.rsqrt", "rsqrtf")
      .Case("math.sin", "sine")
      .Case("math.sqrt", "sqrtf")
      .Case("math.tan", "tanf")
      .Case("math.tanh", "tanhf")
      .Case("math.trunc", "truncf")
      .Case("vector.fma", "fmaf")
      .Default("");
}

/// Whether a number is exp(x) and at least 1: the divisor of sigmoid, silu and
/// softplus, for which a division needs neither steps nor branches for divisors
/// whose inverse is not a normal number.
static bool isExpAndMore(Value number) {
  auto sum = number.getDefiningOp<arith::AddFOp>();
  if (!sum || !sum.getLhs().getDefiningOp<math::ExpOp>())
    return false;
  APFloat more(0.0f);
  return matchPattern(sum.getRhs(), m_ConstantFloat(&more)) &&
         more.convertToFloat() >= 1;
}

/// Operations on f32; the other float types are only stored.
static std::string onNumbers(Operation *op, ArrayRef<std::string> operands) {
  if (StringRef function = mathFunction(op); !function.empty())
    return formatv("{0}({1})", function, llvm::join(operands, ", "));
  auto binary = [&](const char *symbol) {
    return formatv("{0} {1} {2}", operands[0], symbol, operands[1]).str();
  };
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<arith::AddFOp>([&](auto) { return binary("+"); })
      .Case<arith::SubFOp>([&](auto) { return binary("-"); })
      .Case<arith::MulFOp>([&](auto) { return binary("*"); })
      .Case<arith::DivFOp>([&](arith::DivFOp quotient) {
        return isExpAndMore(quotient.getRhs())
                   ? formatv("divide_by_large({0}, {1})", operands[0],
                             operands[1])
                         .str()
                   : binary("/");
      })
      .Case<arith::NegFOp>([&](auto) { return "-" + operands[0]; })
      .Case<arith::MaximumFOp>(
          [&](auto) { return nanExtremum(">", operands[0], operands[1]); })
      .Case<arith::MinimumFOp>(
          [&](auto) { return nanExtremum("<", operands[0], operands[1]); })
      .Case<arith::CmpFOp>([&](arith::CmpFOp compare) {
        return comparison(compare.getPredicate(), operands[0], operands[1]);
      })
      .Default(std::string());
}

static std::string onIntegers(Operation *op, Type type,
                              ArrayRef<std::string> operands) {
  bool isBool = type.isInteger(1);
  auto binary = [&](const char *symbol) {
    return formatv("{0} {1} {2}", operands[0], symbol, operands[1]).str();
  };
  auto arithmetic = [&](const char *format, bool isSigned) -> std::string {
    // bool does not wrap as i1 does.
    if (isBool)
      return "";
    if (isSigned)
      return formatv(format, operands[0], operands[1]);
    return formatv(format, asUnsigned(type, operands[0]),
                   asUnsigned(type, operands[1]));
  };
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<arith::AndIOp>([&](auto) { return binary("&"); })
      .Case<arith::OrIOp>([&](auto) { return binary("|"); })
      .Case<arith::XOrIOp>([&](auto) { return binary("^"); })
      .Case<arith::AddIOp>([&](auto) { return arithmetic("{0} + {1}", true); })
      .Case<arith::SubIOp>([&](auto) { return arithmetic("{0} - {1}", true); })
      .Case<arith::MulIOp>([&](auto) { return arithmetic("{0} * {1}", true); })
      .Case<arith::DivSIOp>([&](auto) { return arithmetic("{0} / {1}", true); })
      .Case<arith::RemSIOp>([&](auto) { return arithmetic("{0} % {1}", true); })
      .Case<arith::DivUIOp>(
          [&](auto) { return arithmetic("{0} / {1}", false); })
      .Case<arith::RemUIOp>(
          [&](auto) { return arithmetic("{0} % {1}", false); })
      .Case<arith::ShLIOp>([&](auto) { return arithmetic("{0} << {1}", true); })
      .Case<arith::ShRSIOp>(
          [&](auto) { return arithmetic("{0} >> {1}", true); })
      .Case<arith::ShRUIOp>(
          [&](auto) { return arithmetic("{0} >> {1}", false); })
      .Case<arith::MinSIOp>(
          [&](auto) { return arithmetic("min({0}, {1})", true); })
      .Case<arith::MaxSIOp>(
          [&](auto) { return arithmetic("max({0}, {1})", true); })
      .Case<arith::MinUIOp>(
          [&](auto) { return arithmetic("min({0}, {1})", false); })
      .Case<arith::MaxUIOp>(
          [&](auto) { return arithmetic("max({0}, {1})", false); })
      .Case<math::AbsIOp>([&](auto) -> std::string {
        return isBool ? "" : formatv("abs({0})", operands[0]).str();
      })
      .Case<arith::CmpIOp>([&](arith::CmpIOp compare) {
        return comparison(compare.getPredicate(), type, operands[0],
                          operands[1]);
      })
      .Default(std::string());
}

std::string elementExpression(Operation *op, ArrayRef<std::string> operands) {
  if (op->getNumOperands() == 0 || op->getNumResults() == 0)
    return "";
  auto hasText = [](Type type) { return !typeText(type).empty(); };
  if (!llvm::all_of(op->getOperandTypes(), hasText) ||
      !llvm::all_of(op->getResultTypes(), hasText))
    return "";
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  Type to = getElementTypeOrSelf(op->getResult(0).getType());
  if (isa<arith::SelectOp>(op))
    return formatv("{0} ? {1} : {2}", operands[0], operands[1], operands[2]);
  if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op)) {
    StringRef mode = gpu::stringifyShuffleMode(shuffle.getMode());
    return formatv("shuffle_{0}({1})", mode == "idx" ? "index" : mode,
                   llvm::join(operands, ", "));
  }
  if (std::string text = conversion(op, from, to, operands[0]); !text.empty())
    return text;
  if (from.isF32())
    return onNumbers(op, operands);
  return isa<FloatType>(from) ? "" : onIntegers(op, from, operands);
}

bool isElementwise(Operation *op) {
  // Two are rounded at once.
  if (auto truncate = dyn_cast<arith::TruncFOp>(op))
    if (auto vector = dyn_cast<VectorType>(truncate.getType());
        vector && vector.getNumElements() % 2 == 0)
      return false;
  SmallVector<std::string> operands(op->getNumOperands(), "x");
  if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op))
    if (!shuffle.getValid().use_empty())
      return false;
  return !elementExpression(op, operands).empty();
}

std::string combine(StringRef kind, StringRef a, StringRef b) {
  if (kind == "maximumf")
    return nanExtremum(">", a, b);
  if (kind == "minimumf")
    return nanExtremum("<", a, b);
  const char *format = llvm::StringSwitch<const char *>(kind)
                           .Case("add", "{0} + {1}")
                           .Case("mul", "{0} * {1}")
                           .Case("maxnumf", "fmaxf({0}, {1})")
                           .Case("minnumf", "fminf({0}, {1})")
                           .Case("maxsi", "max({0}, {1})")
                           .Case("minsi", "min({0}, {1})")
                           .Default(nullptr);
  return format ? formatv(format, a, b).str() : "";
}

bool isSameInCuda(Operation *op) {
  if (!isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::BitcastOp,
           vector::ShapeCastOp>(op))
    return false;
  std::string type = typeText(op->getResult(0).getType());
  return !type.empty() && type == typeText(op->getOperand(0).getType());
}

} // namespace ladle::cuda
