//===- GpuReference.cpp - what kernels should answer ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/GpuReference.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RoundedRuns.h"

#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

using namespace ladle;
using namespace ladle::measure;
using interpreter::Precision;
using interpreter::SpecInterpreter;
using Kind = jit::GpuArgument::Kind;

static Precision precisionOf(const std::string &entryType) {
  if (entryType == "bf16")
    return Precision::Bfloat16;
  return entryType == "f16" ? Precision::Float16 : Precision::Float32;
}

static std::vector<llvm::ArrayRef<double>>
views(const GpuReference::Arrays &arrays) {
  return {arrays.begin(), arrays.end()};
}

//===----------------------------------------------------------------------===//
// The reference
//===----------------------------------------------------------------------===//

GpuReference::GpuReference(SpecInterpreter exactInterpreter,
                           SpecInterpreter roundingInterpreter)
    : exact(std::move(exactInterpreter)),
      rounding(std::move(roundingInterpreter)),
      drawnParams(
          random.draw(exact.getParams(), 0, check::RandomInputs::params)) {
  for (int64_t row = 0; row < rows; ++row)
    sequences.push_back({exact.makeRow(), {}});
}

Result<GpuReference> GpuReference::create(const GpuSource &source) {
  std::ifstream file(source.file, std::ios::binary);
  if (!file)
    return Status(ErrorCode::NotFound,
                  fmt::format("cannot read '{}'", source.file));
  std::stringstream text;
  text << file.rdbuf();
  frontend::ElaborationOptions options = source.elaboration;
  if (!source.stateType.empty())
    options.stateTypes["*"] = source.stateType;
  std::string messages;
  auto compile = [&](Precision entries) {
    return check::compileOracle(source.file, text.str(), options, messages,
                                entries);
  };
  auto exact = compile(Precision::Float64);
  bool isNarrow = source.entryType != "f32";
  auto rounding =
      compile(isNarrow ? precisionOf(source.entryType) : Precision::Float64);
  if (!exact || !rounding)
    return Status(ErrorCode::InvalidData, messages);
  return GpuReference(std::move(*exact), std::move(*rounding));
}

GpuReference::Arrays GpuReference::tokens(int64_t row, int64_t position) const {
  return random.draw(exact.getTokens(), row, position);
}

const GpuReference::Arrays &GpuReference::outputs(int64_t row,
                                                  int64_t position) {
  Sequence &sequence = sequences[row];
  while (static_cast<int64_t>(sequence.outputs.size()) <= position) {
    Arrays inputs = tokens(row, static_cast<int64_t>(sequence.outputs.size()));
    Arrays &outputs = sequence.outputs.emplace_back(exact.getOutputs().size());
    exact.step(sequence.row, views(drawnParams), views(inputs), outputs);
  }
  return sequence.outputs[position];
}

double GpuReference::roundedError(int64_t period, int64_t tokenCount) {
  auto isNarrow = [](const interpreter::ValueInfo &info) {
    return info.precision != Precision::Float32;
  };
  if (!rounding.roundsEntries() && llvm::none_of(exact.getStates(), isNarrow) &&
      llvm::none_of(exact.getCarries(), isNarrow))
    return 0;
  double worst = 0;
  SpecInterpreter::Row row = exact.makeRow();
  check::RoundedRuns runs(rounding);
  for (int64_t position = 0; position < tokenCount; ++position) {
    Arrays inputs = tokens(0, position), answers(exact.getOutputs().size());
    exact.step(row, views(drawnParams), views(inputs), answers);
    bool folds = period > 0 && (position + 1) % period == 0;
    for (double error :
         runs.step(rounding, views(drawnParams), views(inputs),
                   check::RoundedRuns::decoded(folds), row, answers))
      worst = std::max(worst, error);
  }
  return worst;
}

/// An answer is rounded once to its type, f32 sums aside.
double GpuReference::bound(int64_t period, int64_t tokenCount) {
  auto [found, isNew] = bounds.try_emplace({period, tokenCount}, 0);
  if (!isNew)
    return found->second;
  double answer = 0;
  for (const interpreter::ValueInfo &info : exact.getOutputs())
    answer = std::max(answer, info.precision == Precision::Bfloat16  ? 0x1p-8
                              : info.precision == Precision::Float16 ? 0x1p-11
                                                                     : 0);
  check::Bound rounded{roundedError(period, tokenCount)};
  found->second = rounded.value() + check::Bound::exact + answer;
  return found->second;
}

//===----------------------------------------------------------------------===//
// The check
//===----------------------------------------------------------------------===//

namespace {

/// A layer that decodes the sequences of the reference.
class CheckedDecode {
public:
  CheckedDecode(GpuReference &reference, GpuLayer &layer)
      : reference(reference), layer(layer) {}

  Status writeParams();
  Status writeTokens(int64_t position);
  /// Adds the error of the answers at `position`.
  Status compare(int64_t position);
  double worst = 0;

private:
  GpuReference &reference;
  GpuLayer &layer;
};

} // namespace

Status CheckedDecode::writeParams() {
  GpuReference::Arrays params = reference.params();
  for (GpuTensor &tensor : layer.tensors)
    if (tensor.argument.kind == Kind::Param)
      if (Status status = tensor.write(0, params[tensor.argument.index]);
          !status)
        return status;
  return Status();
}

Status CheckedDecode::writeTokens(int64_t position) {
  for (int64_t row = 0; row < GpuReference::rows; ++row) {
    GpuReference::Arrays inputs = reference.tokens(row, position);
    for (GpuTensor &tensor : layer.tensors)
      if (tensor.argument.kind == Kind::Token)
        if (Status status = tensor.write(row, inputs[tensor.argument.index]);
            !status)
          return status;
  }
  return Status();
}

Status CheckedDecode::compare(int64_t position) {
  for (int64_t row = 0; row < GpuReference::rows; ++row) {
    const GpuReference::Arrays &expected = reference.outputs(row, position);
    for (const GpuTensor &tensor : layer.tensors) {
      if (tensor.argument.kind != Kind::Output)
        continue;
      Result<std::vector<double>> actual = tensor.read(row);
      if (!actual)
        return actual.status();
      double error =
          check::relativeError(*actual, expected[tensor.argument.index]);
      // A NaN stays.
      if (!(error <= worst))
        worst = error;
    }
  }
  return Status();
}

Result<GpuVerdict>
measure::checkKernels(const Gpu &gpu, const jit::GpuProgram &program,
                      const LoadedKernels &kernels, const std::string &route,
                      int64_t threshold, GpuReference &reference) {
  bool grows = route == "kv_only", buffers = !program.fields.empty();
  // A buffer that grows is never folded; others are, and read once after that.
  int64_t tokens = !buffers ? 3 : grows ? threshold - 1 : threshold + 2;
  int64_t period = !buffers ? 1 : grows ? 0 : threshold;
  Result<GpuLayer> layer =
      GpuLayer::allocate(gpu.device(), program, GpuReference::rows, threshold);
  if (!layer)
    return layer.status();
  Result<GpuStep> step =
      GpuStep::create(gpu.device(), program, kernels, GpuReference::rows,
                      static_cast<int32_t>(grows ? threshold + 1 : threshold));
  if (!step)
    return step.status();
  Result<cuda::Memory> cursors =
      GpuStep::makeCursors(gpu.device(), GpuReference::rows, 0);
  if (!cursors)
    return cursors.status();
  CheckedDecode decode(reference, *layer);
  if (Status status = decode.writeParams(); !status)
    return status;
  int32_t base = 0, length = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    std::vector<int32_t> values;
    for (int64_t row = 0; row < GpuReference::rows; ++row)
      values.insert(values.end(), {base, length});
    if (Status status = cursors->write(values.data(), cursors->bytes());
        !status)
      return status;
    if (Status status = decode.writeTokens(token); !status)
      return status;
    if (Status status = step->launch(*layer, *cursors); !status)
      return status;
    if (Status status = gpu.device().synchronize(); !status)
      return status;
    if (Status status = decode.compare(token); !status)
      return status;
    if (!buffers)
      continue;
    bool folds = period > 0 && length + 1 >= period;
    base = folds ? static_cast<int32_t>((base + length) % threshold) : base;
    length = folds ? 0 : length + 1;
  }
  return GpuVerdict{decode.worst, reference.bound(period, tokens)};
}
