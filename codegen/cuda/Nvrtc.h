//===- Nvrtc.h - CUDA C++ becomes a cubin -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's compiler as a library, which is looked for when it is needed: a
// build needs no CUDA, and a machine without it is told what to install. No
// GPU is needed to compile.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_NVRTC_H
#define LADLE_CODEGEN_CUDA_NVRTC_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ladle {

struct CubinOptions {
  /// "sm_90a": the code runs on this architecture and, without the letter, on
  /// later ones of the same major version.
  std::string arch;
  /// Further options of NVRTC: "--maxrregcount=64", "--use_fast_math".
  std::vector<std::string> extra;
  /// Whether kernels of one text are compiled side by side, which NVRTC 13 can.
  bool splits = false;
};

/// What one kernel takes, as ptxas reports it: registers a thread, bytes a
/// thread that do not fit into them, static shared memory a block. And bytes
/// that need not fit, as its text says.
struct KernelResources {
  std::string name;
  int registers = 0;
  int spillStores = 0, spillLoads = 0, stackBytes = 0;
  int sharedBytes = 0;
  int maySpill = 0;
  /// Whether more is spilled than may be, or loaded more than twice.
  bool spills() const {
    constexpr int alignment = 8; // of the stack
    return spillStores > maySpill || spillLoads > 2 * maySpill ||
           stackBytes > (maySpill ? maySpill + alignment : 0);
  }
};

struct Cubin {
  /// An ELF file, for cuModuleLoadData.
  std::string image;
  /// What ptxas was given.
  std::string ptx;
  /// In the order of their names.
  std::vector<KernelResources> kernels;
  /// Warnings and the report of ptxas.
  std::string log;
};

class Nvrtc {
public:
  /// Opens the first library found: $LADLE_NVRTC, which then has to be one;
  /// the loader's path; below $CUDA_HOME, $CUDA_PATH and /usr/local/cuda; in
  /// the conda environment; among the wheels of Python (nvidia-cuda-nvrtc).
  static llvm::Expected<Nvrtc> open();

  /// {13, 0}.
  std::pair<int, int> version() const;
  /// {80, 86, 90, ...}, ascending. Empty before version 11.2.
  std::vector<int> archs() const;
  /// The file that was opened.
  std::string path() const;

  /// Compiles a text that may include "ladle_prelude.cuh". `fileName` names it
  /// in messages. An error shows the line of the text and a caret below it.
  llvm::Expected<Cubin> compile(llvm::StringRef source,
                                llvm::StringRef fileName,
                                const CubinOptions &options) const;
  /// The same, as far as PTX.
  llvm::Expected<std::string> ptx(llvm::StringRef source,
                                  llvm::StringRef fileName,
                                  const CubinOptions &options) const;

private:
  struct Library;
  class Program;
  explicit Nvrtc(std::shared_ptr<const Library> library);

  std::shared_ptr<const Library> library;
};

/// Reads the report that ptxas prints with -v.
std::vector<KernelResources> parsePtxasReport(llvm::StringRef log);

} // namespace ladle

#endif // LADLE_CODEGEN_CUDA_NVRTC_H
