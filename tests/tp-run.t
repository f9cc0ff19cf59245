#!/bin/sh
# tp-run.t - generating, scoring, and what goes wrong
. "$top_srcdir/tests/lib.sh"

run tp-run generate --prompt 'ROMEO:' --max-tokens 12 --tp 2 "$bard"
status_is 0 "a Hugging Face directory is cut while it is loaded"
out_is "
I'll give thee leave to be a bride" "text is streamed"
err_empty "and nothing is said besides"
run tp-run generate --prompt 'ROMEO:' --max-tokens 3 --json "$bard"
out_has '"prompt_ids":[856,59],"ids":[11,74,456],"text":"\nI'"'"'ll","finish":"length"' \
    "--json has ids, text and finish"
run tp-run generate --ids 856,59 --max-tokens 3 --json "$bard"
out_has '"ids":[11,74,456]' "a prompt may be ids"
run tp-run generate --prompt A --prompt B --max-tokens 2 --json "$bard"
ok "several prompts need no reload" test "$(wc -l < out)" -eq 2
printf 'ROMEO:' > prompt
status=0
tp-run generate --max-tokens 3 --json "$bard" < prompt > out 2> err || status=$?
out_has '"ids":[11,74,456]' "standard input is the prompt when none is given"
seq -s, 1 510 > ids
run tp-run generate --ids "$(cat ids)" --max-tokens 9 --json --tp 3 "$bard"
out_has '"finish":"context"' "a text stops at the model's context"

tp-run generate --prompt 'O' --temperature 1 --top-k 50 --top-p 0.9 --seed 5 --json "$bard" |
    sed 's/,"tokens_per.*//' > one
tp-run generate --prompt 'O' --temperature 1 --top-k 50 --top-p 0.9 --seed 5 --json "$bard" |
    sed 's/,"tokens_per.*//' > two
tp-run generate --prompt 'O' --temperature 1 --top-k 50 --top-p 0.9 --seed 6 --json "$bard" |
    sed 's/,"tokens_per.*//' > three
ok "--seed makes a run reproducible" cmp one two
ok "another seed gives another text" sh -c '! cmp -s one three'

tokens=5082 nll=3.00387
[ -z "${SHORT-}" ] || tokens=1548 nll=2.93608
for tp in 1 2 3 6; do
    run tp-run score --window 256 --json --tp "$tp" "$heldout" "$bard"
    ok "bard scores $nll at tp $tp" near "$nll" "$(json out nll)" 1e-5
    out_has "\"tokens\":$tokens" "and predicts every token but the first at tp $tp"
done
run tp-run score "$heldout" "$heldout" "$bard"
ok "several files need no reload" test "$(wc -l < out)" -eq 2

tp-run logits --ids 1,2,3 -o one.safetensors "$bard"
tp-run logits --ids 1,2,3 -o - --tp 1 "$bard" > two.safetensors
ok "the output may be standard output" cmp one.safetensors two.safetensors

for threads in 1 5; do
    tp-run logits --threads $threads --prompt "$(head -c 600 "$heldout")" -o l$threads "$bard"
done
ok "the number of threads changes no bit" cmp l1 l5

# what goes wrong
run tp-run generate --prompt x --tp 7 "$bard"
status_is 1 "more ranks than heads do not fit"
err_is "tp-run: tp 7: the model has 6 heads; valid tp: 1 to 6; or use --pp" "and the reason is told"
run tp-run generate --prompt x --temperature -1 "$bard"
status_is 2 "a temperature below nought is a usage error"
run tp-run generate --prompt x nowhere
status_is 3 "a missing model is bad input"
err_lines 1 "told in one line"
run tp-run generate --ids 5,1024 "$bard"
err_is "tp-run: --ids: id 1024 is not in the vocabulary of 1024" "an unknown id is refused"
run tp-run generate --ids 1,x "$bard"
err_is "tp-run: --ids: 'x' is no id" "what is no id is refused"
run tp-run score "$top_srcdir/COPYING" --window 1000 "$bard"
err_is "tp-run: --window 1000: the model takes 512 tokens" "a window beyond the context is refused"
if [ -w /dev/full ]; then
    status=0
    tp-run generate --prompt x --max-tokens 4 --tp 2 "$bard" > /dev/full 2> err || status=$?
    status_is 4 "output that cannot be written is an error of the machine"
    err_lines 1 "told in one line"
fi

tp-shard split --tp 2 "$bard" b2
run tp-run score --window 256 --json --tp 3 "$heldout" b2
out_has "\"nll\":${nll%?}" "a checkpoint is cut anew while it is loaded"
cp -r b2 flipped
size=$(wc -c < flipped/rank-tp1-pp0.safetensors)
printf '\377' | dd of=flipped/rank-tp1-pp0.safetensors bs=1 seek=$((size / 2)) conv=notrunc 2> dd.err
run tp-run generate --prompt x flipped
status_is 3 "a damaged rank file is refused before the first token"
ok "and nothing was said" test ! -s out
err_has "flipped/rank-tp1-pp0.safetensors: tensor " "the error names file and tensor"
err_lines 1 "in one line"
cp -r b2 short
head -c 1000 b2/rank-tp0-pp0.safetensors > short/rank-tp0-pp0.safetensors
run tp-run generate --prompt x short
status_is 3 "a truncated rank file is refused"
cp -r b2 gone
rm gone/rank-tp1-pp0.safetensors
run tp-run generate --prompt x gone
status_is 3 "a missing rank file is told"
err_lines 1 "in one line"

# a rank that is killed
kids_of() {
    cat "/proc/$1/task/$1/children" 2> /dev/null
}
if [ -r "/proc/$$/task/$$/children" ]; then
    : > out
    tp-run generate --prompt 'ROMEO:' --temperature 1 --seed 1 --max-tokens 500 --prompt A --prompt B \
        --prompt C --prompt D --prompt E --prompt F --prompt G --prompt H b2 > out 2> err &
    pid=$!
    while [ ! -s out ] && kill -0 "$pid" 2> /dev/null; do sleep 0.01; done
    kids=$(kids_of "$pid")
    victim=${kids% }
    victim=${victim##* }
    kill -KILL "$victim"
    start=$(date +%s)
    status=0
    wait "$pid" || status=$?
    end=$(date +%s)
    status_is 4 "a killed rank ends the run"
    err_is "tp-run: rank 1 was killed by signal 9 (SIGKILL)" "with one line"
    ok "within a minute" test $((end - start)) -le 60
    left=0
    for kid in $kids; do
        kill -0 "$kid" 2> /dev/null && left=$((left + 1))
    done
    ok "and no rank is left" test "$left" -eq 0

    : > out
    tp-run generate --prompt 'ROMEO:' --temperature 1 --max-tokens 500 --prompt A --prompt B --prompt C \
        --prompt D --prompt E --prompt F --prompt G --prompt H b2 > out 2> err &
    pid=$!
    while [ ! -s out ] && kill -0 "$pid" 2> /dev/null; do sleep 0.01; done
    kids=$(kids_of "$pid")
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    status_is 143 "SIGTERM ends the run with 128 + 15"
    err_is "tp-run: ended by signal 15 (SIGTERM)" "with one line"
    left=0
    for kid in $kids; do
        kill -0 "$kid" 2> /dev/null && left=$((left + 1))
    done
    ok "and no rank is left after it" test "$left" -eq 0

    # a rank that does not answer
    start_rank() {
        : > out
        tp-run generate "$@" --prompt 'ROMEO:' --temperature 1 --max-tokens 500 --prompt A --prompt B \
            --prompt C --prompt D --prompt E --prompt F --prompt G --prompt H b2 > out 2> err &
        pid=$!
        while [ ! -s out ] && kill -0 "$pid" 2> /dev/null; do sleep 0.01; done
        kids=$(kids_of "$pid")
        victim=${kids% }
        victim=${victim##* }
        kill -STOP "$victim"
    }
    start_rank --rank-timeout 2
    start=$(date +%s)
    status=0
    wait "$pid" || status=$?
    end=$(date +%s)
    status_is 4 "a rank that is stopped ends the run"
    err_is "tp-run: rank 1 is stopped and has not answered for 2 s (--rank-timeout)" "with one line"
    ok "after --rank-timeout" test $((end - start)) -le 8
    left=0
    for kid in $kids; do
        kill -0 "$kid" 2> /dev/null && left=$((left + 1))
    done
    ok "and is not left" test "$left" -eq 0
    start_rank --rank-timeout 3
    sleep 1.5
    kill -CONT "$victim"
    status=0
    wait "$pid" || status=$?
    status_is 0 "one that goes on in time does no harm"
    start_rank --rank-timeout 0
    sleep 2.5
    ok "with 0 it is waited for" kill -0 "$pid"
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    if [ "$status" -eq 130 ]; then
        err_is "tp-run: ended by signal 2 (SIGINT)" "SIGINT says one line"
    else
        kill -TERM "$pid" 2> kill.err # a shell may start what is in the background deaf to it
        wait "$pid"
        skip "SIGINT says one line" "it is ignored here"
    fi

    # one rank
    : > out
    tp-run generate --prompt 'ROMEO:' --temperature 1 --max-tokens 500 --prompt A --prompt B \
        --prompt C --prompt D --prompt E --prompt F --prompt G --prompt H "$bard" > out 2> err &
    pid=$!
    while [ ! -s out ] && kill -0 "$pid" 2> /dev/null; do sleep 0.01; done
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    status_is 143 "SIGTERM ends one rank as well"
    same_text err "tp-run: ended by signal 15 (SIGTERM)" "with one line"
else
    skip "a killed rank ends the run" "no /proc"
fi

# lists of numbers
model=$data/models/llama-gqa
run tp-run logits --ids 1,,2 -o l "$model"
err_is "tp-run: --ids: '' is no id" "an id left out is refused"
run tp-run logits --ids 1,2, -o l "$model"
err_is "tp-run: --ids: no id after the last comma" "so is a comma at the end"
run tp-run logits --ids 1,2 --token-types 0,1 -o l "$model"
err_is "tp-run: --token-types: family llama has no token types" \
    "token types are refused where the model has none"
run tp-run logits --ids 1,2 --token-types 0,2 -o l "$data/models/bert-mlm"
err_is "tp-run: --token-types: token type 2 is not below the model's 2" \
    "a token type that the model lacks is refused"
run tp-run score --window 0 "$heldout" "$bard"
status_is 2 "a window of nothing is a usage error"
run tp-run logits --tp 0 --ids 1 -o l "$model"
err_has "tp-run: --tp: '0' is not a whole number from 1" "so are no ranks"
run tp-run generate --ids 1,2 --max-tokens 18446744073709551615 --json "$model"
out_has '"finish":"context"' "the largest number of tokens ends at the context"

# a dynamic rotary base follows the window's length, however it is cut into steps
cp -r "$data/models/llama-dynamic" dynamic
chmod -R u+w dynamic
sed 's/"max_position_embeddings": 16/"max_position_embeddings": 400/' \
    "$data/models/llama-dynamic/config.json" > dynamic/config.json
awk 'BEGIN { for (i = 0; i < 701; i++) { x = (x * 31 + 17) % 97; print x } }' > ids
tp-run logits --ids "$(head -n 700 ids | paste -sd, -)" -o l dynamic
header=$(od -An -tu8 -N8 l | tr -d ' ')
nll=$(od -An -v -tf4 -w400 -j $((8 + header)) l | paste -d ' ' - ids | awk '
    NF == 101 { if (NR > 1) sum -= row[$101 + 1] - log(total); total = 0
        for (i = 1; i <= 100; i++) { row[i] = $i; total += exp($i) } }
    NF == 1 { sum -= row[$1 + 1] - log(total) }
    END { print sum / (NR - 1) }')
run tp-run score --json --ids-file ids dynamic
ok "a dynamic rotary base is that of the whole window" \
    awk -v a="$nll" -v b="$(json out nll)" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }'

# factors by the whole length: numbers of transformers 5.23 in float64
cp -r "$data/models/phi3-long" long
chmod -R u+w long
sed 's/"max_position_embeddings": 64/"max_position_embeddings": 800/
    s/"original_max_position_embeddings": 16/"original_max_position_embeddings": 600/' \
    "$data/models/phi3-long/config.json" > long/config.json
awk 'BEGIN { for (i = 0; i < 701; i++) { x = (x * 31 + 17) % 61; print x } }' > ids
for how in "--tp 2" "--pp 2" "--sp 2"; do
    for case in 800:5.000504 500:4.975613 601:4.983336; do
        run tp-run score $how --window "${case%:*}" --json --ids-file ids long
        ok "longrope, $how: a window of ${case%:*} counts for itself" near "$(json out nll)" "${case#*:}" 1e-5
    done
    run tp-run generate $how --json --ids "$(head -n 597 ids | paste -sd, -)" --max-tokens 12 long
    out_has '"ids":[23,29,46,5,46,11,22,16,21,0,39,8]' "longrope, $how: a text that becomes long is read again"
done
sed 's/5.25/"5"/' "$data/models/phi3-long/config.json" > long/config.json
run tp-run logits --ids 3 -o l long
status_is 3 "a factor that is no number is refused"
err_is "tp-run: long/config.json: the rotary scaling's 'long' must be 4 factors above 0" "by its list"

# a layer that sees a window keeps no more than that and a step; where ranks share a sequence all of it
cache() { sed -n 's/.*"kv_cache":\([0-9]*\).*/\1/p' "$1" | head -n 1; }
for name in mistral-window gemma3 mixtral qwen2-window; do
    dir=$data/models/$name
    for ids in 3,5,7 "$(seq -s, 1 24)"; do
        tp-run generate -q --ids "$ids" --max-tokens 40 "$dir" > slid
        tp-run generate -q --sp 2 --ids "$ids" --max-tokens 40 "$dir" > whole
        ok "$name: what slides out of the window is not missed" cmp slid whole
    done
done
tp-run generate -q --report-memory --ids 3,5,7 --max-tokens 40 "$data/models/mistral-window" > slid 2> bytes
ok "a window of 8 and a step of 3 tokens keep two blocks of 16 rows for 42" \
    test "$(cache bytes)" = $((32 * 2 * 2 * 16 * 4))

ok "one rank shares no memory" test "$(grep -c '"shared"' bytes)" = 0
tp-run generate -q --report-memory --tp 2 --ids 3,5,7 --max-tokens 1 "$data/models/mistral-window" > slid 2> bytes
ok "two list what they share, apart from their total" test "$(grep -c \
    '"mapped":[0-9]*,"shared":{"mapped":[0-9]*,"collectives":[0-9]*,"messages":[0-9]*}}$' bytes)" = 2

# texts made together are those made alone, whatever room the cache has
for name in llama-gqa mistral-window mixtral deepseek-v2 gpt2-awkward llama-dynamic phi3-long; do
    dir=$data/models/$name
    : > texts
    : > alone
    for i in 1 2 3 4 5 6 7; do
        ids=$(seq -s, $i $((3 * i)))
        echo "{\"ids\":[$ids]}" >> texts
        tp-run generate -q --ids "$ids" --max-tokens 30 --json "$dir" | sed 's/,"tokens_per.*//' >> alone
    done
    for how in "" "--cache-tokens 64" "--cache-tokens 128 --pp 2" "--micro-batches 2 --dp 2"; do
        tp-run generate -q --input texts --max-tokens 30 --json $how "$dir" |
            sed 's/,"tokens_per.*//; s/"line":[0-9]*,//' > together
        ok "$name: seven texts are as they are alone ($how)" cmp together alone
    done
    tp-run generate -q --report-memory --input texts --max-tokens 30 --cache-tokens 64 "$dir" 2> bytes > out
    case $name in *window | mixtral) continue ;; esac # their windows show less than there is room for
    mem-estimate infer --json --kv-dtype f32 --kv-block 16 --cache-tokens 64 --seq 64 "$dir" > told
    ok "$name: the cache has the size that mem-estimate tells" test "$(cache bytes)" = "$(cache told)"
done
run tp-run generate --ids 3,5,7 --max-tokens 40 --cache-tokens 32 "$data/models/llama-gqa"
status_is 3 "a cache without room for one text is refused"
err_is "tp-run: --cache-tokens 32: --ids may need room for 43 tokens, in blocks of 16" "in one line"
run tp-run generate --ids 3 --cache-tokens 0 "$data/models/llama-gqa"
status_is 2 "so is none"

# each of a file's lines has the outputs that it has alone
hex() { od -An -v -tx1 "$1" | tr -d ' \n'; }
for name in mixtral bert-pooler gpt2-awkward; do
    dir=$data/models/$name
    printf '%s\n' '{"ids":[3,5,7,9]}' '{"ids":[4]}' '{"ids":[8,7,6,5,4,3,2]}' > texts
    tp-run logits --input texts -o all.safetensors "$dir"
    hex all.safetensors > all
    for i in 1 2 3; do
        sed -n ${i}p texts > text
        tp-run logits --input text -o one.safetensors "$dir"
        tail -c 64 one.safetensors > end
        ok "$name: line $i has the outputs that it has alone" grep -q "$(hex end)" all
    done
done
done_testing
