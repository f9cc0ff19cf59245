#!/bin/sh
# train-examples.t - examples/train trains, merges, scores and sweeps
. "$top_srcdir/tests/lib.sh"
if [ -n "${SHORT-}" ]; then
    skip "the examples run" "under sanitizers their programs have tests of their own"
    done_testing
    exit
fi

cp "$top_srcdir"/examples/train/* .
ln -s "$(cd "$bard" && pwd)" bard
run env MAKEFLAGS= make -s -f train.mk score.txt
status_is 0 "examples/train/train.mk trains, merges and scores"
ok "what comes of it knows the text better" awk '{ for (i = 1; i < NF; i++) if ($i == "nll") nll = $(i + 1) + 0 }
    END { exit !(nll > 3 && nll < 3.29) }' score.txt
run env MAKEFLAGS= make -f train.mk score.txt
out_has "up to date" "and has nothing to do the next time"
if hpo-sweep --version | grep -q '+yaml'; then
    run env MAKEFLAGS= make -s -f train.mk lr.txt
    status_is 0 "it sweeps the learning rate"
    ok "and finds the best" grep -q 'lr=' lr.txt
else
    skip "it sweeps the learning rate" "built without YAML"
fi
run env MAKEFLAGS= make -s -f bard.mk MODEL=bard TEXT=bard/heldout.txt SEQ=32 STEPS=6 EVERY=2 nll.txt
status_is 0 "examples/train/bard.mk trains from random weights"
ok "which begin to learn" awk '{ for (i = 1; i < NF; i++) if ($i == "nll") nll = $(i + 1) + 0 } END { exit !(nll > 3 && nll < 6.95) }' nll.txt

printf 'First Citizen:\nROMEO:\nMy lord,\nThe\n' > prompts
run ./policy.sh bard prompts ./reward.awk 3
status_is 0 "examples/train/policy.sh draws, rewards and learns, in rounds"
ok "what is rewarded becomes more frequent" awk '/^round/ { mean[$2 + 0] = $5 } END { exit !(mean[1] > 2 && mean[3] > mean[1] + 0.05) }' out
cp out first
run ./policy.sh bard prompts ./reward.awk 3
ok "rounds that are there are not made again" cmp first out
done_testing
