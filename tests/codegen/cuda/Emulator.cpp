//===- Emulator.cpp - CUDA kernels without a GPU --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Emulator.h"
#include "codegen/cuda/Prelude.h"
#include "tests/codegen/cuda/BlockRunner.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <link.h>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace llvm;
using namespace ladle::test;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// From text to a shared object
//===----------------------------------------------------------------------===//

/// The names behind `__global__`, past attributes with parentheses.
static std::vector<std::string> findKernels(StringRef source) {
  std::vector<std::string> names;
  size_t at = 0;
  while ((at = source.find("__global__", at)) != StringRef::npos) {
    at += strlen("__global__");
    StringRef name;
    while (at < source.size() && !StringRef(";{}").contains(source[at])) {
      if (source[at] == '(' && !name.starts_with("__") &&
          name != "LADLE_MAY_SPILL") {
        if (!name.empty() && !is_contained(names, name))
          names.push_back(name.str());
        break;
      }
      if (source[at] == '(') {
        int depth = 0;
        do {
          depth += source[at] == '(';
          depth -= source[at] == ')';
        } while (++at < source.size() && depth > 0);
      } else if (isAlpha(source[at]) || source[at] == '_') {
        name = source.drop_front(at).take_while(
            [](char c) { return isAlnum(c) || c == '_'; });
        at += name.size();
      } else {
        ++at;
      }
    }
  }
  return names;
}

/// With a function for each kernel that takes packed arguments. Appended, so
/// that the lines of messages are those of the text.
static std::string addEntries(StringRef source, ArrayRef<std::string> kernels) {
  const char *visible = "extern \"C\" __attribute__((visibility(\"default\"), "
                        "no_sanitize(\"thread\"))) ";
  std::string text = source.str();
  raw_string_ostream stream(text);
  stream << "\n"
         << visible
         << "void ladle_bind(ladle::emulation::Scheduler *scheduler) {\n"
            "  ladle::emulation::scheduler = scheduler;\n}\n";
  for (const std::string &kernel : kernels)
    stream << visible << "void ladle_call_" << kernel
           << "(void *const *arguments) {\n  ladle::emulation::call(" << kernel
           << ", arguments);\n}\n";
  return text;
}

static std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

static Error execute(const std::vector<std::string> &command,
                     const fs::path &log) {
  std::vector<StringRef> words(command.begin(), command.end());
  std::string output = log.string();
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(output),
                                          StringRef(output)};
  std::string reason;
  if (sys::ExecuteAndWait(command[0], words, std::nullopt, redirects, 0, 0,
                          &reason) == 0)
    return Error::success();
  return createStringError(
      "the kernel does not compile for the CPU: " + reason + readFile(log));
}

/// Compiles `text` unless it was before. A file appears whole or not at all:
/// tests run at the same time.
static Expected<fs::path> build(const std::string &text) {
  const fs::path headers = LADLE_EMULATION_HEADERS,
                 cache = LADLE_EMULATION_CACHE;
  std::vector<std::string> compile = {LADLE_EMULATION_COMPILER,
                                      "-std=c++20",
                                      "-O1",
                                      "-w",
                                      "-fPIC",
                                      "-fno-exceptions",
                                      "-fno-strict-aliasing",
                                      "-ffp-contract=off",
                                      "-fvisibility=hidden",
                                      "-fsanitize=thread",
                                      "-DLADLE_EMULATION",
                                      "-I" + headers.string()};

  SHA256 hash;
  for (StringRef part : compile)
    hash.update(part);
  hash.update(readFile(headers / "emulation.h"));
  hash.update(ladle::cudaPrelude());
  hash.update(text);
  fs::path object = cache / (toHex(hash.final(), /*LowerCase=*/true) + ".so");
  if (fs::exists(object))
    return object;

  static std::atomic<unsigned> serial{0};
  fs::path folder = cache / ("making-" + std::to_string(::getpid()) + "-" +
                             std::to_string(serial++));
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  std::ofstream(folder / ladle::cudaPreludeName) << ladle::cudaPrelude().str();
  std::ofstream(folder / "kernel.cpp") << text;
  append_values(compile, "-I" + folder.string(), std::string("-c"),
                (folder / "kernel.cpp").string(), std::string("-o"),
                (folder / "kernel.o").string());
  // The instrumentation is wanted, ThreadSanitizer's runtime is not.
  std::vector<std::string> link = {LADLE_EMULATION_COMPILER, "-shared",
                                   (folder / "kernel.o").string(), "-o",
                                   (folder / "kernel.so").string()};
  Error error = execute(compile, folder / "log");
  if (!error)
    error = execute(link, folder / "log");
  std::error_code moved;
  if (!error)
    fs::rename(folder / "kernel.so", object, moved);
  fs::remove_all(folder, ignored);
  if (error)
    return std::move(error);
  if (moved)
    return createStringError(moved, "cannot write " + object.string());
  return object;
}

//===----------------------------------------------------------------------===//
// A loaded module
//===----------------------------------------------------------------------===//

struct EmulatedModule::Loaded {
  using Entry = void (*)(void *const *arguments);

  void *handle = nullptr;
  void (*bind)(ladle::emulation::Scheduler *scheduler) = nullptr;
  std::map<std::string, Entry> entries;

  Loaded() = default;
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;
  ~Loaded() {
    if (handle)
      ::dlclose(handle);
  }

  /// What the loader has put where: code and constants, and the variables of
  /// the calling thread, which are the kernels' shared memory.
  struct Regions {
    uintptr_t code;
    Memory image{nullptr, 0}, shared{nullptr, 0};
  };
  Regions regions() const {
    bind(nullptr); // Makes the thread's variables exist.
    Regions found{reinterpret_cast<uintptr_t>(bind)};
    ::dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *data) {
          auto &found = *static_cast<Regions *>(data);
          uintptr_t end = 0;
          size_t shared = 0;
          for (size_t i = 0; i < info->dlpi_phnum; ++i) {
            const auto &segment = info->dlpi_phdr[i];
            if (segment.p_type == PT_LOAD)
              end = std::max<uintptr_t>(end, segment.p_vaddr + segment.p_memsz);
            if (segment.p_type == PT_TLS)
              shared = segment.p_memsz;
          }
          if (found.code - info->dlpi_addr >= end)
            return 0;
          // NOLINTNEXTLINE(performance-no-int-to-ptr): that is how it is told.
          found.image = {reinterpret_cast<void *>(info->dlpi_addr), end};
          found.shared = {info->dlpi_tls_data, shared};
          return 1;
        },
        &found);
    return found;
  }
};

Expected<EmulatedModule> EmulatedModule::compile(StringRef source) {
  std::vector<std::string> kernels = findKernels(source);
  Expected<fs::path> object = build(addEntries(source, kernels));
  if (!object)
    return object.takeError();
  auto loaded = std::make_shared<Loaded>();
  loaded->handle = ::dlopen(object->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!loaded->handle)
    return createStringError(std::string("the emulated kernel: ") +
                             ::dlerror());
  auto find = [&](const std::string &name) {
    return ::dlsym(loaded->handle, name.c_str());
  };
  loaded->bind = reinterpret_cast<decltype(Loaded::bind)>(find("ladle_bind"));
  for (const std::string &kernel : kernels)
    loaded->entries[kernel] =
        reinterpret_cast<Loaded::Entry>(find("ladle_call_" + kernel));
  EmulatedModule module;
  module.loaded = std::move(loaded);
  return module;
}

std::vector<std::string> EmulatedModule::kernels() const {
  std::vector<std::string> names;
  for (const auto &[name, entry] : loaded->entries)
    names.push_back(name);
  return names;
}

namespace {
/// Runs blocks of a launch, a cluster of them at a time, until none is left or
/// one fails.
class Launcher {
public:
  using Scheduler = ladle::emulation::Scheduler;

  Launcher(const Launch &launch, size_t blocksOfCluster)
      : launch(launch), size(blocksOfCluster),
        count(size_t(launch.grid.x) * launch.grid.y * launch.grid.z / size) {}

  void run(const std::function<void(Scheduler *)> &bind,
           const std::function<Memory()> &shared) {
    // None runs here: this thread's variables may be in use by an outer launch.
    std::vector<std::thread> workers;
    size_t cores = std::max(1u, std::thread::hardware_concurrency());
    size_t clusters = std::min(std::max<size_t>(1, cores / size), count);
    for (size_t i = 0; i < clusters; ++i) {
      groups.emplace_back(size);
      for (size_t rank = 0; rank < size; ++rank)
        workers.emplace_back([&, &group = groups.back(), rank] {
          work(group, rank, bind, shared());
        });
    }
    for (std::thread &worker : workers)
      worker.join();
  }

  std::string failure;

private:
  struct Group {
    explicit Group(size_t blocks) : cluster(blocks) {}
    Cluster cluster;
    size_t taken = 0;
  };

  void work(Group &group, size_t rank, const auto &bind, Memory shared) {
    Cluster &cluster = group.cluster;
    BlockRunner runner(launch, shared, cluster, static_cast<unsigned>(rank));
    cluster.join(rank, shared);
    while (true) {
      if (rank == 0)
        group.taken = next.fetch_add(1);
      // What a block finds there is not what a kernel may count on: NaN.
      std::memset(const_cast<void *>(shared.begin), 0xff, shared.bytes);
      if (!cluster.meet(rank, 0) || group.taken >= count)
        break;
      size_t i = group.taken * size + rank;
      bind(runner.scheduler());
      if (!runner.run({unsigned(i % launch.grid.x),
                       unsigned(i / launch.grid.x % launch.grid.y),
                       unsigned(i / launch.grid.x / launch.grid.y)}))
        cluster.fail(runner.message());
      if (!cluster.meet(rank, 0))
        break;
    }
    if (cluster.failure().empty())
      return;
    next = count;
    std::lock_guard<std::mutex> lock(mutex);
    if (failure.empty())
      failure = cluster.failure();
  }

  const Launch &launch;
  size_t size, count;
  std::deque<Group> groups;
  std::atomic<size_t> next{0};
  std::mutex mutex;
};
} // namespace

Error EmulatedModule::launch(StringRef kernel, Extent grid, Extent block,
                             void *const *arguments,
                             ArrayRef<Allocation> memory,
                             unsigned blocksOfCluster) const {
  auto entry = loaded->entries.find(kernel.str());
  if (entry == loaded->entries.end())
    return createStringError("no kernel '" + kernel + "'");
  Launch launch{{grid.x, grid.y, grid.z},
                {block.x, block.y, block.z},
                entry->second,
                arguments,
                {},
                loaded->regions().image};
  for (const Allocation &allocation : memory)
    launch.memory.push_back({allocation.begin, allocation.bytes});
  size_t threads = size_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024)
    return createStringError("a block has 1 to 1024 threads, not " +
                             std::to_string(threads));
  if (blocksOfCluster == 0 || blocksOfCluster > mostBlocksOfCluster ||
      grid.x % blocksOfCluster != 0)
    return createStringError("clusters of " + std::to_string(blocksOfCluster) +
                             " blocks along x, of which there are " +
                             std::to_string(grid.x));
  Launcher launcher(launch, blocksOfCluster);
  launcher.run([&](auto *scheduler) { loaded->bind(scheduler); },
               [&] { return loaded->regions().shared; });
  if (!launcher.failure.empty())
    return createStringError(launcher.failure);
  return Error::success();
}
