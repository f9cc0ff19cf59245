#!/bin/sh
# build.sh - configure, build and install into $PREFIX, as conda's builders ask for it
set -eu
[ -f configure ] || autoreconf -i
./configure --prefix="$PREFIX" --without-cuda \
    CPPFLAGS="${CPPFLAGS-} -I$PREFIX/include" LDFLAGS="${LDFLAGS-} -L$PREFIX/lib"
make -j"${CPU_COUNT:-1}"
make install
