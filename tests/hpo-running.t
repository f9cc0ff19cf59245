#!/bin/sh
# hpo-running.t - what a run says, when it stops, and what it leaves behind
. "$top_srcdir/tests/lib.sh"
unset CUDA_VISIBLE_DEVICES

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "hpo-sweep runs commands" "built without SQLite or YAML"
    done_testing
    exit
fi

states() {
    trials -S s.db --study "$1" | awk '{ print $2 }' | uniq -c | tr -s ' \n' ' '
}
# until COMMAND... - wait for it, two minutes at most
until_true() {
    tries=1200
    until "$@" || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
}
# background COMMAND... - start it; $pid
background() {
    "$@" 2> err &
    pid=$!
}
# ends - wait for it; $status
ends() {
    status=0
    wait $pid || status=$?
}
printf 'x: uniform(-5, 5)\n' > s.yaml

# Three fail while the first runs on, which then ends well.
cat > late.sh << 'EOS'
#!/bin/sh
[ "$HPO_TRIAL_NUMBER" = 0 ] || exit 7
while [ "$(hpo-sweep show -S s.db --study late | grep -c FAIL)" -lt 3 ]; do sleep 0.05; done
echo 1
EOS
chmod +x late.sh
run hpo-sweep run s.yaml --study late --trials 20 -j 2 -- ./late.sh
status_is 1 "three failures in a row end a run"
err_is "hpo-sweep: 3 trials in a row failed: 1 complete, 3 failed: exit status 7 (3); see $PWD/late.trials/000001/stderr" "that says so, and why"
run hpo-sweep run -q --study mute -S mute.db --trials 9 s.yaml -- echo nothing
err_is "hpo-sweep: 3 trials in a row failed: 0 complete, 3 failed: no number in its output: nothing; the last \
line of stdout is 'nothing' (3); see $PWD/mute.trials/000000/stdout; a number elsewhere is found by --metric-regex" \
    "or that a command has said no value"
ok "for good, though one that ran beside them ends well" test "$(states late)" = " 1 COMPLETE 3 FAIL "
run hpo-sweep run s.yaml --study both --trials 20 -j 2 -- false
err_has "3 trials in a row failed" "what failed beside the last of them is not counted"

hpo-sweep run s.yaml --study result --trials 1 -- echo loss 0.5
ok "a trial's directory has its result" grep -qx '{"value": 0.5}' result.trials/000000/result.json
hpo-sweep run s.yaml --study results --trials 1 --direction minimize --direction maximize -- echo 1 2.5
ok "all of it" grep -qx '{"values": \[1, 2.5\]}' results.trials/000000/result.json
# shellcheck disable=SC2016 # the command's own variable
hpo-sweep run s.yaml --study own --trials 1 --shell -- 'echo 3 > "$HPO_RESULT"'
ok "as the command wrote it, if it did" grep -qx 3 own.trials/000000/result.json

cat > long.sh << 'EOS'
#!/bin/sh
echo "loss: 0.5, then loss: 0.25 at last"
echo '{"loss": 0.125}'
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "step %d of a long run that says much and ends somewhen\n", i; printf "a\0b\n" }'
EOS
chmod +x long.sh
hpo-sweep run s.yaml --study regex --trials 1 --metric-regex 'loss: ([0-9.]+)' -- ./long.sh
hpo-sweep run s.yaml --study key --trials 1 --metric-key loss -- ./long.sh
ok "what is looked for may be far back in a long output" \
    test "$(for s in regex key; do hpo-sweep best -S s.db --study $s; done | awk '{ print $3 }' | tr '\n' ' ')" = "0.25 0.125 "
rm -r regex.trials key.trials

cat > bound.sh << 'EOS'
#!/bin/sh
printf '{"value": %s, "constraints": [-1, %s]}\n' "$1" "$2" > "$HPO_RESULT"
EOS
chmod +x bound.sh
printf 'x: choice([1, 2, 3])\n' > bound.yaml
hpo-sweep run bound.yaml --sampler grid -- ./bound.sh '{x}' 0.5
run hpo-sweep best -S bound.db
status_is 1 "trials whose constraints are violated are never the best"
hpo-sweep run bound.yaml --study fine --sampler grid -- ./bound.sh '{x}' -0.5
hpo-sweep best -S bound.db --study fine > best
ok "others are" grep -q 'x=1$' best
hpo-sweep export -S bound.db --study fine - > out
out_has '"constraints":[-1, -0.5]' "constraints are kept as Optuna's"
hpo-sweep run bound.yaml --study word --sampler grid --trials 1 --max-failures 0 -- ./bound.sh '{x}' '"a"'
ok "what is no constraint is a failure" \
    test "$(trials -S bound.db --study word | awk '{ print $2 }')" = FAIL
hpo-sweep ask bound.yaml --study told > out
run hpo-sweep tell -S bound.db --study told 0 1 --constraint=-1 --constraint 0.5
status_is 0 "tell takes constraints"
run hpo-sweep best -S bound.db --study told
status_is 1 "and they count"

cat > report.sh << 'EOS'
#!/bin/sh
worse=$((HPO_TRIAL_NUMBER / 3 * 100))
case $1 in
lines) echo "{\"epoch\": 0.5, \"step\": 1, \"loss\": $worse}" >> "$HPO_REPORT" ;;
command) hpo-sweep report "$HPO_TRIAL_NUMBER" 1 $worse ;;
esac
[ $worse = 0 ] || sleep 30
echo "{\"loss\": $worse}"
EOS
chmod +x report.sh
for how in lines command; do
    hpo-sweep run s.yaml --study "$how" --pruner median:startup=2 --trials 4 --metric-key loss -- \
        ./report.sh "$how"
    ok "reports as $how are judged" test "$(states "$how")" = " 3 COMPLETE 1 PRUNED "
done
background hpo-sweep run s.yaml --study live --trials 1 --shell -- \
    'echo 7 0.5 >> "$HPO_REPORT"; while ! [ -f go ]; do sleep 0.1; done; echo 1'
reported() {
    hpo-sweep export -S s.db --study live - | grep -q '"step":7,'
}
until_true reported
ok "reports are in the study while their trial runs" reported
touch go
ends

mkdir elsewhere
# shellcheck disable=SC2016 # the command's own variable
hpo-sweep run s.yaml -S journal:moved.log --study moved --trials 1 --shell -- \
    'cd elsewhere; hpo-sweep report "$HPO_TRIAL_NUMBER" 3 1; echo 1'
hpo-sweep export -S journal:moved.log - > out
out_has '"step":3,' "a command that changes its directory finds the storage"

background hpo-sweep run s.yaml --study dir --trials 1 -- sleep 2
until_true test -f dir.trials/000000/stdout
run hpo-sweep run s.yaml -S other.db --study dir --trials 1 -- echo 1
ok "a run of another storage does not write to the same trials' directory" test -f dir@other.db.trials/000000/stdout
kill -TERM $pid
ends

# Signals.
background hpo-sweep run s.yaml --study usr1 --trials 9 -- sleep 1
until_true test -f usr1.trials/000000/stdout
kill -USR1 $pid
ends
status_is 1 "SIGUSR1 lets a run come to its end"
ok "with the trials that run" test "$(states usr1)" = " 1 FAIL "
# (the tests themselves may run under nohup)
background env --default-signal=HUP hpo-sweep run s.yaml --study stubborn --trials 9 -- \
    sh -c 'trap "echo > told" TERM; echo > ready; sleep 60; sleep 60; sleep 60'
until_true test -f ready
kill -HUP $pid
until_true test -f told
kill -TERM $pid
start=$(date +%s)
ends
status_is 129 "SIGHUP ends a run"
ok "another signal at once" test $(($(date +%s) - start)) -lt 5
ok "and its trial has failed, and waits" test "$(states stubborn)" = " 1 FAIL 1 WAITING "
background sh -c 'trap "" HUP; exec hpo-sweep run s.yaml --study nohup --trials 2 --shell -- "sleep 0.5; echo 1"'
until_true test -f nohup.trials/000000/stdout
kill -HUP $pid
ends
status_is 0 "under nohup SIGHUP ends nothing"
ok "and trials go on" test "$(states nohup)" = " 2 COMPLETE "
cat > once.sh << 'EOS'
#!/bin/sh
[ "$HPO_TRIAL_NUMBER" -gt 0 ] || { echo > started; sleep 60; }
echo "$1"
EOS
chmod +x once.sh
again() {
    trials -S s.db --study "$1" | awk '{ print $2, $4 }' | uniq -f 1 | wc -l
}
for sig in TERM INT HUP KILL; do
    for option in '' --requeue --no-requeue; do
        study=sig$sig$option
        rm -f started
        background env --default-signal=HUP,INT hpo-sweep run s.yaml --study $study $option --trials 1 -- ./once.sh '{x}'
        until_true test -f started
        kill -$sig $pid
        ends
        hpo-sweep run s.yaml --study $study $option --trials 1 -- ./once.sh '{x}'
        want=" 1 FAIL 1 COMPLETE 1"
        [ "$option" != --no-requeue ] || want=" 1 FAIL 1 COMPLETE 2"
        ok "what SIG$sig cut short is tried again, and counts once ($option)" \
            test "$(states $study)$(again $study)" = "$want"
    done
    hpo-sweep export -S s.db --study sig$sig - > out
    out_has '{"failed_trial":0}' "with Optuna's attributes (SIG$sig)"
    out_has '{"retry_history":[0]}' "both of them"
done
hpo-sweep show -S s.db --study sigTERM --json > out
out_has '"exit_status": null, "signal": 15, "reason": "interrupted: the run got SIGTERM"}' "and it is noted why"
hpo-sweep show -S s.db --study sigKILL --json > out
out_has '"exit_status": null, "signal": null, "reason": "interrupted: its run was killed"}' "of one that was killed too"

# A grid that is interrupted, again and again, has all its points in the end; each retry knows that it is one.
printf 'x: choice([1, 2])\n' > grid.yaml
for attempt in 0 1 2 3; do
    rm -f started
    background hpo-sweep run grid.yaml -S s.db --study grid --sampler grid --shell -- \
        'echo "$HPO_ATTEMPT" > started; [ "$HPO_x" = 2 ] || sleep 60; echo 1'
    until_true test -s started
    ok "attempt $attempt is told so" test "$(cat started)" = $attempt
    kill -KILL $pid
    ends
done
run hpo-sweep run grid.yaml -S s.db --study grid --sampler grid -- echo 1
status_is 0 "a point is tried three times more"
ok "and then left" test "$(states grid)" = " 4 FAIL 1 COMPLETE "
run hpo-sweep run grid.yaml -S s.db --study grid --sampler grid --fail-on any -- echo 1
status_is 1 "--fail-on any says that a point has no value, also of a sweep that is up to date"
err_has "1 of 2 points have a value" "and how many have"
run hpo-sweep run grid.yaml -S s.db --study grid --sampler grid -- echo 1
status_is 0 "--fail-on all is content with some"
run hpo-sweep run grid.yaml -S s.db --study grid --sampler grid --retry-failed --fail-on any -- echo 1
status_is 0 "--retry-failed tries what failed, though the grid is exhausted"
ok "once" test "$(states grid)" = " 4 FAIL 2 COMPLETE "
run hpo-sweep run grid.yaml -S s.db --study grid --sampler grid --retry-failed --fail-on any -- false
status_is 0 "and nothing when all have a value"
run hpo-sweep run grid.yaml -S s.db --study none --sampler grid -- false
status_is 1 "no point with a value is a failure"
for what in any all; do
    run hpo-sweep run grid.yaml -S s.db --study none --sampler grid --fail-on $what -- false
    status_is 1 "again when there is nothing left to do ($what)"
done
err_is "hpo-sweep: 0 complete, 2 failed: exit status 1 (2); see $PWD/none.trials/000000/stderr" "which is said"
run hpo-sweep run grid.yaml -S s.db --study none --sampler grid --fail-on never -- false
status_is 0 "but with --fail-on never"
err_empty "and nothing is said"
run hpo-sweep run s.yaml --study four --trials 4 --max-failures 0 --max-consecutive-failures 0 -- false
run hpo-sweep run s.yaml --study four --trials 4 --max-failures 0 -- false
err_has "4 of 4 trials reached: 0 complete, 4 failed: exit status 1 (4)" "a sweep that has reached its trials says when none has a value"
# shellcheck disable=SC2016 # the command's own variable
run hpo-sweep run s.yaml --study pardon --trials 4 --max-failures 2 --shell -- 'test $((HPO_TRIAL_NUMBER % 2)) = 0 && echo 1'
ok "failures do not count for --trials, as many as --max-failures says" \
    test "$(states pardon | tr ' ' '\n' | grep -c COMPLETE)$(trials -S s.db --study pardon | wc -l)" = 36
run hpo-sweep run s.yaml --study dies --trials 1 --max-failures 0 -- sh -c 'kill -SEGV $$'
hpo-sweep show -S s.db --study dies --json > out
out_has '"exit_status": null, "signal": 11, "reason": "killed by SIGSEGV"}' "a command that dies by a signal has failed"
run hpo-sweep run s.yaml --study late2 --trials 1 --max-failures 0 --trial-timeout 0.2 -- sleep 60
hpo-sweep show -S s.db --study late2 --json > out
out_has '"reason": "timeout"}' "and so has one that takes too long"
hpo-sweep run s.yaml --study late2 --trials 1 --max-failures 0 -- echo 1
ok "neither is tried again by itself" test "$(states late2)" = " 1 FAIL "
# Slurm signals all processes of a job at its limit: the command may end before the run hears of it.
cat > limit.sh << 'EOS'
#!/bin/sh
trap 'kill -TERM "$PPID"; exit 143' TERM
kill -TERM $$
sleep 60
EOS
chmod +x limit.sh
run hpo-sweep run s.yaml --study limit --trials 1 -- ./limit.sh
status_is 143 "a signal that reaches the command first"
ok "interrupts its trial all the same" test "$(states limit)" = " 1 FAIL 1 WAITING "
# A run on another host is dead when its lease is over.
hpo-sweep ask s.yaml --study remote > out
lease() {
    sqlite3 s.db "INSERT INTO trial_system_attributes (trial_id, key, value_json) SELECT trial_id,
        'hpo-sweep:lease', '[900, $1, \"elsewhere boot 1 2\"]' FROM trials JOIN studies USING (study_id)
        WHERE study_name = 'remote' ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json"
}
if sqlite3 -version > version 2>&1; then
    lease $(($(date +%s) + 900))
    hpo-sweep run s.yaml --study remote --trials 1 -- echo 1
    ok "a trial of another host is left to it" test "$(states remote)" = " 1 RUNNING "
    lease $(($(date +%s) - 1))
    hpo-sweep run s.yaml --study remote --trials 1 -- echo 1
    ok "until its lease is over" test "$(states remote)" = " 1 FAIL 1 COMPLETE "
else
    skip "a trial of another host is left to it" "no sqlite3"
fi

# What is a number.
value_of() {
    rm -rf n.db* n.trials
    printf 'x: uniform(0, 1)\n' > n.yaml
    printf '%s\n' "$1" > text
    hpo-sweep run n.yaml -q --trials 1 --max-failures 0 --max-consecutive-failures 0 -- cat text 2> err
    hpo-sweep show -S n.db --json > out
    sed -n 's/.*"values": \[\(.*\)\], "params.*/\1/p' out
}
for line in 'loss 0.5' 'loss=0.5' 'eval/loss:0.5' 'loss: 5e-1' 'the loss: +.5'; do
    ok "a value: $line" test "$(value_of "$line")" = 0.5
done
for line in 1,5 1,234.5 12:30:45 'took 12s' 0x10 nan '=0.5' 0.5%; do
    ok "no value: $line" test -z "$(value_of "$line")"
    value_of "$line" > /dev/null
    out_has "\"reason\": \"no number in its output: ${line##* }; the last line of stdout is '$line'\"" "which is the reason"
done
ok "several numbers are none without a name" test -z "$(value_of 'loss 0.5 time 12.3')"
value_of 'loss 0.5 time 12.3' > /dev/null
out_has "2 for 1 objective; the last line of stdout is 'loss 0.5 time 12.3'" "which is said"
printf 'metric: {name: loss}\nparameters: {x: {values: [1]}}\n' > byname.yaml
hpo-sweep run byname.yaml --trials 1 -- echo 'loss 0.5 time 12.3'
ok "the sweep file's metric is looked for by its name" \
    test "$(hpo-sweep show -S byname.db | awk 'NR == 2 { print $3 }')" = 0.5
hpo-sweep run n.yaml -S many.db --trials 1 --max-failures 0 -- echo 'loss 0.5 time 12.3' 2> err
err_has "a number elsewhere is found by its name (the sweep file's metric), or by --metric-regex" "the two ways out are told"
ok "more numbers than objectives are none" test -z "$(value_of '1 2')"
value_of '1 2' > /dev/null
out_has "not the right count of numbers: 2 for 1 objective; the last line of stdout is '1 2'" "which is said"
printf 'method: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n' > named.yaml
# shellcheck disable=SC2016 # the command's own variable
hpo-sweep run named.yaml --shell -- 'echo "{\"loss\": 0.028}" > "$HPO_RESULT"'
hpo-sweep best -S named.db > out
out_has " 0.028 " "the objective's name is a member of HPO_RESULT"
# shellcheck disable=SC2016 # the command's own variable
run hpo-sweep run named.yaml --study other --shell -- 'echo "{\"los\": 0.028}" > "$HPO_RESULT"'
err_has 'no number in result.json: {"los": 0.028}' "and a message names the file that was looked at"

printf '#!/bin/sh\necho > checking\nsleep 60\n' > slow.sh
chmod +x slow.sh
echo ./slow.sh > check
background hpo-sweep run s.yaml --study check --require check --trials 9 -- echo 1
until_true test -f checking
kill -TERM $pid
start=$(date +%s)
ends
status_is 143 "SIGTERM ends a check as well"
ok "before it comes to its end" test $(($(date +%s) - start)) -lt 55
ok "and the trial has failed, and waits" test "$(states check)" = " 1 FAIL 1 WAITING "

cat > broken.sh << 'EOS'
#!/bin/sh
[ "$HPO_TRIAL_NUMBER" = 0 ] && exit 0
while ! [ -f broken.trials/000000/ready ]; do sleep 0.1; done
exit 3
EOS
chmod +x broken.sh
echo ./broken.sh > check
run hpo-sweep run s.yaml --study broken --require check -j 2 --retries 1 --trials 9 --shell -- \
    'echo > "$HPO_TRIAL_DIR/ready"; sleep 60'
status_is 4 "a check that fails ends a run"
err_has "trial 1: the check of --require failed: see $PWD/broken.trials/000001/stderr" "and is named"
ok "the trials that ran have failed, and wait" test "$(states broken)" = " 2 FAIL 2 WAITING "

# Killed: one whose parts have groups of their own, as a launcher's, must be told to end.
cat > parts.sh << 'EOS'
#!/bin/sh
setsid sleep 97 &
apart=$!
trap 'kill $apart; exit 1' TERM
sleep 97 &
echo "$$ $! $apart" > "$HPO_TRIAL_DIR/parts"
wait
EOS
chmod +x parts.sh
background hpo-sweep run s.yaml --study killed --trials 1 -- ./parts.sh
until_true test -s killed.trials/000000/parts
kill -KILL $pid
ends
gone() {
    # where nobody waits for orphans, a dead one stays as a zombie
    for part in $(cat killed.trials/000000/parts); do
        ! grep -qs '^State:[[:space:]]*[RSDT]' "/proc/$part/status" || return 1
    done
}
until_true gone
ok "what a run that is killed had started is told to end, all of it" gone
background hpo-sweep run s.yaml --study lock --trials 1 -- sh -c 'sleep 97 > /dev/null 2>&1 & echo $! > child; wait'
until_true test -s child
kill -KILL $pid
ends
ok "a guard holds no lock" hpo-sweep run s.yaml --study lock --trials 2 -- echo 1

start=$(date +%s)
# shellcheck disable=SC2016 # the command's own variable
run hpo-sweep run s.yaml -S journal:spoilt.log --study spoilt --trials 3 -j 2 --shell -- \
    '[ "$HPO_TRIAL_NUMBER" = 1 ] || exec sleep 60; echo junk >> spoilt.log; echo 1'
status_is 3 "a storage that is spoilt ends a run"
ok "before the others come to their end" test $(($(date +%s) - start)) -lt 55

# Names.
printf 'true\n  {x} {y}\n' > check
run hpo-sweep run s.yaml --study never --require check --trials 1 -- echo 1
status_is 3 "an unknown name in a check is refused"
err_is "hpo-sweep: check:2: '{y}': no parameter 'y'; did you mean 'x'?" "with file and line"
cat > w.yaml << 'EOS'
method: random
run_cap: 1
parameters: {x: {value: 3}}
command: [sh, -c, 'echo "$@"; echo 1', sh, "x={x}", '{"x": {"y": {x}}}', "{{x}}", "{}"]
EOS
run hpo-sweep run w.yaml
ok "a sweep file's command may name parameters, and have braces of its own" \
    grep -qxF 'x=3 {"x": {"y": 3}} {x} {}' w.trials/000000/stdout
sed 's/x={x}/x={z}/' w.yaml > z.yaml
run hpo-sweep run z.yaml
status_is 3 "an unknown name there is refused"
err_is "hpo-sweep: z.yaml:4:44: command: no parameter 'z'; did you mean 'x'?" "with file, line and key"

# braces WORD... - what the words become
printf 'lr: choice([0.5])\nbs: choice([3])\n' > braces.yaml
braces() {
    rm -rf braces.db* braces.trials
    run hpo-sweep run braces.yaml --sampler grid "$@"
}
# shellcheck disable=SC2016 # the command's own
{
    braces -- sh -c 'printf "%s\n" "$@"; echo 1' x '{"a":{"lr":{lr}}}' '{{"a":{{"lr":{lr}}}}}' '{print $1}' \
        '${lr}' '${{lr}}' '{}' '{lr}-{bs}' '{1..5}' '{{lr}}'
    printf '%s\n' '{"a":{"lr":0.5}}' '{"a":{"lr":0.5}}' '{print $1}' '${lr}' '${{lr}}' '{}' 0.5-3 '{1..5}' '{lr}' 1 > want
    ok "braces around anything but a parameter are left alone" cmp want braces.trials/000000/stdout
    braces --replace=@ -- sh -c 'printf "%s\n" "$@"; echo 1' x '{lr} @lr@ @@ a@b.c' '{"a":@bs@}'
    printf '%s\n' '{lr} 0.5 @ a@b.c' '{"a":3}' 1 > want
    ok "with --replace=@ all of them are" cmp want braces.trials/000000/stdout
    run hpo-sweep slurm braces.yaml --trials 3 --replace=@ -- echo '@lr@' '{x}'
    out_has "--trials=3 --replace=@ braces.yaml -- echo @lr@ '{x}'" "also in Slurm's tasks"
}
rm -rf braces.db* braces.trials
# no_file STATUS-2-CAUSE OPTION... - such a run is a usage error, which leaves nothing
no_file() {
    cause=$1
    shift
    run hpo-sweep run braces.yaml "$@"
    err_has "$cause" "a usage error: $cause"
    ok "which leaves no file" sh -c '! ls -d braces.[dt]* > ls.out 2>&1'
}
no_file "'{lrr}': no parameter 'lrr'; did you mean 'lr'?" --trials 1 -- echo '{lrr}'
no_file "'{foo}': no parameter 'foo'; the nearest is 'lr'; '{{' is a brace" --trials 1 -- echo '{foo}'
no_file "'@lrr@': no parameter 'lrr'; did you mean 'lr'?" --trials 1 --replace @ -- echo '@lrr@'
no_file "with --shell {lr} is not replaced: write \$HPO_lr" --trials 1 --shell -- 'echo {lr}'
no_file "--shell and --replace exclude one another" --trials 1 --shell --replace @ -- 'echo 1'
no_file "no sampler 'foo'" --trials 1 --sampler foo -- echo 1
no_file "no pruner 'foo'" --trials 1 --pruner foo -- echo 1
no_file "2 values for 1 objective" --trials 1 --metric-key a --metric-key b -- echo 1
no_file "nosuch: no such program" --trials 1 -- nosuch
no_file "no command: write it after --" --trials 1
no_file "tpe has no end" -- echo 1
no_file "3 jobs, but devices for 2" --trials 1 --devices 0,1 -j 3 -- echo 1

hpo-sweep ask w.yaml --study cap > out
run hpo-sweep ask w.yaml --study cap
status_is 1 "ask gives no more trials than run_cap"

run sh -c 'hpo-sweep ask - --storage in.db --study in < s.yaml'
out_has "trial	0" "a sweep may come on standard input"
run sh -c 'hpo-sweep ask - < s.yaml'
err_has "a sweep on standard input needs --storage and --study" "and its study is named then"

for storage in none.db journal:none.log; do
    run hpo-sweep best -S $storage
    status_is 3 "a storage that is not there is bad input ($storage)"
    ok "and is not made" test ! -e "${storage#*:}"
done

for storage in side.db journal:side.log; do
    for n in 1 2 3; do
        hpo-sweep run s.yaml -S $storage --study many --sampler random --seed 1 --trials $((n * 20)) -- echo 1
        hpo-sweep run s.yaml -S $storage --study few --sampler random --seed 2 --trials $n -- echo 2
    done
    for study in many few; do trials -S $storage --study $study; done > "${storage%%[.:]*}.list"
done
ok "studies side by side are each read whole" test "$(wc -l < side.list)" = 63
ok "as from a journal" cmp side.list journal.list
for x in 1 2 3; do hpo-sweep enqueue s.yaml --study queue x=$x; done
hpo-sweep run s.yaml --study queue --trials 4 -j 2 -- echo '{x}'
ok "what is enqueued runs once each, first" \
    test "$(trials -S s.db --study queue | awk 'NR < 4 { print $3 }' | tr '\n' ' ')" = "1 2 3 "

# On a terminal.
if script -qec true /dev/null > out 2>&1 && ! grep -q . out; then
    script -qec 'hpo-sweep run s.yaml --study tty --trials 3 -- sh -c "sleep 0.3; echo 0.25"' /dev/null > out
    out_has "1 of 3 done, 1 running, best 0.25 (trial 0), 1 s left" "progress says what is done, runs, is best and left"
    out_has "3 of 3 done, 0 running, best 0.25 (trial 0)" "to the end"
    script -qec 'hpo-sweep run s.yaml --study tty --trials 4 -q -- echo 1' /dev/null > out
    ok "and nothing with -q" test ! -s out
else
    skip "progress on a terminal" "script does not run here"
fi

# what happens, on the terminal and as a page
printf 'method: random\nmetric: {name: loss}\nparameters:\n  lr: {min: 0.001, max: 1.0}\n' > seen.yaml
cat > seen.sh << 'END'
printf '1 3\n2 2\n' > "$HPO_REPORT"
case $HPO_TRIAL_NUMBER in
1) exit 3 ;;
3) : > seen.there; while [ ! -e seen.go ]; do sleep 0.05; done ;;
esac
echo "$1"
END
hpo-sweep run -q seen.yaml --seed 1 --trials 4 -- sh seen.sh '{lr}' &
tries=600
until [ -e seen.there ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
run hpo-sweep watch seen.yaml
status_is 0 "watch shows a study once where there is no terminal"
out_has "2 complete, 0 pruned, 1 failed, 1 running, 0 waiting" "its trials by state"
out_has " (trial $(hpo-sweep best seen.yaml --format '{trial}')): lr=" "the best"
out_has "  1: exit status 3" "why one failed"
ok "and one that runs" sh -c "sed -n '/^running/,/^\$/p' out | grep -q '^  3, .*: lr='"
if hpo-sweep plot report -o page.html seen.yaml 2> err; then
    ok "a report has its trials, with the reason" grep -q '<td>FAIL</td>.*<td>exit status 3</td>' page.html
    ok "and is not loaded again" sh -c '! grep -q http-equiv page.html'
    hpo-sweep plot report -o page.html --every 1 seen.yaml > out 2> err &
    page=$!
    tries=600
    until grep -q 'http-equiv="refresh" content="1"' page.html || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
    ok "with --every it is while trials run" test $tries -gt 0
    : > seen.go
    wait
    ok "until the last has ended" sh -c "! grep -q http-equiv page.html && grep -q '4 complete, 1 failed' page.html"
    run hpo-sweep plot history --every 1 -o x.svg seen.yaml
    status_is 2 "a picture is drawn once"
    run hpo-sweep plot report -o x.svg seen.yaml
    status_is 2 "a report is a page"
fi
: > seen.go
wait
if command -v script > /dev/null; then
    ok "on a terminal watch ends when no trial runs" sh -c "script -qec 'hpo-sweep watch seen.yaml' /dev/null < /dev/null | grep -q '4 complete'"
fi
done_testing
