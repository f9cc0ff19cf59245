#!/bin/sh
# coverage.sh - of the readers of foreign bytes, the branches that tests took: in a tree built with --coverage
set -eu
files="lib/ckpt/*.c lib/base/json.c lib/base/jsonlex.c lib/base/str.c lib/model/axis.c lib/model/expr.c lib/model/family.c
lib/model/keys.c lib/model/quant.c lib/pipe/calibration.c lib/pipe/csv.c lib/reshard/summary.c lib/sweep/format/*.c
lib/sweep/job/measure.c lib/sweep/storage/journal.c lib/sweep/storage/sqlite.c lib/text/charsmap.c lib/text/setting.c
lib/text/tokenizer.c lib/text/vocab.c lib/train/textfile.c lib/train/tokenfile.c cmd/tp-run/inputs.c"
printf '%-36s %9s %9s %6s\n' file branches taken '%'
for f in $files; do
    [ -f "$f" ] || continue
    # objects of programs are named after them: dir/program-name.o
    notes=$(ls "${f%.c}.gcno" "${f%/*}"/*-"$(basename "${f%.c}")".gcno 2> /dev/null | head -n 1) || :
    [ -n "$notes" ] || continue
    # a branch of a call that may not return is no decision of ours
    gcov -b -c -t -o "$notes" "$f" 2> /dev/null | awk -v want="$f" '
        /^ *-: *0:Source:/ { mine = substr($0, index($0, "Source:") + 7) == want }
        mine && /^branch/ { n++; if ($0 !~ /never executed/ && $4 > 0) taken++ }
        END { if (n) printf "%-36s %9d %9d %6.1f\n", want, n, taken, 100 * taken / n }'
done | awk '{ n += $2; t += $3; print } END { if (n) printf "%-36s %9d %9d %6.1f\n", "all", n, t, 100 * t / n }'
