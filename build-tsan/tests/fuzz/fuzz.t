#!/bin/sh
# fuzz.t - every fuzz target reads its corpus
. "$top_srcdir/tests/lib.sh"

for dir in "$top_srcdir"/tests/fuzz/corpus/*; do
    name=${dir##*/}
    ok "the corpus of fuzz-$name is read without a crash" \
        "$top_builddir/tests/fuzz/fuzz-$name" "$dir"/*
done
done_testing
