//===- KernelArguments.cpp - what a launch of a step takes ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/KernelArguments.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"

#include <algorithm>
#include <cstdlib>

using namespace ladle;
using Kind = cuda::Argument::Kind;

/// Dimensions of [heads, dims...] that kernels are told the strides of.
static size_t toldStrides(const TensorSpec &spec) {
  return spec.shape.size() - (spec.shape.size() > 1 ? 1 : 0);
}

KernelArguments::KernelArguments(const RouteKernels &route,
                                 const Signature &signature,
                                 const DevicePool &pool, HeadRange heads,
                                 KernelCall call)
    : heads(heads), allHeads(signature.heads),
      multiprocessors(pool.code->device.multiprocessors()),
      paramCount(signature.params.size()), tokenCount(signature.tokens.size()) {
  descriptors.resize(paramCount + tokenCount + signature.outputs.size());
  add(0);
  add(0);
  const DeviceCursors &cursors = pool.positions();
  add(cursors.positions.address());
  add(cursors.thresholds.address());
  add(static_cast<uint32_t>(cursors.padSlot));
  if (cursors.drafts) {
    add(cursors.order.address());
    add(cursors.versions.address());
    add(cursors.waiting.address());
  }
  if (cursors.page && route.usesBuffer) {
    add(cursors.pageTable.address());
    add(cursors.stateTable.address());
    add(cursors.epochs.address());
    rowKind = add(AllRows);
  }
  if (call != KernelCall::Step)
    firstOfDrafts = add(0);
  if (call == KernelCall::Verify) {
    add(0);
    add(0);
    if (route.gpu->draft)
      numberOfDraft = add(0), add(0);
  }
  bool foldsByChunk = cursors.fixedThreshold > 0;
  if (call == KernelCall::Prefill && foldsByChunk)
    add(0);
  if (call == KernelCall::Prefill && route.gpu->prepare)
    prepared = add(0), add(0), add(0), add(0), add(0);
  /// The first head of the range, of a tensor that has fewer.
  auto firstOf = [&](int64_t count) {
    return heads.begin / (allHeads / count);
  };
  auto addTensor = [&](const cuda::Argument &argument, const TensorSpec &spec,
                       size_t descriptor, bool hasRows) {
    size_t strides = toldStrides(spec) + (hasRows ? 1 : 0);
    described.push_back(
        {&spec, std::max(argument.alignment, sizeInBytes(spec.dtype)), add(0),
         spec.shape.size() + (hasRows ? 1 : 0), strides, hasRows,
         firstOf(spec.shape[0]), /*offset=*/0, &descriptors[descriptor]});
    for (size_t i = 0; i < strides; ++i)
      add(0);
  };
  auto addArray = [&](const Pool::Impl::Array &array) {
    // Heads of a slot lie one after the other.
    int64_t count = array.spec.shape[0];
    add(addressOf(array.data) +
        static_cast<uint64_t>(firstOf(count) * (array.slotBytes() / count)));
    add(static_cast<uint64_t>(array.stride));
  };
  for (const cuda::Argument &argument : route.gpu->arguments) {
    size_t i = argument.index;
    switch (argument.kind) {
    case Kind::Param:
      addTensor(argument, signature.params[i], i, false);
      break;
    case Kind::Token:
      addTensor(argument, signature.tokens[i], paramCount + i, true);
      break;
    case Kind::Output:
      addTensor(argument, signature.outputs[i], paramCount + tokenCount + i,
                true);
      break;
    case Kind::Carry:
      addArray(pool.carries[i]);
      break;
    case Kind::State:
      addArray(pool.states[i]);
      break;
    case Kind::Field:
      // Prompts that are folded leave no entries behind.
      if (call == KernelCall::Prefill && !foldsByChunk &&
          !(cursors.page && route.route == RouteKind::KvOnly))
        break;
      addArray(pool.fields[i]);
      break;
    }
  }
  for (size_t i = 0; call == KernelCall::Prefill && i < pool.carries.size();
       ++i) {
    nextCarries.push_back(add(0));
    add(0);
  }
  for (uint64_t &value : values)
    addresses.push_back(&value);
}

void KernelArguments::setNextCarry(size_t carry, uint64_t data,
                                   int64_t stride) {
  values[nextCarries[carry]] = data;
  values[nextCarries[carry] + 1] = static_cast<uint64_t>(stride);
}

size_t KernelArguments::add(uint64_t value) {
  values.push_back(value);
  return values.size() - 1;
}

Status KernelArguments::setMemory(const Tensor &tensor, const void *data) {
  if (addressOf(data) % static_cast<uint64_t>(tensor.alignment))
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("argument '{}' is at {}, which is not a multiple "
                              "of {} bytes",
                              tensor.spec->name, data, tensor.alignment));
  values[tensor.value] = addressOf(data) + tensor.offset;
  return Status();
}

Status KernelArguments::takeDescriptors() {
  for (Tensor &tensor : described) {
    const MemoryDescriptor &memory = *tensor.descriptor;
    const int64_t *sizes = memory.sizesAndStrides;
    const int64_t *strides = sizes + tensor.rank;
    int64_t element = sizeInBytes(tensor.spec->dtype);
    tensor.offset = static_cast<uint64_t>(
        tensor.firstHead * strides[tensor.hasRows ? 1 : 0] * element);
    if (Status status = setMemory(tensor, memory.aligned); !status)
      return status;
    for (size_t i = 0; i < tensor.strides; ++i) {
      if (sizes[i] > 1 && strides[i] * element % tensor.alignment)
        return Status(ErrorCode::InvalidArgument,
                      fmt::format("argument '{}' has stride {} along dimension "
                                  "{}, wanted a multiple of {}",
                                  tensor.spec->name, strides[i], i,
                                  tensor.alignment / element));
      if (sizes[i] > 1 && std::abs(strides[i]) > kMaxStride)
        return Status(ErrorCode::InvalidArgument,
                      fmt::format("argument '{}' has stride {} along dimension "
                                  "{}, wanted at most {}",
                                  tensor.spec->name, strides[i], i,
                                  kMaxStride));
      values[tensor.value + 1 + i] = static_cast<uint64_t>(strides[i]);
    }
  }
  return Status();
}

/// Lets row 0 be what row `count` is, or back if it is negative.
void KernelArguments::skipRows(int64_t count) {
  for (size_t slots : {0, 1})
    values[slots] += static_cast<uint64_t>(count) * sizeof(int32_t);
  // Drafts are counted over all rows.
  if (firstOfDrafts) {
    values[firstOfDrafts] += static_cast<uint64_t>(count) * sizeof(int32_t);
    return;
  }
  for (const Tensor &tensor : described)
    if (tensor.hasRows)
      values[tensor.value] += static_cast<uint64_t>(count) *
                              values[tensor.value + 1] *
                              sizeInBytes(tensor.spec->dtype);
}

/// Of a row, for the heads of the range.
unsigned KernelArguments::blocksOf(const cuda::KernelInfo &info) const {
  int64_t count = heads.end - heads.begin;
  return static_cast<unsigned>(info.gridBlocks * count / allHeads);
}

/// Calls `launch` with as many rows as a grid has, from each first one on.
template <typename Launch>
Status KernelArguments::forRows(int64_t rows, Launch launch) {
  Status status;
  int64_t skipped = 0;
  for (int64_t done = 0; status && done < rows;) {
    if (done > 0)
      skipRows(maxGpuRows);
    skipped = done;
    int64_t part = std::min(rows - done, maxGpuRows);
    status = launch(part);
    done += part;
  }
  // Back to the first row, whichever part has failed.
  if (skipped > 0)
    skipRows(-skipped);
  return status;
}

Status KernelArguments::launch(std::span<const cuda::Kernel> kernels,
                               int64_t rows, void *stream, bool early) {
  return forRows(rows, [&](int64_t count) {
    Status status;
    for (const cuda::Kernel &kernel : kernels)
      if (status) {
        status = kernel.launchRows(count, addresses.data(), stream,
                                   blocksOf(kernel.info()), early);
        early = false; // The others follow one of the same pool.
      }
    return status;
  });
}

Status KernelArguments::launchPrompts(const GpuRoute &route, int64_t rows,
                                      int64_t tokens, void *stream,
                                      bool early) {
  if (!route.prepare)
    return launch(std::span(&*route.prefill, 1), rows, stream, early);
  const cuda::KernelInfo &info = route.prepare->info();
  int64_t headCount = heads.end - heads.begin;
  auto blocks = static_cast<unsigned>(std::min(
      info.runs * headCount, int64_t{info.blocksBeside} * multiprocessors));
  return forRows(rows, [&](int64_t count) {
    Status status;
    values[prepared + 3] = static_cast<uint64_t>(count);
    values[prepared + 4] = static_cast<uint64_t>(headCount);
    // A row may end in a run that is not full.
    int64_t runs = tokens / info.runTokens + count;
    for (int64_t first = 0; status && first < runs; first += info.runs) {
      values[prepared + 2] = static_cast<uint64_t>(first);
      status =
          route.prepare->launchRows(1, addresses.data(), stream, blocks, early);
      if (status)
        status = route.prefill->launchRows(count, addresses.data(), stream,
                                           blocksOf(route.prefill->info()),
                                           /*early=*/true);
    }
    return status;
  });
}

Status KernelArguments::takeFrom(const KernelArguments &other) {
  descriptors = other.descriptors;
  return takeDescriptors();
}

Status KernelArguments::setMemoryFrom(const KernelArguments &other,
                                      const Tensor &tensor, const void *data) {
  return setMemory(
      described[static_cast<size_t>(&tensor - other.described.data())], data);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

CallKernels::CallKernels(const Program &program, const DevicePool &pool,
                         HeadRange heads, KernelCall call)
    : call(call) {
  const ProgramImpl &impl = program.getImpl();
  const RouteKernels *route = impl.find(program.route());
  bool isVerify = call == KernelCall::Verify;
  // Where no row will ever have a state, the kernel of kv_only has more room.
  if (isVerify && pool.shared().hasStates())
    route = &impl.verifier(program.route());
  routes.push_back(route);
  // Rows that fold before their drafts have a state for these.
  bool isSerialVerify = isVerify && isSerial();
  bool isOfBoth = isVerify ? isSerialVerify : pool.page > 0;
  if (route->route == RouteKind::KvOnly && isOfBoth)
    if (const RouteKernels *next = impl.find(impl.longRoute))
      routes.push_back(next);
  for (const RouteKernels *each : routes)
    parts.push_back(std::make_unique<KernelArguments>(
        *each, program.signature(), pool, heads, call));
  if (parts.size() > 1 && !isSerialVerify) {
    parts[0]->setRowKind(KernelArguments::WithoutState);
    parts[1]->setRowKind(KernelArguments::WithState);
  }
  // Those without are a branch of its kernel.
  if (route->route != program.route())
    parts[0]->setRowKind(KernelArguments::WithState);
}

Status CallKernels::takeDescriptors() {
  Status status = parts[0]->takeDescriptors();
  for (size_t i = 1; status && i < parts.size(); ++i)
    status = parts[i]->takeFrom(*parts[0]);
  return status;
}

Status CallKernels::setMemory(const KernelArguments::Tensor &tensor,
                              const void *data) {
  Status status = parts[0]->setMemory(tensor, data);
  for (size_t i = 1; status && i < parts.size(); ++i)
    status = parts[i]->setMemoryFrom(*parts[0], tensor, data);
  return status;
}

bool CallKernels::prefills() const {
  return std::all_of(routes.begin(), routes.end(), [](const auto *route) {
    return route->gpu->prefill.has_value();
  });
}

Status CallKernels::launch(int64_t rows, void *stream, bool early) {
  // Rows with a state are last in the list and first here: the others take no
  // memory's time, and fill what the long ones leave idle at their end.
  for (size_t i = parts.size(); i-- > 0;) {
    const GpuRoute &route = *routes[i]->gpu;
    std::span<const cuda::Kernel> kernels = route.step;
    if (call == KernelCall::Verify)
      kernels = {&*route.verify, 1};
    // Kernels of a call have different rows: none writes what another reads, so
    // that those behind the first start early in any case.
    bool startsEarly = early || i + 1 < parts.size();
    if (Status status = parts[i]->launch(kernels, rows, stream, startsEarly);
        !status)
      return status;
  }
  return Status();
}

Status CallKernels::launchPrompts(int64_t rows, int64_t tokens, void *stream) {
  Status status;
  for (size_t i = parts.size(); status && i-- > 0;)
    status = parts[i]->launchPrompts(*routes[i]->gpu, rows, tokens, stream,
                                     /*early=*/i + 1 < parts.size());
  return status;
}

int64_t CallKernels::preparedBytes() const {
  int64_t bytes = 0;
  for (const RouteKernels *route : routes)
    if (const auto &prepare = route->gpu->prepare)
      bytes = std::max(bytes, int64_t{prepare->info().runs} *
                                  prepare->info().runBytes);
  return bytes;
}

int64_t CallKernels::preparedRuns() const {
  int64_t runs = 0;
  for (const RouteKernels *route : routes)
    if (const auto &prepare = route->gpu->prepare)
      runs = std::max(runs, int64_t{prepare->info().runs} *
                                prepare->info().gridBlocks);
  return runs;
}

Status CallKernels::launchDrafts(int64_t rows, int64_t drafts, void *stream) {
  auto launchOne = [&](std::optional<cuda::Kernel> GpuRoute::*kernel,
                       int64_t draft) {
    Status status;
    for (size_t i = 0; status && i < parts.size(); ++i) {
      parts[i]->setDraft(static_cast<uint64_t>(draft),
                         parts.size() > 1 ? i + 1 : 0);
      if (const auto &found = (*routes[i]->gpu).*kernel)
        status = parts[i]->launch(std::span(&*found, 1), rows, stream);
    }
    return status;
  };
  Status status = launchOne(&GpuRoute::draftFold, 0);
  for (int64_t draft = 0; status && draft < drafts; ++draft)
    status = launchOne(&GpuRoute::draft, draft);
  return status;
}
