//===- DecayedKeys.cpp - keys that decay by elements, in a GPU kernel -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where decays are vectors over dk, what reads and folds need of an entry is
// its key, times the decays of all entries after it. A thread loads an element
// of dk, or a few, of every entry, or of those of its part, goes from the
// newest to the oldest in its registers, and leaves the keys in shared memory:
// decays themselves take none but for what parts tell each other, and nothing
// waits for them but what needs the keys.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// Entries whose keys and decays a thread has in registers.
static constexpr int64_t kEntriesAtOnce = 16;
/// Elements of a field that it has, of those, where others have more.
static constexpr int64_t kElementsAtOnce = 32;
/// Parts that entries are divided into.
static constexpr int64_t kMostParts = 4;

static bool isVectorField(BufferType type, StringRef name) {
  return type.getField(name).getShape().size() > 1;
}

/// Finds the vectors of decays, and the keys that are used with them.
void GpuKernel::findDecayedKeys() {
  auto add = [&](auto each) {
    BufferType type = each.getBuffer().getType();
    if (!each.getDecay() || !isVectorField(type, *each.getDecay()))
      return;
    auto &keys =
        decayedKeys[{argumentOf(each.getBuffer()), each.getDecay()->str()}];
    Scales scales{each.getKeyScale(), each.getValueScale()};
    auto *found = llvm::find_if(
        keys, [&](const DecayedKey &key) { return key.name == each.getKey(); });
    if (found == keys.end())
      keys.push_back({each.getKey().str(), scales, true, {}, {}});
    else // What is scaled in two ways is scaled by those who use it.
      found->isScaled &= found->scales == scales;
  };
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      if (auto read = dyn_cast<ReadBufferOp>(op))
        add(read);
      else if (auto each = dyn_cast<FoldBufferOp>(op))
        add(each);
      else if (auto product = dyn_cast<DecayProductOp>(op);
               product &&
               isVectorField(product.getBuffer().getType(), product.getDecay()))
        decayedKeys[{argumentOf(product.getBuffer()),
                     product.getDecay().str()}];
    });
}

DecayedKey *GpuKernel::decayedKey(Value buffer, StringRef name,
                                  std::optional<StringRef> decay) {
  if (!decay)
    return nullptr;
  auto keys = decayedKeys.find({argumentOf(buffer), decay->str()});
  if (keys == decayedKeys.end())
    return nullptr;
  auto *found = llvm::find_if(
      keys->second, [&](const DecayedKey &key) { return key.name == name; });
  return found == keys->second.end() ? nullptr : found;
}

/// True if threads load a field themselves, which has no copy of its own then.
bool GpuKernel::isLoadedByColumns(unsigned argument, FieldAttr field) const {
  return llvm::any_of(decayedKeys, [&](const auto &each) {
    const auto &[buffer, decay] = each.first;
    return buffer == argument &&
           (decay == field.getName() ||
            llvm::any_of(each.second, [&](const DecayedKey &key) {
              return key.name == field.getName();
            }));
  });
}

/// Elements from one decayed key to the next: those that tensor cores take at
/// the same time, of every other entry, are in different banks.
int64_t GpuKernel::rowOfDecayedKeys(int64_t size) const {
  return multipliesFolds ? size + 4 : size;
}

int64_t GpuKernel::decayedKeyBytes() {
  int64_t bytes = 0;
  for (const auto &[at, keys] : decayedKeys) {
    auto type =
        cast<BufferType>(step.getBody().getArgument(at.first).getType());
    if (dividesEntries())
      bytes +=
          (kMostParts - 1) * type.getField(at.second).getShape().back() * 4;
    for (const DecayedKey &key : keys) {
      FieldAttr field = type.getField(key.name);
      bytes += mostEntries() * componentCount(field) *
               rowOfDecayedKeys(field.getShape().back()) * 4;
    }
  }
  return bytes;
}

/// What is left to multiply with for those who use a key and its value.
GpuKernel::Components GpuKernel::weightsOfUse(Value buffer, StringRef key,
                                              std::optional<StringRef> decay,
                                              Scales scales) {
  const DecayedKey *decayed = decayedKey(buffer, key, decay);
  if (decayed && decayed->isScaled)
    return {};
  return weightsOf(buffer, decay, scales);
}

/// Row `rank` of the key of an entry: as it was cached, or decayed.
GpuKernel::Components GpuKernel::loadKey(Value buffer, StringRef name,
                                         std::optional<StringRef> decay,
                                         int64_t rank, Value position,
                                         const Place &place) {
  const DecayedKey *decayed = decayedKey(buffer, name, decay);
  if (!decayed)
    return loadEntry(buffer, name, rank, position, place);
  int64_t ranks =
      componentCount(cast<BufferType>(buffer.getType()).getField(name));
  return loadVector(decayed->memory, {rowOfEntry(position, rank, ranks)},
                    place);
}

//===----------------------------------------------------------------------===//
// Columns: elements of dk, of all entries
//===----------------------------------------------------------------------===//

/// How the elements of dk are spread over threads, and whether all are taken
/// at once.
Columns GpuKernel::columnsOf(int64_t size) const {
  int64_t wide = 4;
  while (wide > 1 && size % (wide * schedule.threads) != 0)
    wide /= 2;
  return {size, wide, wide * schedule.threads >= size, {}, {}};
}

/// Wider ones, for threads of which some have the newest entries and others
/// those before them.
Columns GpuKernel::dividedColumns(int64_t size) const {
  Columns columns = columnsOf(size);
  if (!dividesEntries() || !columns.isAll)
    return columns;
  for (int64_t wide : {4, 2, 1}) {
    if (size % wide != 0)
      continue;
    columns.wide = wide;
    columns.parts = schedule.threads * wide / size;
    if (columns.parts <= kMostParts)
      break;
  }
  columns.parts = std::min(columns.parts, kMostParts);
  return columns.parts > 1 ? columns : columnsOf(size);
}

/// The columns of a thread that start at `first` of the block's.
void GpuKernel::placeColumns(Columns &columns, Value first) {
  Value ofPart = thread;
  if (columns.parts > 1) {
    Value each = constantIndex(columns.size / columns.wide);
    ofPart = arith::RemUIOp::create(b, thread, each);
    columns.part = arith::DivUIOp::create(b, thread, each);
  }
  columns.element =
      arith::MulIOp::create(b, ofPart, constantIndex(columns.wide));
  if (first)
    columns.element = arith::AddIOp::create(b, first, columns.element);
  if (columns.parts > 1) {
    if (columns.parts * columns.size != columns.wide * schedule.threads)
      columns.inside = isBelow(columns.part, columns.parts);
  } else if (columns.size % (columns.wide * schedule.threads) != 0) {
    columns.inside = isBelow(columns.element, columns.size);
  }
}

/// Loads what a thread has of entries: decays, and the keys that go with them.
/// Of entries that are not there, and without columns, these are 1 and 0.
EntryColumns GpuKernel::loadColumns(Value buffer, StringRef decay,
                                    const Columns &columns,
                                    ArrayRef<std::pair<Value, Value>> entries) {
  unsigned argument = argumentOf(buffer);
  auto type = cast<BufferType>(buffer.getType());
  // The decay of an entry, and its keys, rank after rank.
  SmallVector<std::pair<size_t, int64_t>> wanted;
  auto want = [&](StringRef name) {
    FieldAttr field = type.getField(name);
    size_t index =
        llvm::find(type.getFields(), field) - type.getFields().begin();
    for (int64_t r = 0; r < componentCount(field); ++r)
      wanted.emplace_back(index, r);
  };
  want(decay);
  for (const DecayedKey &key : decayedKeys.at({argument, decay.str()}))
    want(key.name);
  SmallVector<Type> types;
  Components none;
  for (auto [i, each] : llvm::enumerate(wanted)) {
    Type element = type.getFields()[each.first].getElementType();
    auto vector = VectorType::get({columns.wide}, element);
    types.push_back(vector);
    none.push_back(arith::ConstantOp::create(
        b, SplatElementsAttr::get(vector,
                                  b.getFloatAttr(element, i == 0 ? 1 : 0))));
  }
  EntryColumns result;
  for (auto [position, isEntry] : entries) {
    Value valid = both(isEntry, columns.inside);
    auto load = [&](size_t i, Value mask) -> Value {
      auto [index, rank] = wanted[i];
      FieldAttr field = type.getFields()[index];
      EntryPlace place = placeOf(position);
      SmallVector<Value> at{place.outer, headIndex(field.getShape().front()),
                            place.entry};
      if (field.getShape().size() == 3)
        at.push_back(constantIndex(rank));
      at.push_back(columns.element);
      Value from = fields[argument][index];
      if (mask) {
        auto masked = vector::MaskedLoadOp::create(
            b, cast<VectorType>(types[i]), from, at, mask, none[i]);
        masked->setAttr(kConstantAttr, b.getUnitAttr());
        return masked;
      }
      return vector::LoadOp::create(b, cast<VectorType>(types[i]), from, at);
    };
    Components loaded;
    if (columns.wide > 1) {
      // What is loaded as a word must not be taken apart before it is needed:
      // the branch would wait for it.
      Value mask = splat(valid, columns.wide);
      for (size_t i = 0; i < wanted.size(); ++i)
        loaded.push_back(load(i, mask));
    } else {
      // Branches keep loads in front of what follows.
      auto branch = scf::IfOp::create(b, types, valid, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.elseBlock());
      scf::YieldOp::create(b, none);
      b.setInsertionPointToStart(branch.thenBlock());
      for (size_t i = 0; i < wanted.size(); ++i)
        loaded.push_back(load(i, {}));
      scf::YieldOp::create(b, loaded);
      loaded.assign(branch.result_begin(), branch.result_end());
    }
    result.decays.push_back(loaded.front());
    result.keys.emplace_back(llvm::drop_begin(loaded));
  }
  return result;
}

/// Leaves keys in shared memory, times the decays of all later entries, of
/// which `passed` are those that came before. Returns the product of all.
Value GpuKernel::decayColumns(Value buffer, StringRef decay,
                              const Columns &columns,
                              ArrayRef<std::pair<Value, Value>> entries,
                              const EntryColumns &loaded, Value passed) {
  auto type = cast<BufferType>(buffer.getType());
  for (auto [i, entry] : llvm::enumerate(entries)) {
    auto [position, valid] = entry;
    SmallVector<std::array<Value, 3>> stores;
    const Value *next = loaded.keys[i].begin();
    for (const DecayedKey &key :
         decayedKeys.at({argumentOf(buffer), decay.str()})) {
      // Shuffles are for all of a warp.
      Value factor = passed;
      if (Components weights =
              key.isScaled ? weightsOf(buffer, {}, key.scales) : Components();
          !weights.empty()) {
        Value scale = numberAt(weights, position);
        factor = arith::MulFOp::create(b, passed, splat(scale, columns.wide));
      }
      int64_t ranks = componentCount(type.getField(key.name));
      for (int64_t r = 0; r < ranks; ++r)
        stores.push_back({arith::MulFOp::create(b, toF32(*next++), factor),
                          key.memory, rowOfEntry(position, r, ranks)});
    }
    guarded(both(valid, columns.inside), [&] {
      for (auto [value, memory, at] : stores)
        vector::StoreOp::create(b, value, memory,
                                ValueRange{at, columns.element});
    });
    passed = arith::MulFOp::create(b, passed, toF32(loaded.decays[i]));
  }
  return passed;
}

/// `count` entries from `newest` back, or all of the ring, and whether they are
/// there.
SmallVector<std::pair<Value, Value>> GpuKernel::entriesFrom(Value newest,
                                                            int64_t count) {
  SmallVector<std::pair<Value, Value>> result;
  for (int64_t i = 0; i < count; ++i) {
    if (!newest) {
      Value position = constantIndex(count - 1 - i);
      result.emplace_back(position,
                          arith::CmpIOp::create(b, arith::CmpIPredicate::sgt,
                                                length, position));
      continue;
    }
    Value position = arith::SubIOp::create(b, newest, constantIndex(i));
    Value isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                          position, constantIndex(0));
    // Where an entry lies is looked up, whether it is there or not.
    position = arith::MaxSIOp::create(b, position, constantIndex(0));
    result.emplace_back(position, isThere);
  }
  return result;
}

/// Of all entries that there may be, those of the part of a thread.
GpuKernel::Entries GpuKernel::entriesOfPart(const Columns &columns) {
  if (columns.parts == 1)
    return entriesFrom({}, mostEntries());
  int64_t each = llvm::divideCeil(mostEntries(), columns.parts);
  Value newest = arith::SubIOp::create(b, length, constantIndex(1));
  Value before = arith::MulIOp::create(b, columns.part, constantIndex(each));
  return entriesFrom(arith::SubIOp::create(b, newest, before), each);
}

/// Starts the loads of entries whose keys decay, where a thread has registers
/// for all: then nothing else waits for them.
void GpuKernel::loadDecayedEntries() {
  earlyColumns.clear();
  if (materialises) // The registers are the state's.
    return;
  for (const auto &[at, keys] : decayedKeys) {
    Value buffer = step.getBody().getArgument(at.first);
    auto type = cast<BufferType>(buffer.getType());
    Columns columns =
        dividedColumns(type.getField(at.second).getShape().back());
    int64_t each = llvm::divideCeil(mostEntries(), columns.parts);
    if (!columns.isAll || each > kEntriesAtOnce ||
        (columns.parts > 1 && each * columns.wide > kElementsAtOnce))
      continue;
    placeColumns(columns, {});
    Entries entries = entriesOfPart(columns);
    earlyColumns[at] = {columns, entries,
                        loadColumns(buffer, at.second, columns, entries)};
  }
}

/// The decays of all entries of the parts before that of a thread.
Value GpuKernel::decaysOfNewerParts(const Columns &columns,
                                    ArrayRef<Value> decays) {
  Value one = splat(constantFloat(1), columns.wide), product = one;
  if (columns.parts == 1)
    return one;
  for (Value decay : decays)
    product = product == one
                  ? toF32(decay)
                  : Value(arith::MulFOp::create(b, product, toF32(decay)));
  // That of the oldest part nobody asks for.
  Value memory = shared({columns.parts - 1, columns.size}, "part_decays");
  partDecays = memory;
  guarded(both(columns.inside, isBelow(columns.part, columns.parts - 1)), [&] {
    vector::StoreOp::create(b, product, memory,
                            ValueRange{columns.part, columns.element});
  });
  barrier();
  Value passed = one;
  auto type = cast<VectorType>(one.getType());
  for (int64_t i = 0; i + 1 < columns.parts; ++i) {
    Value ofPart = vector::LoadOp::create(
        b, type, memory, ValueRange{constantIndex(i), columns.element});
    Value isNewer = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt,
                                          columns.part, constantIndex(i));
    ofPart = arith::SelectOp::create(b, isNewer, ofPart, one);
    passed = passed == one ? ofPart
                           : Value(arith::MulFOp::create(b, passed, ofPart));
  }
  return passed;
}

void GpuKernel::emitVectorDecays(Value buffer, StringRef name, Decays &result) {
  std::pair<unsigned, std::string> at{argumentOf(buffer), name.str()};
  auto type = cast<BufferType>(buffer.getType());
  int64_t size = type.getField(name).getShape().back();
  for (DecayedKey &key : decayedKeys.at(at)) {
    FieldAttr field = type.getField(key.name);
    key.memory =
        shared({mostEntries() * componentCount(field), rowOfDecayedKeys(size)},
               "decayed_" + key.name);
    // What is the same for all entries is emitted before any loop.
    if (key.isScaled)
      weightsOf(buffer, {}, key.scales);
  }
  result.productMemory = shared({size}, "decay_product");
  auto finish = [&](const Columns &columns, Value product) {
    Value isMine = columns.inside;
    // The last part has the product of all.
    if (columns.parts > 1)
      isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, columns.part,
                                     constantIndex(columns.parts - 1));
    guarded(isMine, [&] {
      vector::StoreOp::create(b, product, result.productMemory,
                              ValueRange{columns.element});
    });
  };
  if (auto early = earlyColumns.find(at); early != earlyColumns.end()) {
    const auto &[columns, entries, loaded] = early->second;
    Value passed = decaysOfNewerParts(columns, loaded.decays);
    finish(columns,
           decayColumns(buffer, name, columns, entries, loaded, passed));
    barrier();
    return;
  }
  Columns columns = columnsOf(size);
  Value one = splat(constantFloat(1), columns.wide);
  auto all = scf::ForOp::create(b, constantIndex(0), constantIndex(size),
                                constantIndex(columns.wide * schedule.threads));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(all.getBody());
    placeColumns(columns, all.getInductionVar());
    auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                   constantIndex(kEntriesAtOnce), one);
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(loop.getBody());
      Value newest = arith::SubIOp::create(
          b, arith::SubIOp::create(b, length, constantIndex(1)),
          loop.getInductionVar());
      auto entries = entriesFrom(newest, kEntriesAtOnce);
      EntryColumns loaded = loadColumns(buffer, name, columns, entries);
      Value passed = decayColumns(buffer, name, columns, entries, loaded,
                                  loop.getRegionIterArg(0));
      scf::YieldOp::create(b, passed);
    }
    finish(columns, loop.getResult(0));
  }
  barrier();
}
