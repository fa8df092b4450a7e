#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# run.sh SOURCE BUILD COMPILER: installs BUILD, builds the example on host code
# against what was installed, as a project of its own, and runs it.
set -euo pipefail
source=$1 build=$2 compiler=$3
work=$build/package-test
rm -rf "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work.log"
cmake -G Ninja -S "$source/tests/package" -B "$work/build" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DHOST_DECODE="$source/examples/host_decode.cpp" >>"$work.log"
cmake --build "$work/build" >>"$work.log" || {
  cat "$work.log"
  exit 1
}
"$work/build/host_decode" "$source/examples/gated_delta_rule.ladle"
"$work/prefix/bin/ladle" --version
