//===- AttentionLauncher.h - kernels of an attention, launched --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which kernels a call is, on which blocks, and with which arguments. All that
// they leave for one another has been allocated for the most rows.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_ATTENTIONLAUNCHER_H
#define LADLE_RUNTIME_CUDA_ATTENTIONLAUNCHER_H

#include "runtime/Arguments.h"
#include "runtime/cuda/DeviceAttention.h"
#include "runtime/cuda/DeviceDiagnostics.h"

#include <map>
#include <optional>

namespace ladle {

/// What kernels leave for one another, for so many rows.
struct AttentionWorkspace {
  static Result<AttentionWorkspace>
  create(const AttentionProgramImpl &made, int64_t window, int64_t rows,
         int64_t tokens, const AttentionDecoderOptions &options);
  Result<AttentionWorkspace>
  allocate(const cuda::Device &device,
           const std::map<std::string, int64_t> &sizes);
  int64_t rows = 0, sections = 0;
  bool isEven = true; ///< warps attend to even portions of what all rows do
  int64_t tokens = 0; ///< of prompts of a bounded cache, in a round
  std::optional<PreferenceOptions> preference;
  int64_t preferenceQueries() const {
    return preference ? preference->queries : 0;
  }
  std::map<std::string, cuda::Memory> arrays;
};

/// What the kernels of a form are launched for.
enum class AttentionCall : uint8_t { Answers, LowersBudgets };

/// The values of a form's arguments, by the names of these.
class AttentionLauncher {
public:
  AttentionLauncher(const AttentionProgramImpl &made,
                    const GpuAttentionForm &form, const AttentionPoolImpl &pool,
                    const AttentionSettings &settings,
                    const AttentionWorkspace &work,
                    AttentionCall call = AttentionCall::Answers,
                    const DeviceDiagnostics *watching = nullptr);
  AttentionLauncher(const AttentionLauncher &) = delete;

  /// Takes over tensors; a token of each row.
  Status describe(int64_t rows, const NamedTensors &tensors);
  Status setMemory(std::string_view name, const void *data);
  void set(const std::string &argument, uint64_t value) {
    values[argument].assign(1, value);
  }
  /// Answers tokens from one on.
  void setRound(int64_t first, int64_t count) {
    tokens = count;
    set("round_begin", static_cast<uint64_t>(first));
    set("round_end", static_cast<uint64_t>(first + count));
  }
  Status launch(int64_t rows, void *stream, Start start = Start::InOrder);

private:
  Status checkAlignment(const TensorSpec &spec, uint64_t address,
                        std::span<const int64_t> strides) const;
  Status prepare();
  std::vector<const GpuAttentionKernel *> kernels() const;
  std::vector<cuda::Kernel::Extent> grids(int64_t rows) const;
  int64_t blocksOfCluster() const;
  bool takesSlices(int64_t rows) const;
  int64_t rowsInHalves() const;

  const AttentionProgramImpl &made;
  const GpuAttentionForm &form;
  const AttentionWorkspace &work;
  AttentionCall call;
  const DeviceDiagnostics *watching;         ///< null: nobody asks
  std::string name;                          ///< in a profiler
  std::vector<MemoryDescriptor> descriptors; ///< params, tokens, output
  int64_t tokens = 0;                        ///< that these have
  int64_t blocksOfAttend = 0;                ///< of the step that is launched
  /// A tensor is its address and strides.
  std::map<std::string, std::vector<uint64_t>, std::less<>> values;
  /// What each kernel is launched with; empty until it is known.
  std::vector<std::vector<void *>> lists;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_ATTENTIONLAUNCHER_H
