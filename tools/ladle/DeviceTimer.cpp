//===- DeviceTimer.cpp - what decoding takes on a GPU ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DeviceTimer.h"
#include "ladle/device.h"
#include "runtime/cuda/Driver.h"

#include <algorithm>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;

namespace {

class DeviceTimer {
public:
  DeviceTimer(const Program &program, const check::Trace &trace,
              const TimingOptions &options, cuda::Device device)
      : program(program), trace(trace), options(options),
        device(std::move(device)),
        length(static_cast<int64_t>(trace.tokens.size())),
        stride(std::max<int64_t>(1, length / options.rows)) {}

  /// Allocates, uploads, writes every state once and brings the rows to their
  /// fills.
  Status prepare();
  Result<Timing> time(const ProgressFunction &progress);

private:
  Status uploadInputs();
  Status setSlots(const std::vector<int32_t> &slots);
  /// Points the inputs at the next token.
  Status advance();
  Status step(void *stream);
  Status spreadFills();
  /// A graph of so many steps.
  Result<cuda::Graph> record(int64_t steps);

  struct Input {
    std::string name;
    std::byte *data;
    int64_t tokenBytes;
  };

  const Program &program;
  const check::Trace &trace;
  TimingOptions options;
  cuda::Device device;
  int64_t length, stride, token = 0;
  std::optional<Pool> pool;
  std::optional<Decoder> decoder;
  std::optional<BoundStep> bound;
  std::vector<DeviceTensor> memory;
  std::vector<Input> inputs;
  std::optional<DeviceTensor> slots;
  StepArguments arguments;
};

} // namespace

/// A token of row r at step t is number r·stride + t, modulo the length: with
/// the trace twice in memory, a strided view of it is what a batch reads.
Status DeviceTimer::uploadInputs() {
  const Signature &signature = program.signature();
  int64_t tokens = (options.rows - 1) * stride + length;
  check::Batch source(signature, length, /*packed=*/false);
  source.setParams(trace.params);
  for (int64_t i = 0; i < length; ++i)
    source.setTokens(i, trace.tokens[i]);
  auto allocate = [&](const TensorSpec &spec,
                      std::vector<int64_t> shape) -> Result<TensorView> {
    Result<DeviceTensor> made =
        DeviceTensor::allocate(program.device(), spec.dtype, std::move(shape));
    if (!made)
      return made.status();
    return memory.emplace_back(std::move(*made)).view();
  };
  auto withOuter = [](int64_t outer, const TensorSpec &spec) {
    std::vector<int64_t> shape = spec.shape;
    shape.insert(shape.begin(), outer);
    return shape;
  };
  for (const TensorSpec &spec : signature.params) {
    Result<TensorView> view = allocate(spec, spec.shape);
    if (!view)
      return view.status();
    if (Status status = copy(source.getTensors().at(spec.name), *view); !status)
      return status;
    arguments.tensors[spec.name] = *view;
  }
  for (const TensorSpec &spec : signature.tokens) {
    Result<TensorView> all = allocate(spec, withOuter(tokens, spec));
    if (!all)
      return all.status();
    const TensorView &from = source.getTensors().at(spec.name);
    for (int64_t begin = 0; begin < tokens; begin += length) {
      int64_t count = std::min(length, tokens - begin);
      if (Status status = copy(from.slice(0, 0, count),
                               all->slice(0, begin, begin + count));
          !status)
        return status;
    }
    TensorView batch = *all;
    batch.shape[0] = options.rows;
    batch.strides[0] *= stride;
    arguments.tensors[spec.name] = batch;
    inputs.push_back({spec.name, static_cast<std::byte *>(all->data),
                      all->strides[0] * sizeInBytes(spec.dtype)});
  }
  for (const TensorSpec &spec : signature.outputs) {
    Result<TensorView> view = allocate(spec, withOuter(options.rows, spec));
    if (!view)
      return view.status();
    arguments.tensors[spec.name] = *view;
  }
  return Status();
}

Status DeviceTimer::setSlots(const std::vector<int32_t> &numbers) {
  return copy(TensorView::dense(const_cast<int32_t *>(numbers.data()),
                                DType::I32, {options.rows}),
              slots->view());
}

Status DeviceTimer::advance() {
  for (const Input &input : inputs)
    if (Status status = bound->setMemory(
            input.name, input.data + token % length * input.tokenBytes);
        !status)
      return status;
  ++token;
  return Status();
}

Status DeviceTimer::step(void *stream) {
  if (Status status = advance(); !status)
    return status;
  return bound->launch(stream);
}

/// As StepTimer does it on the CPU.
Status DeviceTimer::spreadFills() {
  int64_t m = options.threshold;
  if (program.capacity() > 0)
    if (Status status = pool->setFoldThreshold(1); !status)
      return status;
  if (Status status = step(nullptr); !status || program.capacity() == 0)
    return status;
  if (Status status = pool->setFoldThreshold(m); !status || options.inPhase)
    return status;
  std::vector<int32_t> numbers(options.rows);
  for (int64_t wave = 0; wave + 1 < m; ++wave) {
    for (int64_t row = 0; row < options.rows; ++row)
      numbers[row] = row % m <= wave ? static_cast<int32_t>(row) : -1;
    if (Status status = setSlots(numbers); !status)
      return status;
    if (Status status = step(nullptr); !status)
      return status;
  }
  std::iota(numbers.begin(), numbers.end(), 0);
  return setSlots(numbers);
}

Status DeviceTimer::prepare() {
  PoolOptions poolOptions;
  poolOptions.slots = options.rows;
  poolOptions.foldThreshold = program.capacity() ? options.threshold : 0;
  Result<Pool> made = Pool::create(program, poolOptions);
  if (!made)
    return made.status();
  pool.emplace(std::move(*made));
  Result<Decoder> created = Decoder::create(program, *pool);
  if (!created)
    return created.status();
  decoder.emplace(std::move(*created));
  std::vector<int32_t> numbers(options.rows);
  std::iota(numbers.begin(), numbers.end(), 0);
  Result<DeviceTensor> copied = DeviceTensor::copyOf(
      program.device(),
      TensorView::dense(numbers.data(), DType::I32, {options.rows}));
  if (!copied)
    return copied.status();
  slots.emplace(std::move(*copied));
  arguments.rows = options.rows;
  arguments.readSlots = {slots->as<int32_t>(), numbers.size()};
  if (Status status = uploadInputs(); !status)
    return status;
  Result<BoundStep> checked = decoder->bind(arguments);
  if (!checked)
    return checked.status();
  bound.emplace(std::move(*checked));
  Status status =
      program.route() == RouteKind::KvOnly ? Status() : spreadFills();
  return status ? device.synchronize() : status;
}

Result<cuda::Graph> DeviceTimer::record(int64_t steps) {
  return cuda::Graph::record(device, [&]() -> Status {
    for (int64_t i = 0; i < steps; ++i)
      if (Status status = step(device.stream()); !status)
        return status;
    return Status();
  });
}

Result<Timing> DeviceTimer::time(const ProgressFunction &progress) {
  bool isKvOnly = program.route() == RouteKind::KvOnly;
  constexpr int64_t mostNodes = 2048;
  // kv_only: whole contexts, the first of them only to touch the memory. Else
  // whole cycles, as far as a graph should go.
  int64_t m = options.threshold;
  int64_t most = std::clamp(options.maxSteps, options.minSteps, mostNodes);
  int64_t steps = isKvOnly ? std::max<int64_t>(1, m - 1)
                           : std::max<int64_t>(1, most / m) * m;
  Result<cuda::Graph> graph = record(steps);
  if (!graph)
    return graph.status();
  std::vector<int32_t> all(options.rows);
  std::iota(all.begin(), all.end(), 0);
  Timing timing;
  timing.rows = options.rows;
  int replays = 0;
  auto isDone = [&] {
    return isKvOnly ? replays == 2
                    : timing.steps >= options.minSteps &&
                          (timing.steps >= options.maxSteps ||
                           timing.seconds >= options.budget);
  };
  for (; !isDone(); ++replays) {
    if (isKvOnly)
      if (Status status = pool->reset(all); !status)
        return status;
    if (Status status = device.synchronize(); !status)
      return status;
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    if (!isKvOnly || replays == 1) {
      timing.seconds += *seconds;
      timing.steps += steps;
    }
    if (progress)
      progress(std::max(double(timing.steps) / double(options.maxSteps),
                        timing.seconds / options.budget));
  }
  timing.seconds /= static_cast<double>(timing.steps);
  return timing;
}

Result<Timing> tool::timeDecodeOnDevice(const Program &program,
                                        const check::Trace &trace,
                                        const TimingOptions &options,
                                        const ProgressFunction &progress) {
  Result<cuda::Device> device = cuda::Device::shared(program.device().index);
  if (!device)
    return device.status();
  DeviceTimer timer(program, trace, options, std::move(*device));
  if (Status status = timer.prepare(); !status)
    return status;
  return timer.time(progress);
}
