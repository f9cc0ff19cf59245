#!/bin/sh
# hpo-running.t - what a run says, when it stops, and what it leaves behind
. "$top_srcdir/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "hpo-sweep runs commands" "built without SQLite or YAML"
    done_testing
    exit
fi

states() {
    hpo-sweep show -S s.db --study "$1" | awk '{ print $2 }' | uniq -c | tr -s ' \n' ' '
}
# until COMMAND... - wait for it, ten seconds at most
until_true() {
    tries=100
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
while [ "$(ls -d late.trials/* | wc -l)" -lt 4 ]; do sleep 0.05; done
sleep 0.5
echo 1
EOS
chmod +x late.sh
run hpo-sweep run s.yaml --study late --trials 20 -j 2 -- ./late.sh
status_is 1 "three failures in a row end a run"
err_has "3 trials in a row failed: see stderr in $PWD/late.trials" "that says so"
run hpo-sweep run -q --study mute -S mute.db --trials 9 s.yaml -- echo nothing
err_has "3 trials in a row failed, the last without a value: see stdout in $PWD/mute.trials" \
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
hpo-sweep run bound.yaml --study word --sampler grid --trials 1 -- ./bound.sh '{x}' '"a"'
ok "what is no constraint is a failure" \
    test "$(hpo-sweep show -S bound.db --study word | awk '{ print $2 }')" = FAIL
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
run hpo-sweep run s.yaml -S other.db --study dir --trials 1 -v -- echo 1
status_is 75 "a run of another storage does not write to the same trials' directory"
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
    sh -c 'trap "" TERM; echo > ready; sleep 60; sleep 60'
until_true test -f ready
kill -HUP $pid
sleep 0.3
kill -TERM $pid
start=$(date +%s)
ends
status_is 129 "SIGHUP ends a run"
ok "another signal at once" test $(($(date +%s) - start)) -lt 5
ok "and its trial has failed" test "$(states stubborn)" = " 1 FAIL "
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
    hpo-sweep show -S s.db --study "$1" | awk '{ print $2, $NF }' | uniq -f 1 | wc -l
}
for sig in TERM KILL; do
    rm -f started
    background hpo-sweep run s.yaml --study requeue$sig --requeue --trials 2 -- ./once.sh '{x}'
    until_true test -f started
    kill -$sig $pid
    ends
    hpo-sweep run s.yaml --study requeue$sig --requeue --trials 2 -- ./once.sh '{x}'
    ok "with --requeue what SIG$sig cut short is tried again" \
        test "$(states requeue$sig)$(again requeue$sig)" = " 1 FAIL 1 COMPLETE 1"
done
printf '#!/bin/sh\necho > checking\nsleep 60\n' > slow.sh
chmod +x slow.sh
echo ./slow.sh > check
background hpo-sweep run s.yaml --study check --require check --trials 9 -- echo 1
until_true test -f checking
kill -TERM $pid
start=$(date +%s)
ends
status_is 143 "SIGTERM ends a check as well"
ok "at once" test $(($(date +%s) - start)) -lt 5
ok "and the trial has failed" test "$(states check)" = " 1 FAIL "

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
ok "the trials that ran have failed" test "$(states broken)" = " 2 FAIL "

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
ok "at once" test $(($(date +%s) - start)) -lt 8

# Names.
printf 'true\n  {x} {y}\n' > check
run hpo-sweep run s.yaml --study never --require check --trials 1 -- echo 1
status_is 3 "an unknown name in a check is refused"
err_is "hpo-sweep: check:2: '{y}': no parameter 'y'; '{{' is a brace" "with file and line"
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
err_is "hpo-sweep: z.yaml:4:44: command: no parameter 'z'" "with file, line and key"

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
    for study in many few; do hpo-sweep show -S $storage --study $study; done > "${storage%%[.:]*}.list"
done
ok "studies side by side are each read whole" test "$(wc -l < side.list)" = 63
ok "as from a journal" cmp side.list journal.list
for x in 1 2 3; do hpo-sweep enqueue s.yaml --study queue x=$x; done
hpo-sweep run s.yaml --study queue --trials 4 -j 2 -- echo '{x}'
ok "what is enqueued runs once each, first" \
    test "$(hpo-sweep show -S s.db --study queue | awk 'NR < 4 { print $3 }' | tr '\n' ' ')" = "1 2 3 "

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
done_testing
