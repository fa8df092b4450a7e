#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# C++ is formatted as .clang-format says; `check_format.sh -i` formats it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mode=(--dry-run -Werror)
if [[ ${1:-} == -i ]]; then
  mode=(-i)
fi
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' |
  xargs -0 clang-format-22 "${mode[@]}"
