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
  HostSteps steps(program, pool, std::move(*decoder));
  // In pages a row goes on by itself.
  if (program.device() != DeviceId() && program.route() == RouteKind::KvOnly &&
      !program.page()) {
    Result<Program> inner = program.withRoute(RouteKind::Inner);
    if (!inner)
      return inner.status();
    Result<Decoder> made = Decoder::create(*inner, pool, options);
    if (!made)
      return made.status();
    steps.afterFolds.emplace(std::move(*made));
  }
  return steps;
}

Result<Decoder *> HostSteps::choose(std::span<const int32_t> slots) {
  for (int32_t slot : slots) {
    if (!afterFolds || pool->isPadding(slot))
      continue;
    Result<Cursor> cursor = pool->cursor(slot);
    if (!cursor)
      return cursor.status();
    if (cursor->epoch > 0)
      return &*afterFolds;
  }
  return &decoder;
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

Status HostSteps::mirrorAll(Tensors &tensors) {
  for (auto &[name, view] : tensors) {
    Result<TensorView> made = mirror(name, view);
    if (!made)
      return made.status();
    view = std::move(*made);
  }
  return Status();
}

Status HostSteps::copyOutputs(const Tensors &from, const Tensors &to) const {
  for (const TensorSpec &spec : program.signature().outputs)
    if (Status status =
            copy(from.find(spec.name)->second, to.find(spec.name)->second);
        !status)
      return status;
  return Status();
}

/// What rows are about to append: an entry each, or as `starts` has it.
Status HostSteps::reserve(std::span<const int32_t> slots,
                          std::span<const int32_t> starts,
                          std::span<const int32_t> moved) {
  if (!program.page())
    return Status();
  std::vector<int32_t> entries(slots.size(), 1);
  for (size_t row = 0; !starts.empty() && row < slots.size(); ++row)
    entries[row] = std::min<int32_t>(starts[row + 1] - starts[row],
                                     static_cast<int32_t>(program.capacity()));
  return pool->cursors().reserve(slots, entries, moved);
}

/// What prompts need: of rows that have a state, that, and entries of others.
Status HostSteps::reservePrompts(const PrefillArguments &arguments) {
  if (!program.page())
    return Status();
  std::vector<int32_t> folded, kept, starts{0};
  for (size_t row = 0; row < arguments.slots.size(); ++row) {
    int32_t slot = arguments.slots[row];
    if (pool->isPadding(slot))
      continue;
    Result<Cursor> cursor = pool->cursor(slot);
    if (!cursor)
      return cursor.status();
    if (program.route() != RouteKind::KvOnly || cursor->epoch > 0) {
      folded.push_back(slot);
      continue;
    }
    kept.push_back(slot);
    starts.push_back(starts.back() + arguments.cuSeqlens[row + 1] -
                     arguments.cuSeqlens[row]);
  }
  return reserve(kept, starts, folded);
}

Status HostSteps::verify(const VerifyArguments &arguments) {
  if (program.device() == DeviceId())
    return decoder.verify(arguments);
  VerifyArguments on = arguments;
  on.drafts = arguments.cuSeqlens.empty() ? 0 : arguments.cuSeqlens.back();
  // Nothing to do, and no device would be told of it.
  if (on.drafts == 0)
    return Status();
  if (Status status = reserve(arguments.slots, arguments.cuSeqlens); !status)
    return status;
  for (auto [name, from, to] :
       {std::tuple("slots", arguments.slots, &on.slots),
        std::tuple("sequence starts", arguments.cuSeqlens, &on.cuSeqlens),
        std::tuple("parents", arguments.parents, &on.parents)})
    if (Status status = upload(name, from, *to); !status)
      return status;
  if (Status status = mirrorAll(on.tensors); !status)
    return status;
  Result<Decoder *> chosen = choose(arguments.slots);
  if (!chosen)
    return chosen.status();
  if (Status status = (*chosen)->verify(on); !status)
    return status;
  return copyOutputs(on.tensors, arguments.tensors);
}

Status HostSteps::prefill(const PrefillArguments &arguments) {
  if (program.device() == DeviceId())
    return decoder.prefill(arguments);
  PrefillArguments on = arguments;
  on.tokens = arguments.cuSeqlens.empty() ? 0 : arguments.cuSeqlens.back();
  if (on.tokens == 0)
    return Status();
  if (Status status = reservePrompts(arguments); !status)
    return status;
  for (auto [name, from, to] :
       {std::tuple("slots", arguments.slots, &on.slots),
        std::tuple("sequence starts", arguments.cuSeqlens, &on.cuSeqlens)})
    if (Status status = upload(name, from, *to); !status)
      return status;
  if (Status status = mirrorAll(on.tensors); !status)
    return status;
  // What follows a prompt has a state.
  Decoder &chosen = afterFolds ? *afterFolds : decoder;
  if (Status status = chosen.prefill(on); !status)
    return status;
  return copyOutputs(on.tensors, arguments.tensors);
}

Status HostSteps::commit(std::span<const int32_t> slots,
                         std::span<const int32_t> numAccepted,
                         std::span<const int32_t> accepted) {
  std::span<const int32_t> onSlots = slots, onNumbers = numAccepted,
                           onAccepted = accepted;
  if (program.device() != DeviceId())
    for (auto [name, from, to] :
         {std::tuple("slots", slots, &onSlots),
          std::tuple("accepted numbers", numAccepted, &onNumbers),
          std::tuple("accepted", accepted, &onAccepted)})
      if (Status status = upload(name, from, *to); !status)
        return status;
  return pool->commit(onSlots, onNumbers, onAccepted);
}

Status HostSteps::step(const StepArguments &arguments) {
  if (program.device() == DeviceId())
    return decoder.step(arguments);
  std::vector<int32_t> moved;
  for (size_t row = 0; row < arguments.writeSlots.size(); ++row)
    if (arguments.writeSlots[row] != arguments.readSlots[row])
      moved.push_back(arguments.writeSlots[row]);
  if (Status status = reserve(arguments.readSlots, {}, moved); !status)
    return status;
  StepArguments on = arguments;
  if (Status status = upload("read slots", arguments.readSlots, on.readSlots);
      !status)
    return status;
  if (Status status =
          upload("write slots", arguments.writeSlots, on.writeSlots);
      !status)
    return status;
  if (Status status = mirrorAll(on.tensors); !status)
    return status;
  Result<Decoder *> chosen = choose(arguments.readSlots);
  if (!chosen)
    return chosen.status();
  if (Status status = (*chosen)->step(on); !status)
    return status;
  return copyOutputs(on.tensors, arguments.tensors);
}
