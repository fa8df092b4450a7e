//===- MacTrace.cpp - a trace of softmax attention ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MacTrace.h"
#include "runtime/Convert.h"
#include "runtime/tune/Problem.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidData, std::move(message));
}

Result<MacTrace> MacTrace::open(const std::string &path,
                                const MacTraceOptions &options) {
  Result<Safetensors> file = Safetensors::open(path);
  if (!file)
    return file.status();
  MacTrace trace;
  trace.path = path;
  bool isRotated = file->contains("q_post") || options.ropeBase <= 0;
  for (const char *name : {"q_pre", "q_post", "k_post", "v"}) {
    if (name == std::string("q_post") && !isRotated)
      continue;
    Result<TensorView> view = file->view(name);
    if (!view && name == std::string("q_post"))
      return Status(view.status().code(),
                    view.status().message() +
                        "\nnote: --rope-base 50000, say, rotates 'q_pre' by "
                        "that base, pairs of (i, i + D / 2)");
    if (!view)
      return view.status();
    if (view->rank() != 3 || view->dtype != DType::BF16)
      return invalid(fmt::format("'{}' of the trace is {}, wanted bf16 "
                                 "[tokens, heads, D]",
                                 name, toString(*view)));
    trace.tensors.emplace(name, *view);
  }
  trace.file = std::move(*file);
  trace.tokenCount = trace.tensors["q_pre"].shape[0];
  if (options.tokens)
    trace.tokenCount = std::min(trace.tokenCount, options.tokens);
  if (trace.tokenCount < 2)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("the trace has {} tokens, wanted 2 at least",
                              trace.tokenCount));
  for (const auto &[name, view] : trace.tensors)
    if (view.shape[0] < trace.tokenCount)
      return invalid(fmt::format("'{}' of the trace is {}, wanted {} tokens",
                                 name, toString(view), trace.tokenCount));
  trace.takeMoments();
  if (!isRotated)
    if (Status status = trace.rotateQueries(options.ropeBase); !status)
      return status;
  if (Status status = trace.readOutputs(); !status)
    return status;
  return std::move(trace);
}

void MacTrace::takeMoments() {
  const TensorView &view = tensors["q_pre"];
  int64_t heads = view.shape[1], size = view.shape[2];
  queries = *toFloats(view.slice(0, 0, tokenCount));
  squares.assign(static_cast<size_t>(heads), 0);
  // As decoders do, without those that are no numbers in f32.
  std::vector<double> counted(squares.size());
  for (int64_t at = 0; at < tokenCount * heads; ++at) {
    double square = 0;
    for (int64_t i = at * size; i < (at + 1) * size; ++i)
      square += static_cast<double>(queries[i]) * queries[i];
    if (!std::isfinite(static_cast<float>(square)))
      continue;
    squares[at % heads] += square;
    ++counted[at % heads];
  }
  for (size_t head = 0; head < squares.size(); ++head)
    squares[head] /= std::max(counted[head], 1.0);
}

/// In double, then to bf16.
Status MacTrace::rotateQueries(double base) {
  const TensorView &view = tensors["q_pre"];
  int64_t heads = view.shape[1], size = view.shape[2], half = size / 2;
  if (size % 2)
    return invalid(fmt::format("'q_pre' of the trace is {}, wanted an even D "
                               "to rotate it",
                               toString(view)));
  rotated.resize(queries.size());
  auto put = [&](int64_t at, double value) {
    storeFloat(DType::BF16, static_cast<float>(value),
               &rotated[static_cast<size_t>(at)]);
  };
  for (int64_t token = 0; token < tokenCount; ++token)
    for (int64_t i = 0; i < half; ++i) {
      double angle =
          static_cast<double>(token) *
          std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      double cosine = std::cos(angle), sine = std::sin(angle);
      for (int64_t head = 0; head < heads; ++head) {
        int64_t at = (token * heads + head) * size + i;
        double first = queries[at], second = queries[at + half];
        put(at, first * cosine - second * sine);
        put(at + half, second * cosine + first * sine);
      }
    }
  tensors["q_post"] =
      TensorView::dense(rotated, DType::BF16, {tokenCount, heads, size});
  return Status();
}

Status MacTrace::readOutputs() {
  if (!file->contains("o") || !file->contains("positions"))
    return Status();
  Result<TensorView> outputs = file->view("o");
  Result<TensorView> positions = file->view("positions");
  if (!outputs || !positions)
    return outputs ? positions.status() : outputs.status();
  std::vector<int64_t> wanted{positions->count(), tensors["q_pre"].shape[1],
                              tensors["v"].shape[2]};
  if (positions->rank() != 1 || positions->dtype != DType::I32 ||
      outputs->shape != wanted)
    return invalid(fmt::format("'positions' and 'o' of the trace are {} and "
                               "{}, wanted i32 [n] and [n, heads, D]",
                               toString(*positions), toString(*outputs)));
  Result<std::vector<float>> values = toFloats(*outputs);
  if (!values)
    return values.status();
  const auto *from = static_cast<const int32_t *>(positions->data);
  stored = Outputs{{from, from + positions->count()}, std::move(*values)};
  return Status();
}

const TensorView *MacTrace::find(const std::string &name) const {
  for (const std::string &each : {name, name + "_post"})
    if (auto found = tensors.find(each); found != tensors.end())
      return &found->second;
  return nullptr;
}

double MacTrace::squaredDistance(int64_t a, int64_t b, int64_t head) const {
  return distance("q_pre", a, b, head);
}

double MacTrace::rotatedDistance(int64_t a, int64_t b, int64_t head) const {
  return distance("q_post", a, b, head);
}

double MacTrace::distance(const std::string &name, int64_t a, int64_t b,
                          int64_t head) const {
  const TensorView &view = tensors.at(name);
  int64_t bytes = sizeInBytes(view.dtype);
  auto element = [&](int64_t token, int64_t i) -> double {
    return loadFloat(view.dtype, static_cast<const char *>(view.data) +
                                     bytes * (token * view.strides[0] +
                                              head * view.strides[1] +
                                              i * view.strides[2]));
  };
  double sum = 0;
  for (int64_t i = 0; i < view.shape[2]; ++i) {
    double difference = element(a, i) - element(b, i);
    sum += difference * difference;
  }
  return sum;
}

std::string MacTrace::fingerprint() const {
  std::string all;
  for (const auto &[name, view] : tensors) {
    TensorView part = view.slice(0, 0, tokenCount);
    all += name + toString(part);
    std::vector<uint16_t> dense(static_cast<size_t>(part.count()));
    if (copy(part, TensorView::dense(dense, part.dtype, part.shape)))
      all += tune::fingerprintOf({reinterpret_cast<const char *>(dense.data()),
                                  dense.size() * sizeof(uint16_t)});
  }
  return tune::fingerprintOf(all);
}
