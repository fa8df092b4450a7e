//===- Sizes.cpp - which recurrence, at which sizes -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Sizes.h"

#include "frontend/ExprChecker.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace ladle::frontend;

template <typename Range> static std::string joinNames(const Range &range) {
  std::string result;
  for (const auto &item : range)
    result += (result.empty() ? "" : ", ") + item.name.str();
  return result;
}

/// The item called `name`, or null after an error at `loc`.
template <typename Range>
static auto *findByName(Range &range, llvm::StringRef name, llvm::SMLoc loc,
                        llvm::StringRef what, Diagnostics &diagnostics) {
  for (auto &item : range)
    if (item.name == name)
      return &item;
  decltype(&*range.begin()) none = nullptr;
  diagnostics.error(loc, "no " + what + " is called " + quote(name));
  Suggestion suggestion(name);
  for (auto &item : range)
    suggestion.consider(item.name);
  if (!suggestion.get().empty())
    diagnostics.note(loc, "did you mean '" + suggestion.get() + "'?");
  else if (range.empty())
    diagnostics.note(loc, "the file has none");
  else
    diagnostics.note(loc, "there is " + joinNames(range));
  return none;
}

Recurrence *ladle::frontend::selectRecurrence(SourceFile &file,
                                              const ElaborationOptions &options,
                                              Diagnostics &diagnostics) {
  llvm::StringMap<llvm::SMLoc> seen;
  for (const Recurrence &recurrence : file.recurrences) {
    auto [it, inserted] = seen.try_emplace(recurrence.name, recurrence.loc);
    if (inserted)
      continue;
    diagnostics.error(recurrence.loc, recurrence.keyword() + " " +
                                          quote(recurrence.name) +
                                          " is declared twice");
    diagnostics.note(it->second, "the first is here; choose another name");
  }
  if (file.recurrences.empty())
    return nullptr;
  Recurrence *chosen = &file.recurrences.front();
  if (!options.recurrence.empty())
    chosen = findByName(file.recurrences, options.recurrence, chosen->loc,
                        "recurrence", diagnostics);
  if (!chosen || !chosen->isAttention)
    return chosen;
  // What a broken statement was to declare would be missed wherever it is used,
  // and who takes attentions may have been asked only if the file parses.
  if (diagnostics.hasErrors())
    return nullptr;
  if (options.takesAttention)
    return chosen;
  diagnostics.error(chosen->loc, quote(chosen->name) +
                                     " is an attention, which this does not "
                                     "take");
  diagnostics.note(chosen->loc,
                   "bench, check, emit, explain, run and tune --trace take "
                   "attentions, and programs compile them with "
                   "compileAttention");
  return nullptr;
}

namespace {

/// Reads presets and overrides into a configuration.
class Configurator {
public:
  Configurator(Recurrence &recurrence, Diagnostics &diagnostics)
      : recurrence(recurrence), diagnostics(diagnostics) {}

  std::optional<Configuration> run(const ElaborationOptions &options);

private:
  bool checkNames();
  bool checkPresets();
  bool checkPreset(Preset &preset);
  bool isSize(llvm::StringRef name) const {
    return llvm::any_of(recurrence.sizes, [&](const SizeParameter &size) {
      return size.name == name;
    });
  }
  bool isOption(llvm::StringRef name) const {
    return llvm::any_of(recurrence.statements, [&](const Statement &statement) {
      return statement.kind == Statement::Kind::Option &&
             statement.name == name;
    });
  }
  /// Sets one number; `loc` is where it comes from.
  bool set(Configuration &configuration, llvm::StringRef name, double value,
           llvm::SMLoc loc);
  void reportUnknown(llvm::StringRef name, llvm::SMLoc loc);

  Recurrence &recurrence;
  Diagnostics &diagnostics;
  /// What each preset sets, by its position.
  std::vector<Configuration> presets;
};

} // namespace

void Configurator::reportUnknown(llvm::StringRef name, llvm::SMLoc loc) {
  diagnostics.error(loc, recurrence.keyword() + " " + quote(recurrence.name) +
                             " has no size or option " + quote(name));
  Suggestion suggestion(name);
  for (const SizeParameter &size : recurrence.sizes)
    suggestion.consider(size.name);
  for (const Statement &statement : recurrence.statements)
    if (statement.kind == Statement::Kind::Option)
      suggestion.consider(statement.name);
  if (!suggestion.get().empty())
    diagnostics.note(loc, "did you mean '" + suggestion.get() + "'?");
  else
    diagnostics.note(loc, "its sizes are " + joinNames(recurrence.sizes));
}

bool Configurator::set(Configuration &configuration, llvm::StringRef name,
                       double value, llvm::SMLoc loc) {
  if (isOption(name)) {
    if (std::isfinite(value)) {
      configuration.options[name] = value;
      return true;
    }
    diagnostics.error(loc,
                      "option " + quote(name) + " is " + formatNumber(value));
    diagnostics.note(loc, "an option is a finite number");
    return false;
  }
  if (!isSize(name)) {
    reportUnknown(name, loc);
    return false;
  }
  if (value == std::trunc(value) && value >= 1 && value <= maxSize) {
    configuration.sizes[name] = static_cast<int64_t>(value);
    return true;
  }
  diagnostics.error(loc, "size " + quote(name) + " is " + formatNumber(value));
  diagnostics.note(loc, "a size is a whole number from 1 to " +
                            llvm::Twine(maxSize));
  return false;
}

bool Configurator::checkPreset(Preset &preset) {
  Configuration &configuration = presets.emplace_back();
  // A preset sees no names: its numbers stand for themselves.
  Scope empty(diagnostics);
  ExprChecker checker(empty, diagnostics);
  bool valid = true;
  llvm::StringMap<llvm::SMLoc> seen;
  for (PresetEntry &entry : preset.entries) {
    auto [it, inserted] = seen.try_emplace(entry.name, entry.loc);
    if (!inserted) {
      diagnostics.error(entry.loc, "preset " + quote(preset.name) + " sets " +
                                       quote(entry.name) + " twice");
      diagnostics.note(it->second, "it is set here; remove one of them");
      valid = false;
      continue;
    }
    std::optional<double> value = checker.checkConstant(
        *entry.value, "the value of " + quote(entry.name));
    valid &= value && set(configuration, entry.name, *value, entry.loc);
  }
  for (const SizeParameter &size : recurrence.sizes) {
    if (seen.contains(size.name))
      continue;
    diagnostics.error(preset.loc, "preset " + quote(preset.name) +
                                      " does not set size " + quote(size.name));
    diagnostics.note(size.loc,
                     "a preset sets every size: add " + size.name + " = ...");
    valid = false;
  }
  return valid;
}

bool Configurator::checkPresets() {
  bool valid = true;
  llvm::StringMap<llvm::SMLoc> seen;
  for (Preset &preset : recurrence.presets) {
    auto [it, inserted] = seen.try_emplace(preset.name, preset.loc);
    if (!inserted) {
      diagnostics.error(preset.loc,
                        "preset " + quote(preset.name) + " is declared twice");
      diagnostics.note(it->second, "the first is here; choose another name");
      valid = false;
    }
    valid &= checkPreset(preset);
  }
  return valid;
}

/// A size would never get the numbers of an option of its name.
bool Configurator::checkNames() {
  bool valid = true;
  for (const Statement &statement : recurrence.statements)
    for (const SizeParameter &size : recurrence.sizes) {
      if (statement.kind != Statement::Kind::Option ||
          statement.name != size.name)
        continue;
      diagnostics.error(statement.loc, quote(size.name) + " is declared twice");
      diagnostics.note(size.loc,
                       "it is a size since here; choose another name");
      valid = false;
    }
  return valid;
}

std::optional<Configuration>
Configurator::run(const ElaborationOptions &options) {
  if (!checkNames())
    return std::nullopt;
  bool valid = checkPresets();
  Configuration configuration;
  if (!options.preset.empty()) {
    Preset *chosen = findByName(recurrence.presets, options.preset,
                                recurrence.loc, "preset", diagnostics);
    if (!chosen)
      return std::nullopt;
    configuration = presets[chosen - recurrence.presets.data()];
  } else if (!presets.empty()) {
    configuration = presets.front();
  }
  for (auto &[name, value] : options.sizes)
    valid &=
        set(configuration, name, static_cast<double>(value), recurrence.loc);
  for (auto &[name, value] : options.options)
    valid &= set(configuration, name, value, recurrence.loc);
  if (!valid)
    return std::nullopt;

  for (const SizeParameter &size : recurrence.sizes) {
    if (configuration.sizes.contains(size.name))
      continue;
    diagnostics.error(size.loc, "size " + quote(size.name) + " has no value");
    diagnostics.note(size.loc, "add a preset, preset \"small\" { " + size.name +
                                   " = 4 }, or set it on the command line, "
                                   "--set " +
                                   size.name + "=4");
    valid = false;
  }
  return valid ? std::optional(std::move(configuration)) : std::nullopt;
}

std::optional<Configuration>
ladle::frontend::configure(Recurrence &recurrence,
                           const ElaborationOptions &options,
                           Diagnostics &diagnostics) {
  return Configurator(recurrence, diagnostics).run(options);
}
