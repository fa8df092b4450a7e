//===- CudaNames.cpp - identifiers of a printed kernel --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaNames.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace ladle::cuda {

/// What a value may not be called: keywords of C++20, what CUDA declares, and
/// what the prelude and the printed code call.
static bool isReserved(StringRef name) {
  static const llvm::StringSet<> reserved = {"alignas",
                                             "alignof",
                                             "and",
                                             "and_eq",
                                             "asm",
                                             "auto",
                                             "bitand",
                                             "bitor",
                                             "bool",
                                             "break",
                                             "case",
                                             "catch",
                                             "char",
                                             "char16_t",
                                             "char32_t",
                                             "char8_t",
                                             "class",
                                             "co_await",
                                             "co_return",
                                             "co_yield",
                                             "compl",
                                             "concept",
                                             "const",
                                             "const_cast",
                                             "consteval",
                                             "constexpr",
                                             "constinit",
                                             "continue",
                                             "decltype",
                                             "default",
                                             "delete",
                                             "do",
                                             "double",
                                             "dynamic_cast",
                                             "else",
                                             "enum",
                                             "explicit",
                                             "export",
                                             "extern",
                                             "false",
                                             "float",
                                             "for",
                                             "friend",
                                             "goto",
                                             "if",
                                             "inline",
                                             "int",
                                             "long",
                                             "mutable",
                                             "namespace",
                                             "new",
                                             "noexcept",
                                             "not",
                                             "not_eq",
                                             "nullptr",
                                             "operator",
                                             "or",
                                             "or_eq",
                                             "private",
                                             "protected",
                                             "public",
                                             "register",
                                             "requires",
                                             "return",
                                             "short",
                                             "signed",
                                             "sizeof",
                                             "static",
                                             "static_assert",
                                             "static_cast",
                                             "struct",
                                             "switch",
                                             "template",
                                             "this",
                                             "thread_local",
                                             "throw",
                                             "true",
                                             "try",
                                             "typedef",
                                             "typeid",
                                             "typename",
                                             "union",
                                             "unsigned",
                                             "using",
                                             "virtual",
                                             "void",
                                             "volatile",
                                             "wchar_t",
                                             "while",
                                             "xor",
                                             "xor_eq",
                                             "threadIdx",
                                             "blockIdx",
                                             "blockDim",
                                             "gridDim",
                                             "warpSize",
                                             "half",
                                             "bf16",
                                             "Vec",
                                             "load_vector",
                                             "load_vector_if",
                                             "load_constant_vector_if",
                                             "store_vector",
                                             "to_float",
                                             "from_float",
                                             "from_floats",
                                             "multiply_tiles",
                                             "copy_back",
                                             "copy_back_start",
                                             "copy_back_wait",
                                             "load_vector_streaming",
                                             "shuffle_xor",
                                             "shuffle_up",
                                             "shuffle_down",
                                             "store_vector_streaming",
                                             "store_vector_kept",
                                             "store_kept",
                                             "shuffle_index",
                                             "block_barrier",
                                             "release_barrier",
                                             "copy",
                                             "copy_init",
                                             "copy_kept",
                                             "copy_part",
                                             "copy_part_kept",
                                             "copy_part_wait",
                                             "copy_rows",
                                             "copy_wait",
                                             "copy_rows_wait",
                                             "copy_streaming",
                                             "divide_by_large",
                                             "LADLE_DYNAMIC_SHARED",
                                             "min",
                                             "max",
                                             "abs",
                                             "main",
                                             "asm",
                                             "std"};
  // rsqrtf, fmaxf, ...: values are seldom called so, and then get a suffix.
  static const llvm::StringSet<> functions = {"approximate_exp",
                                              "approximate_exp2",
                                              "absf",
                                              "fabsf",
                                              "expf",
                                              "exp2f",
                                              "expm1f",
                                              "logf",
                                              "log2f",
                                              "log1pf",
                                              "log10f",
                                              "tanhf",
                                              "sine",
                                              "cosine",
                                              "tanf",
                                              "erff",
                                              "sqrtf",
                                              "rsqrtf",
                                              "floorf",
                                              "ceilf",
                                              "rintf",
                                              "roundf",
                                              "truncf",
                                              "powf",
                                              "fmaf",
                                              "fmodf",
                                              "fminf",
                                              "fmaxf",
                                              "copysignf"};
  return name == kElementIndex || reserved.contains(name) ||
         functions.contains(name);
}

static bool isIdentifier(StringRef name) {
  return !name.empty() && llvm::isAlpha(name.front()) &&
         llvm::all_of(name,
                      [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

bool isFreeIdentifier(StringRef name) {
  return isIdentifier(name) && !isReserved(name);
}

StringRef nameOf(Location loc) {
  return llvm::TypeSwitch<LocationAttr, StringRef>(loc)
      .Case<NameLoc>([](NameLoc named) { return named.getName().getValue(); })
      .Case<CallSiteLoc>([](CallSiteLoc call) {
        StringRef callee = nameOf(call.getCallee());
        return callee.empty() ? nameOf(call.getCaller()) : callee;
      })
      .Case<FusedLoc>([](FusedLoc fused) {
        for (Location part : fused.getLocations())
          if (StringRef name = nameOf(part); !name.empty())
            return name;
        return StringRef();
      })
      .Default(StringRef());
}

FileLineColLoc placeOf(Location loc) {
  return llvm::TypeSwitch<LocationAttr, FileLineColLoc>(loc)
      .Case<FileLineColLoc>([](FileLineColLoc place) { return place; })
      .Case<NameLoc>([](NameLoc named) { return placeOf(named.getChildLoc()); })
      .Case<CallSiteLoc>([](CallSiteLoc call) {
        FileLineColLoc callee = placeOf(call.getCallee());
        return callee ? callee : placeOf(call.getCaller());
      })
      .Case<FusedLoc>([](FusedLoc fused) {
        for (Location part : fused.getLocations())
          if (FileLineColLoc place = placeOf(part))
            return place;
        return FileLineColLoc();
      })
      .Default(FileLineColLoc());
}

/// Other characters become one underscore: identifiers with two are reserved.
static std::string makeIdentifier(StringRef base) {
  std::string name;
  for (char c : base)
    if (llvm::isAlnum(c))
      name += c;
    else if (!StringRef(name).ends_with("_"))
      name += '_';
  return isIdentifier(name) ? name : "v" + name;
}

std::string Names::take(std::string name) {
  used.insert(name);
  scopes.back().push_back(name);
  return name;
}

std::string Names::fresh(StringRef base) {
  auto isFree = [&](const std::string &name) {
    return !used.contains(name) && !isReserved(name);
  };
  std::string name;
  if (base.empty()) {
    do
      name = "v" + std::to_string(next++);
    while (!isFree(name));
    return take(name);
  }
  std::string identifier = name = makeIdentifier(base);
  for (unsigned suffix = 1; !isFree(name); ++suffix)
    name = identifier + '_' + std::to_string(suffix);
  return take(name);
}

std::string Names::freshIndex() {
  for (char letter : StringRef("ijlmn"))
    if (std::string name(1, letter); !used.contains(name))
      return take(name);
  return fresh("i");
}

void Names::leave() {
  for (const std::string &name : scopes.pop_back_val())
    used.erase(name);
}

} // namespace ladle::cuda
