#!/bin/sh
# tp-run-stages.t - a model in stages answers to the bit as it does in one, and replicas share inputs
. "${top_srcdir:?}/tests/lib.sh"

# same MESH NAME COMMAND...: COMMAND prints or writes the same on MESH as its tensor ranks alone
same_logits() {
    tp-run logits --ids "$ids" --tp "$2" -o one.safetensors "$1" &&
        tp-run logits --ids "$ids" --tp "$2" --pp "$3" -o many.safetensors "$1" &&
        cmp one.safetensors many.safetensors
}

ids=1,2,3,4,5,6,7
for tp in 1 2 3; do
    for pp in 2 3 4; do
        ok "bard's logits on $pp stages of $tp ranks are those of $tp ranks" same_logits "$bard" $tp $pp
    done
done
for dir in "$data"/models/*/; do
    use_model "$dir"
    ok "$name in two stages answers as in one" same_logits "$dir" 1 2
done

for pp in 1 2 3 4; do
    tp-run score --window 256 --json --pp $pp "$heldout" "$bard" > score$pp
    tp-run generate --json --prompt ROMEO: --prompt Q --prompt 'What is' --prompt O --prompt Ay \
        --max-tokens 9 --pp $pp "$bard" | sed 's/,"tokens_per.*//' > texts$pp
done
ok "the score is the same over 2 stages" cmp score1 score2
ok "over 3" cmp score1 score3
ok "and over 4" cmp score1 score4
ok "texts made at the same time are those made one by one, over 2 stages" cmp texts1 texts2
ok "over 3" cmp texts1 texts3
ok "and over 4" cmp texts1 texts4
tp-run generate --json --prompt ROMEO: --prompt Q --prompt 'What is' --prompt O --prompt Ay \
    --max-tokens 9 --pp 2 --requests 5 "$bard" | sed 's/,"tokens_per.*//' > texts5
ok "however many are made at a time" cmp texts1 texts5
for tail in "--temperature 1 --top-k 40 --seed 7" "--temperature 0"; do
    tp-run generate --prompt ROMEO: --prompt Q --max-tokens 9 $tail "$bard" > plain1
    tp-run generate --prompt ROMEO: --prompt Q --max-tokens 9 $tail --tp 2 --pp 3 "$bard" > plain2
    ok "words come in order ($tail)" cmp plain1 plain2
done

tp-run logits --ids 1,2,3 --trace t1.safetensors "$bard"
tp-run logits --ids 1,2,3 --trace t3.safetensors --tp 1 --pp 3 "$bard"
ok "a trace has the lines of all stages" cmp t1.safetensors t3.safetensors

# inputs of one line each
{ echo 'ROMEO: what'; echo; echo 'Q'; echo 'It is the east'; } > lines
printf '%s\n' '"ROMEO: what"' '{"prompt":"Q"}' '{"text":"It is the east"}' > lines.json
for f in lines lines.json; do
    tp-run generate --json --input $f --max-tokens 4 "$bard" |
        sed 's/,"tokens_per.*//; s/"line":[0-9]*,//' > $f.out
    tp-run logits --input $f -o $f.safetensors "$bard"
done
ok "--input takes a prompt from each line that is not empty" test "$(wc -l < lines.out)" -eq 3
ok "as text or as JSON" cmp lines.out lines.json.out
ok "logits likewise" cmp lines.safetensors lines.json.safetensors
ok "and are numbered" grep -q '"2.logits"' lines.safetensors
echo '{"ids":[856,59]}' > ids.json
run tp-run generate --input ids.json --max-tokens 3 --json "$bard"
out_has '"ids":[11,74,456]' "a line may have ids"
run tp-run score --input - --json "$bard"
status_is 3 "no text at all is refused"
awk 'length > 40' "$heldout" | head -n 9 > verses
tp-run score --input verses --json "$bard" > verses1
ok "each line is scored by itself" test "$(wc -l < verses1)" -eq 9
ok "and named by file and line" grep -q '"file":"verses","line":9' verses1
for mesh in pp=3 dp=2 dp=3,pp=2 tp=2,dp=2,pp=2; do
    tp-run score --input verses --json --mesh $mesh --tp 1 "$bard" > verses2 2> err ||
        tp-run score --input verses --json --mesh $mesh "$bard" > verses2
    case $mesh in
    tp*) ok "nine lines on $mesh come in order" sh -c \
        'cut -d, -f1-3 verses1 > a; cut -d, -f1-3 verses2 > b; cmp a b' ;;
    *) ok "nine lines score the same on $mesh" cmp verses1 verses2 ;;
    esac
    tp-run generate --input verses --max-tokens 5 --json --mesh $mesh "$bard" |
        sed 's/,"tokens_per.*//' > made2
    tp-run generate --input verses --max-tokens 5 --json "$bard" | sed 's/,"tokens_per.*//' > made1
    ok "and are continued the same on $mesh" cmp made1 made2
    tp-run logits --input verses --mesh $mesh -o m2 "$bard"
    tp-run logits --input verses --mesh "tp=$(case $mesh in tp*) echo 2 ;; *) echo 1 ;; esac)" -o m1 "$bard"
    ok "and have the same logits on $mesh" cmp m1 m2
done
for bad in '{"x":1}' '{"ids":3}' '{"ids":["a"]}' '{"ids":[1.5]}' '{"ids":[99999]}' \
    '{"ids":[1,2],"token_types":[0]}'; do
    echo "$bad" > bad.json
    run tp-run logits --input bad.json -o o "$bard"
    status_is 3 "the line $bad is refused"
    err_lines 1 "in one line"
    err_has "bad.json:1: " "that names it"
done

# stages on disk: uneven, with the tied embedding on both ends
pp-partition split -q --stages 1,3,2 "$bard" uneven
ids=1,2,3,4,5,6,7
tp-run logits --ids $ids -o one.safetensors "$bard"
run tp-run logits --ids $ids -o many.safetensors uneven
status_is 0 "a checkpoint is run in its own stages"
ok "uneven ones, with the same logits" cmp one.safetensors many.safetensors
run tp-run logits --ids $ids -o many.safetensors --pp 2 uneven
ok "or in others, cut while it is loaded" cmp one.safetensors many.safetensors
run tp-run generate --prompt x --pp 7 "$bard"
status_is 1 "more stages than layers do not fit"
err_is "tp-run: pp 7: the model has 6 layers" "and the reason is told"
run tp-run generate --prompt x --mesh ep=2 "$bard"
status_is 1 "nor does a layout over what the family has not"

# a stage that is killed
if [ -r "/proc/$$/task/$$/children" ]; then
    for i in 1 2 3 4 5 6 7 8 9; do cat verses verses verses verses verses verses; done > many
    tp-run generate --temperature 1 --max-tokens 500 --input many --pp 3 "$bard" > out 2> err &
    pid=$!
    while [ ! -s out ] && kill -0 "$pid" 2> kill.err; do sleep 0.01; done
    kids=$(cat "/proc/$pid/task/$pid/children")
    kids=${kids% }
    kill -KILL "${kids##* }"
    status=0
    wait "$pid" || status=$?
    status_is 4 "a killed stage ends the run"
    err_is "tp-run: rank 2 was killed by signal 9 (SIGKILL)" "with one line"
    # the first process, which can tell nobody
    : > out
    tp-run generate --temperature 1 --max-tokens 500 --input many --pp 3 "$bard" > out 2> err &
    pid=$!
    while [ ! -s out ] && kill -0 "$pid" 2> kill.err; do sleep 0.01; done
    kids=$(cat "/proc/$pid/task/$pid/children")
    kill -KILL "$pid"
    wait "$pid" 2> kill.err
    # those that run still; what has ended may wait for ever to be reaped
    running() {
        for kid in $kids; do sed 's/.*) //' "/proc/$kid/stat" 2> /dev/null; done | grep -c '^[^ZX]'
    }
    tries=30
    until [ "$(running)" = 0 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
    ok "no rank outlives the process that has started it" test "$kids:$(running)" = "${kids:-none}:0"
    # shellcheck disable=SC2086 # a list of numbers
    [ "$(running)" = 0 ] || kill -KILL $kids
else
    skip "a killed stage ends the run" "no list of children"
fi
done_testing
