#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what is missing, builds the `ladle` tool and runs it: with the
# arguments given, or on the gated delta rule and a trace of a real model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
log=build/release-configure.log
mkdir -p build
cmake --preset release >"$log" 2>&1 || {
  cat "$log" >&2
  exit 1
}
# Standard output belongs to `ladle`, so that --json can be piped.
cmake --build --preset release --target ladle >&2

if (($# == 0)); then
  set -- run examples/gated_delta_rule.ladle \
    --trace examples/data/tinylm-gdn-doc1-layer5.safetensors
fi
exec build/release/bin/ladle "$@"
