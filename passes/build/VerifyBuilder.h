//===- VerifyBuilder.h - several tokens of a row at once --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Builds the verify steps of one route. With x_i the vector that written value
// i reads a state with (null if it reads nothing), q that of an output, and
// ancestors taken along the tree of drafts,
//
//   U = (I − A)⁻¹ R,  A = X·K masked,  R = V + Sᵀ(path ∘ X)
//   Y = Sᵀ(path ∘ Q) + (Q·K masked) U
//
// where S is the state after the committed entries and `path` the decay along
// the ancestors. A value whose reads are multiplied by numbers B of its
// channels solves U = R + B ∘ (A U), R = V + B ∘ Sᵀ(path ∘ X); one that is a
// sum of such parts, with numbers of their own, has an unknown for each. The
// adjoint route moves the solve to the other side: it reads S with one vector a
// draft and output,
//
//   Y = Sᵀ(path ∘ Q + (Q·K masked) (I − A)⁻¹ (path ∘ X))
//       + (Q·K masked) (I − A)⁻¹ V.
//
// A chunk of a prompt is the same with a chain for the tree: a step that
// appends its entries differs in nothing else, one that folds reads the state
// alone and stores it with K and U in it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_VERIFYBUILDER_H
#define LADLE_PASSES_BUILD_VERIFYBUILDER_H

#include "passes/build/StepBuilder.h"
#include "llvm/ADT/MapVector.h"
#include <variant>

namespace ladle {

/// What a verify step reads states for.
struct VerifyRoots {
  /// Of each write, over all states, the reads that are its value's parts; none
  /// of one that reads nothing.
  llvm::SmallVector<llvm::SmallVector<AffineRoot, 1>> writes;
  llvm::SmallVector<AffineRoot> outputs;
  /// Values of writes that outputs take when they are solved for: with a scale
  /// they are no reads that could be one with others.
  llvm::DenseSet<mlir::Value> solved;
};

/// Why the drafts of a row cannot be verified at once.
struct VerifyObstacle {
  mlir::Operation *op;
  std::string reason;
};

/// Finds what a verify step of a prepared route reads; adds values to its
/// recurrence.
std::variant<VerifyRoots, VerifyObstacle>
findVerifyRoots(const PreparedRoute &prepared, mlir::OpBuilder &b);

class VerifyBuilder : public StepBuilder {
public:
  VerifyBuilder(const PreparedRoute &prepared, const VerifyRoots &found,
                const StepOptions &options, mlir::OpBuilder &builder)
      : StepBuilder(prepared, options, builder), found(found) {}

  /// `form` is Verify, VerifyFold, PrefillFold or PrefillEntries.
  StepOp build(Form form);

private:
  class Region;
  /// A write among those of all states.
  struct Write {
    const StateHistory *state;
    const StateWrite *write;
    /// What the value is the sum of; none if it reads nothing.
    llvm::ArrayRef<AffineRoot> roots;
  };
  /// The value of a write, or a part of it: a token-only value or a read.
  struct Unknown {
    size_t write;
    const AffineRoot *root; ///< or null
  };

  void collectWrites();
  void collectFrontier();
  void buildTokens();
  void buildFields();
  void answer();
  void answerAdjoint();
  void foldChunk();

  mlir::Location locOf(const StateHistory &state) const;
  mlir::RankedTensorType stacked(mlir::Type type) const;
  /// The stack of a value that was asked of the tokens; null for null.
  mlir::Value stack(mlir::Value value) const;
  /// `vectors` of a state times the decay along the path, and times that of the
  /// entries, if there are these.
  llvm::SmallVector<mlir::Value> scale(const StateHistory &state,
                                       llvm::ArrayRef<mlir::Value> vectors,
                                       mlir::Value path,
                                       mlir::Value gamma = {});
  /// What the state after the committed entries answers to `queries`, which the
  /// path has decayed, in parts to be added. `scaled` are those for the
  /// checkpoint.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>>
  readHistory(const StateHistory &state, llvm::ArrayRef<mlir::Value> queries,
              llvm::ArrayRef<mlir::Value> scaled,
              llvm::ArrayRef<mlir::Type> types);
  mlir::Value gram(const StateHistory &state, mlir::Value queries,
                   mlir::Value keys);
  /// The Gram products of `root` with the keys of all writes to states that it
  /// reads, times their `values`; null if there are none.
  mlir::Value product(const AffineRoot &root,
                      llvm::ArrayRef<mlir::Value> values, mlir::Type type);
  /// Solves for all unknowns, of which those that read nothing are known, and
  /// returns the values of the writes.
  llvm::SmallVector<mlir::Value> solve(llvm::ArrayRef<mlir::Value> rhs);
  /// The sum of stacks, repeated over heads to `type` of one draft; those that
  /// have one in `scales` times a stack of numbers. All of it times `factor`,
  /// and then `rest`, if there are any.
  mlir::Value sum(llvm::ArrayRef<mlir::Value> parts,
                  mlir::RankedTensorType type, mlir::Location loc,
                  llvm::ArrayRef<mlir::Value> scales = {},
                  mlir::Value factor = {}, mlir::Value rest = {});

  const VerifyRoots &found;
  bool folds = false, prefillsState = false;
  bool keepsEntries = false; ///< besides the state of a prompt
  mlir::Value drafts;
  int64_t most = 0; ///< drafts of a row
  llvm::SmallVector<Write> writes;
  llvm::SmallVector<Unknown> unknowns;
  llvm::SmallVector<mlir::Value> frontier;  ///< of the recurrence
  llvm::SetVector<mlir::Value> takenWrites; ///< of those that are solved for
  llvm::MapVector<mlir::Value, mlir::Value> stacks; ///< of the recurrence
  llvm::SmallVector<mlir::Value> nextCarries;
  llvm::SmallVector<mlir::Value> paths, checkpoints; ///< one a state, or null
  llvm::SmallVector<mlir::Value> written; ///< the value of each write
  llvm::SmallVector<mlir::Value>
      answers; ///< of each output root, remainder too
};

} // namespace ladle

#endif // LADLE_PASSES_BUILD_VERIFYBUILDER_H
