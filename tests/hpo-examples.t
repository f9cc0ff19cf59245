#!/bin/sh
# hpo-examples.t - the crontab line, the rule for make and the sweep in examples/sweep do what they say
. "$top_srcdir/tests/lib.sh"
if [ -n "${SHORT-}" ]; then
    skip "the examples run" "under sanitizers their programs have tests of their own"
    done_testing
    exit
fi

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "examples/sweep is run" "built without SQLite or YAML"
    done_testing
    exit
fi

states() {
    trials -S window.db | awk '{ print $2 }' | sort | uniq -c | tr -s ' \n' ' '
}

mkdir sweep
cp "$top_srcdir"/examples/sweep/* sweep
ln -s "$(cd "$bard" && pwd)" sweep/bard

# The sixth field of crontab's line is what cron gives to sh, in the user's home.
ok "cron is told where programs are" grep -q '^PATH=.*/usr/local/bin' sweep/crontab
line=$(sed -n 's/^[^#]* \* \* \* \* //p' sweep/crontab)
run env HOME="$PWD" sh -c "$line"
status_is 0 "the crontab line runs the sweep"
ok "and says nothing" test ! -s out
err_empty "on either stream"
cd sweep || exit 99
ok "every point of the grid was scored" test "$(states)" = " 6 COMPLETE "
hpo-sweep best -S window.db > best
ok "the longest window has the least perplexity" grep -q 'window=256' best
hpo-sweep importance -S window.db > list
ok "and windows matter, threads do not" grep -q '^1.0000  window$' list
ok "as score says without the sweep" test "$(awk '{ printf "%.4g", $3 }' best)" = \
    "$(tp-run score --window 256 bard/heldout.txt bard | sed 's/.*perplexity \([0-9.]*\).*/\1/' | awk '{ printf "%.4g", $1 }')"
trials -S window.db > before
run env HOME="$scratch" sh -c "$line"
status_is 0 "run again by cron, it is left alone"
trials -S window.db > after
ok "to the byte" cmp before after

rm -f window.db*
rm -rf window.trials
run env MAKEFLAGS= make -f best.mk best.txt
status_is 0 "the rule for make runs the sweep"
ok "and asks before each trial" test "$(states)" = " 4 COMPLETE 2 FAIL "
ok "for the best" grep -q 'window=256' best.txt
run env MAKEFLAGS= make -f best.mk best.txt
out_has "up to date" "and has nothing to do the next time"
done_testing
