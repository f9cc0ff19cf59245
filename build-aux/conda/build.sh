#!/bin/sh
# build.sh - configure, build and install into $PREFIX, as conda's builders ask for it
set -eu
[ -f configure ] || autoreconf -i
# a package with CUDA takes --with-cuda-arch=all instead
./configure --prefix="$PREFIX" --without-cuda \
    CPPFLAGS="${CPPFLAGS-} -I$PREFIX/include" LDFLAGS="${LDFLAGS-} -L$PREFIX/lib"
make -j"${CPU_COUNT:-1}"
make install
