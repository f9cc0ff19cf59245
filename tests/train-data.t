#!/bin/sh
# train-data.t - tp-run train: what is checked of the data before a step, and what an epoch is
. "$top_srcdir/tests/lib.sh"

model=$data/models/llama-gqa # a vocabulary of 112

# the documents of oracle/make-epochs.py
awk 'BEGIN { for (i = 0; i < 26; i++) { printf "{\"ids\":["
    m = 9 + i * 7 % 23
    for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 95
    print "]}" } }' > ids.jsonl

train() {
    tp-run train --seq 24 --global-batch 4 --steps 2 --threads 1 --save-every 0 "$@" "$model"
}

# numbers BYTES ... - little-endian, of this width
numbers() {
    awk -v bytes="$1" 'BEGIN { for (i = 2; i < ARGC; i++) for (b = 0; b < bytes; b++)
        printf "\\%03o", int(ARGV[i] / 256 ^ b) % 256 }' "$@" > escapes
    # shellcheck disable=SC2059 # its octal escapes
    printf "$(cat escapes)"
}

# some N - so many numbers below 112
some() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%d ", 3 + i * i * 7 % 95 }'
}

# ---- ids ----

# shellcheck disable=SC2046 # numbers
{
    numbers 2 $(some 3000) 112 $(some 30)
} > beyond.bin
for more in -n ""; do
    # shellcheck disable=SC2086 # no word
    run train --data beyond.bin $more
    status_is 3 "an id beyond the vocabulary, of a sample of a later step, is bad input before the first${more:+, with $more}"
    err_has "beyond.bin: token 3000 is 112, and the vocabulary has 112" "by its place"
done
# shellcheck disable=SC2046 # numbers
numbers 2 $(some 3000) > good.bin
run train -q --data good.bin --eval-data beyond.bin --eval-every 2
status_is 3 "and one of the data to evaluate on"
tp-run train -q --data good.bin --seq 24 --global-batch 4 --steps 2 --threads 1 -o run "$model"
ok "a run remembers what was checked" grep -q '"path":".*/good.bin","size":6000,"crc32":"[0-9a-f]*","vocab":112}' run/run.json
tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --steps 2 --threads 1 -o run2 "$model"
sed 's/,"vocab":112//; s/,"ids_type":"auto","drop_last":0//' run2/run.json > older.json
ok "a run of an older version does not" sh -c '! grep -e ,.vocab.: -e ids_type -e drop_last older.json && grep -q eval_fraction older.json'
cp older.json run2/run.json
run tp-run train -q --resume --steps 20 --threads 1 --log-samples -o run2
status_is 0 "it goes on"
ok "with whole batches where an epoch ends" sh -c 'grep -c "\"samples\":\[[0-9]*,[0-9]*,[0-9]*,[0-9]*\]" run2/log.jsonl | grep -qx 18'
ok "and is of now" grep -q '"drop_last":1' run2/run.json

# ---- widths ----

# shellcheck disable=SC2046 # numbers
numbers 4 $(some 300) > wide.bin
run train --data wide.bin
status_is 3 "ids of 32 bits are not taken for twice as many of 16"
err_has "wide.bin: its ids seem to have 32 bits, not 16, as every second number is 0 or 1: say --ids-type u32 or u16" "and what they seem to be is told"
run train -n --data wide.bin --ids-type u32
status_is 0 "--ids-type says what they are"
out_has " 300 tokens" "as many as there are"
run train -n --data wide.bin --ids-type u16
out_has " 600 tokens" "or that they are of 16 bits"
# shellcheck disable=SC2046 # numbers
numbers 8 $(some 300) > wider.bin
run train --data wider.bin
status_is 3 "ids of 64 bits are refused"
err_has "wider.bin: its ids seem to have 64 bits, of which 48 are 0" "too"
cp good.bin some_document.bin
run train --data some_document.bin
status_is 3 "Megatron's ids without their index are refused"
err_has "some_document.bin: has the name of Megatron's, and its .idx is missing" "by name"
{
    numbers 4 20250101 1 1500
    head -c 1012 /dev/zero
    # shellcheck disable=SC2046 # numbers
    numbers 2 $(some 1500)
} > magic.bin
run train --data magic.bin
status_is 3 "a header with another magic number than llm.c's is no text"
err_has "magic.bin: has a header as llm.c's with the magic number 20250101, which is not known" "and told"
mkdir large
sed 's/"vocab_size": *112/"vocab_size": 70000/' "$model/config.json" > large/config.json
run tp-run train -n --init --data good.bin --seq 24 large
status_is 3 "ids of 16 bits have too few for a larger vocabulary"
err_has "good.bin: the vocabulary of 70000 ids does not fit 16 bits" "which is told"
run tp-run train -n --init --data good.bin --seq 24 --ids-type u16 large
status_is 0 "unless it is said that they have"

# ---- keys that act in training alone ----

cp -r "$data/models/mixtral" mixtral
echo '{"ids":[5,6,7,8]}' > few.jsonl
# with SCRIPT - mixtral with a config that sed has changed
with() {
    sed "$1" "$data/models/mixtral/config.json" > mixtral/config.json
    run tp-run train -q -n --data few.jsonl --seq 24 mixtral
}
with ''
status_is 0 "then a mixture is trained"
with 's/"router_jitter_noise": 0.0/"router_jitter_noise": 0.1/'
status_is 3 "noise of the router is not left out without a word"
err_has "mixtral/config.json:" "the place is told"
err_has "family mixtral is not trained with router_jitter_noise = 0.1, which acts in training" "and the key"
run tp-run logits --ids 5,6 --output logits.bin mixtral
status_is 0 "which matters to nothing else"
err_empty "without a word"

# ---- what is left out ----

{
    cat ids.jsonl
    echo '{"ids":[5]}'
    awk 'BEGIN { printf "{\"ids\":[7"; for (k = 0; k < 59; k++) printf ",%d", k + 3; print "]}" }'
} > odd.jsonl
run train -n --data odd.jsonl --pack none
err_is "tp-run: 1 of 28 documents have no target within --seq 24 tokens, and are no samples
tp-run: 7 of 28 documents are longer than --seq 24: their last tokens, 56 in all, are left out" "what --pack none leaves out is counted"
run train -n --data odd.jsonl --pack none --seq 60
err_is "tp-run: 1 of 28 documents have no target within --seq 60 tokens, and are no samples" "and no more than that"
run train -n --data odd.jsonl
err_empty "packed, nothing is"

# a prompt that fills samples, in which there is nothing to learn
awk 'BEGIN { printf "{\"prompt\":\""; for (k = 0; k < 3000; k++) printf "word "; print "\",\"completion\":\" end\"}" }' > prompt.jsonl
run tp-run train --data prompt.jsonl --order sequential --seq 64 --global-batch 2 --steps 3 --threads 1 --save-every 0 --json "$bard"
status_is 0 "a batch without targets does not end a run"
ok "its step is skipped, and said to be" sh -c 'grep -c "\"loss\":\"NaN\".*\"skipped\":true" out | grep -qx 3'

# ---- chats ----

cat > chats.jsonl << 'END'
{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Good day to you."}]}
{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi."},{"role":"user","content":"Bye"},{"role":"assistant","content":"Good day to you."}]}
{"messages":[{"role":"user","content":"Hello"}]}
END
# chat OPTION... - trains the model of tests/data/chat
chat() {
    tp-run train --pack none --order sequential --seq 100 --global-batch 2 --threads 1 --save-every 0 --json "$@" "$data/chat"
}
run chat --data chats.jsonl
status_is 0 "a chat is data"
err_is "tp-run: 1 of 3 documents have no target within --seq 100 tokens, and are no samples" "one without an answer teaches nothing"
loss=$(sed -n 's/.*"type":"step","step":1,"loss":\([^,]*\),.*/\1/p' out)
sed '3s/.*/{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi."},{"role":"user","content":"Bye"}]}/' \
    chats.jsonl > asks.jsonl
run chat -q --data asks.jsonl --last-answer
status_is 3 "--last-answer needs one"
err_has "asks.jsonl:3: the last message is no answer, which --last-answer asks for" "in the line that lacks it"
head -n 2 chats.jsonl > answers.jsonl
run chat -q --data answers.jsonl --last-answer
status_is 0 "of two answers the last may count alone"
ok "which is another loss" sh -c "[ \"$loss\" != \"\$(sed -n 's/.*\"type\":\"step\",\"step\":1,\"loss\":\([^,]*\),.*/\1/p' out)\" ]"
cp -r "$data/chat" strips
printf '%s' '{% for m in messages %}[{{ m.role }}]{% if loop.last or m.role != "assistant" %}{{ m.content }}{% endif %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' > strips/chat_template.jinja
run tp-run train -q -n --data answers.jsonl --seq 100 --global-batch 2 strips
status_is 3 "a template that renders answers otherwise later is refused"
err_has "answers.jsonl:2: the chat template renders the 2 messages up to an answer otherwise than within the chat" "with the line"
err_has ": with --last-answer only the last answer is learned" "and what can be done"
run tp-run train -q -n --data answers.jsonl --seq 100 --global-batch 2 --last-answer strips
status_is 0 "with it the dataset is taken"
run train -q --data chats.jsonl
status_is 3 "a model without a template has no chats"
err_has "chats.jsonl:1: 'messages': " "which is told"

# ---- epochs ----

run tp-run train -q --data ids.jsonl --pack none --order sequential --seq 32 --global-batch 4 --epochs 2 --lr 1e-2 --warmup 3 \
    --weight-decay 0.1 --threads 1 --log-samples -o epochs "$model"
status_is 0 "26 documents are trained on"
sed -n 's/.*"type":"step","step":\([0-9]*\),"loss":\([^,]*\),"grad_norm":\([^,]*\),"learning_rate":\([^,]*\),"epoch":\([^,]*\),.*/\1 \2 \3 \4 \5/p' \
    epochs/log.jsonl > got
# near to Trainer's, which are f32
paste "$data/epochs.tsv" got > both
ok "by 4 they make 7 steps an epoch, with the losses, norms and rates of Trainer" awk 'function near(a, b, t) {
        d = a - b; return (d < 0 ? -d : d) <= t * a }
    NF != 10 || $1 != $6 || !near($2, $7, 2e-5) || !near($3, $8, 2e-4) || !near($4, $9, 1e-8) || !near($5, $10, 1e-8) { print; bad = 1 }
    END { exit bad || NR != 14 }' both
ok "the last of an epoch has what is left" grep -q '"step":7,.*"samples":\[24,25\]' epochs/log.jsonl
for layout in "--dp 2 --micro-batch 2" "--pp 2" "--dp 4 --tp 2"; do
    # shellcheck disable=SC2086 # words
    tp-run train -q --data ids.jsonl --pack none --order sequential --seq 32 --global-batch 4 --epochs 2 --lr 1e-2 --warmup 3 \
        --weight-decay 0.1 --threads 1 --save-every 0 $layout --json "$model" |
        sed -n 's/.*"step":7,"loss":\([^,]*\),.*/\1/p' > loss
    ok "so it has on $layout" near "$(sed -n 7p "$data/epochs.tsv" | cut -f 2)" "$(cat loss)" 1e-4
done
tp-run train -q --resume --epochs 3 --stop-after 0.000001 --threads 1 --log-samples -o epochs 2> err
ok "a run goes on with the next epoch" grep -q '"step":15,.*"samples":\[0,1,2,3\]' epochs/log.jsonl
tp-run train -q --data ids.jsonl --pack none --order sequential --seq 32 --global-batch 4 --epochs 2 --drop-last --threads 1 --log-samples \
    --save-every 0 --json "$model" > out
ok "--drop-last fills that step from the next" grep -q '"step":7,.*"samples":\[24,25,0,1\]' out
ok "so that two epochs are a step less" grep -q '"type":"train","step":13,' out
run train -n --data ids.jsonl --pack none --global-batch 30
err_has "tp-run: 26 samples are fewer than the global batch, 30: a step has each of them once" "fewer samples than a batch are told"

done_testing
