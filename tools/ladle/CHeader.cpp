//===- CHeader.cpp - what C has to know of a kernel -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel takes what runtime/BoundedKernels.h says; the functions of the
// header are runtime/HostBounded.cpp for one sequence, in C.
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/CHeader.h"
#include "codegen/cpu/LowerToLLVM.h"
#include "runtime/BoundedKernels.h"
#include "tools/ladle/CNames.h"
#include "llvm/ADT/StringExtras.h"

using namespace ladle;

/// Names in capitals stand for what differs.
static constexpr llvm::StringLiteral text = R"(#ifndef UPPER_H
#define UPPER_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

CONSTANTS
/* Bytes of a sequence: its cache and its memory, whatever its length. */
#define UPPER_BYTES (KEYBYTES + VALUEBYTES + MATRIXBYTES + SUMBYTES + 256)

/* A sequence. */
typedef struct NAME {
  void *keys;   /* [KEYSHAPE] KEYTYPE */
  void *values; /* [VALUESHAPE] VALUETYPE */
  void *matrix; /* [MATRIXSHAPE] MATRIXTYPE: what was folded */
  void *sums;   /* [SUMSHAPE] f32: and its normaliser */
  int64_t length;   /* tokens so far */
  int64_t segments; /* of them, that have been folded */
} NAME;

/* Row-major arrays; those of tokens and outputs have a row for each token. */
typedef struct NAME_arguments {
ARGUMENTS} NAME_arguments;

/* What a kernel does for a token. */
typedef struct NAME_task {
  int64_t row, slot, head, position, appends, answers, entry, holds;
  int64_t kept[6], folded[4], is_first, budget, first, listed;
} NAME_task;

/* One head of the cache of one token. */
void KERNEL(void **arguments);

/* Divides UPPER_BYTES of memory among the arrays of an empty sequence. */
static inline void NAME_init(NAME *self, void *memory) {
  char *at = (char *)(((uintptr_t)memory + 63) / 64 * 64);
  self->keys = at;
  at += (KEYBYTES + 63) / 64 * 64;
  self->values = at;
  at += (VALUEBYTES + 63) / 64 * 64;
  self->matrix = at;
  at += (MATRIXBYTES + 63) / 64 * 64;
  self->sums = at;
  self->length = self->segments = 0;
}

/* Memory as the kernel takes it: address, offset, sizes and strides. */
typedef struct NAME_view {
  void *allocated, *aligned;
  int64_t offset, numbers[NUMBERS];
} NAME_view;

static inline void NAME_describe(NAME_view *view, const void *data, int rank,
                                 const int64_t *sizes) {
  int64_t stride = 1;
  int i;
  view->allocated = view->aligned = (void *)(uintptr_t)data;
  view->offset = 0;
  for (i = rank - 1; i >= 0; --i) {
    view->numbers[i] = sizes[i];
    view->numbers[rank + i] = stride;
    stride *= sizes[i];
  }
}

/* Runs a head of the cache. Heads may run on different threads. */
static inline void NAME_run(const NAME *self, const NAME_arguments *given,
                            const NAME_task *planned, int64_t head) {
SIZES  NAME_task task = *planned;
  NAME_view views[VIEWS];
  void *list[INTEGERS + VIEWS];
  int i;
  task.head = head;
  for (i = 0; i < INTEGERS; ++i)
    list[i] = (int64_t *)&task + i;
  for (i = 0; i < VIEWS; ++i)
    list[INTEGERS + i] = &views[i];
DESCRIPTIONS  KERNEL(list);
}

static inline int64_t NAME_entry(int64_t position) {
  return position < UPPER_SINKS
             ? position
             : UPPER_SINKS + (position - UPPER_SINKS) %
                                 (UPPER_CAPACITY - UPPER_SINKS);
}

/* The entries of positions behind the sinks, as two runs. */
static inline void NAME_runs(int64_t begin, int64_t end, int64_t *runs) {
  int64_t count = end - begin, together = UPPER_CAPACITY - NAME_entry(begin);
  memset(runs, 0, 4 * sizeof *runs);
  if (count <= 0)
    return;
  if (together > count)
    together = count;
  runs[0] = NAME_entry(begin);
  runs[1] = runs[0] + together;
  if (together < count) {
    runs[2] = UPPER_SINKS;
    runs[3] = UPPER_SINKS + count - together;
  }
}

static inline int NAME_is_full(const NAME *self, int64_t window) {
  return self->length - UPPER_SINKS - self->segments * UPPER_SEGMENT -
             window >= UPPER_SEGMENT;
}

static inline void NAME_fold(NAME *self, NAME_task *task) {
  int64_t begin = UPPER_SINKS + self->segments * UPPER_SEGMENT;
  NAME_runs(begin, begin + UPPER_SEGMENT, task->folded);
  task->is_first = self->segments == 0;
  ++self->segments;
}

static inline void NAME_answer(const NAME *self, NAME_task *task) {
  task->answers = 1;
  task->holds = self->segments > 0;
  if (!self->segments && self->length <= UPPER_CAPACITY) {
    task->kept[1] = self->length;
    return;
  }
  task->kept[1] = self->length < UPPER_SINKS ? self->length : UPPER_SINKS;
  NAME_runs(UPPER_SINKS + self->segments * UPPER_SEGMENT, self->length,
            task->kept + 2);
}

/* A token more, at a row of the arguments: what each head has to run. */
static inline NAME_task NAME_plan(NAME *self, int64_t row) {
  NAME_task task;
  memset(&task, 0, sizeof task);
  task.row = row;
  task.position = self->length;
  task.entry = NAME_entry(self->length);
  task.appends = 1;
  ++self->length;
  if (NAME_is_full(self, UPPER_WINDOW))
    NAME_fold(self, &task);
  NAME_answer(self, &task);
  return task;
}

static inline void NAME_run_all(const NAME *self, const NAME_arguments *given,
                                const NAME_task *task) {
  int64_t head;
  for (head = 0; head < UPPER_CACHE_HEADS; ++head)
    NAME_run(self, given, task, head);
}

/* Answers the token at row 0 of the arguments. */
static inline void NAME_step(NAME *self, const NAME_arguments *given) {
  NAME_task task = NAME_plan(self, 0);
  NAME_run_all(self, given, &task);
}

/* Answers a prompt of so many tokens, segment by segment. */
static inline void NAME_prefill(NAME *self, const NAME_arguments *given,
                                int64_t count) {
  int64_t rest = self->length + count - UPPER_SINKS - UPPER_WINDOW, row;
  int64_t most = rest > 0 ? rest / UPPER_SEGMENT : 0;
  NAME_task task;
  for (row = 0; row < count; ++row) {
    memset(&task, 0, sizeof task);
    task.row = row;
    task.position = self->length;
    task.entry = NAME_entry(self->length);
    task.appends = 1;
    ++self->length;
    while (self->segments < most && NAME_is_full(self, 1)) {
      if (task.folded[1] > task.folded[0]) {
        NAME_run_all(self, given, &task);
        task.appends = 0;
      }
      NAME_fold(self, &task);
    }
    NAME_answer(self, &task);
    NAME_run_all(self, given, &task);
  }
  while (self->segments < most && NAME_is_full(self, 0)) {
    memset(&task, 0, sizeof task);
    NAME_fold(self, &task);
    NAME_run_all(self, given, &task);
  }
}

#ifdef __cplusplus
}
#endif

#endif /* UPPER_H */
)";

static std::string typeText(mlir::Type type) {
  return type.isF32() ? "f32" : type.isBF16() ? "bf16" : "f16";
}

static std::string listText(llvm::ArrayRef<int64_t> sizes,
                            llvm::StringRef separator) {
  std::string result;
  for (int64_t size : sizes)
    result += (result.empty() ? "" : separator.str()) + std::to_string(size);
  return result;
}

static int64_t bytesOf(llvm::ArrayRef<int64_t> sizes, mlir::Type type) {
  int64_t bytes = type.getIntOrFloatBitWidth() / 8;
  for (int64_t size : sizes)
    bytes *= size;
  return bytes;
}

namespace {
/// Texts by the names that they replace.
class Substitution {
public:
  void add(std::string name, std::string by) {
    pairs.emplace_back(std::move(name), std::move(by));
  }
  /// Replaces whole words, and parts of words that end at a _.
  std::string apply(llvm::StringRef from) const {
    std::string result;
    while (!from.empty()) {
      bool isStart = result.empty() ||
                     (!llvm::isAlnum(result.back()) && result.back() != '_');
      const auto *found = llvm::find_if(pairs, [&](const auto &pair) {
        if (!isStart || !from.starts_with(pair.first))
          return false;
        llvm::StringRef rest = from.drop_front(pair.first.size());
        return rest.empty() || !llvm::isAlnum(rest.front());
      });
      if (found == pairs.end()) {
        result += from.front();
        from = from.drop_front();
      } else {
        result += found->second;
        from = from.drop_front(found->first.size());
      }
    }
    return result;
  }

private:
  llvm::SmallVector<std::pair<std::string, std::string>> pairs;
};
} // namespace

/// Whether C and C++ take the names of the attention and of its arrays; if not,
/// reports those.
static bool checkNames(AttentionOp attention) {
  bool valid = true;
  auto report = [&](llvm::StringRef name, mlir::Location loc) {
    valid = false;
    mlir::InFlightDiagnostic error = mlir::emitError(loc);
    error << "no object file: '" << name << "' is a word of C or C++";
    error.attachNote() << "its header is C: rename '" << name << "'";
  };
  auto check = [&](llvm::StringRef name, mlir::Location loc) {
    if (tool::isReservedInC(name))
      report(name, loc);
  };
  if (tool::isReservedAsTypeInC(attention.getSymName()))
    report(attention.getSymName(), attention.getLoc());
  for (mlir::BlockArgument each : attention.getBody().getArguments())
    if (llvm::isa<mlir::RankedTensorType>(each.getType()))
      check(attention.getArgumentName(each.getArgNumber()), each.getLoc());
  for (auto [name, value] :
       llvm::zip(attention.getOutputNames().getAsValueRange<mlir::StringAttr>(),
                 attention.getBody().front().getTerminator()->getOperands()))
    check(name, value.getLoc());
  return valid;
}

std::optional<std::string> tool::cHeader(AttentionOp attention) {
  FoldSegmentOp fold;
  attention.walk([&](FoldSegmentOp op) { fold = op; });
  if (!fold) {
    attention.emitError("no object file of '")
        << attention.getSymName()
        << "': it needs a segmented cache, whose kernel stands for itself";
    return std::nullopt;
  }
  if (!checkNames(attention))
    return std::nullopt;
  std::string name = attention.getSymName().str();
  std::string upper = llvm::StringRef(name).upper();
  auto cache = llvm::cast<BufferType>(attention.getCache().getType());
  auto memory = llvm::cast<MemoryType>(attention.getMemory().getType());
  FieldAttr key = cache.getFields()[0], value = cache.getFields()[1];
  int64_t heads = key.getShape()[0], capacity = cache.getCapacity();
  int64_t keySize = key.getShape()[1], valueSize = value.getShape()[1];

  std::string constants, arguments, sizes, descriptions;
  auto constant = [&](llvm::StringRef what, int64_t number) {
    constants +=
        ("#define " + upper + "_" + what + " " + std::to_string(number) + "\n")
            .str();
  };
  constant("CACHE_HEADS", heads);
  constant("KEY_SIZE", keySize);
  constant("VALUE_SIZE", valueSize);
  constant("SINKS", static_cast<int64_t>(fold.getSinks()));
  constant("WINDOW", static_cast<int64_t>(fold.getWindow()));
  constant("SEGMENT", static_cast<int64_t>(fold.getSegment()));
  constant("CAPACITY", capacity);

  int views = 0;
  size_t largestRank = 0;
  auto describe = [&](const std::string &place, const std::string &label,
                      llvm::ArrayRef<int64_t> shape) {
    largestRank = std::max(largestRank, shape.size());
    sizes += "  static const int64_t " + label + "[] = {" +
             listText(shape, ", ") + "};\n";
    descriptions += "  " + name + "_describe(&views[" +
                    std::to_string(views++) + "], " + place + ", " +
                    std::to_string(shape.size()) + ", " + label + ");\n";
  };
  auto argument = [&](llvm::StringRef label, mlir::Type type, bool hasRows,
                      bool isConst) {
    auto tensor = llvm::cast<mlir::RankedTensorType>(type);
    llvm::SmallVector<int64_t> shape(tensor.getShape());
    mlir::Type element = tensor.getElementType();
    arguments += ("  " + llvm::Twine(isConst ? "const " : "") +
                  (element.isF32() ? "float" : "uint16_t") + " *" + label +
                  "; /* [" + (hasRows ? "tokens, " : "") +
                  listText(shape, ", ") + "] " + typeText(element) + " */\n")
                     .str();
    // The dimensions of each, under its name.
    for (auto [i, size] : llvm::enumerate(shape))
      constant((label + "_DIM" + llvm::Twine(i)).str(), size);
    if (hasRows)
      shape.insert(shape.begin(), 1);
    describe(("given->" + label).str(), (label + "_sizes").str(), shape);
  };
  for (mlir::BlockArgument each : attention.getBody().getArguments())
    if (llvm::isa<mlir::RankedTensorType>(each.getType()))
      argument(attention.getArgumentName(each.getArgNumber()), each.getType(),
               attention.getArgumentKind(each.getArgNumber()) ==
                   ArgumentKind::Token,
               /*isConst=*/true);
  for (auto [label, type] :
       llvm::zip(attention.getOutputNames().getAsValueRange<mlir::StringAttr>(),
                 attention.getOutputTypes().getAsValueRange<mlir::TypeAttr>()))
    argument(label, type, /*hasRows=*/true, /*isConst=*/false);

  Substitution words;
  mlir::Type f32 = mlir::Float32Type::get(attention.getContext());
  auto array = [&](const std::string &word, const std::string &field,
                   llvm::ArrayRef<int64_t> shape, mlir::Type type) {
    llvm::SmallVector<int64_t> withSlot{1};
    llvm::append_range(withSlot, shape);
    // No name of an argument with "_sizes" behind it.
    describe("self->" + field, "sizes_of_" + field, withSlot);
    words.add(word + "SHAPE", listText(shape, ", "));
    words.add(word + "BYTES", std::to_string(bytesOf(shape, type)));
    words.add(word + "TYPE", typeText(type));
  };
  array("KEY", "keys", {heads, capacity, keySize}, key.getElementType());
  array("VALUE", "values", {heads, capacity, valueSize},
        value.getElementType());
  array("MATRIX", "matrix", {heads, memory.getKeySize(), valueSize},
        memory.getElementType());
  array("SUM", "sums", {heads, memory.getKeySize()}, f32);
  words.add("UPPER", upper);
  words.add("NAME", name);
  words.add("KERNEL", name + "_decode" + kPackedSuffix.str());
  words.add("CONSTANTS", constants);
  words.add("ARGUMENTS", arguments);
  words.add("SIZES", sizes);
  words.add("DESCRIPTIONS", descriptions);
  words.add("NUMBERS", std::to_string(2 * largestRank));
  words.add("VIEWS", std::to_string(views));
  words.add("INTEGERS", std::to_string(boundedTaskIntegers));
  return words.apply(text);
}
