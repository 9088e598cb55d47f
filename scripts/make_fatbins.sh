#!/bin/sh
# Make the small files with GPU code in tests/machines/fatbins, and record what cuobjdump says of each.
# Needs nvcc (13.0 made the present ones), strip and cuobjdump; CUOBJDUMP=path names one that is not on the PATH.
set -eu
cuobjdump=${CUOBJDUMP:-cuobjdump}
out=$(cd "$(dirname "$0")/../tests/machines/fatbins" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/tiny.cu" <<'CU'
extern "C" __global__ void tiny(float *x) { x[threadIdx.x] += 1.0f; }
extern "C" void tiny_launch(float *x) { tiny<<<1, 32>>>(x); }
CU

# make NAME NVCC-OPTIONS...
make() {
    name=$1
    shift
    nvcc -O1 -shared -Xcompiler -fPIC -cudart none -Xlinker --build-id=none -Xlinker -z -Xlinker noseparate-code \
        "$@" "$work/tiny.cu" -o "$out/$name"
    strip "$out/$name"
    record "$name"
}

record() {
    { "$cuobjdump" "$out/$1" 2> /dev/null || true; } | grep -E '^(Fatbin|arch =|compressed)' > "$out/$1.cuobjdump.txt"
}

gen() { echo "-gencode arch=compute_$1,code=$2_${3:-$1}"; }
# shellcheck disable=SC2046  # the options are meant to be split
{
    make sm_86_only.so $(gen 86 sm)
    make hopper_and_ptx.so -Xfatbin -compress-all $(gen 86 sm) $(gen 90 sm) $(gen 90a sm) $(gen 80 compute)
    make blackwell.so -Xfatbin -compress-all $(gen 100f sm) $(gen 103a sm) $(gen 110 sm) $(gen 120 sm) $(gen 120a sm)
    make ptx_variants.so $(gen 75 compute) $(gen 90a compute) $(gen 120f compute)
    make plain_120a.so --no-compress $(gen 120a sm) $(gen 75 compute)
    nvcc -c -rdc=true -Xfatbin -compress-all $(gen 86 sm) $(gen 90a sm) "$work/tiny.cu" -o "$out/relocatable.o"
    record relocatable.o
}
ls -l "$out"
