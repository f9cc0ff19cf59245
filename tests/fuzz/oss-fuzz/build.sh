#!/bin/sh
# build.sh - the fuzz targets as OSS-Fuzz builds them, in a tree that is not configured
#
# CC, CXX, CFLAGS and CXXFLAGS are its compilers and flags, LIB_FUZZING_ENGINE is what has main, and OUT gets the targets
# and NAME_seed_corpus.zip for each.  The libraries that they need are put beside them.
# Dockerfile has the packages that the builder needs.
set -eu
[ -f configure ] || autoreconf -i
./configure -q --disable-hardening --without-cuda --without-mpi --without-dnnl --without-cairo CFLAGS="$CFLAGS" \
    CPPFLAGS=-DLIBFUZZER
names=$(sed -n 's|^    %D%/fuzz/fuzz-\([a-z]*\).*|\1|p' tests/local.mk)
programs=
for name in $names; do
    programs="$programs tests/fuzz/fuzz-$name"
done
libs="-lcjson -lpcre2-8 -lutf8proc -lsqlite3 -lyaml -lz -lzstd -lm -ldl -lpthread"
# shellcheck disable=SC2086 # a list of words
make -j "$(nproc)" CCLD="$CXX" SQLITE3_LIBS= YAML_LIBS= LIBS="$LIB_FUZZING_ENGINE $libs" \
    LDFLAGS="${CXXFLAGS-} -Wl,-rpath,'\$\$ORIGIN/lib'" $programs
mkdir -p "$OUT/lib"
for name in $names; do
    cp "tests/fuzz/fuzz-$name" "$OUT/"
    (cd "tests/fuzz/corpus/$name" && zip -q -r "$OUT/fuzz-${name}_seed_corpus.zip" .)
    ldd "tests/fuzz/fuzz-$name"
done | sed -n 's/.* => \(.*lib\(cjson\|pcre2\|utf8proc\|sqlite3\|yaml\|zstd\)[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
    cp "$library" "$OUT/lib/"
done
