#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Spelling of everything that is text, and the traps of shell scripts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
list() {
  git ls-files -z --cached --others --exclude-standard "$@"
}
list ':!*.safetensors' ':!LICENSE' ':!tests/fuzz/corpus' \
  ':!tests/frontend/errors' |
  xargs -0 codespell --ignore-words tools/lint/words.txt
list '*.sh' .ci/run | xargs -0 shellcheck
