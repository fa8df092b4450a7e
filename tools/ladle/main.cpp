//===- main.cpp - the command line of ladle -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Diagnostics.h"
#include "ladle/version.h"
#include "runtime/jit/GpuLayout.h"
#include "tools/ladle/CommandOptions.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cctype>
#include <cstdio>
#include <exception>
#include <new>

using namespace ladle::tool;

/// As the other errors of this program are.
static std::string sayWhatIsWrong(const CLI::App *app,
                                  const CLI::Error &error) {
  std::string text = error.what(), command = "ladle";
  // Behind an option's name, too.
  size_t colon = text.starts_with("--") ? text.find(": ") : std::string::npos;
  size_t start = colon == std::string::npos ? 0 : colon + 2;
  if (start < text.size())
    text[start] = static_cast<char>(
        std::tolower(static_cast<unsigned char>(text[start])));
  for (const CLI::App *chosen : app->get_subcommands())
    command += " " + chosen->get_name();
  return "error: " + text + "\nnote: '" + command +
         " --help' says what there is\n";
}

static bool isCommand(const CLI::App &app, llvm::StringRef name) {
  if (name.starts_with("-"))
    return true;
  std::vector<std::string> all;
  for (const CLI::App *command : app.get_subcommands({}))
    all.push_back(command->get_name());
  if (llvm::is_contained(all, name))
    return true;
  llvm::errs() << "error: unknown command '" << name << "'\nnote: ";
  ladle::frontend::Suggestion suggestion(name);
  for (const std::string &command : all)
    suggestion.consider(command);
  if (!suggestion.get().empty())
    llvm::errs() << "did you mean '" << suggestion.get() << "'?\n";
  else
    llvm::errs() << "commands are " << llvm::join(all, ", ") << "\n";
  return false;
}

int main(int argc, char **argv) {
  CLI::App app("Ladle: a compiler for decoding linear attention");
  app.set_version_flag("--version", std::string("ladle ") + ladle::version());
  app.require_subcommand(1);
  std::vector<std::string> settings;

  ExplainOptions explainOptions;
  CLI::App *explainCommand = app.add_subcommand(
      "explain", "print the history form, routes, bytes and crossings");
  addSourceOptions(*explainCommand, explainOptions.source, settings);
  explainCommand
      ->add_option("--batch", explainOptions.batches, "rows, for instance 1,64")
      ->delimiter(',')
      ->allow_extra_args(false);
  explainCommand->add_option("--machine", explainOptions.machine,
                             "cpu or h200");
  explainCommand
      ->add_option("--drafts", explainOptions.drafts,
                   "of a row in speculation (default: 4, or half of L)")
      ->check(CLI::Range(1, 16));
  explainCommand
      ->add_option("--layers", explainOptions.layers,
                   "of a model, whose memory a request needs (default: 1)")
      ->check(CLI::Range(1, 1024));
  addMemoryOption(*explainCommand, explainOptions.memory);
  explainCommand
      ->add_option("--false-positive", explainOptions.chances,
                   "the tau at which two random queries match with such a "
                   "chance, for instance 1e-6,1e-3")
      ->delimiter(',')
      ->check(CLI::Range(1e-30, 0.5));
  explainCommand->add_flag("--json", explainOptions.json, "for a program");

  EmitOptions emitOptions;
  CLI::App *emitCommand =
      app.add_subcommand("emit", "print the IR of a stage of the compiler");
  addSourceOptions(*emitCommand, emitOptions.source, settings);
  emitCommand->add_option("--stage", emitOptions.stage,
                          "spec, history, step, kernel, cuda, ptx, cubin or "
                          "object");
  emitCommand->add_option("--cpu", emitOptions.cpu,
                          "the processor of an object file, as LLVM names it: "
                          "x86-64-v3 say (default: this one)");
  emitCommand->add_option("-o,--output", emitOptions.output,
                          "the folder that object files and their headers go "
                          "to");
  emitCommand
      ->add_option("--target", emitOptions.target,
                   "what the kernel stage is for: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  for (const ladle::jit::GpuParameter &parameter :
       ladle::jit::gpuParameters()) {
    if (parameter.name == "forms") // --form has names for them
      continue;
    emitCommand
        ->add_option(parameter.flag(), emitOptions.layout[parameter.name],
                     parameter.text + ", of a GPU kernel (default: left to the "
                                      "generator)")
        ->check(atLeastZero());
  }
  emitCommand->add_option("--arch", emitOptions.arch,
                          "the GPU that kernels are for (default: sm_90a)");
  emitCommand
      ->add_option("--route", emitOptions.routes,
                   "routes to build (default: all that are legal)")
      ->delimiter(',')
      ->allow_extra_args(false);
  emitCommand
      ->add_option("--form", emitOptions.forms,
                   "forms to print of the step stage and the CPU's kernels, or "
                   "that a GPU's kernels hold: decode, decode_fold, fold, "
                   "verify, verify_fold, prefill_fold, prefill_entries, "
                   "prefill_scan; of an attention decode, prefill_amend, "
                   "prefill_select (default: "
                   "all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  emitCommand
      ->add_option("--drafts", emitOptions.drafts,
                   "the most drafts of a row that are verified (default: 8 "
                   "with --form verify, else none)")
      ->check(CLI::Range(1, 16));
  emitCommand
      ->add_option("--chunk", emitOptions.chunk,
                   "tokens of a prompt that are answered at once (default: 64 "
                   "with --form prefill_fold, else none)")
      ->check(CLI::Range(1, 256));
  emitCommand
      ->add_option("--pages", emitOptions.page,
                   "entries lie in pages of so many: 8 or 16 (default: side by "
                   "side)")
      ->check(CLI::IsMember({8, 16}));

  RunOptions runOptions;
  CLI::App *runCommand = app.add_subcommand(
      "run", "decode a trace by every route and print what each took");
  addSourceOptions(*runCommand, runOptions.source, settings);
  runCommand->add_option(
      "--trace", runOptions.trace,
      "real inputs, as safetensors, which say the sizes of an "
      "attention without --preset (default: random)");
  runCommand->add_option("--params", runOptions.params,
                         "an attention's parameters, as safetensors (default: "
                         "from --trace)");
  runCommand->add_option("--params-prefix", runOptions.paramsPrefix,
                         "what their names there begin with: layers.0. say");
  runCommand->add_option("--route", runOptions.route,
                         "the route to decode by (default: the cheapest)");
  runCommand->add_option("--threshold", runOptions.threshold,
                         "entries before a fold (default: by the cost model)");
  runCommand->add_option("--tokens", runOptions.tokens, "tokens to decode")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 30));
  runCommand
      ->add_option("--chunk", runOptions.chunk,
                   "tokens of a prompt that the CPU answers at once (default: "
                   "64)")
      ->check(CLI::Range(1, 256));
  runCommand->add_option("--rows", runOptions.rows,
                         "rows of the batch (default: states of four times "
                         "the last-level cache)");
  runCommand->add_option("--threads", runOptions.threads,
                         "threads of the CPU (default: all cores)");
  runCommand
      ->add_option("--target", runOptions.target,
                   "cpu, cuda, or auto: cuda where there is a GPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  runCommand->add_flag("--json", runOptions.json, "for a program");

  CheckOptions checkOptions;
  CLI::App *checkCommand = app.add_subcommand(
      "check", "compare every route with the float64 interpreter");
  addSourceOptions(*checkCommand, checkOptions.source, settings);
  checkCommand->add_option("--trace", checkOptions.trace,
                           "also on real inputs, as safetensors");
  checkCommand
      ->add_option("--range", checkOptions.ranges,
                   "name=low:high of a random input, may be repeated")
      ->allow_extra_args(false);
  checkCommand->add_option("--seed", checkOptions.seed, "of random inputs")
      ->check([](const std::string &text) {
        return llvm::StringRef(text).starts_with("-")
                   ? "got " + text + ", wanted 0 at least"
                   : std::string();
      });
  checkCommand->add_option("--case", checkOptions.only,
                           "one case alone, as a report names it");
  checkCommand
      ->add_option("--target", checkOptions.target, "what decodes: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  checkCommand
      ->add_option("--drafts", checkOptions.drafts,
                   "only cases with drafts, so many a row at most")
      ->check(CLI::Range(1, 16));
  checkCommand
      ->add_option("--pages", checkOptions.page,
                   "only cases whose entries lie in pages of so many: 8 or 16")
      ->check(CLI::IsMember({8, 16}));
  checkCommand->add_flag("--full", checkOptions.full, "all combinations");
  checkCommand->add_flag("--json", checkOptions.json, "for a program");

  BenchOptions benchOptions;
  benchOptions.commandLine = "ladle";
  for (int i = 1; i < argc; ++i)
    benchOptions.commandLine += std::string(" ") + argv[i];
  CLI::App *benchCommand =
      app.add_subcommand("bench", "time steps against the limit of the memory");
  addFileOptions(*benchCommand, benchOptions.source, settings);
  addBenchOptions(*benchCommand, benchOptions);
  addParameters(*benchCommand, "--schedule", benchOptions.schedule,
                ("how kernels are laid out, for instance "
                 "threads=128,tile_rows=8; parameters are " +
                 parameterNames())
                    .c_str());

  TuneRequest tuneRequest;
  CLI::App *tuneCommand = app.add_subcommand(
      "tune",
      "search for the fastest route, m and kernels on a GPU, or for the "
      "cheapest reuse of an attention");
  addFileOptions(*tuneCommand, tuneRequest.source, settings);
  addTuneOptions(*tuneCommand, tuneRequest);
  addAttentionTuneOptions(*tuneCommand, tuneRequest);

  MacProfileOptions profileOptions;
  CLI::App *profileCommand = app.add_subcommand(
      "mac-profile", "hits, skipped tokens and errors of reused summaries on a "
                     "trace of softmax attention");
  addMacProfileOptions(*profileCommand, profileOptions);

  std::string action;
  CLI::App *cacheCommand =
      app.add_subcommand("cache", "list, trim or clear compiled kernels");
  cacheCommand->add_option("action", action, "ls, trim or clear")
      ->required()
      ->check(CLI::IsMember({"ls", "trim", "clear"}));
  CLI::App *doctorCommand =
      app.add_subcommand("doctor", "say what this machine offers");

  if (argc > 1 && !isCommand(app, argv[1]))
    return 2;
  app.failure_message(sayWhatIsWrong);
  CLI11_PARSE(app, argc, argv);
  // Summaries are as they are in a program unless somebody says otherwise.
  if (!tuneRequest.traces.empty() && tuneCommand->count("--entry") == 0)
    tuneRequest.source.entryType = "f32";

  for (auto [command, source] :
       {std::pair{explainCommand, &explainOptions.source},
        {emitCommand, &emitOptions.source},
        {runCommand, &runOptions.source},
        {checkCommand, &checkOptions.source},
        {benchCommand, &benchOptions.source},
        {tuneCommand, &tuneRequest.source}}) {
    if (!parseSettings(settings, *source))
      return 2;
    for (const CLI::Option *option : command->get_options())
      if (option->count() > 0)
        source->given.insert(option->get_name());
  }
  auto dispatch = [&] {
    if (explainCommand->parsed())
      return explain(explainOptions);
    if (emitCommand->parsed())
      return emit(emitOptions);
    if (runCommand->parsed())
      return run(runOptions);
    if (checkCommand->parsed())
      return check(checkOptions);
    if (benchCommand->parsed())
      return bench(benchOptions);
    if (tuneCommand->parsed())
      return tune(tuneRequest);
    if (profileCommand->parsed()) {
      profileOptions.hasDrift = profileCommand->count("--drift") > 0;
      return macProfile(profileOptions);
    }
    if (cacheCommand->parsed())
      return cache(action);
    if (doctorCommand->parsed())
      return doctor();
    return 2;
  };
  try {
    int code = dispatch();
    ladle::Status written = flushOutput();
    printError(written);
    return written ? code : 1;
  } catch (const std::bad_alloc &) {
    std::fputs("error: there is not enough memory\n", stderr);
    return 1;
  } catch (const std::exception &exception) {
    std::fprintf(stderr, "error: %s\n", exception.what());
    return 1;
  }
}
