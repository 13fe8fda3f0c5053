#!/usr/bin/env bash
# run.sh PROGRAM: the program on processors without AVX-512 (Haswell) and without any AVX (Nehalem), emulated by
# qemu-user: nothing may run there that was compiled for more, not even before main(), and the answers are this
# machine's. Exit code 77, which ctest counts as skipped, where there is no emulator.
set -euo pipefail
program=$1
[ "$(uname -m)" = x86_64 ] || { echo "not x86-64"; exit 77; }
command -v qemu-x86_64 >/dev/null || { echo "no qemu-x86_64"; exit 77; }

answer() {  # the processor, or nothing for this one
  local run=()
  [ $# -eq 0 ] || run=(qemu-x86_64 -cpu "$1")
  "${run[@]}" "$program" generate --tokens 11,22,33,44,55,66,77,88,99 -n 4 --greedy --ignore-eos --json 2>/dev/null
}

want=$(answer)
for processor in Nehalem Haswell; do
  got=$(answer "$processor") || { echo "$processor: exit code $?"; exit 1; }
  [ "$got" = "$want" ] || { echo "$processor: $got instead of $want"; exit 1; }
  echo "$processor: $got"
done
