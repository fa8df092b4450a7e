//===- Nvrtc.cpp - CUDA C++ becomes a cubin -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/Nvrtc.h"
#include "codegen/cuda/Prelude.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace llvm;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Where the library is
//===----------------------------------------------------------------------===//

namespace {

const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                               "libnvrtc.so"};

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

std::string join(StringRef folder, const Twine &rest) {
  SmallString<128> path(folder);
  sys::path::append(path, rest);
  return path.str().str();
}

/// The entries of a folder that begin with `prefix`, in order; nothing if
/// there is no such folder.
std::vector<std::string> entries(const std::string &folder, StringRef prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (sys::fs::directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error))
    if (sys::path::filename(it->path()).starts_with(prefix))
      found.push_back(it->path());
  llvm::sort(found);
  return found;
}

/// Where Python keeps its packages: environments first, then the user's, then
/// the system's.
std::vector<std::string> pythonPackages() {
  std::vector<std::string> found;
  SmallVector<StringRef> parts;
  std::string pythonPath = environment("PYTHONPATH");
  StringRef(pythonPath).split(parts, ':', -1, /*KeepEmpty=*/false);
  llvm::append_range(found, parts);
  std::string home = environment("HOME");
  for (const std::string &root :
       {environment("VIRTUAL_ENV"), environment("CONDA_PREFIX"),
        home.empty() ? "" : join(home, ".local"), std::string("/usr/local"),
        std::string("/usr")}) {
    if (root.empty())
      continue;
    for (const std::string &python : entries(join(root, "lib"), "python3"))
      for (const char *packages : {"site-packages", "dist-packages"})
        found.push_back(join(python, packages));
  }
  return found;
}

/// All files worth trying after the loader's own path.
std::vector<std::string> candidates() {
  std::vector<std::string> folders;
  for (const std::string &root :
       {environment("CUDA_HOME"), environment("CUDA_PATH"),
        std::string("/usr/local/cuda"), environment("CONDA_PREFIX")})
    if (!root.empty())
      llvm::append_values(folders, join(root, "lib64"), join(root, "lib"));
  // nvidia/cuda_nvrtc/lib with CUDA 12, nvidia/cu13/lib since.
  for (const std::string &packages : pythonPackages())
    for (const std::string &wheel : entries(join(packages, "nvidia"), ""))
      folders.push_back(join(wheel, "lib"));

  std::vector<std::string> files;
  for (const std::string &folder : folders)
    for (const char *soname : sonames)
      if (sys::fs::exists(join(folder, soname)))
        files.push_back(join(folder, soname));
  return files;
}

/// Null if it cannot be loaded; then `reason` says why.
void *tryOpen(const std::string &path, std::string &reason) {
  // NVRTC opens its other half by name when it compiles, which the loader
  // finds outside its own folders only if it is there already.
  if (StringRef folder = sys::path::parent_path(path); !folder.empty())
    for (const std::string &builtins :
         entries(folder.str(), "libnvrtc-builtins.so"))
      ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    if (const char *message = ::dlerror())
      reason = message;
  return handle;
}

} // namespace

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

// What nvrtc.h declares, as far as it is used here; it has not changed since
// CUDA 11.1. Results are 0 or an error.
struct Nvrtc::Library {
  using Handle = struct Opaque *;

  int (*version)(int *major, int *minor);
  int (*createProgram)(Handle *program, const char *source, const char *name,
                       int headers, const char *const *texts,
                       const char *const *names);
  int (*destroyProgram)(Handle *program);
  int (*compileProgram)(Handle program, int options, const char *const *texts);
  int (*getLogSize)(Handle program, size_t *size);
  int (*getLog)(Handle program, char *log);
  int (*getCubinSize)(Handle program, size_t *size);
  int (*getCubin)(Handle program, char *image);
  int (*getPtxSize)(Handle program, size_t *size);
  int (*getPtx)(Handle program, char *text);
  const char *(*getErrorString)(int result);
  // Since 11.2, otherwise null.
  int (*getArchCount)(int *count);
  int (*getArchs)(int *archs);

  std::string path;

  /// The name of the first function that is missing, or null. The library
  /// stays loaded: NVRTC does not survive being closed and opened again.
  const char *bind(void *handle) {
    const char *missing = nullptr;
    auto find = [&](auto &function, const char *name, bool needed = true) {
      void *symbol = ::dlsym(handle, name);
      function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
      if (!symbol && needed && !missing)
        missing = name;
    };
    find(version, "nvrtcVersion");
    find(createProgram, "nvrtcCreateProgram");
    find(destroyProgram, "nvrtcDestroyProgram");
    find(compileProgram, "nvrtcCompileProgram");
    find(getLogSize, "nvrtcGetProgramLogSize");
    find(getLog, "nvrtcGetProgramLog");
    find(getCubinSize, "nvrtcGetCUBINSize");
    find(getCubin, "nvrtcGetCUBIN");
    find(getPtxSize, "nvrtcGetPTXSize");
    find(getPtx, "nvrtcGetPTX");
    find(getErrorString, "nvrtcGetErrorString");
    find(getArchCount, "nvrtcGetNumSupportedArchs", /*needed=*/false);
    find(getArchs, "nvrtcGetSupportedArchs", /*needed=*/false);

    Dl_info info;
    path = "libnvrtc";
    if (!missing && ::dladdr(reinterpret_cast<void *>(version), &info))
      path = info.dli_fname;
    return missing;
  }
};

Nvrtc::Nvrtc(std::shared_ptr<const Library> library)
    : library(std::move(library)) {}

Expected<Nvrtc> Nvrtc::open() {
  std::string reason, named = environment("LADLE_NVRTC");
  std::vector<std::string> paths;
  if (!named.empty()) {
    paths = {named};
  } else {
    paths.assign(std::begin(sonames), std::end(sonames));
    llvm::append_range(paths, candidates());
  }
  for (const std::string &path : paths) {
    void *handle = tryOpen(path, reason);
    if (!handle)
      continue;
    auto library = std::make_shared<Library>();
    if (const char *missing = library->bind(handle)) {
      reason = path + " has no function " + missing;
      continue;
    }
    return Nvrtc(std::move(library));
  }
  if (!named.empty())
    return createStringError("LADLE_NVRTC: " + reason);
  return createStringError(
      "no libnvrtc.so.13 or .12 found (" + reason +
      "); install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or name "
      "the file in LADLE_NVRTC");
}

std::pair<int, int> Nvrtc::version() const {
  std::pair<int, int> version = {0, 0};
  library->version(&version.first, &version.second);
  return version;
}

std::vector<int> Nvrtc::archs() const {
  int count = 0;
  if (!library->getArchCount || !library->getArchs ||
      library->getArchCount(&count) != 0)
    return {};
  std::vector<int> archs(count);
  if (library->getArchs(archs.data()) != 0)
    return {};
  llvm::sort(archs);
  return archs;
}

std::string Nvrtc::path() const { return library->path; }

//===----------------------------------------------------------------------===//
// A compilation
//===----------------------------------------------------------------------===//

class Nvrtc::Program {
public:
  Program(const Library &library, StringRef source, StringRef name)
      : library(library) {
    std::string prelude = cudaPrelude().str();
    const char *text = prelude.c_str(), *header = cudaPreludeName;
    result =
        library.createProgram(&handle, source.str().c_str(), name.str().c_str(),
                              /*headers=*/1, &text, &header);
  }
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program() {
    if (handle)
      library.destroyProgram(&handle);
  }

  Error compile(StringRef name, ArrayRef<std::string> options) {
    SmallVector<const char *> texts;
    for (const std::string &option : options)
      texts.push_back(option.c_str());
    if (result == 0)
      result = library.compileProgram(handle, texts.size(), texts.data());
    if (result == 0)
      return Error::success();
    // The compiler quotes the line and puts a caret below the place. Without a
    // log, as when memory is short, the kind of error has to do.
    std::string message =
        ("NVRTC cannot compile " + name + " (" + llvm::join(options, " ") +
         "): " + library.getErrorString(result))
            .str();
    std::string details = log();
    if (StringRef text = StringRef(details).trim(); !text.empty())
      message += ("\n" + text).str();
    return createStringError(message);
  }

  std::string log() const {
    std::string text = handle ? read(library.getLogSize, library.getLog) : "";
    // The size counts the final zero.
    return StringRef(text).rtrim('\0').str();
  }
  std::string cubin() const {
    return read(library.getCubinSize, library.getCubin);
  }
  std::string ptx() const {
    std::string text = read(library.getPtxSize, library.getPtx);
    return StringRef(text).rtrim('\0').str();
  }

private:
  template <typename Size, typename Get>
  std::string read(Size getSize, Get get) const {
    size_t size = 0;
    if (getSize(handle, &size) != 0 || size == 0)
      return "";
    std::string bytes(size, '\0');
    return get(handle, bytes.data()) == 0 ? bytes : "";
  }

  const Library &library;
  Library::Handle handle = nullptr;
  int result = 0;
};

Expected<Cubin> Nvrtc::compile(StringRef source, StringRef fileName,
                               const CubinOptions &options) const {
  std::vector<std::string> texts = {"--std=c++17",
                                    "--gpu-architecture=" + options.arch,
                                    "--ptxas-options=-v"};
  // What NVRTC has kept comes without the report of ptxas, and Ladle has a
  // cache of its own.
  if (version() >= std::pair(12, 9))
    texts.emplace_back("--no-cache");
  if (options.splits && version() >= std::pair(13, 0))
    texts.emplace_back("--split-compile=0"); // as many threads as there are
  llvm::append_range(texts, options.extra);
  Program program(*library, source, fileName);
  if (Error error = program.compile(fileName, texts))
    return error;
  Cubin cubin;
  cubin.image = program.cubin();
  cubin.ptx = program.ptx();
  cubin.log = program.log();
  cubin.kernels = parsePtxasReport(cubin.log);
  if (cubin.image.empty())
    return createStringError("NVRTC gave no cubin for '" + options.arch +
                             "', which is not the name of a real architecture");
  return cubin;
}

Expected<std::string> Nvrtc::ptx(StringRef source, StringRef fileName,
                                 const CubinOptions &options) const {
  // A virtual architecture: ptxas, which takes most of the time, is left out.
  StringRef arch = options.arch;
  std::string name =
      arch.consume_front("sm_") ? ("compute_" + arch).str() : options.arch;
  std::vector<std::string> texts = {"--std=c++17",
                                    "--gpu-architecture=" + name};
  llvm::append_range(texts, options.extra);
  Program program(*library, source, fileName);
  if (Error error = program.compile(fileName, texts))
    return error;
  return program.ptx();
}

//===----------------------------------------------------------------------===//
// The report of ptxas
//===----------------------------------------------------------------------===//

// ptxas info    : Compiling entry function 'step' for 'sm_90a'
// ptxas info    : Function properties for step
// ptxas         .     8 bytes stack frame, 8 bytes spill stores, 4 bytes ...
// ptxas info    : Used 32 registers, used 1 barriers, 256 bytes smem
std::vector<KernelResources> ladle::parsePtxasReport(StringRef log) {
  std::vector<KernelResources> kernels;
  auto numberBefore = [](StringRef line, StringRef unit) {
    StringRef head = line.take_front(line.find(unit)).rtrim();
    int number = 0;
    if (line.contains(unit))
      head.take_back(head.size() - (head.find_last_not_of("0123456789") + 1))
          .getAsInteger(10, number);
    return number;
  };
  SmallVector<StringRef> lines;
  log.split(lines, '\n');
  for (StringRef line : lines) {
    StringRef rest = line;
    if (size_t at = rest.find("Compiling entry function '");
        at != StringRef::npos) {
      rest = rest.drop_front(at).split('\'').second;
      kernels.push_back({rest.split('\'').first.str()});
    }
    if (kernels.empty())
      continue;
    // Functions that are called, not inlined, are reported after the kernel:
    // what they spill is the kernel's too.
    KernelResources &kernel = kernels.back();
    kernel.spillStores += numberBefore(line, "bytes spill stores");
    kernel.spillLoads += numberBefore(line, "bytes spill loads");
    kernel.stackBytes += numberBefore(line, "bytes stack frame");
    if (line.contains("Used ")) {
      kernel.registers = numberBefore(line, "registers");
      kernel.sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  llvm::sort(kernels,
             [](const auto &a, const auto &b) { return a.name < b.name; });
  return kernels;
}
