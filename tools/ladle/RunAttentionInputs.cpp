//===- RunAttentionInputs.cpp - what an attention is run on ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/RunAttentionInputs.h"
#include "tools/ladle/SizesOfTokens.h"

#include "ladle/device.h"
#include "ladle/safetensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <random>
#include <span>

using namespace ladle;
using namespace ladle::tool;

/// Random inputs repeat after so many tokens.
static constexpr int64_t randomTokens = 512;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

int64_t tool::elementsOf(const TensorSpec &spec) {
  int64_t count = 1;
  for (int64_t size : spec.shape)
    count *= size;
  return count;
}

namespace {

class Loader {
public:
  Loader(const RunOptions &options, const Signature &signature)
      : options(options), signature(signature) {}

  Result<RunAttentionInputs> load();

private:
  void draw();
  Status takeTokens();
  Status takeParams();

  const RunOptions &options;
  const Signature &signature;
  RunAttentionInputs inputs;
};

} // namespace

void Loader::draw() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  inputs.tokens = std::min(options.tokens, randomTokens);
  auto draw = [&](const TensorSpec &spec, int64_t rows) {
    std::vector<float> &values = inputs.values[spec.name];
    values.resize(static_cast<size_t>(rows * elementsOf(spec)));
    for (float &value : values)
      value = normal(random);
  };
  for (const TensorSpec &spec : signature.params)
    draw(spec, 1);
  for (const TensorSpec &spec : signature.tokens)
    draw(spec, inputs.tokens);
}

/// What a program calls 'q' may be 'q_post'.
static std::string nameIn(const Safetensors &file, const std::string &name) {
  std::string other = name + "_post";
  return !file.contains(name) && file.contains(other) ? other : name;
}

static Status wrongShape(const std::string &name, const TensorView &view,
                         const TensorSpec &spec, bool isToken) {
  return invalid(fmt::format("'{}' of the {} is {}, wanted [{}{}]\nnote: "
                             "--preset and --set size what is run",
                             name, isToken ? "trace" : "parameters",
                             toString(view), isToken ? "tokens, " : "",
                             fmt::join(spec.shape, ", ")));
}

Status Loader::takeTokens() {
  Result<Safetensors> file = Safetensors::open(options.trace);
  if (!file)
    return file.status();
  for (const TensorSpec &spec : signature.tokens) {
    std::string name = nameIn(*file, spec.name);
    Result<TensorView> view = file->view(name);
    if (!view)
      return view.status();
    std::vector<int64_t> shape = spec.shape;
    shape.insert(shape.begin(), view->rank() ? view->shape[0] : 0);
    if (view->shape != shape)
      return wrongShape(name, *view, spec, /*isToken=*/true);
    int64_t found = std::min(shape[0], options.tokens);
    inputs.tokens = inputs.tokens ? std::min(inputs.tokens, found) : found;
    Result<std::vector<float>> values = toFloats(view->slice(0, 0, found));
    if (!values)
      return values.status();
    inputs.values[spec.name] = std::move(*values);
  }
  return inputs.tokens ? Status() : invalid("the trace holds no tokens");
}

Status Loader::takeParams() {
  const std::string &path =
      options.params.empty() ? options.trace : options.params;
  if (path.empty() || signature.params.empty())
    return Status();
  Result<Safetensors> file = Safetensors::open(path);
  if (!file)
    return file.status();
  for (const TensorSpec &spec : signature.params) {
    std::string name = nameIn(*file, options.paramsPrefix + spec.name);
    Result<TensorView> view = file->view(name);
    if (!view)
      return {view.status().code(),
              view.message() +
                  "\nnote: --params FILE and --params-prefix say where it is"};
    // Of what all heads share, files have no heads.
    std::span<const int64_t> bare(spec.shape);
    if (spec.shape.front() == 1)
      bare = bare.subspan(1);
    if (view->shape != spec.shape && !std::ranges::equal(view->shape, bare))
      return wrongShape(name, *view, spec, /*isToken=*/false);
    Result<std::vector<float>> values = toFloats(*view);
    if (!values)
      return values.status();
    inputs.values[spec.name] = std::move(*values);
  }
  return Status();
}

/// Inputs as the program stores them, which the oracle takes too.
static Status roundInto(std::vector<float> &values, DType type) {
  if (type == DType::F32)
    return Status();
  std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
  Result<DeviceTensor> stored = DeviceTensor::allocate(DeviceId(), type, shape);
  if (!stored)
    return stored.status();
  TensorView view = TensorView::dense(values, DType::F32, shape);
  if (Status status = copy(view, stored->view()); !status)
    return status;
  return copy(stored->view(), view);
}

Result<RunAttentionInputs> Loader::load() {
  if (options.trace.empty())
    draw();
  else if (Status status = takeTokens(); !status)
    return status;
  if (Status status = takeParams(); !status)
    return status;
  for (const auto *specs : {&signature.params, &signature.tokens})
    for (const TensorSpec &spec : *specs) {
      std::vector<float> &values = inputs.values[spec.name];
      for (float value : values)
        if (!std::isfinite(value))
          return invalid(fmt::format(
              "'{}' of the {} holds {}, wanted finite numbers", spec.name,
              specs == &signature.params ? "parameters" : "trace", value));
      if (Status status = roundInto(values, spec.dtype); !status)
        return status;
    }
  return std::move(inputs);
}

Result<RunAttentionInputs>
RunAttentionInputs::load(const RunOptions &options,
                         const Signature &signature) {
  return Loader(options, signature).load();
}

Result<std::map<std::string, int64_t>>
RunAttentionInputs::sizes(const RunOptions &options,
                          const std::string &source) {
  std::map<std::string, int64_t> sizes = options.source.sizes;
  if (options.trace.empty() || !options.source.preset.empty())
    return sizes;
  Result<Safetensors> file = Safetensors::open(options.trace);
  if (!file)
    return file.status();
  auto found = sizesOfTokens(
      options.source, source,
      [&](const std::string &token) -> std::optional<std::vector<int64_t>> {
        Result<TensorView> view = file->view(nameIn(*file, token));
        if (!view || view->rank() == 0)
          return std::nullopt;
        return std::vector(view->shape.begin() + 1, view->shape.end());
      });
  if (!found)
    return invalid(""); // it has been said why
  sizes.merge(*found);
  return sizes;
}
