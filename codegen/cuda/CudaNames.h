//===- CudaNames.h - identifiers of a printed kernel ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_CUDANAMES_H
#define LADLE_CODEGEN_CUDA_CUDANAMES_H

#include "mlir/IR/Location.h"
#include "llvm/ADT/StringSet.h"

namespace ladle::cuda {

/// The index of a loop over the elements of a vector; no value is called so.
inline constexpr llvm::StringLiteral kElementIndex = "e";

/// Whether `name` is a C++ identifier that neither the language nor the
/// prelude uses.
bool isFreeIdentifier(llvm::StringRef name);

/// The name that a location carries, directly or in what it is made of.
llvm::StringRef nameOf(mlir::Location loc);

/// The file and line that a location carries.
mlir::FileLineColLoc placeOf(mlir::Location loc);

/// Identifiers that are unique among those in scope.
class Names {
public:
  /// `base` made an identifier, with _1, _2, ... where it is taken; vN if it is
  /// empty.
  std::string fresh(llvm::StringRef base);
  /// i, j, ...: the first letter that is free.
  std::string freshIndex();

  /// Names made between enter and leave are free again afterwards.
  void enter() { scopes.emplace_back(); }
  void leave();

private:
  std::string take(std::string name);

  llvm::StringSet<> used;
  llvm::SmallVector<llvm::SmallVector<std::string>> scopes{1};
  unsigned next = 0;
};

} // namespace ladle::cuda

#endif // LADLE_CODEGEN_CUDA_CUDANAMES_H
