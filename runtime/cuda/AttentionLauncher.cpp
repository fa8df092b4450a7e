//===- AttentionLauncher.cpp - kernels of an attention, launched ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/AttentionLauncher.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/DevicePrompts.h"
#include "runtime/cuda/Range.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// Memory between kernels
//===----------------------------------------------------------------------===//

/// Of what attends.
static int64_t warpsOfBlock(const GpuAttentionCode &code) {
  constexpr int64_t warp = 32;
  return code.decode.attend.kernel.info().threads / warp;
}

/// Warps that fit at once.
static int64_t warpsOfAttend(const GpuAttentionCode &code) {
  return code.decode.blocksAtOnce * code.device.multiprocessors() *
         warpsOfBlock(code);
}

Result<AttentionWorkspace>
AttentionWorkspace::create(const AttentionProgramImpl &made, int64_t window,
                           int64_t rows, int64_t tokens,
                           const AttentionDecoderOptions &options) {
  const GpuAttentionCode &code = *made.gpu;
  AttentionWorkspace work;
  work.rows = rows;
  work.isEven = !options.batchInvariant;
  work.sections = (window + code.section - 1) / code.section;
  work.sections = (work.sections + 3) / 4 * 4;
  int64_t heads = made.signature.heads, tasks = rows * code.tasksOfRow;
  constexpr int64_t numbers = 8;
  std::map<std::string, int64_t> sizes;
  if (code.prefill.selects()) {
    work.tokens = tokens;
    work.preference = options.preference;
    return work.allocate(
        code.device,
        selectWorkspace(made, rows, tokens, work.preferenceQueries()));
  }
  if (code.prefill.scans()) {
    work.tokens = tokensOfRound(made, tokens);
    return work.allocate(code.device,
                         segmentWorkspace(made, rows, work.tokens));
  }
  if (made.bounded)
    return work;
  auto attends = static_cast<int64_t>(made.decode.pieces.size());
  int64_t portions = warpsOfAttend(code), ranges = tasks * attends;
  int64_t pieces = work.isEven ? ranges + portions : tasks * code.piecesOfTask;
  sizes = {{"row_plans", rows * numbers},
           {"prompt_plans", rows * numbers},
           {"ranges", ranges * numbers},
           {"piece_bounds", ranges * 2},
           {"pieces", pieces * 4},
           {"portions", portions * numbers},
           {"piece_values", pieces * code.share * made.valueSize},
           {"piece_sums", pieces * code.share * 2}};
  if (code.decode.fewRows)
    sizes["arrivals"] = 1 + tasks;
  if (made.hasRing) {
    sizes["hits"] = sizes["starts"] = rows * heads;
    sizes["nearest"] = sizes["nearest_entry"] = rows * heads * work.sections;
  }
  return work.allocate(code.device, sizes);
}

Result<AttentionWorkspace>
AttentionWorkspace::allocate(const cuda::Device &device,
                             const std::map<std::string, int64_t> &sizes) {
  for (const auto &[name, size] : sizes) {
    Result<cuda::Memory> memory = cuda::Memory::allocate(
        device, size * static_cast<int64_t>(sizeof(float)));
    if (!memory)
      return memory.status();
    if (Status status = memory->fill(0); !status)
      return status;
    arrays[name] = std::move(*memory);
  }
  return std::move(*this);
}

//===----------------------------------------------------------------------===//
// Arguments and launches
//===----------------------------------------------------------------------===//

static uint64_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }

AttentionLauncher::AttentionLauncher(const AttentionProgramImpl &made,
                                     const GpuAttentionForm &form,
                                     const AttentionPoolImpl &pool,
                                     const AttentionSettings &settings,
                                     const AttentionWorkspace &work,
                                     AttentionCall call,
                                     const DeviceDiagnostics *watching)
    : made(made), form(form), work(work), call(call), watching(watching),
      name(fmt::format("ladle {}", made.signature.name)) {
  const DeviceAttentionPool &memory = *pool.device;
  const Signature &signature = made.signature;
  descriptors.resize(signature.params.size() + signature.tokens.size() +
                     signature.outputs.size());
  for (const auto &[name, array] : work.arrays)
    set(name, array.address());
  for (const auto &[name, ring] : memory.rings)
    set(name, ring.address());
  set("cursors", memory.cursors.address());
  set("key_pages", memory.keys.address());
  set("value_pages", memory.values.address());
  set("fault", memory.fault.address());
  values["page_table"] = {memory.table.address(),
                          static_cast<uint64_t>(memory.pagesOfSlot + 1)};
  auto limit = [](double share) {
    return bitsOf(static_cast<float>(2 * (1 - share) * (1 - share)));
  };
  set("limit", limit(settings.tau));
  set("drift_limit", limit(settings.drift));
  for (auto [name, value] :
       {std::pair{"capacity", pool.window},
        {"sections", work.sections},
        {"even", int64_t(work.isEven)},
        {"rows_in_halves", rowsInHalves()},
        {"candidates",
         form.selects() ? candidatesOf(made, work.rows, work.tokens) : 0},
        {"slot_count", pool.slots},
        {"spare_page", memory.sparePage},
        {"last_page", memory.pagesOfSlot},
        {"window", made.bounded ? made.bounded->window : settings.window},
        {"band", settings.band},
        {"sinks", settings.sinks},
        {"wide", settings.wideBand},
        {"wide_gap", settings.wideGap},
        {"max_gap", settings.maxGap},
        {"max_chain", settings.maxChain},
        {"skip", settings.skip}})
    set(name, static_cast<uint64_t>(value));
  if (watching)
    for (const auto &[name, value] : watching->arguments())
      set(name, value);
  // No token comes with a budget: an address and strides of nothing.
  for (const TensorSpec &spec : signature.tokens)
    if (call == AttentionCall::LowersBudgets)
      values["tensor:" + spec.name].assign(
          1 + std::max<size_t>(spec.shape.size(), 2), 0);
  if (!work.preference)
    return;
  const PreferenceOptions &preference = *work.preference;
  set("preference_exponent",
      bitsOf(static_cast<float>(preference.valueExponent)));
  for (auto [name, value] :
       {std::pair{"preference_budget", preference.budget},
        {"preference_queries", preference.queries},
        {"preference_of_exact", int64_t(preference.entropyOfExact)},
        {"preference_blocks", preferenceBlocks(made, preference.queries)}})
    set(name, static_cast<uint64_t>(value));
}

/// Kernels load 16 bytes at once.
Status
AttentionLauncher::checkAlignment(const TensorSpec &spec, uint64_t address,
                                  std::span<const int64_t> strides) const {
  constexpr int64_t widest = 16;
  if (spec.shape.size() < 2)
    return Status();
  if (address % widest)
    return invalid(fmt::format("argument '{}' is at {}, wanted a multiple of "
                               "{} bytes",
                               spec.name, pointerTo(address), widest));
  int64_t bytes = sizeInBytes(spec.dtype);
  for (int64_t stride : strides)
    if (stride * bytes % widest)
      return invalid(fmt::format("argument '{}' has the stride {}, wanted a "
                                 "multiple of {}",
                                 spec.name, stride, widest / bytes));
  return Status();
}

Status AttentionLauncher::describe(int64_t rows, const NamedTensors &tensors) {
  lists.clear();
  tokens = rows;
  const Signature &signature = made.signature;
  std::span<MemoryDescriptor> all(descriptors);
  size_t params = signature.params.size();
  if (Status status = bindArguments(
          signature, rows, made.device, tensors,
          {all.first(params), all.subspan(params, signature.tokens.size()),
           all.last(signature.outputs.size())});
      !status)
    return status;
  size_t next = 0;
  for (const auto *specs :
       {&signature.params, &signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      const MemoryDescriptor &memory = descriptors[next];
      bool hasRows = next++ >= params;
      size_t rank = spec.shape.size() + hasRows;
      // The last dimension is dense unless it counts heads.
      size_t count = spec.shape.size() > 1 ? rank - 1 : rank;
      std::span strides(memory.sizesAndStrides + rank, count);
      uint64_t address = addressOf(memory.aligned);
      if (Status status = checkAlignment(spec, address, strides); !status)
        return status;
      for (size_t i = 0; i < count; ++i)
        if (memory.sizesAndStrides[i] > 1 && std::abs(strides[i]) > kMaxStride)
          return invalid(fmt::format("argument '{}' has stride {} along "
                                     "dimension {}, wanted at most {}",
                                     spec.name, strides[i], i, kMaxStride));
      std::vector<uint64_t> &value = values["tensor:" + spec.name];
      value = {address};
      value.insert(value.end(), strides.begin(), strides.end());
    }
  return Status();
}

Status AttentionLauncher::setMemory(std::string_view name, const void *data) {
  auto found = values.find("tensor:" + std::string(name));
  if (found == values.end())
    return Status(ErrorCode::NotFound, fmt::format("'{}' has no argument '{}'",
                                                   made.signature.name, name));
  for (const auto *specs : {&made.signature.params, &made.signature.tokens,
                            &made.signature.outputs})
    for (const TensorSpec &spec : *specs)
      if (spec.name == name)
        if (Status status = checkAlignment(spec, addressOf(data), {}); !status)
          return status;
  found->second.front() = addressOf(data);
  return Status();
}

/// The addresses of all values, which stay where they are until tensors are
/// described anew.
Status AttentionLauncher::prepare() {
  lists.clear();
  for (const GpuAttentionKernel *kernel : kernels()) {
    std::vector<void *> &list = lists.emplace_back();
    for (const std::string &argument : kernel->arguments) {
      auto found = values.find(argument);
      if (found == values.end())
        return Status(ErrorCode::Internal,
                      fmt::format("kernel '{}' has an argument '{}'",
                                  kernel->kernel.info().name, argument));
      for (uint64_t &value : found->second)
        list.push_back(&value);
    }
  }
  return Status();
}

Status AttentionLauncher::launch(int64_t rows, void *stream, Start start) {
  const GpuAttentionCode &code = *made.gpu;
  set("rows", static_cast<uint64_t>(rows));
  set("starts_early", start == Start::Early);
  // Rows that cut by themselves do so however many there are, and who watches
  // wants the token among the pieces.
  bool isFew = work.isEven && !watching && rows <= form.fewRows;
  set("few_rows", isFew);
  // Blocks of an early exact step leave room for those of the next one, which
  // copy their first tiles while these answer. Of more rows a step is so long
  // that its end hardly counts.
  constexpr int64_t rowsThatShare = 8;
  bool sharesRoom =
      isFew && rows <= rowsThatShare && !form.finds && start == Start::Early;
  blocksOfAttend = (sharesRoom ? 1 : code.decode.blocksAtOnce) *
                   code.device.multiprocessors();
  set("portion_count",
      static_cast<uint64_t>(blocksOfAttend * warpsOfBlock(code)));
  if (lists.empty())
    if (Status status = prepare(); !status)
      return status;
  cuda::CurrentContext current(*code.device.context());
  cuda::Range range(name.c_str());
  size_t next = 0;
  std::vector<cuda::Kernel::Extent> all = grids(rows);
  bool isCluster = made.bounded && !form.selects() && !form.scans();
  bool isSliced = isFew && takesSlices(rows);
  auto isLeftOut = [&](const GpuAttentionKernel *kernel) {
    if (kernel == &form.few)
      return !isFew;
    if (kernel == &form.finishSlices)
      return !isSliced;
    if (kernel == &form.finish)
      return form.finds ? isSliced : isFew;
    return isFew &&
           (kernel == &form.plan || (form.finds && kernel == &form.attend));
  };
  for (const GpuAttentionKernel *kernel : kernels()) {
    if (isLeftOut(kernel)) {
      ++next;
      continue;
    }
    // Those that may start early wait for what is ahead before they read.
    if (Status status = kernel->kernel.launch(
            all[next], {kernel->kernel.info().threads, 1, 1},
            lists[next].data(), stream, /*early=*/true,
            isCluster ? all[next].x : kernel->kernel.info().cluster);
        !status)
      return status;
    ++next;
  }
  return Status();
}

std::vector<const GpuAttentionKernel *> AttentionLauncher::kernels() const {
  if (call == AttentionCall::LowersBudgets)
    return budgetKernels(form);
  if (form.selects())
    return selectKernels(form, work.preferenceQueries());
  if (form.scans())
    return segmentKernels(form);
  if (made.bounded)
    return {&form.attend};
  if (form.answersPrompts())
    return {&form.first, &form.attend, &form.finish};
  std::vector<const GpuAttentionKernel *> all{&form.plan, &form.attend,
                                              &form.finish};
  if (form.finds)
    all.insert(all.begin(), &form.first);
  if (form.hasFew())
    all.insert(all.end() - 1, &form.few);
  if (form.hasSlices())
    all.push_back(&form.finishSlices);
  if (watching)
    all.push_back(&watching->kernel());
  return all;
}

std::vector<cuda::Kernel::Extent> AttentionLauncher::grids(int64_t rows) const {
  const GpuAttentionCode &code = *made.gpu;
  auto narrow = [](int64_t value) { return static_cast<unsigned>(value); };
  unsigned ofRows = narrow(rows), heads = narrow(made.signature.heads);
  unsigned cacheHeads = narrow(made.cacheHeads);
  if (call == AttentionCall::LowersBudgets)
    return budgetGrids(made, form, rows);
  if (form.selects())
    return selectGrids(made, form, rows, tokens, work.preferenceQueries());
  if (form.scans())
    return segmentGrids(made, form, rows, tokens);
  if (made.bounded) {
    // What does not fit at once is taken in turns.
    int64_t blocks = blocksOfCluster();
    int64_t atOnce = form.blocksAtOnce * code.device.multiprocessors() / blocks;
    int64_t clusters =
        std::min(rows * made.cacheHeads, std::max<int64_t>(atOnce, 1));
    return {{narrow(blocks), narrow(clusters), 1}};
  }
  if (form.answersPrompts())
    return promptGrids(made, form, rows, tokens);
  int64_t blocks = blocksOfAttend;
  // What looks for no match appends tokens while it plans.
  std::vector<cuda::Kernel::Extent> all{
      {form.finds ? 1 : 1 + cacheHeads * ofRows, 1, 1},
      {narrow(blocks), 1, 1},
      {heads, ofRows, 1}};
  if (form.finds)
    all.insert(all.begin(),
               {heads * narrow(work.sections) + cacheHeads, ofRows, 1});
  if (form.hasFew())
    all.insert(all.end() - 1, {narrow(blocks), 1, 1});
  if (form.hasSlices())
    all.push_back({heads * form.finishSlices.kernel.info().cluster, ofRows, 1});
  if (watching)
    all.push_back(watching->grid());
  return all;
}

/// Whether there are as many multiprocessors as blocks with a slice of a head:
/// where two share one, whole heads are finished sooner.
bool AttentionLauncher::takesSlices(int64_t rows) const {
  if (!form.hasSlices())
    return false;
  int64_t slices = form.finishSlices.kernel.info().cluster;
  return rows * made.signature.heads * slices <=
         made.gpu->device.multiprocessors();
}

/// The least number of rows for which rings are read in halves: some times as
/// many blocks as fit at once.
int64_t AttentionLauncher::rowsInHalves() const {
  if (const char *given = std::getenv("LADLE_ROWS_IN_HALVES")) {
    std::string_view text(given);
    int64_t rows = 0;
    if (std::from_chars(text.begin(), text.end(), rows).ec == std::errc())
      return rows;
  }
  constexpr int64_t times = 2;
  const GpuAttentionCode &code = *made.gpu;
  int64_t blocks = code.findBlocks * code.device.multiprocessors();
  int64_t ofRow = std::max<int64_t>(made.signature.heads * work.sections, 1);
  return (times * blocks + ofRow - 1) / ofRow;
}

/// As many as fit at once; more have less to do each. The rows that there may
/// be decide, and not those of a step: what a row is answered does not depend
/// on others.
int64_t AttentionLauncher::blocksOfCluster() const {
  const GpuAttentionCode &code = *made.gpu;
  int64_t heads = work.rows * made.cacheHeads;
  int64_t blocks = code.mostBlocks;
  while (blocks > form.leastBlocks &&
         blocks * heads > form.blocksAtOnce * code.device.multiprocessors())
    blocks /= 2;
  return blocks;
}
