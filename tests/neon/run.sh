#!/usr/bin/env bash
# run.sh BUILD: builds the kernels' tests for 64-bit Arm in BUILD and runs them under qemu-user. Exits 77 (skipped) where
# the cross compiler, qemu or GoogleTest's sources are not installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
for need in aarch64-linux-gnu-g++ qemu-aarch64 ninja; do
  command -v "$need" > /dev/null || { echo "skipped: no $need: apt-get install g++-aarch64-linux-gnu qemu-user ninja-build"; exit 77; }
done
[ -d /usr/src/googletest ] || { echo "skipped: no /usr/src/googletest: apt-get install libgtest-dev"; exit 77; }
launcher=$(command -v ccache || true)
cmake -S "$here" -B "$build" -G Ninja --log-level=WARNING -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_BUILD_TYPE=None ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} > /dev/null
ninja -C "$build" neon_test 2>&1 | tail -1
# A processor with dot products, as all are that these kernels are meant for.
exec qemu-aarch64 -cpu max "$build/neon_test" --gtest_brief=1
