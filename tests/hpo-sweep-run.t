#!/bin/sh
# hpo-sweep-run.t - devices, retries, leases, metrics, the job log, and what ends a run
. "$top_srcdir/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "hpo-sweep runs commands" "built without SQLite or YAML"
    done_testing
    exit
fi

states() {
    trials -S "$1" --study "$2" | awk '{ print $2 }' | uniq -c | tr -s ' \n' ' '
}

printf 'x: uniform(-5, 5)\n' > s.yaml
cat > slot.sh << 'EOS'
#!/bin/sh
echo "$HPO_SLOT:$CUDA_VISIBLE_DEVICES" > "$HPO_TRIAL_DIR/slot"
while [ "$(cat "$1".trials/*/slot | wc -l)" -lt 2 ]; do sleep 0.1; done
echo 1
EOS
chmod +x slot.sh
unset CUDA_VISIBLE_DEVICES
run hpo-sweep run s.yaml --study dev --trials 4 --devices 0,1,2,3 --devices-per-trial 2 -- ./slot.sh dev
status_is 0 "devices are dealt to slots, and as many trials run at once"
ok "each slot has its own neighbours" test "$(cat dev.trials/*/slot | sort -u | tr '\n' ' ')" = "0:0,1 1:2,3 "
CUDA_VISIBLE_DEVICES=4,GPU-ab,6,7 hpo-sweep run s.yaml --study mask --trials 2 --devices 1,3 -- ./slot.sh mask
ok "numbers count within the mask that the run is under" \
    test "$(cat mask.trials/*/slot | sort -u | tr '\n' ' ')" = "0:GPU-ab 1:7 "
CUDA_VISIBLE_DEVICES=4,5 hpo-sweep run s.yaml --study all --trials 2 --devices all -- ./slot.sh all
ok "all is the whole mask" test "$(cat all.trials/*/slot | sort -u | tr '\n' ' ')" = "0:4 1:5 "
CUDA_VISIBLE_DEVICES=4 run hpo-sweep run s.yaml --trials 1 --devices 0,1 -- echo 1
status_is 2 "a device beyond the mask is refused"
run hpo-sweep run s.yaml --trials 1 --devices 0,1,2 --devices-per-trial 2 -- echo 1
status_is 2 "devices that are left over are refused"
run hpo-sweep run s.yaml --trials 1 --devices 0,1 -j 3 -- echo 1
err_has "3 jobs, but devices for 2" "more jobs than devices are refused"

# processors, memory and output of a trial; what leaves its process group
run hpo-sweep run -q s.yaml --study cpus --trials 2 --cpus-per-trial 1 -- sh -c nproc '{x}'
status_is 0 "processors are dealt to slots"
ok "each trial has its own" test "$(hpo-sweep show -S s.db --study cpus --tsv | cut -f 3 | tr '\n' ' ')" = "value 1 1 "
run hpo-sweep run s.yaml --trials 1 --cpus-per-trial 8193 -- echo 1
err_has "8193 processors for each trial, of" "more than there are are refused"
run hpo-sweep run s.yaml --trials 1 --cpus-per-trial 1 -j 8193 -- echo 1
err_has "8193 jobs, but processors or memory for" "as are more jobs than they serve"
run hpo-sweep run s.yaml --trials 1 --mem-per-trial 1000000G -- echo 1
status_is 2 "as is more memory than there is"
run hpo-sweep run -q s.yaml --study mem --trials 1 --mem-per-trial 100M -j 1 -- sh -c 'ulimit -d' '{x}'
ok "the memory of a trial's processes is limited" test "$(hpo-sweep show -S s.db --study mem --tsv | cut -f 3 | tail -n 1)" = 102400
run hpo-sweep run s.yaml --study much --trials 1 --max-failures 0 --max-output 64K -- sh -c 'exec yes' '{x}'
err_has "more than 65536 bytes of output (1)" "a command that puts out too much is ended"
ok "its output is what it began with" test "$(wc -c < much.trials/000000/stdout)" -eq 65536
if command -v setsid > /dev/null; then
    cat > leaves << 'EOS'
#!/bin/sh
setsid sh -c 'echo $$ > "$HPO_TRIAL_DIR/pid"; sleep 600 & sleep 600' &
until [ -s "$HPO_TRIAL_DIR/pid" ]; do sleep 0.05; done
[ "$1" = ends ] || sleep 600
echo 1
EOS
    left() {
        tries=100
        while kill -0 "$(cat "$1.trials/000000/pid")" 2> /dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
        kill -0 "$(cat "$1.trials/000000/pid")" 2> /dev/null
    }
    hpo-sweep run -q s.yaml --study leaves --trials 1 -- sh leaves ends '{x}'
    ok "a child that calls setsid ends with its trial" eval '! left leaves'
    hpo-sweep run -q s.yaml --study killed --trials 1 -- sh leaves stays '{x}' &
    pid=$!
    until [ -s killed.trials/000000/pid ]; do sleep 0.1; done
    kill -KILL $pid
    wait $pid 2> /dev/null
    ok "and when the run is killed" eval '! left killed'
else
    skip "a child that calls setsid ends with its trial" "no setsid"
fi

printf 'RESULT: uniform(0, 1)\n' > taken.yaml
# shellcheck disable=SC2016 # the command's own variable
run hpo-sweep run taken.yaml --trials 1 -- sh -c 'echo 4 > "$HPO_RESULT"'
status_is 0 "a parameter does not take the place of what a trial is told"
run hpo-sweep run taken.yaml --trials 1 --shell -- 'echo 1'
err_has "HPO_RESULT is not that of parameter 'RESULT'" "which --shell refuses"
printf 'a.b: uniform(0, 1)\na-b: uniform(0, 1)\n' > same.yaml
run hpo-sweep run same.yaml --trials 1 --shell -- 'echo 1'
err_has "'a.b' and 'a-b' are both HPO_a_b" "as it does names that become the same"
run hpo-sweep run s.yaml --trials 1 --
err_has "no command: write it after --" "an empty command is none"
run hpo-sweep run s.yaml --trials 1 -- ./
err_has "./: no such program" "a directory is no program"
for time in -1:30 24:00 7 ' 7:00' 07:00:00; do
    run hpo-sweep run s.yaml --until="$time" -- sleep 60
    err_has "'$time' is not HH:MM" "a time of day that is none is refused ('$time')"
done
for url in '' journal: sqlite:///; do
    run hpo-sweep run s.yaml --storage "$url" --trials 1 -- echo 1
    status_is 2 "a storage without a file is refused ('$url')"
done
for url in :memory: sqlite:///:memory: 'sqlite:///:memory:?timeout=3'; do
    run hpo-sweep run s.yaml --storage "$url" --trials 1 -- echo 1
    err_has "would end with this command: give a file" "a study that is not kept is refused ($url)"
done
run hpo-sweep run s.yaml --storage 'sqlite:///wait.db?timeout=0.2&check_same_thread=false' --trials 1 -- echo 1
ok "SQLAlchemy's options are no part of a file's name" test -f wait.db
if command -v sqlite3 > /dev/null; then
    { printf 'BEGIN IMMEDIATE;\n.system : > begun\n'; until [ -e waited ]; do sleep 0.05; done; } | sqlite3 wait.db &
    until [ -e begun ] || ! kill -0 $!; do sleep 0.02; done 2> wait.err
    run hpo-sweep enqueue s.yaml --storage 'sqlite:///wait.db?timeout=0.2' x=1
    err_has "wait.db: database is locked" "a lock is waited for as long as timeout says"
    : > waited
    wait
fi
run hpo-sweep show --storage 'sqlite:///wait.db?timeout=x'
err_has "timeout 'x' is no number of seconds" "a timeout is a number"
run hpo-sweep show --storage 'sqlite:///wait.db?mode=ro'
err_has "'mode' is no option of this storage: it has timeout" "other options are refused by name"
run hpo-sweep run s.yaml --study '' --trials 1 -- echo 1
status_is 2 "a study without a name is refused"
run hpo-sweep show -S s.db
err_has "choose one with --study: dev, mask, all" "the studies of a storage are named"
export HPO_STUDY=outer HPO_STORAGE=outer.db
run hpo-sweep show -S wait.db
status_is 0 "the environment's study is not looked for in another storage"
unset HPO_STUDY HPO_STORAGE
if script --version > /dev/null 2>&1; then
    TERM=xterm script -qec 'hpo-sweep run s.yaml --storage wait.db --study s --trials 1 -- echo 1' /dev/null \
        > out < /dev/null
    ok "a finished sweep says nothing on a terminal, either" test ! -s out
else
    skip "a finished sweep says nothing on a terminal, either" "no script(1)"
fi

printf 'test 1 -eq 1\r\n' > check
run hpo-sweep run s.yaml --study cr --trials 1 --require check -- echo 1
status_is 0 "lines of a check may end as on Windows"

cat > flaky.sh << 'EOS'
#!/bin/sh
echo "0 1" >> "$HPO_REPORT"
echo '{"value": 9}' > "$HPO_RESULT"
[ "$HPO_ATTEMPT" = 1 ] || exit 7
rm "$HPO_RESULT"
echo 2
EOS
chmod +x flaky.sh
run hpo-sweep run s.yaml --study retry --trials 3 --retries 1 --joblog log -- ./flaky.sh "it's {{}}"
status_is 0 "a command that failed is run again"
ok "and counts as one trial" test "$(states s.db retry)" = " 3 COMPLETE "
ok "the job log has GNU parallel's columns" test "$(head -n 1 log | tr '\t' ' ')" = \
    "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command"
ok "and a line for each attempt" test "$(cut -f 1,7,8 log | tail -n +2 | tr '\t\n' ',  ')" = \
    "0,7,0 0,0,0 1,7,0 1,0,0 2,7,0 2,0,0 "
ok "with the command as a shell would read it" grep -q "	./flaky.sh 'it'\\\\''s {}'\$" log
run hpo-sweep run s.yaml --study retry1 --trials 1 --max-failures 0 --retries 2 --joblog log -- false
ok "retries have an end" test "$(states s.db retry1) $(wc -l < log)" = " 1 FAIL  10"
run hpo-sweep importance -S s.db --study retry1
status_is 1 "without a complete trial nothing matters"
run hpo-sweep run s.yaml --study slow --trials 1 --trial-timeout 0.3 --joblog log -- sh -c 'sleep 60 & wait'
ok "a trial that takes too long is killed, and the log says -1" \
    test "$(tail -n 1 log | cut -f 7,8 | tr '\t' ' ')" = "-1 15"

value() {
    hpo-sweep best -S s.db --study "$1" | awk '{ print $3 }'
}
printf 'eval_loss 3\neval_loss = 0.25 x\nbye\n' > text
hpo-sweep run s.yaml --study re --trials 1 --metric-regex 'eval_loss[ =:]+([0-9.eE+-]+)' -- cat text
ok "a regular expression takes its last match" test "$(value re)" = 0.25
printf '{"log_history": [{"eval_loss": 3}, {"eval_loss": 2.5}, {"loss": 1}], "a": {"b": {"c.d": 4}}}\n' > state.json
hpo-sweep run s.yaml --study key --trials 1 --metric-file "$PWD/state.json" --direction minimize \
    --direction maximize --metric-key log_history.eval_loss --metric-key a.b.c.d -- true
hpo-sweep show -S s.db --study key --json > out
out_has '"values": [2.5, 4]' "keys reach into a file, and of a list take the last that has it"
printf '{"loss": 1}\n{"eval_loss": 2, "step": 1}\n{"other": 3}\ndone\n' > text
hpo-sweep run s.yaml --study lines --trials 1 --metric-key eval_loss -- cat text
ok "a key takes the last line of JSON that has it" test "$(value lines)" = 2
hpo-sweep run s.yaml --study nan --trials 1 --max-failures 0 --metric-key nothing -- cat text
ok "a missing key is a failure" test "$(states s.db nan)" = " 1 FAIL "
printf '{"eval_loss": 3, "eval_runtime": 5, "eval_steps_per_second": 9, "epoch": 2}\n' > text
hpo-sweep run s.yaml --study hf --trials 1 --objective hf -- cat text
ok "hf is the loss where nothing but times is beside it" test "$(value hf)" = 3
printf '{"eval_loss": 3, "eval_f1": 0.5, "eval_acc": 0.25, "eval_runtime": 5, "epoch": 2}\n' > text
hpo-sweep run s.yaml --study hf2 --trials 1 --objective hf -- cat text
ok "else the sum of the metrics" test "$(value hf2)" = 0.75
printf '{"eval_loss": 0.5, "note": "a NaN \\" Infinity", "norm": NaN, "top": -Infinity}\n' > text
hpo-sweep run s.yaml --study bare --trials 1 --metric-key eval_loss -- cat text
ok "Python's bare NaN and Infinity do not hide the numbers beside them" test "$(value bare)" = 0.5
for key in norm top; do
    hpo-sweep run s.yaml --study $key --trials 1 --max-failures 0 --metric-key $key -- cat text
    ok "but are no value themselves ($key)" test "$(states s.db $key)" = " 1 FAIL "
done
printf '{"log": [{"loss": 1}, {"loss": NaN}, {"step": 9}]}\n' > state.json
hpo-sweep run s.yaml --study last --trials 1 --max-failures 0 --metric-file "$PWD/state.json" --metric-key log.loss -- true
ok "a list that ends in NaN has no value" test "$(states s.db last)" = " 1 FAIL "
printf '{"eval_loss": 1, "eval_f1": NaN}\n' > text
hpo-sweep run s.yaml --study hfnan --trials 1 --max-failures 0 --objective hf -- cat text
ok "hf has none with a metric that is NaN" test "$(states s.db hfnan)" = " 1 FAIL "
for word in nan inf -inf; do
    hpo-sweep run s.yaml --study "word$word" --trials 1 --max-failures 0 -- echo "loss $word"
    ok "a line that ends in $word has none" test "$(states s.db "word$word")" = " 1 FAIL "
done
printf 'n 12' > text
hpo-sweep run s.yaml --study empty --trials 1 --metric-regex '[0-9]*' -- cat text
ok "a regular expression may match nothing" test "$(value empty)" = 12
run hpo-sweep run s.yaml --study bad --trials 1 --metric-regex '(' -- true
status_is 2 "a bad regular expression is refused"
run hpo-sweep run s.yaml --study bad --trials 1 --metric-regex 'l++++++++++++++++++++++++++++++++++++++++' -- true
err_has "byte 3: quantifier" "so are repetitions of repetitions, with where"
run hpo-sweep run s.yaml --study bad --trials 1 --metric-regex '((a{99}){99}){99}' -- true
err_has "too large" "so is one that would take much memory"
run hpo-sweep run s.yaml --study long --trials 1 --max-failures 0 --metric-regex '(a*)*c' -- echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab
ok "one that goes on for ever has no value" test "$(states s.db long)" = " 1 FAIL "
hpo-sweep run s.yaml --study python --trials 1 --metric-regex '(?<=loss=)\d+' -- echo loss=7
ok "Python's are read" test "$(value python)" = 7
hpo-sweep run s.yaml --study modest --trials 1 --metric-regex '^ *n[^]+{(]? *([0-9]{1,3})$' -- cat text
ok "a long one is not" test "$(value modest)" = 12
run hpo-sweep run s.yaml --study bad --trials 1 --metric-key a --metric-key b -- true
err_has "2 values for 1 objectives" "so are more keys than objectives"

cat > diverge.sh << 'EOS'
#!/bin/sh
echo "0 $1" >> "$HPO_REPORT"
[ "$1" = 1 ] || sleep 30
printf '1  inf \n2 -Infinity\r\nstep 3\n3\n4 1 2\n\0005 0.5\n5 0.5\n' >> "$HPO_REPORT"
echo 1
EOS
chmod +x diverge.sh
printf 'x: choice([1, nan])\n' > diverge.yaml
for x in 1 nan; do hpo-sweep enqueue diverge.yaml "x=$x"; done
hpo-sweep run diverge.yaml --pruner median:startup=1 --trials 2 -- ./diverge.sh '{x}'
ok "a trial that reports NaN is stopped" test "$(states diverge.db diverge)" = " 1 COMPLETE 1 PRUNED "
hpo-sweep export -S diverge.db - | tr ',' '\n' | sed -n 's/.*"intermediate_value": *//p' > reports
ok "reports may be infinite, and what is none is passed over" \
    test "$(head -n 4 reports | tr -d '}' | tr '\n' ' ')" = "1.0 Infinity -Infinity 0.5 "

printf 'x: choice([1, 2, 3, 4, 5, 6])\n' > rung.yaml
for value in inf 1 2 inf 3; do
    hpo-sweep ask rung.yaml --pruner successive-halving:resource=1,reduction=4 > asked
    n=$(sed -n 's/^trial.//p' asked)
    hpo-sweep report -S rung.db "$n" 1 $value
    hpo-sweep should-prune -S rung.db "$n" > judged
done
hpo-sweep export -S rung.db - | sed -n 's/.*"completed_rung_0":\([^}]*\)}.*/\1/p' > rungs
ok "an infinite value stands at its rung as Optuna writes it" \
    test "$(tr '\n' ' ' < rungs)" = "Infinity 1.0 2.0 Infinity 3.0 "

printf 'method: random\nmetric: {name: loss, goal: minimize, target: 3}\nrun_cap: 9\n' > target.yaml
printf 'parameters: {x: {values: [4]}}\n' >> target.yaml
# shellcheck disable=SC2016 # the command's own variable
hpo-sweep run target.yaml --shell -- 'echo $((5 - HPO_TRIAL_NUMBER))'
ok "a sweep ends at its metric's target" test "$(trials -S target.db | wc -l)" = 3

hpo-sweep ask s.yaml --study lease --lease 1s > first
hpo-sweep ask s.yaml --study lease --lease 1h > second
sleep 1.1
hpo-sweep ask s.yaml --study lease > third
ok "a trial whose lease is over is handed on" \
    test "$(sed -n 2p third) $(head -n 1 third)" = "$(sed -n 2p first) trial	2"
ok "and has failed, others run on" test "$(states s.db lease)" = " 1 FAIL 2 RUNNING "
hpo-sweep ask s.yaml --study renew --lease 1s > first
sleep 0.6
hpo-sweep report -S s.db --study renew 0 1 3
sleep 0.6
hpo-sweep ask s.yaml --study renew > second
ok "a report renews the lease" test "$(states s.db renew)" = " 2 RUNNING "
printf 'method: grid\nparameters: {x: {values: [1, 2]}}\n' > grid.yaml
for i in 1 2; do hpo-sweep ask grid.yaml --lease 0.2 > asked; done
sleep 0.3
hpo-sweep run grid.yaml -- echo '{x}'
trials -S grid.db | awk '{ print $2, $4 }' > got
ok "an exhausted grid goes on with what is handed on" \
    test "$(tr '\n' ' ' < got)" = "FAIL 1 FAIL 2 COMPLETE 1 COMPLETE 2 "
printf 'run_cap: 1\n' | cat - grid.yaml > cap.yaml
hpo-sweep ask cap.yaml --lease 0.2 > asked
run hpo-sweep ask cap.yaml
status_is 1 "run_cap is reached by a trial that runs"
sleep 0.3
hpo-sweep ask cap.yaml > asked
ok "but not by one whose lease is over" test "$(states cap.db cap)" = " 1 FAIL 1 RUNNING "
hpo-sweep enqueue cap.yaml x=2
run hpo-sweep tell -S cap.db 2 5
err_is "hpo-sweep: trial 2 waits to be tried" "what nobody has tried has no value"
run hpo-sweep tell -S cap.db 2 --state failed
status_is 0 "but is taken back"
run hpo-sweep enqueue cap.yaml x=1 x=2
err_has "x is given twice" "a parameter is enqueued with one value"
hpo-sweep run s.yaml --study both --trials 2 --direction minimize --direction maximize -- echo 1 2
run hpo-sweep run s.yaml --study both --trials 3 -- echo 1 2
status_is 0 "a study's objectives hold where none are named"
run hpo-sweep ask s.yaml --study both --direction maximize
err_is "hpo-sweep: study 'both' has other objectives: minimize, maximize" "others are refused"
run hpo-sweep best -S s.db --study both
status_is 2 "no trial is the best of several objectives"

hpo-sweep run s.yaml -S a.db --study twin --share --seed 1 --trials 2 -- sh -c 'while ! [ -f go ]; do sleep 0.1; done; echo 1' &
pid=$!
while ! [ -f twin.trials/000000/params.json ]; do sleep 0.1; done
run hpo-sweep run s.yaml -S b.db --study twin --share --seed 1 --trials 1 -- echo 5
status_is 0 "a study of the same name elsewhere runs beside it"
ok "in a directory of its own" test "$(cat twin@b.db.trials/000000/stdout)" = 5
run hpo-sweep run s.yaml -S sqlite:///a.db --study twin --share --trials 2 -- echo 2
status_is 0 "the same study shares the directory"
: > go
wait $pid
ok "and nothing there is written over" test "$(cat twin.trials/*/stdout | tr '\n' ' ')" = "1 2 "
run hpo-sweep run s.yaml -S b.db --study twin --trials 2 -- echo 6
ok "nor afterwards" test "$(cat twin.trials/*/stdout twin@b.db.trials/*/stdout | tr '\n' ' ')" = "1 2 5 6 "
rm a.db*
run hpo-sweep run s.yaml -S a.db --study twin --trials 1 -- echo 7
ok "a storage that is made anew has its directory again" test "$(cat twin.trials/000000/stdout)" = 7
cp a.db c.db
run hpo-sweep run s.yaml -S c.db --study twin --trials 2 -- echo 8
ok "a copy has one of its own" test "$(ls twin@c.db.trials)" = 000001
mv a.db d.db
run hpo-sweep run s.yaml -S d.db --study twin --trials 2 -- echo 9
ok "a storage that was moved keeps it" test "$(cat twin.trials/000001/stdout)" = 9

hpo-sweep run s.yaml --study busy --trials 5 -- sleep 30 &
pid=$!
while ! [ -f busy.trials/000000/params.json ]; do sleep 0.1; done
run hpo-sweep run s.yaml --study busy --trials 5 -v -- sleep 30
status_is 75 "a second run ends with 75"
err_has "another run holds it" "and with -v says why"
hpo-sweep ask s.yaml --study other > other
ok "other commands go on beside it" test "$(head -n 1 other)" = "trial	0"
kill -INT $pid
status=0
wait $pid || status=$?
status_is 130 "SIGINT ends the run with 128 + 2"
ok "and its trial has failed, and waits to be tried again" test "$(states s.db busy)" = " 1 FAIL 1 WAITING "
run hpo-sweep run s.yaml --study hf --trials 1 -- true
status_is 0 "a sweep that is finished is left alone"
ok "without a word" test ! -s out
err_empty "on either stream"

cat > group.sh << 'EOS'
#!/bin/sh
sh -c 'echo $$ > "$HPO_TRIAL_DIR/child"; exec sleep 60' &
while ! [ -s "$HPO_TRIAL_DIR/child" ]; do sleep 0.05; done
echo 1
EOS
chmod +x group.sh
hpo-sweep run s.yaml --study group --trials 1 -- ./group.sh
# Where nobody waits for orphans, a dead one stays as a zombie.
tries=600
while [ $((tries -= 1)) -gt 0 ] && grep -qs "^State:[[:space:]]*[RSDT]" "/proc/$(cat group.trials/000000/child)/status"; do sleep 0.05; done
ok "what a command leaves running in its group is ended" \
    sh -c '! grep -qs "^State:[[:space:]]*[RSDT]" "/proc/$(cat group.trials/000000/child)/status"'

# The runner is killed at 50 moments: every trial must then have ended, once.
i=0
while [ $i -lt 50 ]; do
    hpo-sweep run s.yaml --study kill --sampler random --seed 1 -j 2 --trials 100000 \
        --max-consecutive-failures 0 -- echo 1 &
    pid=$!
    sleep "0.0$((i * 7 % 10))$((i * 3 % 10))"
    kill -KILL $pid
    wait $pid 2> /dev/null
    i=$((i + 1))
done
n=$(trials -S s.db --study kill | wc -l)
hpo-sweep run s.yaml --study kill --sampler random -j 2 --trials $((n + 1)) -- echo 1
trials -S s.db --study kill > list
n=$(wc -l < list)
ok "after 50 kills no trial is lost or doubled" test "$(awk '{ print $1 }' list | sort -un | wc -l) \
$(awk 'END { print $1 }' list)" = "$n $((n - 1))"
# A slow machine may interrupt a point at four kills on end; then it is left.
valueless() {
    awk '$2 == "COMPLETE" { has[$4] } $2 == "FAIL" { n[$4]++ }
        END { for (x in n) if (!(x in has)) print n[x] }' "$1" | sort -u
}
ok "every point has a value, or was interrupted four times" \
    sh -c 'test -z "$1" || test "$1" = 4' - "$(valueless list)"
ok "a kill leaves no point running" test "$(awk '{ print $2 }' list | sort -u | tr '\n' ' ')" = "COMPLETE FAIL "
hpo-sweep run s.yaml --study kill --sampler random -j 2 --retry-failed --trials $((n + 30)) -- echo 1
trials -S s.db --study kill > list.again
ok "--retry-failed leaves none without a value" test -z "$(valueless list.again)"
ok "a kill costs no more trials than ran" test "$(grep -c FAIL list)" -le 100

# A point that is interrupted four times is left, which is told.
for i in 1 2 3 4; do
    rm -f up
    hpo-sweep run s.yaml --study four --trials 1 --max-failures 9 -- sh -c ': > up; exec sleep 60' 2> err &
    pid=$!
    while ! [ -f up ]; do sleep 0.05; done
    kill -KILL $pid
    wait $pid 2> /dev/null
done
run hpo-sweep run s.yaml --study four --trials 1 -- echo 1
status_is 0 "a point that was interrupted four times does not hold up the others"
err_has "points left after too many interruptions: 1, which --retry-failed tries again" "and is told"
trials -S s.db --study four > list
ok "it has no value" test "$(awk '{ print $2 }' list | tr '\n' ' ')" = "FAIL FAIL FAIL FAIL COMPLETE "
ok "being one point" test "$(awk '{ print $4 }' list | uniq -c | tr -s ' ' | cut -d ' ' -f 2 | head -n 1)" = 4
run hpo-sweep run s.yaml --study four --trials 2 --retry-failed -- echo 1
trials -S s.db --study four > list
ok "until it is asked for" test "$(sed -n '1p;$p' list | awk '{ print $4 }' | uniq | wc -l)" = 1

# Slurm: a stand-in for sbatch runs the tasks of the array at the same time.
mkdir fake
cat > fake/sbatch << 'EOS'
#!/bin/sh
last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$1")
for task in $(seq 0 "$last"); do
    SLURM_ARRAY_TASK_ID=$task sh "$1" &
done
wait
EOS
chmod +x fake/sbatch
run hpo-sweep slurm s.yaml --study array --trials 12 --tasks 3 --at-once 2 --sampler random -o array.sh \
    -- sh -c 'sleep 0.1; echo "$SLURM_ARRAY_TASK_ID" > "$HPO_TRIAL_DIR/task"; echo "$1"' 'it'"'"'s' '{x}'
status_is 0 "slurm writes a script"
ok "for sbatch" grep -qx '#SBATCH --array=0-2%2' array.sh
ok "that a shell can read" sh -n array.sh
hpo-sweep ask s.yaml --study array > out
hpo-sweep tell -S s.db --study array --state failed 0
sed -i 's/echo "$1"/echo 1/' array.sh
PATH=$PWD/fake:$PATH sbatch array.sh
ok "its tasks share the trials" test "$(states s.db array)" = " 1 FAIL 12 COMPLETE "
ok "and more than one of them has run some" test "$(cat array.trials/*/task | sort -u | wc -l)" -gt 1
for wish in --sampler=grid --sampler=none --pruner=none9 --direction=up; do
    run hpo-sweep slurm s.yaml $wish --trials 3 -- echo '{x}'
    status_is 2 "what no task would run is refused ($wish)"
done
run hpo-sweep slurm - --trials 3 -- echo '{x}'
err_has "cannot read standard input" "so is a sweep on standard input"
run hpo-sweep slurm s.yaml -- echo '{x}'
err_has "a sweep without an end" "a script whose tasks would be refused is refused"
run hpo-sweep slurm s.yaml --trials 3 -- echo '{y}'
status_is 2 "a script for an unknown name is refused"

printf 'x: uniform(-5, 5)\ny: loguniform(1e-4, 1)\n' > p.yaml
hpo-sweep run p.yaml --seed 1 --trials 20 --direction minimize --direction maximize --metric size \
    --metric quality --shell -- 'echo "0 $HPO_y" >> "$HPO_REPORT"; echo "$HPO_x $HPO_y"'
cat > kinds.yaml << 'EOS'
lr: loguniform(1e-6, 1e-2)
opt: choice([sgd, "<a & b>"])
momentum: uniform(0.5, 0.99) if opt == sgd
layers: randint(1, 9)
one: 1
EOS
if hpo-sweep plot -S p.db history -o h.svg 2> why || ! grep -q cairo why; then
    for kind in history front reports parallel importance; do
        run hpo-sweep plot -S p.db $kind -o $kind.svg
        status_is 0 "plot draws $kind"
        ok "as a picture" grep -q '</svg>' $kind.svg
    done
    hpo-sweep run kinds.yaml --seed 1 --trials 20 --metric loss -- echo 1
    for format in svg png pdf; do
        run hpo-sweep plot -S kinds.db parallel -o kinds.$format
        status_is 0 "parallel coordinates have every kind of parameter, as $format"
    done
    for name in grösse-und-so-weiter-bis-hier 'grösse…is-hier'; do
        printf 'x: choice(["%s", 2])\n' "$name" > label.yaml
        rm -rf label.db*
        hpo-sweep run label.yaml --sampler grid -- echo 1
        hpo-sweep plot -S label.db parallel -o "${#name}.svg"
    done
    ok "a long choice is shortened in the middle" sh -c 'set -- ??.svg; cmp "$1" "$2"'
    run hpo-sweep plot -S s.db --study hf front -o f.png
    status_is 2 "a front of one objective is refused"
    run hpo-sweep plot -S s.db --study nan history -o n.pdf
    status_is 0 "a study without values has a picture"
else
    skip "plot draws a study" "cairo cannot be loaded"
fi
run hpo-sweep plot -S p.db history -o h.gif
status_is 2 "a picture is svg, png or pdf"
run hpo-sweep plot -S p.db curve -o h.svg
status_is 2 "a kind that is not known is refused"

hpo-sweep ask s.yaml --study foreign > out
hpo-sweep run s.yaml --study foreign --trials 2 -- echo 1
ok "a trial that another started is never reaped" \
    test "$(states s.db foreign)" = " 1 RUNNING 1 COMPLETE "
# a dry run
echo 'x: uniform(0, 1)' > dry.yaml
run hpo-sweep run -n --trials 20 -j 2 dry.yaml -- touch 'made-{x}'
out_is "would run touch made-{x} until 20 trials are done, 2 at once, drawn by tpe; study 'dry' of dry.db, which is new" "-n says what would be run"
status_is 0 "and that it can be"
ok "and starts nothing" sh -c '! ls -d dry.db* dry.trials made-* 2> /dev/null'
run hpo-sweep run -n --trials 20 dry.yaml -- echo '{y}'
status_is 2 "what is wrong with the command is told"
run hpo-sweep run -n dry.yaml -- echo '{x}'
status_is 2 "and that there is no end"
done_testing
