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

/// Fills a folder of its own and moves it to `to`: it appears whole or not at
/// all, since tests run at the same time.
static Error makeOnce(const fs::path &to,
                      function_ref<Error(const fs::path &folder)> fill) {
  if (fs::exists(to))
    return Error::success();
  static std::atomic<unsigned> serial{0};
  fs::path folder =
      fs::path(LADLE_EMULATION_CACHE) /
      ("making-" + std::to_string(::getpid()) + "-" + std::to_string(serial++));
  std::error_code ignored, moved;
  fs::create_directories(folder, ignored);
  Error error = fill(folder);
  if (!error)
    fs::rename(folder, to, moved);
  fs::remove_all(folder, ignored);
  // Somebody else may have been first.
  if (!error && moved && !fs::exists(to))
    return createStringError(moved, "cannot write " + to.string());
  return error;
}

static std::string hashOf(ArrayRef<StringRef> parts) {
  SHA256 hash;
  for (StringRef part : parts)
    hash.update(part);
  return toHex(hash.final(), /*LowerCase=*/true);
}

/// Compiles `text` unless it was before. What all kernels include is compiled
/// once for all of them.
static Expected<fs::path> build(const std::string &text, bool optimises) {
  const fs::path headers = LADLE_EMULATION_HEADERS,
                 cache = LADLE_EMULATION_CACHE;
  std::vector<std::string> compile = {
      LADLE_EMULATION_COMPILER, "-std=c++20", "-O1", "-w", "-fPIC",
      "-fno-exceptions", "-fno-strict-aliasing", "-ffp-contract=off",
      "-fvisibility=hidden", "-fsanitize=thread", "-DLADLE_EMULATION",
      "-fstack-clash-protection",
      // Contents are part of the name.
      "-Xclang", "-fno-pch-timestamp", "-I" + headers.string()};
  // Most kernels run for less time than -O1 takes to compile them. These passes
  // and the fast selection of instructions take less, and leave values in
  // registers.
  const std::string cleaning =
      optimises ? "default<O1>"
                : "always-inline,cgscc(inline),function(sroa,early-cse<memssa>,"
                  "simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg),"
                  "globaldce";
  const std::vector<std::string> passes = {
      "-passes=" + cleaning + ",tsan-module,function(tsan)",
      // Nobody asks who called whom.
      "-tsan-instrument-func-entry-exit=0"};
  const std::vector<std::string> selection = {
      "-O0",
      "-optimize-regalloc",
      "-regalloc=greedy",
      "-relocation-model=pic",
#ifdef __x86_64__
      "-enable-tlsdesc", // shared memory is found without a call
#endif
      "-filetype=obj"};

  std::string common =
      hashOf({join(compile, " "), join(passes, " "), join(selection, " "),
              readFile(headers / "emulation.h"), ladle::cudaPrelude()});
  fs::path prelude = cache / ("prelude-" + common),
           object = cache / hashOf({common, text});
  // Its header is written where it stays: that is how the compiler knows it
  // again.
  std::error_code ignored;
  fs::path header = cache / ("header-" + common);
  if (Error error = makeOnce(header, [&](const fs::path &folder) {
        std::ofstream(folder / ladle::cudaPreludeName)
            << ladle::cudaPrelude().str();
        return Error::success();
      }))
    return std::move(error);
  compile.push_back("-I" + header.string());
  if (Error error = makeOnce(prelude, [&](const fs::path &folder) {
        std::vector<std::string> command = compile;
        append_values(command, "-x", "c++-header",
                      (header / ladle::cudaPreludeName).string(), "-o",
                      (folder / "prelude.pch").string());
        return execute(command, folder / "log");
      }))
    return std::move(error);

  append_values(compile, "-include-pch", (prelude / "prelude.pch").string());
  if (Error error = makeOnce(object, [&](const fs::path &folder) -> Error {
        std::ofstream(folder / "kernel.cpp") << text;
        std::string bitcode = (folder / "kernel.bc").string(),
                    code = (folder / "kernel.o").string();
        append_values(compile, "-Xclang", "-disable-llvm-passes", "-emit-llvm",
                      "-c", (folder / "kernel.cpp").string(), "-o", bitcode);
        std::vector<std::string> optimise = {LADLE_EMULATION_TOOLS "/opt",
                                             bitcode, "-o", bitcode};
        append_range(optimise, passes);
        std::vector<std::string> select = {LADLE_EMULATION_TOOLS "/llc",
                                           bitcode, "-o", code};
        append_range(select, selection);
        // The instrumentation is wanted, ThreadSanitizer's runtime is not.
        std::vector<std::string> link = {LADLE_EMULATION_COMPILER,
                                         "-shared",
                                         LADLE_EMULATION_LINKER,
                                         code,
                                         "-o",
                                         (folder / "kernel.so").string()};
        for (const auto &command : {compile, optimise, select, link})
          if (Error failed = execute(command, folder / "log"))
            return failed;
        fs::remove(bitcode, ignored);
        fs::remove(code, ignored);
        return Error::success();
      }))
    return std::move(error);
  return object / "kernel.so";
}

//===----------------------------------------------------------------------===//
// Loaded kernels
//===----------------------------------------------------------------------===//

namespace {
struct Loaded {
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

  Error load(StringRef source, ArrayRef<std::string> kernels, bool optimises);

  /// What the loader has put where: code and constants, and the variables of
  /// the calling thread, which are the kernel's shared memory.
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
} // namespace

Error Loaded::load(StringRef source, ArrayRef<std::string> kernels,
                   bool optimises) {
  Expected<fs::path> object = build(addEntries(source, kernels), optimises);
  if (!object)
    return object.takeError();
  handle = ::dlopen(object->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return createStringError(std::string("the emulated kernel: ") +
                             ::dlerror());
  bind = reinterpret_cast<decltype(bind)>(::dlsym(handle, "ladle_bind"));
  for (const std::string &kernel : kernels)
    entries[kernel] = reinterpret_cast<Entry>(
        ::dlsym(handle, ("ladle_call_" + kernel).c_str()));
  return Error::success();
}

struct EmulatedModule::Text {
  std::string source;
  bool optimises = false;
  std::vector<std::string> kernels;
  std::mutex mutex;
  std::unique_ptr<Loaded> loaded;

  Expected<const Loaded *> load() {
    std::lock_guard<std::mutex> lock(mutex);
    if (loaded)
      return loaded.get();
    auto made = std::make_unique<Loaded>();
    if (Error error = made->load(source, kernels, optimises))
      return std::move(error);
    loaded = std::move(made);
    return loaded.get();
  }
};

EmulatedModule::EmulatedModule(StringRef source, bool optimises)
    : text(std::make_shared<Text>()) {
  text->source = source.str();
  text->optimises = optimises;
  text->kernels = findKernels(source);
}

std::vector<std::string> EmulatedModule::kernels() const {
  return text->kernels;
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
                             unsigned blocksOfCluster, Traffic *traffic) const {
  if (!is_contained(text->kernels, kernel))
    return createStringError("no kernel '" + kernel + "'");
  Expected<const Loaded *> found = text->load();
  if (!found)
    return found.takeError();
  const Loaded *loaded = *found;
  Launch launch{{grid.x, grid.y, grid.z},
                {block.x, block.y, block.z},
                loaded->entries.at(kernel.str()),
                arguments,
                {},
                loaded->regions().image,
                traffic};
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
