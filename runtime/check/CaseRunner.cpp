//===- CaseRunner.cpp - one run of one route against the oracle -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CaseRunner.h"

#include "runtime/check/Simulation.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::check;
using interpreter::Precision;

bool CaseResult::passed() const {
  return failure.empty() &&
         std::all_of(forms.begin(), forms.end(),
                     [](const FormResult &form) { return form.passed(); });
}

void CaseResult::fail(const Status &status) {
  failure = status.message();
  isRefused = status.code() == ErrorCode::InvalidArgument ||
              status.code() == ErrorCode::Unsupported ||
              status.code() == ErrorCode::NotFound;
}

void CaseResult::shareBounds() {
  constexpr int64_t few = 16;
  constexpr auto ofStates = static_cast<size_t>(FormKind::Fold);
  double largest = 0;
  for (size_t i = 0; i < forms.size(); ++i)
    if (i != ofStates)
      largest = std::max(largest, forms[i].bound.rounded);
  for (size_t i = 0; i < forms.size(); ++i)
    if (i != ofStates && forms[i].count > 0 && forms[i].count < few)
      forms[i].bound.rounded = largest;
}

Precision ladle::check::precisionOf(DType dtype) {
  switch (dtype) {
  case DType::BF16:
    return Precision::Bfloat16;
  case DType::F16:
    return Precision::Float16;
  default:
    return Precision::Float32;
  }
}

//===----------------------------------------------------------------------===//
// Pool
//===----------------------------------------------------------------------===//

Result<PaddedStates> PaddedStates::create(const Program &program, int64_t slots,
                                          int64_t padding) {
  PaddedStates made;
  made.slots = slots;
  made.padding = padding;
  for (const StateSpec &spec : program.signature().states) {
    int64_t elements = spec.heads * spec.keySize * spec.valueSize;
    int64_t elementBytes = sizeInBytes(spec.dtype);
    int64_t slotBytes = (elements + padding) * elementBytes;
    std::vector<uint8_t> bytes(slots * slotBytes, pattern);
    Result<DeviceTensor> memory = DeviceTensor::copyOf(
        program.device(),
        TensorView::dense(bytes, DType::U8, {slots, slotBytes}));
    if (!memory)
      return memory.status();
    made.states.push_back({std::move(*memory), elements, elementBytes});
  }
  return made;
}

void PaddedStates::configure(PoolOptions &options) const {
  for (const State &state : states) {
    options.slotStrides.push_back(state.elements + padding);
    options.stateMemory.push_back(state.memory.view().data);
  }
}

Status PaddedStates::checkPadding() const {
  for (const State &state : states) {
    const TensorView &view = state.memory.view();
    std::vector<uint8_t> bytes(view.count());
    if (Status status =
            copy(view, TensorView::dense(bytes, DType::U8, view.shape));
        !status)
      return status;
    for (int64_t slot = 0; slot < slots; ++slot) {
      auto end = bytes.begin() + (slot + 1) * view.strides[0];
      if (!std::all_of(end - padding * state.elementBytes, end,
                       [](uint8_t byte) { return byte == pattern; }))
        return Status(ErrorCode::Internal,
                      "the padding between two states was written");
    }
  }
  return Status();
}

Sequence Simulation::makeSequence() const {
  Sequence sequence{oracles.exact.makeRow(), RoundedRuns(oracles.rounded), 0,
                    true};
  sequence.exact.keepsTerms = true;
  return sequence;
}

Status Simulation::createPool() {
  // Both kinds of sentinel: negative, and slot 0.
  bool padsWithZero = config.pads && config.seed % 2 == 0;
  firstSlot = padsWithZero ? 1 : 0;
  slotCount = static_cast<int32_t>(config.rows * (config.moves ? 2 : 1) +
                                   (config.staggered ? 2 : 0));
  PoolOptions options;
  options.slots = firstSlot + slotCount;
  options.padSlot = padsWithZero ? 0 : -1;
  options.foldThreshold = program.capacity() ? config.threshold : 0;
  options.crossover = program.capacity() ? config.crossover : 0;
  // Left out, it would be the cost model's; of a case it is m.
  if (program.crossesOver() && !config.crossover)
    options.crossover = options.foldThreshold;
  if (config.takesStates)
    options.states = slotCount;
  // A pool that keeps a state for each draft takes no memory of the caller.
  bool ownsStates = config.drafts && config.route == RouteKind::Recurrent;
  if (config.slotPadding && !ownsStates) {
    Result<PaddedStates> states =
        PaddedStates::create(program, options.slots, config.slotPadding);
    if (!states)
      return states.status();
    padded.emplace(std::move(*states));
    padded->configure(options);
  }
  Result<Pool> created = Pool::create(program, options);
  if (!created)
    return created.status();
  pool.emplace(std::move(*created));

  std::vector<int32_t> all(slotCount);
  std::iota(all.begin(), all.end(), firstSlot);
  if (Status status = pool->reset(all); !status)
    return status;
  sequences.assign(slotCount, makeSequence());
  Result<HostSteps> made = HostSteps::create(program, *pool);
  if (!made)
    return made.status();
  decoder.emplace(std::move(*made));
  return Status();
}

Status Simulation::resetOne(int64_t token) {
  if (!config.resets || token == 0 || !chance(8))
    return Status();
  auto index = static_cast<int32_t>(random() % slotCount);
  sequences[index] = makeSequence();
  int32_t slot = firstSlot + index;
  return pool->reset({&slot, 1});
}

Status Simulation::forkOne() {
  if (!config.forks || slotCount < 2 || !chance(4))
    return Status();
  auto from = static_cast<int32_t>(random() % slotCount);
  auto to = static_cast<int32_t>(random() % slotCount);
  if (from == to)
    return Status();
  sequences[to] = sequences[from];
  from += firstSlot;
  to += firstSlot;
  return pool->fork({&from, 1}, {&to, 1});
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Plan Simulation::makePlan() {
  std::vector<int32_t> order(slotCount);
  std::iota(order.begin(), order.end(), firstSlot);
  if (config.staggered)
    std::shuffle(order.begin(), order.end(), random);
  Plan plan;
  plan.read.assign(order.begin(), order.begin() + config.rows);
  plan.write = plan.read;
  int32_t sentinel = firstSlot == 1 ? 0 : -1;
  for (int64_t row = 0; row < config.rows; ++row) {
    if (config.moves && chance(4))
      plan.write[row] = order[config.rows + row];
    if (config.pads && chance(4))
      plan.read[row] = plan.write[row] = sentinel;
  }
  return plan;
}

Status Simulation::run() {
  params = inputs.draw(oracles.exact.getParams(), 0, RandomInputs::params);
  batch.setParams(params);
  draftBatch.setParams(params);
  for (int64_t token = 0; token < config.tokens; ++token)
    if (Status status = step(token); !status)
      return status;
  currentToken = config.tokens;
  if (Status status = compareSlots(); !status)
    return status;
  return padded ? padded->checkPadding() : Status();
}

Status Simulation::step(int64_t token) {
  currentToken = token;
  if (Status status = resetOne(token); !status)
    return status;
  if (Status status = forkOne(); !status)
    return status;
  // Steps and prompts take turns, and those with drafts and without.
  if (config.prompts && chance(2))
    return prefill(token);
  if (config.drafts && !chance(4))
    return verify(token);
  Plan plan = makePlan();
  std::vector<Arrays> tokens;
  for (int64_t row = 0; row < config.rows; ++row) {
    tokens.push_back(inputs.draw(oracles.exact.getTokens(), row, token));
    batch.setTokens(row, tokens.back());
  }
  batch.clearOutputs();

  StepArguments arguments;
  arguments.rows = config.rows;
  arguments.readSlots = plan.read;
  if (config.moves)
    arguments.writeSlots = plan.write;
  arguments.tensors = batch.getTensors();
  if (Status status = decoder->step(arguments); !status)
    return status;
  for (int64_t row = 0; row < config.rows; ++row)
    if (Status status = compareOutputs(row, token, plan, tokens[row]); !status)
      return status;
  return Status();
}

std::vector<double> Simulation::advance(Sequence &sequence,
                                        RoundedRuns::Token token,
                                        const Arrays &tokens, Arrays &exact) {
  std::vector<llvm::ArrayRef<double>> paramViews(params.begin(), params.end());
  std::vector<llvm::ArrayRef<double>> tokenViews(tokens.begin(), tokens.end());
  oracles.exact.step(sequence.exact, paramViews, tokenViews, exact);
  std::vector<double> errors = sequence.rounded.step(
      oracles.rounded, paramViews, tokenViews, token, sequence.exact, exact);
  bool keepsEntry = token != RoundedRuns::Token::Folded &&
                    config.route != RouteKind::Recurrent;
  sequence.length = keepsEntry ? sequence.length + 1 : 0;
  sequence.isFresh &= keepsEntry;
  return errors;
}

void Simulation::add(FormKind kind, const std::vector<double> &actual,
                     const std::vector<double> &exact, double rounded,
                     int64_t row, const std::string &name,
                     const std::vector<double> &terms) {
  if (!isFinite(exact) && result.failure.empty())
    result.failure =
        fmt::format("the float64 oracle itself is not finite: '{}' in row {} "
                    "at token {}",
                    name, row, currentToken);
  FormResult &form = result.forms[static_cast<size_t>(kind)];
  ++form.count;
  form.error.add(relativeError(actual, exact, terms), row, currentToken, name);
  form.bound.rounded = std::max(form.bound.rounded, rounded);
}

Status Simulation::compareOutputs(int64_t row, int64_t token, const Plan &plan,
                                  const Arrays &tokens) {
  int32_t read = plan.read[row], write = plan.write[row];
  if (pool->isPadding(read)) {
    for (size_t i = 0; i < signature.outputs.size(); ++i)
      for (double value : batch.getOutput(row, i))
        if (value != 0)
          return Status(ErrorCode::Internal,
                        fmt::format("padded row {} answers {} at token {}", row,
                                    value, token));
    return Status();
  }
  Sequence &source = sequences[read - firstSlot];
  Sequence &target = sequences[write - firstSlot];
  if (read != write)
    target = source;
  bool isRecurrent = config.route == RouteKind::Recurrent;
  bool folds =
      isRecurrent || read != write || target.length + 1 >= limitOf(target);
  Arrays exact(signature.outputs.size());
  std::vector<double> rounded =
      advance(target, RoundedRuns::decoded(folds), tokens, exact);
  FormKind form =
      folds && !isRecurrent ? FormKind::DecodeFold : FormKind::Decode;
  for (size_t i = 0; i < exact.size(); ++i)
    add(form,
        beforeRounding(batch.getOutput(row, i), exact[i], config.outputType),
        exact[i], rounded[i], row, signature.outputs[i].name,
        target.exact.terms[i]);

  Result<Cursor> cursor = pool->cursor(write);
  if (!cursor)
    return cursor.status();
  if (cursor->length != target.length)
    return Status(ErrorCode::Internal,
                  fmt::format("slot {} holds {} entries after token {}, "
                              "expected {}",
                              write, cursor->length, token, target.length));
  return Status();
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

Status Simulation::compareSlots() {
  for (int32_t index = 0; index < slotCount; ++index) {
    Sequence &sequence = sequences[index];
    Result<SlotContents> contents =
        pool->exportSlot(program, firstSlot + index);
    if (!contents)
      return contents.status();
    sequence.rounded.storeStates(oracles.rounded, sequence.exact);
    for (size_t i = 0; i < signature.states.size(); ++i)
      add(FormKind::Fold,
          toKeyMajor(toDoubles(contents->states[i].view()),
                     signature.states[i]),
          sequence.exact.states[i],
          sequence.rounded.stateError(i, sequence.exact), index,
          signature.states[i].name);
    for (size_t i = 0; i < signature.carries.size(); ++i)
      add(FormKind::Fold, toDoubles(contents->carries[i].view()),
          sequence.exact.carries[i],
          sequence.rounded.carryError(i, sequence.exact), index,
          signature.carries[i].name);
  }
  return Status();
}

CaseResult ladle::check::runCase(const CheckCase &config,
                                 const Program &program, const Oracles &oracles,
                                 const RandomInputs &inputs) {
  CaseResult result;
  result.config = config;
  Simulation simulation(config, program, oracles, inputs, result);
  if (Status status = simulation.createPool(); !status) {
    result.fail(status);
    return result;
  }
  if (Status status = simulation.run(); !status)
    result.failure = status.message();
  result.shareBounds();
  return result;
}
