//===- ObjectLoader.cpp - an object becomes callable ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/ObjectLoader.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>
#include <cstring>

using namespace llvm;
using namespace llvm::orc;

namespace {

/// The session and the layer of one object. ORC's LLJIT would do the same, and
/// bring a compiler along, which makes start-up slow.
class Linker {
public:
  static Expected<std::unique_ptr<Linker>> create() {
    auto control = SelfExecutorProcessControl::Create();
    if (!control)
      return control.takeError();
    return std::unique_ptr<Linker>(new Linker(std::move(*control)));
  }

  ~Linker() {
    // Frees the memory of the object; nobody is left to be told of an error.
    consumeError(session.endSession());
  }

  Error add(StringRef object) {
    if (Error error = defineRuntime())
      return error;
    return layer.add(
        library, MemoryBuffer::getMemBuffer(object, "kernels",
                                            /*RequiresNullTerminator=*/false));
  }

  Expected<std::vector<void *>> lookup(ArrayRef<std::string> names) {
    SymbolLookupSet wanted;
    for (const std::string &name : names)
      wanted.add(session.intern(name));
    wanted.removeDuplicates();
    Expected<SymbolMap> found =
        session.lookup(makeJITDylibSearchOrder(&library), std::move(wanted));
    if (!found)
      return createStringError(toString(found.takeError()) + reasons);
    std::vector<void *> addresses;
    for (const std::string &name : names)
      addresses.push_back(
          (*found)[session.intern(name)].getAddress().toPtr<void *>());
    return addresses;
  }

private:
  explicit Linker(std::unique_ptr<ExecutorProcessControl> control)
      : session(std::move(control)), layer(session),
        library(session.createBareJITDylib("kernels")) {
    // A lookup that fails says which symbol, and tells the session why.
    session.setErrorReporter(
        [this](Error error) { reasons += ": " + toString(std::move(error)); });
  }

  template <typename Function>
  void define(SymbolMap &symbols, StringRef name, Function *address) {
    symbols[session.intern(name)] = {ExecutorAddr::fromPtr(address),
                                     JITSymbolFlags::Exported |
                                         JITSymbolFlags::Callable};
  }

  /// What code generation may call.
  Error defineRuntime() {
    SymbolMap symbols;
    define(symbols, "memcpy", &::memcpy);
    define(symbols, "memmove", &::memmove);
    define(symbols, "memset", &::memset);
    using Unary = float(float);
    using Binary = float(float, float);
    for (auto [name, function] :
         std::initializer_list<std::pair<const char *, Unary *>>{
             {"acosf", ::acosf},   {"asinf", ::asinf},   {"atanf", ::atanf},
             {"ceilf", ::ceilf},   {"cosf", ::cosf},     {"coshf", ::coshf},
             {"erff", ::erff},     {"exp2f", ::exp2f},   {"expf", ::expf},
             {"expm1f", ::expm1f}, {"floorf", ::floorf}, {"log10f", ::log10f},
             {"log1pf", ::log1pf}, {"log2f", ::log2f},   {"logf", ::logf},
             {"rintf", ::rintf},   {"roundf", ::roundf}, {"sinf", ::sinf},
             {"sinhf", ::sinhf},   {"sqrtf", ::sqrtf},   {"tanf", ::tanf},
             {"tanhf", ::tanhf},   {"truncf", ::truncf}})
      define(symbols, name, function);
    for (auto [name, function] :
         std::initializer_list<std::pair<const char *, Binary *>>{
             {"atan2f", ::atan2f},
             {"fmaxf", ::fmaxf},
             {"fminf", ::fminf},
             {"fmodf", ::fmodf},
             {"powf", ::powf}})
      define(symbols, name, function);
    define(symbols, "fmaf",
           static_cast<float (*)(float, float, float)>(&::fmaf));
    // A sine and a cosine of one argument are merged into a call of this.
    define(symbols, "sincosf", &::sincosf);
    return library.define(absoluteSymbols(std::move(symbols)));
  }

  std::string reasons; // outlives the session, which may add to it
  ExecutionSession session;
  ObjectLinkingLayer layer;
  JITDylib &library;
};

} // namespace

Expected<ladle::LoadedObject> ladle::loadObject(StringRef object,
                                                ArrayRef<std::string> symbols) {
  Expected<std::unique_ptr<Linker>> linker = Linker::create();
  if (!linker)
    return linker.takeError();
  if (Error error = (*linker)->add(object))
    return std::move(error);
  Expected<std::vector<void *>> addresses = (*linker)->lookup(symbols);
  if (!addresses)
    return addresses.takeError();
  return LoadedObject{std::shared_ptr<void>(std::move(*linker)),
                      std::move(*addresses)};
}
