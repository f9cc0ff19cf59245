#!/bin/sh
# hpo-transfer.t - studies go from one storage to a file and to another without losing anything
. "${top_srcdir:?}/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "studies are exported and imported" "built without SQLite or YAML"
    done_testing
    exit
fi

# the same studies, which versions of Optuna have written to two storages
cp "$data"/sweep/optuna-?.?.db "$data"/sweep/optuna-?.?.jsonl .
chmod u+w optuna-*
for from in optuna-4.9.db optuna-5.0.db journal:optuna-4.9.jsonl journal:optuna-5.0.jsonl; do
    rm -f out.jsonl back.db
    run hpo-sweep export -S $from out.jsonl
    status_is 0 "studies of $from are exported"
    run hpo-sweep import -S back.db out.jsonl
    status_is 0 "and imported"
    sed -n 's/.*"study_name": *"\([^"]*\)".*/\1/p' out.jsonl | sort -u > names
    ok "all three" test "$(tr '\n' ' ' < names)" = "one theirs two "
    : > shown
    while read -r name; do
        hpo-sweep show --json -S $from --study "$name" > before
        hpo-sweep show --json -S back.db --study "$name" > after
        hpo-sweep show --json -S journal:out.jsonl --study "$name" > between
        sed 's/, "start.*//' before >> shown
        ok "study $name is the same in the file" cmp before between
        ok "and in the other storage" cmp before after
    done < names
    [ -e first ] || cp shown first
    ok "what is read is the same from all of them" cmp first shown
done

# a study of every state, with reports that are no numbers
printf '%s\n' 'x: uniform(0, 1)' > sweep.yaml
hpo-sweep ask --storage all.db sweep.yaml > ask.out
step=0
for value in 0.5 inf -inf nan; do
    hpo-sweep report -S all.db 0 $step $value
    step=$((step + 1))
done
hpo-sweep tell -S all.db 0 0.25
hpo-sweep ask --storage all.db sweep.yaml > ask.out
hpo-sweep report -S all.db 1 3 7
hpo-sweep tell -S all.db --state pruned 1
hpo-sweep ask --storage all.db sweep.yaml > ask.out
hpo-sweep tell -S all.db --state failed 2
hpo-sweep ask --storage all.db sweep.yaml > ask.out
hpo-sweep enqueue -S all.db sweep.yaml x=0.125
hpo-sweep show --json -S all.db > before
run hpo-sweep export -S all.db -
status_is 0 "a study goes to standard output"
cp out all.jsonl
ok "and leaves no file" sh -c '! ls ./*.tmp'
run hpo-sweep import -S journal:copy.jsonl all.jsonl
status_is 0 "and into a journal"
hpo-sweep show --json -S journal:copy.jsonl > after
ok "with trials of every state" cmp before after
ok "five of them" test "$(grep -o '"state": "[A-Z]*"' after | sort -u | wc -l)" -eq 5
run hpo-sweep import -S journal:copy.jsonl all.jsonl
status_is 3 "a study that is there is not imported again"
err_has "already" "which is said"
hpo-sweep show --json -S journal:copy.jsonl > after
ok "and nothing has changed" cmp before after
run hpo-sweep import -S all2.db nowhere.jsonl
ok "a missing file is told" test "$status" -ge 3
run hpo-sweep export -S all.db --study other out2.jsonl
status_is 3 "so is a missing study"
ok "and no file is left" test ! -e out2.jsonl
printf '{"op_code":0' > torn.jsonl
run hpo-sweep import -S all2.db torn.jsonl
ok "a file without a study is refused" test "$status" -ge 3
if [ -w /dev/full ]; then
    status=0
    hpo-sweep export -S all.db - > /dev/full 2> err || status=$?
    status_is 4 "output that cannot be written is an error of the machine"
fi
# what JSON has not, in attributes, as Python writes them
cat > bare.jsonl << 'END'
{"op_code":0,"worker_id":"w","study_name":"bare","directions":[1]}
{"op_code":2,"worker_id":"w","study_id":0,"user_attr":{"a":{"x":NaN,"y":["NaN",-Infinity],"z":"a \" NaN"}}}
END
hpo-sweep import -S bare.db bare.jsonl
hpo-sweep export -S bare.db - > out
out_has '"user_attr":{"a":{"x":NaN,"y":["NaN",-Infinity],"z":"a \" NaN"}}' "attributes keep numbers that are none"

# An import that is killed leaves nothing, or all of it.
printf 'x: uniform(0, 1)\n' > many.yaml
hpo-sweep run many.yaml --sampler random --seed 1 --trials 400 --shell -- 'echo $HPO_x'
hpo-sweep export -S many.db many.jsonl
i=0
bad=0
there=0
while [ $i -lt 40 ]; do
    i=$((i + 1))
    for to in kill.db journal:kill.jsonl; do
        rm -f kill.*
        [ $((i % 2)) = 0 ] || hpo-sweep import -S $to all.jsonl --study all
        hpo-sweep import -S $to many.jsonl &
        pid=$!
        sleep "0.0$((i % 4))$((i * 7 % 10))"
        kill -KILL $pid 2> /dev/null
        wait $pid 2> /dev/null
        [ -e "${to#journal:}" ] || continue
        n=$(trials -S $to --study many 2> /dev/null | wc -l)
        [ "$n" = 0 ] || [ "$n" = 400 ] || bad=$((bad + 1))
        [ "$n" = 400 ] && there=$((there + 1))
        [ $((i % 2)) = 0 ] && [ "$n" = 0 ] && bad=$((bad + 1))
    done
done 2> /dev/null
ok "an import that is killed leaves nothing, or all" test $bad = 0

done_testing
