//===- AttentionManifest.cpp - compiled attentions as JSON ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/AttentionManifest.h"
#include "runtime/jit/Manifest.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle;
using namespace ladle::jit;
namespace json = llvm::json;

namespace {

/// Writes members into an object, or reads them out of one. Both go over the
/// same list, so that none is forgotten.
class Writer {
public:
  json::Object object;

  template <typename T> void member(llvm::StringRef name, const T &value) {
    object[name] = toValue(value);
  }
  template <typename T, typename Visit>
  void list(llvm::StringRef name, const std::vector<T> &items, Visit visit) {
    json::Array array;
    for (const T &item : items) {
      Writer writer;
      visit(writer, const_cast<T &>(item));
      array.push_back(std::move(writer.object));
    }
    object[name] = std::move(array);
  }
  template <typename Visit> void part(llvm::StringRef name, Visit visit) {
    Writer writer;
    visit(writer);
    object[name] = std::move(writer.object);
  }
  template <typename T> void optional(llvm::StringRef name, const T &value) {
    object[name] = value.has_value();
  }

private:
  template <typename T> static json::Value toValue(const T &value) {
    if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>)
      return static_cast<int64_t>(value);
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return json::Array(value);
    else
      return toJSON(value);
  }
  static json::Value toJSON(bool value) { return value; }
  static json::Value toJSON(int64_t value) { return value; }
  static json::Value toJSON(double value) { return value; }
  static json::Value toJSON(const std::string &value) { return value; }
  static json::Value toJSON(DType value) { return ladle::toJSON(value); }
  static json::Value toJSON(const Signature &value) {
    return ladle::toJSON(value);
  }
  static json::Value toJSON(const cuda::KernelInfo &value) {
    return cuda::toJSON(value);
  }
};

class Reader {
public:
  explicit Reader(const json::Value *value)
      : object(value ? value->getAsObject() : nullptr), isGood(object) {}
  bool good() const { return isGood; }

  template <typename T> void member(llvm::StringRef name, T &value) {
    const json::Value *from = object ? object->get(name) : nullptr;
    json::Path::Root root;
    if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>) {
      // Who wrote it has the same compiler, and knew the same values.
      std::optional<int64_t> number =
          from ? from->getAsInteger() : std::nullopt;
      isGood &= number.has_value() && *number >= 0;
      value = static_cast<T>(number.value_or(0));
    } else {
      isGood &= from && fromJSON(*from, value, root);
    }
  }
  template <typename T, typename Visit>
  void list(llvm::StringRef name, std::vector<T> &items, Visit visit) {
    const json::Array *array = object ? object->getArray(name) : nullptr;
    isGood &= array != nullptr;
    for (size_t i = 0; array && i < array->size(); ++i) {
      Reader reader(&(*array)[i]);
      visit(reader, items.emplace_back());
      isGood &= reader.good();
    }
  }
  template <typename Visit> void part(llvm::StringRef name, Visit visit) {
    Reader reader(object ? object->get(name) : nullptr);
    visit(reader);
    isGood &= reader.good();
  }
  template <typename T> void optional(llvm::StringRef name, T &value) {
    bool isThere = false;
    member(name, isThere);
    if (isThere)
      value.emplace();
  }

private:
  const json::Object *object;
  bool isGood;
};

} // namespace

// Members are taken apart so that one which is added does not compile until it
// is here.

template <typename Archive>
static void visit(Archive &archive, AttentionSettings &settings) {
  auto &[tau, window, band, sinks, maxGap, maxChain, skip, drift, wideBand,
         wideGap] = settings;
  archive.member("tau", tau);
  archive.member("window", window);
  archive.member("band", band);
  archive.member("sinks", sinks);
  archive.member("max_gap", maxGap);
  archive.member("max_chain", maxChain);
  archive.member("skip", skip);
  archive.member("drift", drift);
  archive.member("wide_band", wideBand);
  archive.member("wide_gap", wideGap);
}

template <typename Archive>
static void visit(Archive &archive, AttentionFormKernels &form) {
  archive.list("pieces", form.pieces, [](auto &inner, auto &piece) {
    auto &[begin, end, afterMatch] = piece;
    inner.member("begin", begin);
    inner.member("end", end);
    inner.member("after_match", afterMatch);
  });
}

template <typename Archive>
static void visit(Archive &archive, BoundedProgram &bounded) {
  // The last three are places of code.
  auto &[kind, capacity, sinks, window, segment, budget, recent, queries,
         variance, pool, observes, scale, limit, queryName, memory,
         memoryKeySize, memoryType, decode, prefillSelect, prefillFold] =
      bounded;
  archive.member("kind", kind);
  archive.member("capacity", capacity);
  archive.member("sinks", sinks);
  archive.member("window", window);
  archive.member("segment", segment);
  archive.member("budget", budget);
  archive.member("recent", recent);
  archive.member("queries", queries);
  archive.member("variance", variance);
  archive.member("pool", pool);
  archive.member("observes", observes);
  archive.member("scale", scale);
  archive.member("limit", limit);
  archive.member("query_name", queryName);
  archive.member("memory", memory);
  archive.member("memory_key_size", memoryKeySize);
  archive.member("memory_type", memoryType);
}

template <typename Archive>
static void visit(Archive &archive, GpuAttentionStep &step) {
  auto &[decodes, finds, leastBlocks, blocksAtOnce, kernels] = step;
  archive.member("decodes", decodes);
  archive.member("finds", finds);
  archive.member("least_blocks", leastBlocks);
  archive.member("blocks_at_once", blocksAtOnce);
  archive.list("kernels", kernels, [](auto &inner, auto &kernel) {
    auto &[suffix, info, arguments] = kernel;
    inner.member("suffix", suffix);
    inner.member("info", info);
    inner.member("arguments", arguments);
  });
}

template <typename Archive>
static void visit(Archive &archive, AttentionObject &object) {
  AttentionProgramImpl &program = object.program;
  archive.member("signature", program.signature);
  archive.part("settings",
               [&](auto &inner) { visit(inner, program.settings); });
  archive.member("key_name", program.keyName);
  archive.member("value_name", program.valueName);
  archive.member("key_type", program.keyType);
  archive.member("value_type", program.valueType);
  archive.member("cache_heads", program.cacheHeads);
  archive.member("key_size", program.keySize);
  archive.member("value_size", program.valueSize);
  archive.member("page_size", program.pageSize);
  archive.member("has_ring", program.hasRing);
  archive.member("is_rotated", program.isRotated);
  archive.member("estimates", program.estimates);
  archive.member("parts", program.parts);
  archive.member("query_type", program.queryType);
  archive.member("summary_type", program.summaryType);
  archive.part("decode", [&](auto &inner) { visit(inner, program.decode); });
  archive.part("prefill", [&](auto &inner) { visit(inner, program.prefill); });
  archive.optional("is_bounded", program.bounded);
  if (program.bounded)
    archive.part("bounded",
                 [&](auto &inner) { visit(inner, *program.bounded); });
  archive.member("warnings", program.warnings);
  archive.list("symbols", object.symbols, [](auto &inner, auto &symbol) {
    inner.member("place", symbol.place);
    inner.member("symbol", symbol.symbol);
  });
  archive.list("steps", object.steps,
               [](auto &inner, auto &step) { visit(inner, step); });
}

std::string jit::serialize(const AttentionObject &object) {
  Writer writer;
  visit(writer, const_cast<AttentionObject &>(object));
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(writer.object));
  return text;
}

KernelFunction *jit::placeOf(AttentionProgramImpl &program,
                             llvm::StringRef name) {
  auto inForm = [&](AttentionFormKernels &form,
                    llvm::StringRef kernel) -> KernelFunction * {
    return kernel == "find"     ? &form.find
           : kernel == "attend" ? &form.attend
           : kernel == "finish" ? &form.finish
                                : nullptr;
  };
  if (name.consume_front("decode."))
    return inForm(program.decode, name);
  if (name.consume_front("prefill."))
    return inForm(program.prefill, name);
  if (!program.bounded || !name.consume_front("bounded."))
    return nullptr;
  return name == "decode"   ? &program.bounded->decode
         : name == "select" ? &program.bounded->prefillSelect
         : name == "fold"   ? &program.bounded->prefillFold
                            : nullptr;
}

std::optional<AttentionObject> jit::parseAttentionObject(llvm::StringRef text) {
  llvm::Expected<json::Value> value = json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  Reader reader(&*value);
  AttentionObject object;
  visit(reader, object);
  if (!reader.good())
    return std::nullopt;
  for (const AttentionSymbol &symbol : object.symbols)
    if (!placeOf(object.program, symbol.place))
      return std::nullopt;
  return object;
}
