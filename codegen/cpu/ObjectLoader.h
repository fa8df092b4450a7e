//===- ObjectLoader.h - an object becomes callable --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CPU_OBJECTLOADER_H
#define LADLE_CODEGEN_CPU_OBJECTLOADER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace ladle {

/// Code in memory. The addresses are those of the symbols asked for, in their
/// order; they are valid as long as a copy of `owner` exists.
struct LoadedObject {
  std::shared_ptr<void> owner;
  std::vector<void *> addresses;
};

/// Links an object file into this process. The object may call the functions
/// of libm that kernels need and memcpy, memmove and memset; nothing else of
/// the process is visible to it, so that loading works alike in a static
/// binary. Fails if the object is damaged, calls another function, or lacks a
/// symbol.
llvm::Expected<LoadedObject> loadObject(llvm::StringRef object,
                                        llvm::ArrayRef<std::string> symbols);

} // namespace ladle

#endif // LADLE_CODEGEN_CPU_OBJECTLOADER_H
