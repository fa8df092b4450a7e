//===- EmulatedNvrtc.cpp - libnvrtc for the emulated GPU ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of nvrtc.h that codegen/cuda/Nvrtc.cpp binds. A cubin is the
// text, compiled for the CPU when a kernel is launched.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/EmulatedState.h"

#include <cstring>

using namespace ladle::test;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct Program {
  std::string text;
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
  *program = new Program{source};
  return 0;
}
EXPORT int nvrtcDestroyProgram(Program **program) {
  delete *program;
  return 0;
}
EXPORT int nvrtcCompileProgram(Program *, int, const char *const *) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  ++EmulatedState::get().compiled;
  return 0;
}
EXPORT int nvrtcGetProgramLogSize(Program *, size_t *size) {
  *size = 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(Program *, char *log) {
  *log = 0;
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
