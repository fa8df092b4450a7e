//===- program.h - a compiled recurrence ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler makes programs (`ladle/compile.h`); this library runs them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PROGRAM_H
#define LADLE_PROGRAM_H

#include "ladle/status.h"
#include "ladle/types.h"

#include <span>

namespace ladle {

struct ProgramImpl;

/// The kernels of a recurrence at fixed sizes. Immutable; copies share the
/// code.
class Program {
public:
  /// Checks what a compiler made. InvalidArgument says what is missing.
  static Result<Program> create(ProgramImpl impl);

  const Signature &signature() const;
  /// Where its kernels run, and the memory of its pools and arguments lies.
  DeviceId device() const;
  /// The route that decodes.
  RouteKind route() const { return chosen; }
  /// All routes that there are kernels for.
  std::vector<RouteKind> routes() const;
  /// The same program decoding by another of its routes, which may take turns
  /// with this one on the same pool. NotFound names the routes there are.
  ///
  /// On the CPU kv_only hands rows over to another route, inner unless
  /// CompileOptions::longRoute says otherwise, once they have folded, and so it
  /// does on a GPU where entries lie in pages. Where they do not, the caller
  /// does it: from the step on after a row has folded, decode by
  /// withRoute(Inner). If that is forgotten, a call after the step is an error
  /// that names the slot.
  Result<Program> withRoute(RouteKind route) const;
  /// L: entries that a slot of the buffer holds. 0 without a buffer.
  int64_t capacity() const;
  /// Entries at which a sequence of kv_only is as cheap by the route that the
  /// cost model chooses for long ones, within the capacity: for
  /// CursorOptions::crossover. 0 if the program has no such route.
  int64_t crossover() const;
  /// Whether sequences of the route begin without a state and take one where
  /// they cross over: those of kv_only, unless chunks say where they fold, on a
  /// GPU where entries lie in pages.
  bool crossesOver() const;
  /// Entries of a page; 0 if those of a slot lie side by side.
  int64_t page() const;
  /// The most drafts of a row that Decoder::verify takes; 0: it takes none.
  int64_t drafts() const;
  /// Whether the route answers all drafts of a row at once. Otherwise they are
  /// decoded one after another, on a GPU a launch each, and `recurrent` keeps a
  /// state for each.
  bool verifiesAtOnce() const;
  /// Tokens of a prompt that Decoder::prefill answers at once; 0: it takes no
  /// prompts.
  int64_t chunk() const;
  /// Whether the route answers the tokens of a chunk at once. Otherwise they
  /// are decoded one after another.
  bool prefillsAtOnce() const;
  /// Whether sequences are folded where a chunk of them ends and nowhere else
  /// (CompileOptions::numerics).
  bool foldsByChunk() const;
  /// What an entry of the buffer holds, for each of its heads.
  std::span<const TensorSpec> fields() const;
  /// Heads that are computed together; head ranges are multiples of it.
  int64_t headGroup() const;
  /// How the kernels were made, as JSON.
  const std::string &manifest() const;

  const ProgramImpl &getImpl() const { return *impl; }

private:
  Program(std::shared_ptr<const ProgramImpl> impl, RouteKind route)
      : impl(std::move(impl)), chosen(route) {}
  std::shared_ptr<const ProgramImpl> impl;
  RouteKind chosen;
};

} // namespace ladle

#endif // LADLE_PROGRAM_H
