//===- CNames.cpp - names that C has taken --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/CNames.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace ladle;

bool tool::isReservedInC(llvm::StringRef name) {
  static const llvm::StringSet<> words{
      // Keywords of C23 and of C++26.
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor",
      "bool", "break", "case", "catch", "char", "char8_t", "char16_t",
      "char32_t", "class", "co_await", "co_return", "co_yield", "compl",
      "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
      "continue", "contract_assert", "decltype", "default", "delete", "do",
      "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern",
      "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
      "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
      "operator", "or", "or_eq", "private", "protected", "public", "register",
      "reinterpret_cast", "requires", "restrict", "return", "short", "signed",
      "sizeof", "static", "static_assert", "static_cast", "struct", "switch",
      "template", "this", "thread_local", "throw", "true", "try", "typedef",
      "typeid", "typename", "typeof", "typeof_unqual", "union", "unsigned",
      "using", "virtual", "void", "volatile", "wchar_t", "while", "xor",
      "xor_eq",
      // What compilers define without an underscore.
      "linux", "unix", "i386", "NULL",
      // What the header is made of.
      "int64_t", "uint16_t", "uintptr_t", "size_t"};
  bool isOfCompiler = name.size() > 1 && name[0] == '_' &&
                      (name[1] == '_' || llvm::isUpper(name[1]));
  return isOfCompiler || words.contains(name);
}

bool tool::isReservedAsTypeInC(llvm::StringRef name) {
  static const llvm::StringSet<> functions{
      "main",    "memset",  "memcpy",  "memmove", "memcmp",  "memchr",
      "memccpy", "strcpy",  "strncpy", "strcat",  "strncat", "strcmp",
      "strncmp", "strcoll", "strxfrm", "strchr",  "strrchr", "strspn",
      "strcspn", "strpbrk", "strstr",  "strtok",  "strlen",  "strerror"};
  return isReservedInC(name) || functions.contains(name);
}
