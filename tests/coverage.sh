#!/bin/sh
# coverage.sh - of the readers of foreign bytes, the branches that tests took: in a tree where they are built with --coverage
#
# usage: tests/coverage.sh [objects | missing FILE]
#
# Prints a line for each file; or the objects of these files, which `make coverage` builds; or the lines of FILE with the
# numbers of their branches that no test took (gcov's, on that line).
set -eu
files="lib/ckpt/*.c lib/base/json.c lib/base/jsonlex.c lib/base/str.c lib/base/scan.c lib/model/axis.c lib/model/expr.c
lib/model/family.c lib/model/keys.c lib/model/packing.c lib/model/quant.c lib/pipe/calibration.c lib/pipe/csv.c lib/program/line.c lib/reshard/summary.c lib/reshard/unpack.c lib/sweep/format/*.c
lib/sweep/job/measure.c lib/sweep/storage/journal.c lib/sweep/storage/sqlite.c lib/text/charsmap.c lib/text/oldfiles.c lib/text/setting.c
lib/text/tokenizer.c lib/text/vocab.c lib/train/textfile.c lib/train/tokenfile.c cmd/tp-run/inputs.c"
if [ "${1-}" = objects ]; then
    for f in $files; do
        printf '%s\n' "${f%.c}.o"
    done
    exit
fi

# branches FILE - gcov's report of it alone
branches() {
    # a branch of a call that may not return is no decision of ours
    gcov -b -c -t -o "${1%.c}.gcno" "$1" 2> /dev/null | awk -v want="$1" '
        /^ *-: *0:Source:/ { mine = substr($0, index($0, "Source:") + 7) == want }
        mine { print }'
}

if [ "${1-}" = missing ]; then
    branches "$2" | awk '
        /^branch/ { if ($0 ~ /never executed/ || $4 == 0) missing = missing " " $2; next }
        /^(call|function)/ { next }
        { if (missing) print line "  <<" missing; missing = ""; line = $0 }
        END { if (missing) print line "  <<" missing }'
    exit
fi
printf '%-36s %9s %9s %6s\n' file branches taken '%'
for f in $files; do
    [ -f "$f" ] || continue
    branches "$f" | awk -v name="$f" '
        /^branch/ { n++; if ($0 !~ /never executed/ && $4 > 0) taken++ }
        END { if (n) printf "%-36s %9d %9d %6.1f\n", name, n, taken, 100 * taken / n }'
done | awk '{ n += $2; t += $3; print } END { if (n) printf "%-36s %9d %9d %6.1f\n", "all", n, t, 100 * t / n }'
