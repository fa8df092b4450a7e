#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what building and testing Ladle needs on Debian 12 and is not there
# yet. Does nothing, and needs no network and no root, when all is there.
set -euo pipefail

build=(
  ca-certificates ccache clang-22 cmake g++ git libmlir-22-dev libzstd-dev
  lld-22 llvm-22-dev mlir-22-tools ninja-build zlib1g-dev
  libcli11-dev libfmt-dev libopenblas-dev nlohmann-json3-dev
)
tests=(
  catch2 libbenchmark-dev libclang-rt-22-dev libdlpack-dev libeigen3-dev
  llvm-22-tools
  python3
)
checks=(clang-format-22 clang-tidy-22 codespell shellcheck)

installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' \
  "${build[@]}" "${tests[@]}" "${checks[@]}" 2>/dev/null || true)
missing=()
for package in "${build[@]}" "${tests[@]}" "${checks[@]}"; do
  grep -qx "$package installed" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

# The LLVM 22 packages of Debian 12 come from its security archive.
if ! grep -qs 'VERSION_ID="12"' /etc/os-release; then
  echo "setup: this is not Debian 12; install by hand: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    echo "setup: apt-get $1 failed" >&2
    exit 1
  }
}
apt update
apt install -y --no-install-recommends "${missing[@]}"
