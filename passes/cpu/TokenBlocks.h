//===- TokenBlocks.h - attention to a block of tokens -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all attentions do on a CPU with the keys and values that heads of the
// query share. Each key and value is loaded once and used for all heads from
// registers: a tile is as many heads and keys as a register of scores has
// lanes, so that a score is a lane, and softmax goes lane by lane for all heads
// at once. Values go by pieces of a row, for which the sums of all heads stay
// in registers.
//
// Rows of 16 bits are loaded as pairs, a register of even and one of odd
// elements, which takes half the instructions of widening them in order. So
// what is made of them has its lanes in that order until the end.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_TOKENBLOCKS_H
#define LADLE_PASSES_CPU_TOKENBLOCKS_H

#include "passes/cpu/SummaryBuilder.h"

namespace ladle {

/// What kernels know of the processor.
struct CpuVectors {
  /// f32 numbers in a register.
  int64_t lanes = 16;
  /// Whether it multiplies and adds pairs of bf16 (AVX512-BF16).
  bool dotsBF16 = false;
  /// Whether what is asked for may be forgotten, and is worth asking again.
  bool asksAgain = false;
};

class TokenBlocks : protected SummaryBuilder {
protected:
  TokenBlocks(mlir::Location loc, mlir::OpBuilder &builder,
              const CpuVectors &vectors)
      : SummaryBuilder(loc, builder), vectors(vectors) {}

  /// Tokens whose weights are found together, after which (m, Z, A) move.
  static constexpr int64_t kTokens = 32;

  /// Keys and values, and where those of token `at` lie in them, without the
  /// last dimension.
  struct TokenRows {
    mlir::Value keys, values;
    llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value at)> place;
    /// Where one goes on behind the last token, if rows lie side by side, so
    /// that later ones can be asked for; or null, and nothing behind it is.
    mlir::Value next;
  };

  /// An attend that is under way, for all heads of a group.
  struct Running {
    int64_t size = 0; ///< heads of the group
    /// Heads of a tile, all heads being one or several times as many; lanes of
    /// a head, which are keys of a tile.
    int64_t together = 1, tileKeys = 16;
    double scale = 1;
    bool usesDots = false; ///< of bf16; queries are of bf16 then
    bool splitKeys = false, splitValues = false; ///< in even and odd elements
    mlir::Value queries;                         ///< [size, dk], by lanes
    mlir::Value scores;            ///< [32 / tile keys, 16] of a block
    mlir::Value most, sums, stays; ///< [size / together, 16]
    mlir::Value values;            ///< [size, dv], by lanes
    /// Where scores go, [size, entries], or null.
    mlir::Value noted;
    /// The first token of each head, behind the first of all: [size / together,
    /// 16] of i32, or null.
    mlir::Value lower;
  };

  /// `isExact` says that queries are bf16 numbers.
  Running startBlocks(int64_t size, mlir::Type keyType, mlir::Type valueType,
                      bool isExact, double scale);
  /// The query of head `g` of the group, which is in f32.
  void putQuery(const Running &running, mlir::Value g, mlir::Value query);
  /// Where head `g` begins, if heads begin at different tokens.
  void putLower(Running &running, mlir::Value g, mlir::Value offset);
  /// Attends to tokens [begin, end).
  void addTokens(const Running &running, mlir::Value begin, mlir::Value end,
                 const TokenRows &rows);
  /// Asks for the keys and values that addTokens comes to first, or for what
  /// row `share` of `shares` of other work may ask for of them.
  void prefetchFirst(const TokenRows &rows, mlir::Value begin);
  void prefetchFirst(const TokenRows &rows, mlir::Value begin,
                     mlir::Value share, int64_t shares);
  /// Writes (m, Z) to sums[..., g, 2] and A to values[..., g, dv].
  void finishBlocks(const Running &running, mlir::Value sums,
                    mlir::Value values, mlir::ValueRange outer = {});

  /// result[g] = Σ factors[g, c] · row c of a matrix, for `count` heads.
  /// `beside` emits what is asked for beside a row, which else is one ahead; of
  /// the first time that rows are passed, or of the last.
  void multiplyRows(
      int64_t count, int64_t rows, mlir::Value factors, mlir::Value matrix,
      llvm::ArrayRef<mlir::Value> outer, mlir::Value result,
      llvm::function_ref<void(mlir::Value row, bool isFirst)> beside = {});
  /// Asks for `width` elements of memory from a place on, which may lie behind
  /// its end; `isSoon` into the first cache.
  void prefetch(mlir::Value memory, mlir::ValueRange place, int64_t width,
                bool isSoon = false);
  /// Elements of a memory that a line of the caches has.
  static int64_t lineOf(mlir::Value memory);
  mlir::Value plus(mlir::Value index, int64_t offset);

  /// Heads of a tile, of so many.
  static int64_t headsTogether(int64_t count);
  /// Memory of a function, at its beginning.
  mlir::Value scratch(llvm::ArrayRef<int64_t> shape, mlir::Type element = {});

  CpuVectors vectors;

private:
  /// The most heads of a tile: its keys are the other factor of its lanes.
  static constexpr int64_t kTogether = 8;
  /// How many rows of a matrix ahead of its use one is asked for.
  static constexpr int64_t kRowsAhead = 48;

  /// Some elements of a row: registers of 16 lanes, of which the last may be
  /// filled up with zeros.
  struct Chunk {
    int64_t column, width;
    bool isSplit;
    int64_t registers() const { return isSplit ? 2 : 1; }
  };
  static llvm::SmallVector<Chunk> chunksOf(int64_t size, bool isSplit);
  llvm::SmallVector<mlir::Value> loadChunk(mlir::Value memory,
                                           llvm::ArrayRef<mlir::Value> place,
                                           const Chunk &chunk,
                                           mlir::Value column = {});
  llvm::SmallVector<mlir::Value> splitChunk(mlir::Value vector,
                                            const Chunk &chunk);
  void storeChunk(llvm::ArrayRef<mlir::Value> registers, mlir::Value memory,
                  llvm::ArrayRef<mlir::Value> place, const Chunk &chunk);
  /// Heads and registers of a row whose sums stay in registers.
  struct Piece {
    int64_t head, heads;
    llvm::SmallVector<Chunk> chunks;
    int64_t lane; ///< of the row, by lanes
  };
  llvm::SmallVector<Piece> piecesOf(int64_t heads, int64_t size, bool isSplit);

  /// Of rows, as TokenRows::place.
  using Places = llvm::SmallVector<llvm::SmallVector<mlir::Value>>;

  struct Tokens {
    mlir::Value first, begin, end, tiles;
    mlir::Value half;       ///< of the rows of its tiles
    bool isWhole = false;   ///< all tokens of a block are there
    mlir::Value part, head; ///< which heads of the group
  };
  void addBlocks(const Running &running, Tokens block, mlir::Value from,
                 mlir::Value to, const TokenRows &rows);
  mlir::Value rowOf(const Tokens &block, mlir::Value tile, mlir::Value key,
                    const Running &running);
  mlir::Value scoreTiles(const Running &running, const Tokens &block,
                         const TokenRows &rows);
  llvm::SmallVector<mlir::Value>
  multiplyKeys(const Running &running, const Tokens &block,
               const TokenRows &rows,
               llvm::ArrayRef<llvm::SmallVector<mlir::Value>> places,
               const Places &ahead, const Places &soon);
  mlir::Value areValid(const Running &running, const Tokens &block,
                       mlir::Value tile);
  mlir::Value moveMost(const Running &running, const Tokens &block,
                       mlir::Value most);
  mlir::Value weighTile(const Running &running, mlir::Value tile,
                        mlir::Value base);
  void addValues(const Running &running, const Tokens &block,
                 const TokenRows &rows, mlir::Value base);
  void addPair(const Running &running, const Tokens &block,
               const TokenRows &rows, const Piece &piece, mlir::Value tile,
               mlir::Value key, llvm::MutableArrayRef<mlir::Value> totals);
  llvm::SmallVector<mlir::Value>
  placeAhead(const Tokens &block, const TokenRows &rows, mlir::Value pair);
  mlir::Value rowSoon(const Running &running, const Tokens &block,
                      mlir::Value tile);
  void prefetchSoon(mlir::Value memory, llvm::ArrayRef<mlir::Value> place,
                    mlir::Value column, int64_t width);
  void prefetchColumns(const TokenRows &rows, llvm::ArrayRef<mlir::Value> place,
                       mlir::Value column, int64_t width, int64_t size);
  mlir::Value larger(mlir::Value lhs, mlir::Value rhs);
  mlir::Value
  overKeys(const Running &running, mlir::Value lanes,
           llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_TOKENBLOCKS_H
