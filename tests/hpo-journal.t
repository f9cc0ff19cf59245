#!/bin/sh
# hpo-journal.t - studies in Optuna's journal file
. "${top_srcdir:?}/tests/lib.sh"
cat > s.yaml << 'END'
method: random
metric: {name: loss, goal: minimize}
parameters:
  x: {min: 0.0, max: 1.0}
END
j=journal:j.log

# a study of our own
run hpo-sweep run -q -S $j --trials 5 s.yaml -- echo '{x}'
status_is 0 "a sweep is kept in a journal"
ok "of lines of JSON" grep -q '^{"op_code":0,' j.log
ok "no lock is left" test ! -L j.log.lock
trials -S $j > out
ok "five trials are there" test "$(grep -c COMPLETE out)" = 5
run hpo-sweep run -q -S $j --trials 5 s.yaml -- echo '{x}'
status_is 0 "and is done"
hpo-sweep run -q -S $j --trials 7 s.yaml -- echo '{x}'
ok "more trials are appended" test "$(trials -S $j | grep -c COMPLETE)" = 7

# by hand
number() { hpo-sweep ask -S $j --json s.yaml | sed 's/.*"trial": *\([0-9]*\).*/\1/'; }
t=$(number)
ok "ask gives the next number" test "$t" = 7
run hpo-sweep report -S $j "$t" 0 0.5
status_is 0 "it is reported on"
run hpo-sweep tell -S $j "$t" 0.0
status_is 0 "and told"
ok "and is the best" test "$(hpo-sweep best -S $j | awk '{ print $1 }')" = 7

# what a dead writer left is cut off
printf '{"op_code":4,"worker_id":"dead","stu' >> j.log
run hpo-sweep show -S $j
status_is 0 "a line that has no end is not read"
ok "nor does it hide the others" test "$(grep -c COMPLETE out)" = 8
run hpo-sweep run -q -S $j --trials 9 s.yaml -- echo '{x}'
status_is 0 "the next writer cuts it off"
ok "and goes on" test "$(trials -S $j | grep -c COMPLETE)" = 9
ok "leaving whole lines" sh -c '! grep -qv "^{.*}$" j.log'

# but nothing of a file that is no journal
for text in 'a note' 'two
notes' '[1,
2]'; do
    printf '%s' "$text" > note
    run hpo-sweep ask -S journal:note s.yaml
    status_is 3 "a file that is no journal is refused"
    err_has "note: " "by its name"
    ok "and not touched" test "$(cat note)" = "$text"
done

# attributes and templates that are lists have no names
for line in '{"op_code":2,"study_id":0,"user_attr":[1]}' '{"op_code":3,"study_id":0,"system_attr":[1]}' \
    '{"op_code":4,"study_id":0,"params":[1]}' '{"op_code":4,"study_id":0,"intermediate_values":[1]}' \
    '{"op_code":4,"study_id":0,"user_attrs":[1]}' '{"op_code":4,"study_id":0,"system_attrs":[1]}'; do
    { head -n 1 j.log; echo "$line"; } > lists
    run hpo-sweep show -S journal:lists
    status_is 3 "a list in an object's place is refused"
    err_has "lists: line 2: bad journal: '" "by its line"
done
for name in user_attr system_attr; do
    code=$(test $name = user_attr && echo 8 || echo 9)
    { head -n 1 j.log; echo '{"op_code":4,"study_id":0}'; echo "{\"op_code\":$code,\"trial_id\":0,\"$name\":[1]}"; } > lists
    run hpo-sweep show -S journal:lists
    status_is 3 "and in a trial's attributes"
    err_has "lists: line 3: bad journal: '$name' is not an object" "by its line and name"
done
{ head -n 1 j.log; echo '{"op_code":4,"study_id":0,}'; } > lists
run hpo-sweep show -S journal:lists
status_is 3 "a line that is no JSON is refused"
err_is "hpo-sweep: lists:2:27: expected a key in double quotes" "by its line and column, once"
hpo-sweep ask s.yaml -S journal:again > asked
for report in "1 5" "2 7" "1 2"; do
    # shellcheck disable=SC2086 # words
    hpo-sweep report -S journal:again 0 $report
done
hpo-sweep export -S journal:again - | tr ',' '\n' | sed -n 's/.*"intermediate_value": *\([^}]*\).*/\1/p' > reports
ok "of two reports of a step the later one counts" test "$(tr '\n' ' ' < reports)" = "2.0 7.0 "
printf '{"op_co' > torn
run hpo-sweep ask -S journal:torn s.yaml
status_is 0 "a journal whose first line is torn is begun again"
run hpo-sweep ask -S journal:nowhere/j s.yaml
status_is 4 "a journal in no directory cannot be made"

# a writer killed while it draws, which takes it most of its time
hpo-sweep run s.yaml -S journal:kill.log --study kill --trials 100 -- echo 1
for i in 1 2 3 4 5; do
    hpo-sweep run s.yaml -S journal:kill.log --study kill --sampler tpe:candidates=10000 --trials 9999 -j 8 -- echo 1 &
    pid=$! size=$(wc -c < kill.log)
    while [ "$(wc -c < kill.log)" = "$size" ] && kill -0 $pid 2> /dev/null; do sleep 0.02; done
    kill -KILL $pid
    wait $pid 2> err
    rm -f kill.log.lock
done
n=0 # a child of the killed run may hold its lock until it has begun its command
while :; do
    run hpo-sweep run s.yaml -S journal:kill.log --study kill --trials 1 -- echo 1
    [ "$status" -eq 75 ] && [ $((n += 1)) -lt 600 ] || break
    sleep 0.1
done
trials -S journal:kill.log > out
ok "no trial is there without what tells whose it is" sh -c '! grep RUNNING out'

# a ninth trial moves the eight in memory, of which one is handed on: what is freed is overwritten
hpo-sweep run -q s.yaml -S journal:moved.log --trials 7 -- echo '{x}'
hpo-sweep ask -S journal:moved.log --lease 0.001 s.yaml > asked
run env MALLOC_PERTURB_=90 hpo-sweep ask -S journal:moved.log s.yaml
status_is 0 "a point is handed on by a journal that grows"
ok "as the next trial" test "$(trials -S journal:moved.log | awk '$1 >= 7 { printf "%s ", $2 }')" = "FAIL RUNNING "

# many at once
for w in 1 2 3 4 5 6 7 8; do
    (for k in 1 2 3 4 5; do
        n=$(hpo-sweep ask -S journal:w.log --json s.yaml | sed 's/.*"trial": *\([0-9]*\).*/\1/')
        hpo-sweep tell -S journal:w.log "$n" 0.5
    done) &
done
wait
trials -S journal:w.log > out
ok "8 workers make 40 trials, each number once" \
    test "$(awk '$2 == "COMPLETE" { print $1 }' out | sort -un | wc -l)" = 40

# what Optuna wrote (tests/oracle/make-studies.py)
cat > one.json << 'END'
{"x": {"name": "FloatDistribution", "attributes": {"low": 0.0001, "high": 1.0, "log": true}},
 "n": {"name": "IntDistribution", "attributes": {"low": 1, "high": 9, "step": 2}},
 "q": {"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0, "step": 0.25}},
 "k": {"name": "CategoricalDistribution", "attributes": {"choices": ["a", 0.5, true, null]}}}
END
for version in 4.9 5.0; do
    cp "$data/sweep/optuna-$version.jsonl" o.log
    chmod u+w o.log
    hpo-sweep show -S journal:o.log --study one --json > out
    out_has '"state": "COMPLETE", "values": ["Infinity"]' "an infinite value is read ($version)"
    out_has '"state": "PRUNED", "values": ["-Infinity"]' "a pruned trial"
    out_has '"state": "RUNNING"' "one that is not finished"
    out_has '"state": "WAITING"' "an enqueued one"
    ok "all six" test "$(wc -l < out)" = 6
    run hpo-sweep pareto -S journal:o.log --study two
    ok "of two objectives one trial is best in both" test "$(wc -l < out)" = 1
    run hpo-sweep show -S journal:o.log
    ok "one of three studies must be named" test "$status" != 0
    hpo-sweep best -S journal:o.log --study one > out
    ok "its best is Optuna's" test "$(awk '{ print $1 }' out)" = 0
    run hpo-sweep run -q --storage journal:o.log one.json --trials 8 -- echo '{x}'
    status_is 0 "it is run on"
    trials -S journal:o.log --study one > out
    out_has "0.25  0.25         3  0.5   null" "with what was enqueued first"
    ok "and what was running stays" test "$(awk '{ print $2 }' out | tr '\n' ' ')" = \
        "COMPLETE COMPLETE PRUNED COMPLETE RUNNING COMPLETE COMPLETE COMPLETE "
done

# times without a zone are local, as Optuna before version 5 writes and every version reads them
for version in 4.9 5.0; do
    cp "$data/sweep/optuna-$version.jsonl" o.log
    chmod u+w o.log
    hpo-sweep show -S journal:o.log --study one --json > utc
    TZ=XYZ5 hpo-sweep show -S journal:o.log --study one --json > west
    started=$(sed -n '1s/.*"start": "[^ ]* \(..\):.*/\1/p' west)
    case $version in
    4.9)
        ok "a time without a zone is local" test "$started" = 13
        ok "and goes on so" sh -c "TZ=XYZ5 hpo-sweep tell -S journal:o.log --study one 4 1 &&
            tail -n 1 o.log | grep -q '\"datetime_complete\":\"[-0-9]*T[0-9:.]*\"'"
        ;;
    *)
        ok "a time with a zone is what it says" cmp utc west
        ok "and goes on so" sh -c "TZ=XYZ5 hpo-sweep tell -S journal:o.log --study one 4 1 &&
            tail -n 1 o.log | grep -q '\"datetime_complete\":\"[-0-9]*T[0-9:.]*+00:00\"'"
        ;;
    esac
    late=$(TZ=XYZ5 hpo-sweep show -S journal:o.log --study one --json | sed -n '5s/.*"complete": "\([^.]*\).*/\1/p')
    ok "the end is shown in UTC" near "$(date -u +%s)" "$(date -u -d "$late" +%s)" 10
done

# trouble
echo '{"op_code":99,"worker_id":"w"}' > bad.log
run hpo-sweep show -S journal:bad.log
status_is 3 "an operation that is not known is refused"
err_has "bad.log: line 1" "with its line"
run hpo-sweep show -S journal:none.log
status_is 3 "a journal that is not there is bad input"
mkdir folder
run hpo-sweep show -S journal:folder
status_is 4 "a directory is no journal"
err_is "hpo-sweep: folder: Is a directory" "which is said"
if [ "$(id -u)" != 0 ]; then
    mkdir ro
    chmod a-w ro
    run hpo-sweep run -q -S journal:ro/j.log --trials 1 s.yaml -- echo 1
    status_is 4 "a directory that cannot be written is an error of the machine"
else
    skip "a directory that cannot be written is an error of the machine" "root may write"
fi
mkdir sub
printf 'x: uniform(0, 1)\n' > sub.yaml

# a study that Optuna deleted
hpo-sweep run -q -S journal:two.log --study old --trials 1 sub.yaml -- echo 1
hpo-sweep run -q -S journal:two.log --study new --trials 2 sub.yaml -- echo 2
run hpo-sweep show -S journal:two.log
status_is 2 "one of two studies must be named"
echo '{"op_code":1,"worker_id":"w","study_id":0}' >> two.log
run hpo-sweep show -S journal:two.log
status_is 0 "unless the other is deleted"
ok "what is left is shown" test "$(grep -c COMPLETE out)" = 2
run hpo-sweep show -S journal:two.log --study old
status_is 3 "the deleted one is not there"
err_is "hpo-sweep: two.log: no study 'old'" "which is said"

# a journal that only its end, or nothing at all, of can be changed
torn() {
    cp two.log "$1"
    printf '{"op_code":4,"wor' >> "$1"
}
torn append.log
if chattr +a append.log 2> chattr.err; then
    trap 'chattr -a "$scratch/append.log"; chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
    run hpo-sweep ask -S journal:append.log sub.yaml
    status_is 4 "a torn line that cannot be cut off is an error of the machine"
    err_is "hpo-sweep: append.log: Operation not permitted" "with its cause"
    ok "and leaves no lock" test ! -L append.log.lock
    chattr -a append.log
    trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
else
    skip "a torn line that cannot be cut off is an error of the machine" "no append-only files here"
fi
mkdir shared
torn shared/j.log
chmod 777 shared
chmod 444 shared/j.log
chmod 711 "$scratch"
user=
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $user true > user.out 2>&1; then
    run $user hpo-sweep ask -S journal:shared/j.log sub.yaml
    status_is 4 "a journal that may not be written, in a directory that may, is an error of the machine"
    err_is "hpo-sweep: shared/j.log: Permission denied" "with its cause"
    ok "and has no lock" test ! -L shared/j.log.lock
    run $user hpo-sweep show -S journal:shared/j.log
    status_is 0 "but it is shown"
else
    skip "a journal that may not be written, in a directory that may, is an error of the machine" "no setpriv"
fi
mkdir fixed
if mount -t tmpfs -o size=1m none fixed 2> mount.err; then
    trap 'umount -l "$scratch/fixed"; chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
    torn fixed/j.log
    mount -o remount,ro fixed
    run hpo-sweep show -S journal:fixed/j.log
    status_is 0 "a journal on a read-only file system is shown"
    run hpo-sweep ask -S journal:fixed/j.log sub.yaml
    status_is 4 "but not changed"
    err_is "hpo-sweep: fixed/j.log: Read-only file system" "which is said"
    run hpo-sweep ask -S journal:fixed/none.log sub.yaml
    status_is 4 "nor is another made"
    err_is "hpo-sweep: fixed/none.log: Read-only file system" "which is said"
    umount fixed
    trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
else
    skip "a journal on a read-only file system is shown" "cannot mount a small file system"
fi
run hpo-sweep run --storage journal:sub/s.jsonl --study s --trials 2 sub.yaml -- sh -c 'echo {x}'
status_is 0 "a journal may lie in another directory"
ok "with its lock beside it" test -e sub/s.jsonl.lck

# another's lock
ln -s s.jsonl sub/s.jsonl.lock
(sleep 2 && rm sub/s.jsonl.lock) &
run hpo-sweep enqueue --storage journal:sub/s.jsonl --study s sub.yaml x=0.5
wait
status_is 0 "another's lock is waited for"
err_is "hpo-sweep: sub/s.jsonl.lock: waiting for another's lock" "which is told after a second"

# a damaged journal: of a line that made a trial, one that did not, one with the rest of another before it, and a block of zeros
cat > r.yaml << 'END'
method: random
parameters: {x: {min: 0.0, max: 1.0}}
END
hpo-sweep run -q -S journal:whole --study r --trials 5 r.yaml -- sh -c 'echo "$HPO_TRIAL_NUMBER"' '{x}'
trials -S journal:whole > trials.whole
run hpo-sweep repair whole copied
status_is 0 "a journal that is whole is repaired to itself"
ok "byte for byte" cmp whole copied
makes=$(grep -n '"op_code":4' whole | sed -n '2s/:.*//p')
ends=$(grep -n '"op_code":6' whole | sed -n '4s/:.*//p')
for where in "$makes" "$ends"; do
    awk -v at="$where" 'NR == at { $0 = "xxxxxxxxxxxx" substr($0, 13) } { print }' whole > bad
    run hpo-sweep show -S journal:bad
    status_is 3 "line $where is bad: the journal is refused"
    rm -f saved
    run hpo-sweep repair bad saved
    status_is 0 "and repaired"
    err_has "bad: line $where: not whole" "which names the line"
    lost=1
    [ "$where" = "$makes" ] || lost=3
    trials -S journal:saved | awk -v lost=$lost '$1 != lost' > trials.saved
    awk -v lost=$lost '$1 != lost' trials.whole > expected
    ok "all other trials are what they were" cmp trials.saved expected
done
ok "one without its end runs" test "$(trials -S journal:saved | awk '$1 == 3 { print $2 }')" = RUNNING
awk -v at="$ends" 'NR == at { printf "%s", substr($0, 1, 40); next } NR == at + 1 { printf "%c%c%c", 0, 0, 0 } { print }' whole > bad
rm -f saved
run hpo-sweep repair bad saved
out_is "$(($(wc -l < whole) - 1)) lines kept, 1 left out, 0 trials made again" "a line behind a torn one is kept"
run hpo-sweep repair bad saved
status_is 2 "a repair replaces no file"
sed 1d whole > bad
run hpo-sweep repair bad none
status_is 3 "without the line that made a study it is refused"
err_has "the line that made study 0 is lost" "which is said"
run hpo-sweep repair r.yaml none
status_is 3 "so is what is no journal"
ok "and nothing is written" test ! -e none
# out of memory while the lock is held
shim=$top_builddir/tests/fail-alloc.so
if LD_PRELOAD=$shim hpo-sweep --version > version.out 2> version.err && [ ! -s version.err ]; then
    rm -f m.log places
    LD_PRELOAD=$shim ALLOC_LOG=places hpo-sweep ask -S journal:m.log s.yaml > asked.out
    left=
    for at in $(sed -n 's/^at //p' places | sort -nu | awk 'NR % 3 == 0'); do
        rm -f m.log
        LD_PRELOAD=$shim ALLOC_LOG=place ALLOC_AT=$at hpo-sweep ask -S journal:m.log s.yaml > asked.out 2>&1 || :
        [ ! -L m.log.lock ] || left="$left $at"
        rm -f m.log.lock
    done
    ok "whoever runs out of memory leaves no lock behind" test -z "$left"
else
    skip "whoever runs out of memory leaves no lock behind" "nothing can be preloaded"
fi
done_testing
