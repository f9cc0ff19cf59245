#!/bin/sh
# train-pipelines.t - training by schedules of several stages a rank, and of backward passes in two parts
. "$top_srcdir/tests/lib.sh"

model=$data/models/smollm3 # 4 layers, embeddings tied to the head

awk 'BEGIN { for (i = 0; i < 30; i++) { printf "{\"ids\":["
    m = 9 + i * 7 % 16
    for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 60
    print "]}" } }' > ids.jsonl

train() {
    tp-run train -q -f --data ids.jsonl --seq 24 --global-batch 4 --steps 4 --lr 1e-2 --threads 1 "$@"
}

# same A B - the checkpoints of these runs have the same tensors, states among them
same() {
    tp-shard diff "$1/step-000004" "$2/step-000004"
}

# losses RUN - of steps and evaluations
losses() {
    sed -n 's/.*"type":"\(step\|eval\)".*\("[a-z_]*loss":[^,]*\),.*/\2/p' "$1/log.jsonl"
}

# ---- the bits of gpipe ----

train --pp 2 --pipeline gpipe --eval-fraction 0.2 --eval-every 2 --save-every 2 -o gpipe "$model"
losses gpipe > losses
for how in naive interleaved zb-h1 zb-h2 zb-v dualpipev zb-interleaved v-min v-half; do
    train --pp 2 --pipeline $how --eval-fraction 0.2 --eval-every 2 -o $how "$model"
    ok "$how has the bits of gpipe" same gpipe $how
    losses $how > other
    ok "and its losses, in evaluations, too" cmp losses other
done
train --pp 1 --pipeline zb-v --eval-fraction 0.2 --eval-every 2 -o alone "$model"
losses alone > other
ok "a rank with both stages exchanges messages with itself" cmp losses other
for how in interleaved zb-h1 zb-v; do
    chunks=
    [ $how != interleaved ] || chunks="--model-chunks 2"
    # shellcheck disable=SC2086 # words
    pp-partition schedule --pp 2 --micro-batches 4 --schedule $how $chunks --csv > table.csv
    train --pp 2 --pipeline table.csv --eval-fraction 0.2 -o file "$model"
    ok "$how of pp-partition's file, too" same gpipe file
done

# ---- checkpoints go on anywhere ----

ok "a checkpoint has a file of each stage" test "$(echo interleaved/step-000004/rank-*)" = \
    "$(for s in 0 1 2 3; do echo interleaved/step-000004/rank-tp0-pp$s.safetensors; done | xargs)"
for how in "--pp 2 --pipeline zb-v" "--pp 2 --model-chunks 2" "--pp 4" "--pp 1 --pipeline zb-v" "--pp 2 --pipeline zb-h2"; do
    rm -rf going
    mkdir going
    cp -R gpipe/step-000002 gpipe/run.json gpipe/log.jsonl going
    # shellcheck disable=SC2086 # words
    run tp-run train -q --resume $how -o going
    ok "one of gpipe goes on by $how" same gpipe going
done
train --pp 2 --pipeline zb-v --save-every 2 --eval-fraction 0.2 --timeline v.csv --timeline v.json --timeline v.html -o v "$model"
cp v/log.jsonl v.log
rm -rf v/step-000004
tp-run train -q --resume --pp 2 --pipeline gpipe -o v
ok "and one of zb-v by gpipe" same gpipe v

# ---- what passes took ----

pp-partition schedule --pp 2 --micro-batches 4 --schedule zb-v --csv > table.csv
sed 's/@[0-9.+]*//g' v.csv > other
ok "a timeline has the actions of the schedule, that of the step" cmp table.csv other
# after one another on a rank, and after those of the stage before them began
ok "in the order of time" awk -F, 'function fail(what) { print what; bad = 1 }
    { end = 0
      for (i = 1; i <= NF; i++) {
          split($i, part, /[@+]/)
          start[part[1]] = part[2]
          if (part[2] < end - 1e-8) fail($i " begins before another ends")
          end = part[2] + part[3]
      } }
    END { for (m = 0; m < 4; m++) for (s = 0; s < 3; s++) {
            if (start[s + 1 "F" m] < start[s "F" m]) fail(s + 1 "F" m)
            if (start[s "I" m] < start[s + 1 "I" m]) fail(s "I" m) }
          exit bad }' v.csv
run pp-partition schedule v.csv --json
sed -n 's/.*"type":"timeline".*"measured":\([^,]*\),.*\("passes".*\)/\1,\2/p' v.log | tr ':,}' '\n\n\n' > told
sed 's/.*"measured":\([^,]*\),\("passes".*\)/\1,\2/' out | tr ':,}' '\n\n\n' > found
ok "pp-partition reads it, and finds what the log has" awk 'NR == FNR { told[FNR] = $0; n = FNR; next }
    $0 != told[FNR] && !($0 - told[FNR] < 1e-8 && told[FNR] - $0 < 1e-8 && $0 > 0) { print; bad = 1 }
    END { exit bad || !n || n != FNR }' told found
ok "a trace for browsers has an event for each" test "$(grep -c '"ph":"X","ts":[0-9.]*,"dur":[0-9.]*,"pid":[01],"tid":[01],"args"' v.json)" = 48
ok "and a page shows both" grep -q 's simulated with the mean time of each pass' v.html
ok "the last line of the log is still that of the end" grep -q '^{"type":"train"' << END
$(tail -n 1 v.log)
END
run train --pp 2 --timeline v.txt -o none "$model"
status_is 2 "a file of another name is refused"
err_has "--timeline: 'v.txt' does not end in .csv, .json, .svg, .png, .pdf or .html" "which names those that there are"

# ---- with other axes ----

for how in "--deterministic" "--dp 2" "--dp 2 --zero 1" "--dp 2 --zero 3" "--tp 2" "--recompute full"; do
    # shellcheck disable=SC2086 # words
    train --pp 2 --pipeline gpipe $how -o first "$model"
    for pipeline in zb-h1 zb-v; do
        # shellcheck disable=SC2086 # words
        train --pp 2 --pipeline $pipeline $how -o second "$model"
        ok "$how: $pipeline has the bits of gpipe" same first second
    done
done

# ---- memory ----

for how in gpipe zb-h1 zb-h2 interleaved "zb-v --dp 2 --zero 2" "dualpipev --sp 2 --sp-mode ring"; do
    # shellcheck disable=SC2086 # words
    train --steps 1 --save-every 0 --json --pp 2 --pipeline $how "$model" > out
    # shellcheck disable=SC2086
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --micro-batch 1 --global-batch 4 --pp 2 --schedule $how --json "$model" > estimate
    ok "mem-estimate foretells the bytes of $how" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
        "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
done

# ---- a rank that dies ----

if [ -r "/proc/$$/task/$$/children" ]; then
    rm -rf dead
    tp-run train --json --data ids.jsonl --seq 24 --global-batch 4 --steps 100000 --lr-schedule constant --threads 1 --save-every 2 --keep 2 \
        --pp 2 --pipeline zb-v -o dead "$model" > out 2> err &
    pid=$!
    while ! grep -q '"step":4,' out && kill -0 "$pid" 2> kill.err; do sleep 0.05; done
    kids=$(cat "/proc/$pid/task/$pid/children")
    kids=${kids% }
    kill -KILL "${kids##* }"
    status=0
    wait "$pid" || status=$?
    status_is 4 "a rank that is killed among passes ends the run"
    err_is "tp-run: rank 1 was killed by signal 9 (SIGKILL)" "with one line"
    # the newest checkpoint may be that of any later step
    last=$(find dead -name 'step-*' -prune | grep -v '\.[a-z]*$' | sort | tail -n 1 | sed 's/.*step-0*//')
    run tp-run train -q --resume --steps $((last + 1)) --save-every 0 --pp 2 --pipeline interleaved -o dead
    status_is 0 "and it goes on from its newest checkpoint"
else
    skip "a rank that is killed among passes ends the run" "no /proc"
fi

# ---- refusals ----

run train --pp 2 --pipeline dualpipe -o none "$model"
err_has "--pipeline dualpipe: keeps two copies of the model; dualpipev has one" "a schedule of two models is refused"
run train --pp 2 --pipeline fast -o none "$model"
err_has "expected naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipev, zb-interleaved, v-min, v-half, or a file, not 'fast'" \
    "and one that there is not"
run train --pp 2 --model-chunks 3 -o none "$model"
err_has "interleaved: 6 stages: pp 6: the model has 4 layers" "and stages without layers"
run train --pp 2 --pipeline zb-v --model-chunks 3 -o none "$model"
status_is 2 "and chunks that a schedule does not have"
run train --pp 2 --pipeline dualpipev --global-batch 3 -o none "$model"
err_has "dualpipev: needs two micro-batches a stage at least, 4" "and too few micro-batches"
# turned RANK FROM TO - the table with two actions of a rank in each other's place
turned() {
    awk -F, -v OFS=, -v r="$1" -v a="$2" -v b="$3" 'NR == r + 1 { for (i = 1; i <= NF; i++)
        $i = $i == a ? b : $i == b ? a : $i } 1' table.csv
}
pp-partition schedule --pp 2 --micro-batches 4 --schedule zb-h1 --csv > table.csv
turned 1 1W0 1W1 > wrong.csv
run train --pp 2 --pipeline wrong.csv -o none "$model"
status_is 3 "a table whose gradients of weights are not in order is bad input"
err_is "tp-run: wrong.csv: a schedule whose rank 1 does not take the micro-batches of stage 1 in order cannot be trained by" \
    "and says so in one line"
turned 0 0I0 0W0 > wrong.csv
run train --pp 2 --pipeline wrong.csv -o none "$model"
err_is "tp-run: wrong.csv: rank 0: 0W0 comes before what it needs" "and so is one whose weights come first"
sed 's/1F3,//' table.csv > wrong.csv
run train --pp 2 --pipeline wrong.csv -o none "$model"
err_has "1I3 comes before what it needs" "and one without a forward pass"
printf '0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n' > wrong.csv
run train --pp 2 --pipeline wrong.csv -o none "$model"
err_has "wrong.csv: " "and one in which ranks wait for each other for ever"
run train --pp 2 --pipeline table.csv --global-batch 8 -o none "$model"
err_has "table.csv: a schedule of 2 ranks, 2 stages and 4 micro-batches; here are 2 ranks, and 8 micro-batches" \
    "and one of other micro-batches"
run train --pp 2 --pipeline table.csv --model-chunks 2 -o none "$model"
err_has "--model-chunks 2: not with a file" "a file has its own stages"
ok "none of these left anything" test ! -e none

done_testing
