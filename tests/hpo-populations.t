#!/bin/sh
# hpo-populations.t - trials that begin with the checkpoint of another: populations, and pauses
. "$top_srcdir/tests/lib.sh"
if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "hpo-sweep trains populations" "built without SQLite or YAML"
    done_testing
    exit
fi

# a training whose state is the sum of its rates, and whose loss is how far that is from 10
cat > part.sh << 'EOS'
#!/bin/sh
echo "$HPO_TRIAL_NUMBER ${HPO_GENERATION-none} ${HPO_MEMBER-none}" >> "$1"
[ -z "${2-}" ] || [ "$HPO_TRIAL_NUMBER" != "$2" ] || exit 7
state=0
[ -z "${HPO_PARENT-}" ] || state=$(cat "$HPO_PARENT")
awk "BEGIN { printf \"%.9g\n\", $state + $HPO_lr }" > "$HPO_TRIAL_DIR/state"
echo "$HPO_TRIAL_DIR/state" > "$HPO_CHECKPOINT"
awk "BEGIN { x = $state + $HPO_lr - 10; printf \"%.9g\n\", x < 0 ? -x : x }"
EOS
printf 'lr: loguniform(0.01, 3)\n' > s.yaml
# told FILE KEY - TRIAL VALUE of that system attribute of each trial that has it
told() {
    hpo-sweep export -S "$1" - | tr -d ' "' | awk -F '[,:{}]' -v key="${2#*:}" '/op_code:9/ {
        for (i = 1; i < NF; i++) { if ($i == "trial_id") n = $(i + 1); if ($i == key) value = $(i + 1) }
        if (value != "") print n, value
        value = "" }' | sort -n
}
# whole STUDY - each part went on from where its parent ended, and has the next generation
whole() {
    told "$1.db" hpo-sweep:parent > parents
    told "$1.db" hpo-sweep:generation > generations
    trials -S "$1.db" --precision 17 | awk '$2 == "COMPLETE" { print $1, $4 }' > rates
    while read -r number rate; do
        parent=$(awk -v n="$number" '$1 == n { print $2 }' parents)
        before=0
        [ -z "$parent" ] || before=$(cat "$1.trials/$(printf %06d "$parent")/state")
        state=$(cat "$1.trials/$(printf %06d "$number")/state")
        awk -v n="$number" -v p="${parent:--1}" -v a="$before" -v b="$state" -v r="$rate" '
            FILENAME == "generations" { g[$1] = $2 }
            END { d = a + r - b; exit d > 1e-6 || d < -1e-6 || g[n] != (p < 0 ? 0 : g[p] + 1) }' generations || return
    done < rates
}

run hpo-sweep run s.yaml --sampler pbt:population=4 --seed 1 --trials 24 -j 3 -- sh part.sh ran
status_is 0 "a population of four is trained"
err_has "24 complete; best" "in parts"
ok "each of which goes on from its parent" whole s
ok "of six generations of four" test "$(awk '{ print $2 }' ran | sort | uniq -c | tr -s ' \n' ' ')" = " 4 0 4 1 4 2 4 3 4 4 4 5 "
told s.db hpo-sweep:member > members
# of a generation the worst takes the state of the best, and another rate
awk '
    FILENAME == "members" { m[$1] = $2; next }
    FILENAME == "parents" { p[$1] = $2; next }
    $2 == "COMPLETE" { n = $1; v[n] = $3; x[n] = $4 }
    END {
        for (g = 0; g + 4 < 24; g += 4) {
            best = worst = g
            for (i = g; i < g + 4; i++) { if (v[i] + 0 < v[best] + 0) best = i; if (v[i] + 0 > v[worst] + 0) worst = i }
            for (i = g + 4; i < g + 8; i++) {
                if (m[i] == m[worst]) bad += p[i] != best || x[i] == x[best]
                else bad += m[p[i]] != m[i] || x[i] != x[p[i]]
            }
        }
        exit bad > 0
    }' members parents - << END
$(trials -S s.db --precision 17)
END
ok "of each the worst takes the best one's checkpoint and another rate, and the others go on" test $? -eq 0
hpo-sweep run -q s.yaml -S one.db --study s --sampler pbt:population=4 --seed 1 --trials 24 -- sh part.sh ran1
trials -S s.db | cut -c 1-40 > expected
trials -S one.db | cut -c 1-40 > out
ok "the same ones, whatever runs at once" cmp out expected

# the run is killed, and continued; two share the study, and one is killed
printf 'lr: loguniform(0.01, 3)\n' > killed.yaml
cp killed.yaml shared.yaml
hpo-sweep run -q killed.yaml --sampler pbt:population=4 --seed 1 --trials 16 -j 2 -- sh -c 'sleep 0.1; exec sh part.sh ran2' '{lr}' &
pid=$!
until [ -s killed.trials/000006/params.json ] || ! kill -0 $pid 2> /dev/null; do sleep 0.05; done
kill -KILL $pid
wait $pid 2> /dev/null
run hpo-sweep run -q killed.yaml --sampler pbt:population=4 --trials 16 -j 2 -- sh part.sh ran2
status_is 0 "after SIGKILL a population goes on"
ok "from the checkpoints that it has" whole killed
ok "with four members in each of four generations" test "$(hpo-sweep show -S killed.db --state complete --tsv | wc -l)" = 17
pids=
for i in 1 2; do
    hpo-sweep run -q --share shared.yaml --sampler pbt:population=4 --seed 1 --trials 16 -j 2 -- sh -c 'sleep 0.1; exec sh part.sh ran3' '{lr}' &
    pids="$pids $!"
done
until [ -s shared.trials/000006/params.json ]; do sleep 0.05; done
kill -KILL ${pids##* }
# shellcheck disable=SC2086 # a list of numbers
wait ${pids% *}
status=$?
status_is 0 "of two runs that share a population one goes on when the other is killed"
ok "from the checkpoints of both" whole shared
ok "to the end" test "$(hpo-sweep show -S shared.db --state complete --tsv | wc -l)" = 17

# what goes wrong
printf 'lr: loguniform(0.01, 3)\n' > fails.yaml
run hpo-sweep run -q fails.yaml --sampler pbt:population=4 --seed 1 --trials 12 -- sh part.sh ran4 6
ok "what failed is made again, from one of the best" sh -c 'grep -x "6 1 2" ran4 && grep -x "7 1 2" ran4' 
ok "from its checkpoint" whole fails
run hpo-sweep run s.yaml --study bare --sampler pbt:population=2 --trials 4 -- echo 1
err_has "no checkpoint: the command wrote no path of one to HPO_CHECKPOINT (3)" "a part that leaves no checkpoint has failed, and why is said"
run hpo-sweep run -q s.yaml --study odd --sampler random --trials 2 -- sh -c '[ "$HPO_TRIAL_NUMBER" != 0 ] || mkdir "$HPO_CHECKPOINT"; echo 1'
status_is 0 "a directory in the place of the checkpoint's path ends no sweep"
ok "but fails its trial" test "$(hpo-sweep show -S s.db --study odd --tsv | grep -c FAIL)" = 1
run hpo-sweep ask s.yaml --sampler pbt
err_has "pbt needs run" "ask refuses a population"
run hpo-sweep run s.yaml --sampler pbt:distinct --trials 4 -- echo 1
err_has "not distinct ones" "as the sampler does distinct points"
rm s.trials/*/state
run hpo-sweep run -q s.yaml --sampler pbt:population=4 --trials 28 -- sh part.sh ran
status_is 4 "a checkpoint that is gone ends the run"
err_has "000020/state, which is not there" "and is named"

# halving that promotes: 3 is paused at step 2 behind 2, and goes on when there are four
cat > climb.sh << 'EOS'
#!/bin/sh
step=0
[ -z "${HPO_RESUME-}" ] || step=$(cat "$HPO_RESUME")
save() {
    echo $step > "$HPO_TRIAL_DIR/state"
    [ "$1" = bare ] || echo "$HPO_TRIAL_DIR/state" > "$HPO_CHECKPOINT"
}
trap 'save "$1"; exit 143' TERM
while [ $step -lt 5 ]; do
    step=$((step + 1))
    echo "$HPO_x $step" >> "$1"
    hpo-sweep report "$HPO_TRIAL_NUMBER" $step "$HPO_x"
    case $step in 2 | 4) if hpo-sweep should-prune "$HPO_TRIAL_NUMBER" > answer; then save "$1"; exit 0; fi ;; esac
done
echo "$HPO_x"
EOS
printf 'x: choice([2, 3, 5, 6, 7, 8, 9, 4])\n' > h.yaml
run hpo-sweep run h.yaml --sampler grid --pruner successive-halving:promote=yes,resource=2,reduction=2 -- sh climb.sh climbed
status_is 0 "trials are paused, and go on"
ok "when enough of the others are worse" test "$(told h.db hpo-sweep:resumes | tr '\n' ' ')" = "4 1 7 2 10 4 "
trials -S h.db | awk '{ print $2, $4 }' > out
out_has "COMPLETE 3" "one to the end"
ok "with the same parameters" test "$(sort out | uniq -c | tr -s ' \n' ' ')" = " 1 COMPLETE 2 1 COMPLETE 3 2 PRUNED 3 1 PRUNED 4 2 PRUNED 5 1 PRUNED 6 1 PRUNED 7 1 PRUNED 8 1 PRUNED 9 "
ok "no step is taken twice" test "$(sort climbed | uniq -d | wc -l)" = 0
hpo-sweep export -S h.db - > out
out_has '"checkpoint":"'"$scratch/h.trials/000001/state"'"' "a pause has its checkpoint as an attribute"
run hpo-sweep run h.yaml --study bare --sampler grid --pruner successive-halving:promote=yes,resource=2,reduction=2 -- sh climb.sh bare
err_has "cannot go on: its command wrote no path of a checkpoint to HPO_CHECKPOINT" "one without a checkpoint is told of, once"
run hpo-sweep run h.yaml --study auto --pruner successive-halving:promote=yes --trials 1 -- echo 1
err_has "promote=yes takes resource=STEP" "rungs that may move are refused"
run hpo-sweep run h.yaml --study both --pruner patient+successive-halving:promote=yes,resource=1 --trials 1 -- echo 1
err_has "pauses trials only by itself" "as is a pause by another pruner's leave"

# in a journal, whose eight trials move when the one that goes on is added
cat > rung.sh << 'EOS'
trap 'echo "$HPO_TRIAL_DIR" > "$HPO_CHECKPOINT"; exit 143' TERM
[ -z "${HPO_RESUME-}" ] || { echo "$HPO_x"; exit; }
hpo-sweep report "$HPO_TRIAL_NUMBER" 1 "$HPO_x"
if hpo-sweep should-prune "$HPO_TRIAL_NUMBER" > answer; then echo "$HPO_TRIAL_DIR" > "$HPO_CHECKPOINT"; else echo "$HPO_x"; fi
EOS
printf 'x: choice([3, 4, 2, 1, 9, 8, 7, 6])\n' > eight.yaml
run env MALLOC_PERTURB_=90 hpo-sweep run -q eight.yaml -S journal:eight.log --sampler grid \
    --pruner successive-halving:promote=yes,resource=1,reduction=2 -- sh rung.sh
status_is 0 "a pause goes on in a journal that grows"
ok "as the next trial" test "$(trials -S journal:eight.log | awk '$1 >= 7 { printf "%s %s ", $2, $4 }')" = "PRUNED 6 COMPLETE 4 "

# the example over tp-run train, in parts of one step: what is forked goes on at the next one
sed 's/100/1/' "$top_srcdir/examples/sweep/member" > member
head -n 20 "$bard/heldout.txt" > text
printf 'lr: loguniform(1e-5, 1e-3)\n' > rates.yaml
run hpo-sweep run -q rates.yaml --sampler pbt:population=2 --seed 1 --trials 4 -- sh member "$bard" text text
status_is 0 "members are trained by tp-run"
ok "each part goes on at the step that its parent ended with" \
    test "$(cat rates.trials/*/log.jsonl | sed -n 's/.*"step","step":\([0-9]*\).*/\1/p' | tr '\n' ' ')" = "1 1 2 2 "
ok "with the parent's moments" grep -q '"forked":true' rates.trials/000002/run.json
done_testing
