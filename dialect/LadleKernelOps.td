//===- LadleKernelOps.td - what kernels of a GPU ask for ---*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels are made of upstream dialects. Here is what these have no operation
// for.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_KERNEL_OPS
#define LADLE_KERNEL_OPS

include "dialect/LadleOpBase.td"

class Ladle_TileOfLane<string type, int size, Type element> : Type<
    And<[VectorOfRankAndType<[1], [element]>.predicate,
         CPred<"::llvm::cast<::mlir::VectorType>($_self).getDimSize(0) == " #
               size>]>,
    "a lane's part of a tile, " # type, "::mlir::VectorType">;
def Ladle_SumsOfLane : Ladle_TileOfLane<"vector<4xf32>", 4, F32>,
    BuildableType<"::mlir::VectorType::get({4}, $_builder.getF32Type())">;
def Ladle_HalvesOfLane : Ladle_TileOfLane<"vector<8xbf16>", 8, BF16>;

def Ladle_WarpgroupProductOp : Ladle_Op<"warpgroup_product", [
    AttrSizedOperandSegments]> {
  let summary = "products of four warps' rows with what shared memory holds";
  let description = [{
    Four warps of a block, from one on whose number is a multiple of four, take
    the same matrices from shared memory. Each warp has 16 rows of left sides and
    of sums, which nvgpu.warpgroup.mma would take from shared memory as well.

    The sums are tiles of 16 rows and 8 columns beside each other, of 16 to 128
    columns, the left sides tiles of 16 rows and 8 terms of f32, of which products
    take 11 significant bits, or 16 terms of bf16. A lane has of these what it has
    in an nvgpu.mma.sync of 16 x 8 x 8, or 16 x 8 x 16. To each left side belongs a
    right side, of all columns, which begins at an element of `memory`. With e of
    them in 16 bytes, term k of column n is
    ```
    right + k / e * across + n / 8 * along + n % 8 * e + k % e
    ```
    elements from the first, or if `transposed`, of bf16,
    ```
    right + k / e * across + n / 8 * along + k % e * 8 + n % 8
    ```
    Products are added one after the other, and are over when the operation is.

    ```mlir
    %0, %1 = ladle.warpgroup_product %rest, %most * %memory[0, 0] across 68
             along 32 into %a, %b : memref<32x68xf32, #gpu.address_space<workgroup>>
             of vector<4xf32>, vector<4xf32> -> vector<4xf32>, vector<4xf32>
    ```
  }];
  let arguments = (ins
      Variadic<AnyTypeOf<[Ladle_SumsOfLane, Ladle_HalvesOfLane]>>:$lefts,
      Arg<MemRefOf<[F32, BF16]>, "the right sides", [MemRead]>:$memory,
      DenseI64ArrayAttr:$rights, I64Attr:$across, I64Attr:$along,
      UnitAttr:$transposed, Variadic<Ladle_SumsOfLane>:$sums);
  let results = (outs Variadic<Ladle_SumsOfLane>:$results);
  let assemblyFormat = [{
    $lefts `*` $memory $rights `across` $across `along` $along
    (`transposed` $transposed^)? `into` $sums attr-dict `:` type($memory) `of`
    type($lefts) `->` type($results)
  }];
  let hasVerifier = 1;
}

#endif // LADLE_KERNEL_OPS
