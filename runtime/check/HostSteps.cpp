//===- HostSteps.cpp - steps on tensors of the host -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/HostSteps.h"

using namespace ladle;
using namespace ladle::check;

Result<HostSteps> HostSteps::create(const Program &program, Pool &pool,
                                    const DecoderOptions &options) {
  Result<Decoder> decoder = Decoder::create(program, pool, options);
  if (!decoder)
    return decoder.status();
  return HostSteps(program, std::move(*decoder));
}

/// Elements from the first of a view to behind its last. Strides are positive.
static int64_t extent(const TensorView &view) {
  int64_t last = 0;
  for (size_t i = 0; i < view.shape.size(); ++i)
    last += (view.shape[i] - 1) * view.strides[i];
  return last + 1;
}

Result<TensorView> HostSteps::mirror(const std::string &name,
                                     const TensorView &view) {
  int64_t elements = extent(view);
  auto found = memory.find(name);
  if (found == memory.end() || found->second.view().count() < elements) {
    Result<DeviceTensor> made =
        DeviceTensor::allocate(program.device(), view.dtype, {elements});
    if (!made)
      return made.status();
    found = memory.insert_or_assign(name, std::move(*made)).first;
  }
  TensorView result = view;
  result.data = found->second.view().data;
  result.device = program.device();
  if (Status status = copy(view, result); !status)
    return status;
  return result;
}

Status HostSteps::upload(const char *name, std::span<const int32_t> slots,
                         std::span<const int32_t> &on) {
  if (slots.empty())
    return Status();
  TensorView view =
      TensorView::dense(const_cast<int32_t *>(slots.data()), DType::I32,
                        {static_cast<int64_t>(slots.size())});
  Result<TensorView> made = mirror(name, view);
  if (!made)
    return made.status();
  on = {static_cast<const int32_t *>(made->data), slots.size()};
  return Status();
}

Status HostSteps::step(const StepArguments &arguments) {
  if (program.device() == DeviceId())
    return decoder.step(arguments);
  StepArguments on = arguments;
  if (Status status = upload("read slots", arguments.readSlots, on.readSlots);
      !status)
    return status;
  if (Status status =
          upload("write slots", arguments.writeSlots, on.writeSlots);
      !status)
    return status;
  for (auto &[name, view] : on.tensors) {
    Result<TensorView> made = mirror(name, view);
    if (!made)
      return made.status();
    view = std::move(*made);
  }
  if (Status status = decoder.step(on); !status)
    return status;
  for (const TensorSpec &spec : program.signature().outputs)
    if (Status status = copy(on.tensors.find(spec.name)->second,
                             arguments.tensors.find(spec.name)->second);
        !status)
      return status;
  return Status();
}
