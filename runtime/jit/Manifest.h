//===- Manifest.h - plans and interfaces as JSON ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the disk cache holds beside the code. Parsing returns nothing for
// anything that was not written by the function above it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_MANIFEST_H
#define LADLE_RUNTIME_JIT_MANIFEST_H

#include "runtime/jit/Compiler.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

namespace ladle {

llvm::json::Value toJSON(DType dtype);
bool fromJSON(const llvm::json::Value &value, DType &dtype,
              llvm::json::Path path);
llvm::json::Value toJSON(const Signature &signature);
bool fromJSON(const llvm::json::Value &value, Signature &signature,
              llvm::json::Path path);

namespace cuda {
llvm::json::Value toJSON(const KernelInfo &info);
bool fromJSON(const llvm::json::Value &value, KernelInfo &info,
              llvm::json::Path path);
} // namespace cuda

} // namespace ladle

namespace ladle::jit {

llvm::json::Object toJSON(const RouteSummary &summary);

std::string serialize(const Plan &plan);
std::optional<Plan> parsePlan(llvm::StringRef text);

/// All but the object itself.
std::string serialize(const RouteObject &object);
std::optional<RouteObject> parseRouteObject(llvm::StringRef text);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_MANIFEST_H
