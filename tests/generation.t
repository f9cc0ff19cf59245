#!/bin/sh
# generation.t - tokens are chosen as transformers' generate() chooses them, whatever the layout
. "${top_srcdir:?}/tests/lib.sh"

# each line of a file of tests/data/generation, with its own settings, on a layout
lines() {
    tp-run generate --ignore-generation-config --json --logprobs 0 --max-tokens 14 \
        --input "$data/generation/$name.jsonl" "$@" "$data/$dir" > answers &&
        sed 's/.*"ids":\[\([0-9,]*\)\],"text".*/\1/' answers > ids
}
# are the log-probabilities of the file answers within 1e-4 of those expected?
near_logprobs() {
    sed 's/.*"logprobs":\[//; s/],"finish.*//; s/"top"[^}]*}/\n/g' answers |
        sed -n 's/.*"logprob":\([-0-9.e]*\).*/\1/p' > got
    sed -n 'n;p' "$data/generation/$name.expected" | tr , '\n' > want
    paste got want | awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) exit 1 } END { if (NR < 500) exit 1 }'
}
while read -r name dir; do
    sed -n 'p;n' "$data/generation/$name.expected" > expected
    lines
    ok "$name: every setting's ids are transformers'" cmp ids expected
    ok "$name: and the log-probabilities" near_logprobs
    for layout in "--tp 3" "--pp 2" "--dp 2 --requests 3" "--cache-tokens 64 --requests 5"; do
        [ -z "${SHORT-}" ] || [ "$name" = llama ] || [ "$name" = bart ] || continue
        # shellcheck disable=SC2086
        lines $layout
        ok "$name: and with $layout" cmp ids expected
    done
done <<END
llama models/llama-gqa
gpt2 models/gpt2-awkward
qwen3 models/qwen3
bart stacks/bart
t5 stacks/t5
marian stacks/marian
END

model=$data/models/llama-gqa

# options say the same as keys
same_as() {
    echo "{\"ids\":[3,4,5],$1}" > line
    tp-run generate --json --max-tokens 9 --input line "$model" | sed 's/.*,"ids"/"ids"/; s/,"tokens_per.*//' > by-line
    shift
    tp-run generate --json --max-tokens 9 --ids 3,4,5 "$@" "$model" | sed 's/.*,"ids"/"ids"/; s/,"tokens_per.*//' > by-option
    cmp by-line by-option
}
while IFS='|' read -r keys options; do
    # shellcheck disable=SC2086
    ok "$options is $keys" same_as "$keys" $options
done <<'END'
"repetition_penalty":1.4|--repetition-penalty 1.4
"presence_penalty":1.5,"frequency_penalty":0.5|--presence-penalty 1.5 --frequency-penalty 0.5
"no_repeat_ngram_size":2|--no-repeat-ngram 2
"encoder_no_repeat_ngram_size":1|--encoder-no-repeat-ngram 1
"suppress_tokens":[7,21]|--suppress-tokens 7,21
"logit_bias":{"7":2.5,"9":-1}|--logit-bias 7:2.5 --logit-bias 9:-1
"temperature":1,"seed":7,"min_p":0.3|--temperature 1 --seed 7 --min-p 0.3
"temperature":1,"seed":7,"typical_p":0.4,"top_k":20,"top_p":0.8|--temperature 1 --seed 7 --typical-p 0.4 --top-k 20 --top-p 0.8
"stop_ids":[56,21],"ignore_eos":true,"min_new_tokens":3|--stop-ids 56,21 --ignore-eos --min-tokens 3
"max_tokens":4,"logprobs":2|--max-tokens 4 --logprobs 2
END
run tp-run generate --ids 3 --min-p 0.1 "$model"
err_has "tp-run: --min-p needs --temperature" "what is about drawing needs a temperature"
run tp-run generate --ids 3 --repetition-penalty 0 "$model"
status_is 2 "a penalty of 0 is refused"
err_has "tp-run: --repetition-penalty must be a number from 1e-06 to 1000000" "with its range"
printf '%s\n' '{"ids":[3],"top_p":0}' '{"ids":[3],"seed":1.5}' '{"ids":[3],"bad_words_ids":[[999]]}' '{"ids":[3],"max_tokens":2}' > lines
run tp-run generate --json --input lines "$model"
status_is 3 "a line whose settings are wrong is refused"
err_is "tp-run: lines:1: top_p must be a number above 0 and at most 1
tp-run: lines:2: seed is no whole number in its range
tp-run: lines:3: bad_words_ids has an id that the model does not have" "by its place"
ok "alone" grep -q '"line":4,.*"finish":"length"' out
run tp-run generate --ids 3 --logprobs 2 "$model"
status_is 2 "--logprobs without --json has nowhere to go"

# texts: stops, forbidden words
run tp-run generate --prompt ROMEO: --max-tokens 30 --stop 'leave to' "$bard"
out_is "
I'll give thee " "a text ends before a stop"
run tp-run generate --json --prompt ROMEO: --max-tokens 30 --stop 'XX' --stop ' to be' "$bard"
out_has '"finish":"stop"' "and says so"
run tp-run generate --prompt ROMEO: --max-tokens 30 --bad-words bride --bad-words leave "$bard"
ok "forbidden words do not come" sh -c '! grep -q "bride\|leave" out'
printf '{"prompt":"a\\u0000b"}\n{"prompt":"a\\\\u0000"}\n' > nul
run tp-run generate --input nul --max-tokens 1 "$bard"
status_is 3 "a text with U+0000 is refused"
err_is "tp-run: nul:1: a text has the character U+0000, at byte 12" "where it is"

# equals at the border of --top-k are all kept
printf '%s\n' '{"ids":[3],"seed":1}' '{"ids":[3],"seed":2}' '{"ids":[3],"seed":3}' '{"ids":[3],"seed":4}' |
    sed 's/}/,"logit_bias":{"5":1e9,"6":1e9,"7":1e9},"temperature":1,"top_k":1,"max_tokens":9}/' > ties
tp-run generate --json --input ties "$model" | sed 's/.*"ids":\[\([0-9,]*\)\],"text".*/\1/' | tr , '\n' | sort -u > drawn
ok "tokens as likely as the last of --top-k are kept" test "$(tr '\n' ' ' < drawn)" = "5 6 7 "
done_testing
