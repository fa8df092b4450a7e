//===- Arguments.cpp - check the arguments of a step ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/Text.h"

#include <algorithm>
#include <array>
#include <map>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {

/// One argument: what the signature wants and what the caller gave.
class Argument {
public:
  /// `rows` is 0 for a parameter.
  Argument(const TensorSpec &spec, int64_t rows, const TensorView &view)
      : spec(spec), view(view) {
    if (rows)
      wanted[rank++] = rows;
    for (int64_t size : spec.shape)
      wanted[rank++] = size;
    headAxis = rows ? 1 : 0;
  }

  Status check(bool isOutput, DeviceId device);
  void describe(MemoryDescriptor &descriptor) const;

private:
  template <typename... Args>
  Status wrong(fmt::format_string<Args...> format, Args &&...args) const {
    return Status(
        ErrorCode::InvalidArgument,
        fmt::format("argument '{}' {}", spec.name,
                    fmt::format(format, std::forward<Args>(args)...)));
  }
  std::span<const int64_t> wantedShape() const { return {wanted.data(), rank}; }
  bool matchShape();
  bool overlapsItself() const;

  const TensorSpec &spec;
  const TensorView &view;
  std::array<int64_t, maxArgumentRank> wanted{}, strides{};
  size_t rank = 0, headAxis;
};

} // namespace

/// Fills `strides` for the wanted shape. The dimension of one shared head may
/// be left out.
bool Argument::matchShape() {
  bool leftOut = view.shape.size() + 1 == rank && spec.shape.front() == 1 &&
                 spec.shape.size() > 1;
  if (view.shape.size() != rank && !leftOut)
    return false;
  size_t from = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (leftOut && i == headAxis) {
      strides[i] = 0;
      continue;
    }
    if (view.shape[from] != wanted[i])
      return false;
    strides[i] = view.strides[from++];
  }
  return true;
}

/// Whether two elements may lie at one address. Judges by the strides alone:
/// each must step over all that the smaller ones reach.
bool Argument::overlapsItself() const {
  std::array<std::pair<int64_t, int64_t>, maxArgumentRank> steps;
  size_t count = 0;
  for (size_t i = 0; i < rank; ++i)
    if (wanted[i] > 1)
      steps[count++] = {std::abs(strides[i]), wanted[i]};
  std::sort(steps.begin(), steps.begin() + count);
  int64_t reach = 0;
  for (size_t i = 0; i < count; ++i) {
    if (steps[i].first <= reach)
      return true;
    reach += steps[i].first * (steps[i].second - 1);
  }
  return false;
}

Status Argument::check(bool isOutput, DeviceId device) {
  if (view.strides.size() != view.shape.size())
    return wrong("has {} strides for the {} dimensions of {}",
                 view.strides.size(), view.shape.size(), toString(view));
  if (view.dtype != spec.dtype || !matchShape())
    return wrong("is {}, wanted {} {}", toString(view), toString(spec.dtype),
                 shapeText(wantedShape()));
  if (view.device != device)
    return wrong("is in memory of {}, wanted {}", toString(view.device),
                 toString(device));
  if (!view.data)
    return wrong("is null");
  int64_t bytes = sizeInBytes(spec.dtype);
  if (reinterpret_cast<uintptr_t>(view.data) % static_cast<size_t>(bytes))
    return wrong("is at {}, which is not a multiple of its {} bytes an element",
                 view.data, bytes);
  // Kernels load vectors along the last dimension, unless it counts heads.
  if (spec.shape.size() > 1 && wanted[rank - 1] > 1 && strides[rank - 1] != 1)
    return wrong("has stride {} along its last dimension, wanted 1",
                 strides[rank - 1]);
  if (isOutput && overlapsItself())
    return wrong("overlaps itself: {} with strides {}", toString(view),
                 shapeText(view.strides));
  return Status();
}

void Argument::describe(MemoryDescriptor &descriptor) const {
  descriptor.allocated = descriptor.aligned = view.data;
  std::copy_n(wanted.begin(), rank, descriptor.sizesAndStrides);
  std::copy_n(strides.begin(), rank, descriptor.sizesAndStrides + rank);
}

/// "takes parameters 'a', tokens 'q', 'k' and outputs 'y'".
static std::string takes(const Signature &signature) {
  return fmt::format("'{}' takes parameters {}; tokens {}; outputs {}",
                     signature.name, namesText(signature.params),
                     namesText(signature.tokens), namesText(signature.outputs));
}

/// The first of `tensors` that the signature does not have.
static Status unknownArgument(const Signature &signature,
                              const NamedTensors &tensors) {
  for (const auto &[name, view] : tensors) {
    auto isNamed = [&](const TensorSpec &spec) { return spec.name == name; };
    bool known = false;
    for (const auto *specs :
         {&signature.params, &signature.tokens, &signature.outputs})
      known |= std::any_of(specs->begin(), specs->end(), isNamed);
    if (!known)
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("unknown argument '{}'; {}", name, takes(signature)));
  }
  return Status();
}

Status ladle::bindArguments(const Signature &signature, int64_t rows,
                            DeviceId device, const NamedTensors &tensors,
                            ArgumentDescriptors descriptors) {
  struct Kind {
    const std::vector<TensorSpec> &specs;
    std::span<MemoryDescriptor> descriptors;
    int64_t rows;
    bool isOutput;
  };
  size_t found = 0;
  for (const Kind &kind :
       {Kind{signature.params, descriptors.params, 0, false},
        Kind{signature.tokens, descriptors.tokens, rows, false},
        Kind{signature.outputs, descriptors.outputs, rows, true}})
    for (size_t i = 0; i < kind.specs.size(); ++i) {
      const TensorSpec &spec = kind.specs[i];
      auto given = tensors.find(spec.name);
      if (given == tensors.end())
        return Status(ErrorCode::InvalidArgument,
                      fmt::format("argument '{}' is missing; {}", spec.name,
                                  takes(signature)));
      Argument argument(spec, kind.rows, given->second);
      if (Status status = argument.check(kind.isOutput, device); !status)
        return status;
      argument.describe(kind.descriptors[i]);
      ++found;
    }
  if (found != tensors.size())
    return unknownArgument(signature, tensors);
  return Status();
}

Status ladle::checkBranches(std::span<const int32_t> from,
                            std::span<const int32_t> to,
                            const std::function<Status(int32_t)> &checkSlot) {
  if (from.size() != to.size())
    return invalid(fmt::format("to has {} slots, wanted {}, one for each of "
                               "from",
                               to.size(), from.size()));
  for (auto [name, list] : {std::pair{"from", from}, {"to", to}})
    for (size_t i = 0; i < list.size(); ++i)
      if (Status status = checkSlot(list[i]); !status)
        return invalid(fmt::format("{}[{}]: {}", name, i, status.message()));
  std::map<int32_t, std::pair<const char *, size_t>> named;
  for (size_t i = 0; i < from.size(); ++i)
    named.try_emplace(from[i], "from", i);
  for (size_t i = 0; i < to.size(); ++i)
    if (auto [at, isNew] = named.try_emplace(to[i], "to", i); !isNew)
      return invalid(fmt::format(
          "to[{}] is {}, which is {}[{}], wanted slots that no other branch "
          "comes from or goes to",
          i, to[i], at->second.first, at->second.second));
  return Status();
}
