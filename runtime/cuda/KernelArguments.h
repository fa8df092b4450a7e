//===- KernelArguments.h - what a launch of a step takes --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of all arguments and their addresses, laid out once: a step fills
// in what has changed and launches.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_KERNELARGUMENTS_H
#define LADLE_RUNTIME_CUDA_KERNELARGUMENTS_H

#include "runtime/KernelCaller.h"
#include "runtime/cuda/DevicePool.h"

namespace ladle {

/// What kernels are launched for: a step or a fold, drafts, prompts. The
/// tokens and outputs of the last two are those of all rows.
enum class KernelCall { Step, Verify, Prefill };

class KernelArguments {
public:
  /// Parameters, tokens and outputs are null until they are described. `pool`
  /// must outlive this. Launches compute the heads of a range.
  KernelArguments(const RouteKernels &route, const Signature &signature,
                  const DevicePool &pool, HeadRange heads,
                  KernelCall call = KernelCall::Step);
  KernelArguments(const KernelArguments &) = delete;

  /// A parameter, token or output.
  struct Tensor {
    const TensorSpec *spec;
    int64_t alignment; ///< bytes, of the address and of the strides
    size_t value;      ///< of the address; the strides follow it
    size_t rank;       ///< of the descriptor, with the rows
    size_t strides;    ///< that kernels are told
    bool hasRows;      ///< the first of the strides is theirs
    int64_t firstHead; ///< of the range, counted in those that it has
    uint64_t offset;   ///< bytes to that
    const MemoryDescriptor *descriptor; ///< the caller's
  };
  std::span<MemoryDescriptor> params() {
    return {descriptors.data(), paramCount};
  }
  std::span<MemoryDescriptor> tokens() {
    return {descriptors.data() + paramCount, tokenCount};
  }
  std::span<MemoryDescriptor> outputs() {
    return std::span(descriptors).subspan(paramCount + tokenCount);
  }
  /// Takes over what is in the descriptors; InvalidArgument if the kernels want
  /// more alignment.
  Status takeDescriptors();
  Status setMemory(const Tensor &tensor, const void *data);
  std::span<const Tensor> tensors() const { return described; }

  /// Which rows the kernels are for, of a route whose entries lie in pages; for
  /// one that verifies, whether some may have no state (WithState) or none.
  enum RowKind { AllRows, WithoutState, WithState };
  void setRowKind(RowKind kind) {
    if (rowKind)
      values[rowKind] = kind;
  }
  /// Takes over parameters, tokens and outputs as another has them.
  Status takeFrom(const KernelArguments &other);
  Status setMemoryFrom(const KernelArguments &other, const Tensor &tensor,
                       const void *data);

  void setSlots(uint64_t readSlots, uint64_t writeSlots) {
    values[0] = readSlots;
    values[1] = writeSlots;
  }

  /// Where the drafts of rows are; without parents they are chains.
  void setDrafts(uint64_t cuSeqlens, uint64_t parents) {
    values[firstOfDrafts] = cuSeqlens;
    values[firstOfDrafts + 1] = parents;
    values[firstOfDrafts + 2] = parents != 0;
  }

  /// Which draft of each row, and of which rows, a launch answers.
  void setDraft(uint64_t draft, uint64_t rowsOf) {
    values[numberOfDraft] = draft;
    values[numberOfDraft + 1] = rowsOf;
  }

  /// Where the tokens of prompts are.
  void setPrompts(uint64_t cuSeqlens) { values[firstOfDrafts] = cuSeqlens; }
  /// Of prompts that fold where chunks end: 0 is what fills up the chunk that a
  /// slot has begun, 1 the rest.
  void setPart(uint64_t part) { values[firstOfDrafts + 1] = part; }
  /// Where what one kernel of prompts prepares for another lies, and counters
  /// of its runs.
  void setPrepared(uint64_t address, uint64_t counters) {
    if (prepared) {
      values[prepared] = address;
      values[prepared + 1] = counters;
    }
  }
  /// Memory like that of the pool's carry, for what prompts leave behind.
  void setNextCarry(size_t carry, uint64_t data, int64_t stride);

  /// The kernels of a step, or the fold, for the first `rows` rows: more than a
  /// grid has by several launches. The context is current.
  Status launch(std::span<const cuda::Kernel> kernels, int64_t rows,
                void *stream, bool early = false);
  /// Those of prompts of so many tokens: as many steps as there is memory for
  /// are prepared, and taken, then the next.
  Status launchPrompts(const GpuRoute &route, int64_t rows, int64_t tokens,
                       void *stream, bool early);

private:
  template <typename Launch> Status forRows(int64_t rows, Launch launch);
  size_t add(uint64_t value);
  void skipRows(int64_t count);
  unsigned blocksOf(const cuda::KernelInfo &info) const;

  HeadRange heads;
  int64_t allHeads;
  int multiprocessors;
  size_t paramCount, tokenCount;
  /// Of what says where drafts or prompts are; 0 for none.
  size_t firstOfDrafts = 0;
  size_t numberOfDraft = 0; ///< of drafts that wait for their parents
  size_t rowKind = 0;       ///< 0 for none
  /// Address, counters, first run, rows and heads; 0 for none.
  size_t prepared = 0;
  std::vector<size_t> nextCarries; ///< addresses, each with its stride
  std::vector<MemoryDescriptor> descriptors;
  std::vector<Tensor> described;
  std::vector<uint64_t> values;
  std::vector<void *> addresses;
};

/// The kernels of a call. Where entries lie in pages, rows of kv_only go on by
/// another route once they have a state: then its kernels are launched as well,
/// and each leaves the rows of the other alone; one that verifies answers both.
class CallKernels {
public:
  CallKernels(const Program &program, const DevicePool &pool, HeadRange heads,
              KernelCall call);

  std::span<MemoryDescriptor> params() { return parts[0]->params(); }
  std::span<MemoryDescriptor> tokens() { return parts[0]->tokens(); }
  std::span<MemoryDescriptor> outputs() { return parts[0]->outputs(); }
  std::span<const KernelArguments::Tensor> tensors() const {
    return parts[0]->tensors();
  }
  Status takeDescriptors();
  Status setMemory(const KernelArguments::Tensor &tensor, const void *data);
  void setSlots(uint64_t readSlots, uint64_t writeSlots) {
    for (auto &part : parts)
      part->setSlots(readSlots, writeSlots);
  }
  void setDrafts(uint64_t cuSeqlens, uint64_t parents) {
    for (auto &part : parts)
      part->setDrafts(cuSeqlens, parents);
  }
  void setPrompts(uint64_t cuSeqlens) {
    for (auto &part : parts)
      part->setPrompts(cuSeqlens);
  }
  void setPart(uint64_t number) {
    for (auto &part : parts)
      part->setPart(number);
  }
  void setNextCarry(size_t carry, uint64_t data, int64_t stride) {
    for (auto &part : parts)
      part->setNextCarry(carry, data, stride);
  }
  void setPrepared(uint64_t address, uint64_t counters) {
    for (auto &part : parts)
      part->setPrepared(address, counters);
  }
  /// Bytes that that needs, and counters; 0 for nothing.
  int64_t preparedBytes() const;
  int64_t preparedRuns() const;
  /// Whether all of them take prompts.
  bool prefills() const;
  /// As KernelArguments::launch, and launchPrompts.
  Status launch(int64_t rows, void *stream, bool early = false);
  Status launchPrompts(int64_t rows, int64_t tokens, void *stream);
  /// Whether drafts wait for their parents; then the launches of so many
  /// drafts a row, and of what folds before them.
  bool isSerial() const { return routes[0]->gpu->draft.has_value(); }
  Status launchDrafts(int64_t rows, int64_t drafts, void *stream);

private:
  KernelCall call;
  std::vector<const RouteKernels *> routes;
  std::vector<std::unique_ptr<KernelArguments>> parts;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_KERNELARGUMENTS_H
