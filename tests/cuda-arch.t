#!/bin/sh
# cuda-arch.t - which GPUs configure compiles kernels for
. "${top_srcdir:?}/tests/lib.sh"

# a compiler and a driver that know what they are told
mkdir bin
cat > bin/nvcc << 'EOF'
#!/bin/sh
for cc in $KNOWN; do echo "compute_$cc"; done
EOF
cat > bin/nvidia-smi << 'EOF'
#!/bin/sh
[ -n "$GPUS" ] || { echo "NVIDIA-SMI has failed"; exit 9; }
for cc in $GPUS; do echo "$cc"; done
EOF
chmod +x bin/*
PATH=$PWD/bin:$PATH
KNOWN="75 80 86 90 100 120"
GPUS=''
export PATH KNOWN GPUS

# arch WHICH - sets $archs
arch() {
    run sh "$top_srcdir/build-aux/gen-cuda-arch" nvcc "$1"
    archs=$(paste -s -d ' ' out)
}

arch seen
ok "without a GPU kernels are for 80" test "$archs" = 80
GPUS="9.0 8.6 9.0" arch seen
ok "else for the GPUs that are here, each once" test "$archs" = "86 90"
GPUS=12.1 arch seen
ok "for a GPU that is too new for the compiler its newest stands" test "$archs" = 120
err_empty "which is no reason for a message"
GPUS=6.1 arch seen
ok "one that is too old is left out" test -z "$archs"
err_is "configure: nvcc has no compute capability 61: left out" "with a line"
arch all
ok "all is what packages take" test "$archs" = "75 80 90 100 120"
KNOWN="75 80 90" arch all
ok "as far as the compiler knows it" test "$archs" = "75 80 90"
arch 90,52,80
ok "a list is sorted, so that the newest has PTX" test "$archs" = "80 90"
err_is "configure: nvcc has no compute capability 52: left out" "and what is not known left out"
done_testing
