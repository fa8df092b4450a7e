//===- EmulatedNvrtc.cpp - libnvrtc for the emulated GPU ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of nvrtc.h that codegen/cuda/Nvrtc.cpp binds. A cubin is the
// text, once it has been compiled for the CPU.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/EmulatedState.h"

#include <cstring>

using namespace ladle::test;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct Program {
  std::string text, log;
};
} // namespace

// No version of NVIDIA's: the disk cache must tell the code apart.
EXPORT int nvrtcVersion(int *major, int *minor) {
  *major = 0;
  *minor = 1;
  return 0;
}
EXPORT int nvrtcCreateProgram(Program **program, const char *source,
                              const char *, int, const char *const *,
                              const char *const *) {
  *program = new Program{source, ""};
  return 0;
}
EXPORT int nvrtcDestroyProgram(Program **program) {
  delete *program;
  return 0;
}
EXPORT int nvrtcCompileProgram(Program *program, int, const char *const *) {
  static std::mutex mutex;
  auto module = EmulatedModule::compile(program->text);
  std::lock_guard<std::mutex> lock(mutex);
  ++EmulatedState::get().compiled;
  if (module)
    return 0;
  program->log = llvm::toString(module.takeError());
  return 6;
}
EXPORT int nvrtcGetProgramLogSize(Program *program, size_t *size) {
  *size = program->log.size() + 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(Program *program, char *log) {
  std::strcpy(log, program->log.c_str()); // NOLINT
  return 0;
}
EXPORT int nvrtcGetCUBINSize(Program *program, size_t *size) {
  *size = program->text.size() + 1;
  return 0;
}
EXPORT int nvrtcGetCUBIN(Program *program, char *image) {
  std::strcpy(image, program->text.c_str()); // NOLINT
  return 0;
}
EXPORT int nvrtcGetPTXSize(Program *program, size_t *size) {
  return nvrtcGetCUBINSize(program, size);
}
EXPORT int nvrtcGetPTX(Program *program, char *text) {
  return nvrtcGetCUBIN(program, text);
}
EXPORT const char *nvrtcGetErrorString(int) {
  return "NVRTC_ERROR_COMPILATION";
}
