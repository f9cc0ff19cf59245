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
    for layout in "--tp 3" "--pp 2" "--dp 2 --requests 3" "--cache-tokens 64 --requests 5" "--draft lookup --pp 2"; do
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

# beam searches: what each of NAME.beams finds, and its score within 1e-4
search() {
    begin=$(head -n 1 "$data/generation/$name.beams")
    sed "s/^/{$begin,/; s/\$/}/" "$data/generation/beams.settings" > lines
    tp-run generate --ignore-generation-config --json --max-tokens 14 --input lines "$@" "$data/$dir" |
        sed 's/.*"choices":\[//; s/\]}$//; s/},{/} {/g
            s/{"ids":\[\([0-9,]*\)\],"text":null,"score":\([-0-9.e]*\)[^}]*}/\1:\2/g' > found
}
same_found() {
    sed 1d "$data/generation/$name.beams" | paste -d ' ' found - | awk '{
        for (i = 1; i <= NF / 2; i++) {
            split($i, got, ":"); split($(i + NF / 2), want, ":"); d = got[2] - want[2]
            if (NF % 2 || got[1] != want[1] || d > 1e-4 || d < -1e-4) exit 1
        }
    } END { if (NR != 33) exit 1 }'
}
while read -r name dir; do
    search
    ok "$name: beams find what transformers' find, with its scores" same_found
    for layout in "--tp 3" "--pp 2" "--cache-tokens 48 --requests 2"; do
        [ -z "${SHORT-}" ] || [ "$name" = t5 ] || continue
        # shellcheck disable=SC2086
        search $layout
        ok "$name: and with $layout" same_found
    done
done <<END
llama models/llama-gqa
bart stacks/bart
t5 stacks/t5
marian stacks/marian
END

model=$data/models/llama-gqa

# several texts of a prompt are those of the seeds that follow
seeds() {
    tp-run generate --ignore-generation-config --json --max-tokens 9 --temperature 1.3 --input line "$@" |
        grep -o '"ids":\[[0-9,]*\]'
}
for own in models/llama-gqa stacks/bart models/lfm2; do
    echo '{"ids":[3,4,5]}' > line
    [ "$own" = stacks/bart ] && echo '{"source":[3,4,5]}' > line
    for seed in 5 6 7; do seeds --seed $seed "$data/$own"; done > expected
    for layout in "--tp 2" "--dp 2 --cache-tokens 16 --requests 1"; do
        # shellcheck disable=SC2086
        seeds --seed 5 --num-return 3 $layout "$data/$own" > ids
        ok "$own: --num-return draws with the seeds that follow, with $layout" cmp ids expected
    done
done
run tp-run generate --prompt ROMEO: --max-tokens 8 --beams 3 --num-return 2 "$bard"
out_is "
Sirrah, I am

Sirrah, I know" "the texts of a prompt follow one another"
run tp-run generate --prompt ROMEO: --max-tokens 8 --num-return 2 "$bard"
status_is 2 "several texts that would be the same are refused"
err_has "tp-run: --num-return needs --beams or --temperature" "by name"
run tp-run generate --prompt ROMEO: --beams 3 --num-return 4 "$bard"
err_has "tp-run: --num-return is above --beams" "and more than there are beams"
cp -r "$bard" grouped && chmod -R u+w grouped
echo '{"num_beams":4,"num_beam_groups":2}' > grouped/generation_config.json
run tp-run generate --prompt ROMEO: grouped
status_is 3 "groups of beams are refused"
err_has "tp-run cannot follow num_beam_groups = 2" "by name"
echo '{"num_beams":3,"num_return_sequences":2,"max_new_tokens":8,"length_penalty":0.5,"early_stopping":true}' > grouped/generation_config.json
tp-run generate --json --prompt ROMEO: grouped | sed 's/,"tokens_per_second":[0-9.]*//g' > by-file
tp-run generate --json --prompt ROMEO: --beams 3 --num-return 2 --max-tokens 8 --length-penalty 0.5 \
    --early-stopping true "$bard" | sed 's/,"tokens_per_second":[0-9.]*//g' > by-option
ok "generation_config.json says what the options say" cmp by-file by-option
run tp-run serve grouped
err_has "tp-run cannot follow num_beams = 3" "a server does not search, and says so"

# a text that fills the context goes on as from a prompt of its first and its newest tokens
ids_of() {
    tp-run generate --ignore-generation-config --ignore-eos "$@" "$data/$own"
}
for own in models/llama-gqa models/lfm2; do
    ids_of --ids 3,4,5,6,7,8,9 --max-tokens 90 > alone
    slid=3,4,5,$(tr , '\n' < alone | tail -n 30 | paste -sd , -)
    echo "$(cat alone),$(ids_of --ids "$slid" --max-tokens 17)" > expected
    for layout in "--tp 2" "--pp 2 --cache-tokens 64"; do
        # shellcheck disable=SC2086
        ids_of --ids 3,4,5,6,7,8,9 --max-tokens 75 --context slide --context-keep 3 $layout > ids
        ok "$own: a text slides, with $layout" cmp ids expected
    done
done
seeds --seed 5 --num-return 2 --context slide --max-tokens 90 "$data/$own" > ids
for seed in 5 6; do seeds --seed $seed --context slide --max-tokens 90 "$data/$own"; done > expected
ok "and each of several texts" cmp ids expected
run tp-run generate --ids 3 --context slide --beams 2 "$model"
err_is "tp-run: --context slide: beams do not slide" "beams do not"
run tp-run generate --ids 3 --context slide --context-keep 63 "$model"
status_is 2 "nothing would be left to slide"
err_has "tp-run: --context-keep 63: the model takes 64" "where all is kept"

# options say the same as keys
same_as() {
    echo "{\"ids\":[3,4,5],$1}" > line
    tp-run generate --json --max-tokens 9 --input line "$model" | sed 's/.*[,{]"ids"/"ids"/; s/,"tokens_per.*//' > by-line
    shift
    tp-run generate --json --max-tokens 9 --ids 3,4,5 "$@" "$model" | sed 's/.*[,{]"ids"/"ids"/; s/,"tokens_per.*//' > by-option
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
"num_beams":3,"length_penalty":2,"early_stopping":"never"|--beams 3 --length-penalty 2 --early-stopping never
"num_beams":3,"num_return_sequences":2,"temperature":1.2,"seed":3|--beams 3 --num-return 2 --temperature 1.2 --seed 3
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

# what is drawn has transformers' distribution: chi-square over what is expected 5 times or more, and the rest
draw() { # SEED: a thousand last ids under $setting
    case $setting in
    *num_beams*) seq "$1" $(($1 + 999)) | sed "s/.*/{\"ids\":[3,4,5],\"seed\":&,\"max_tokens\":2,$setting}/" ;;
    *) echo "{\"ids\":[3,4,5],\"seed\":$1,\"max_tokens\":1,\"num_return_sequences\":1000,$setting}" ;;
    esac > lines
    tp-run generate --json --ignore-generation-config --ignore-eos --input lines "$model" |
        grep -o '"ids":\[[0-9,]*\],"text"' | sed 's/\],"text"//; s/.*[[,]//'
}
is_drawn() { # from the probabilities $p, within four deviations of what chi-square has
    awk -v p="$p" '{ n++; got[$1]++ } END {
        for (i = split(p, v, " "); i > 0; i--) {
            split(v[i], one, ":"); want = n * one[2]; all += got[one[1]]
            if (want < 5) { rest += want; had += got[one[1]]; continue }
            d = got[one[1]] - want; chi += d * d / want; k++
        }
        if (rest >= 5) { d = had - rest; chi += d * d / rest; k++ }
        if (n < 1000 || n - all > 2 || chi > k - 1 + 4 * sqrt(2 * k)) exit 1
    }' drawn
}
tab=$(printf '\t')
while IFS=$tab read -r setting p; do
    : > drawn
    for seed in 1 ${LONG:+1001 2001 3001 4001 5001 6001 7001 8001 9001}; do draw "$seed" >> drawn; done
    ok "what is drawn with $setting has transformers' distribution" is_drawn
done < "$data/generation/draws"

# the beams of a text share what its encoder made
printf '{"ids":[0],"source_ids":[%s]}\n' "$(seq -s , 3 57)" > long
cached() { # BEAMS
    tp-run generate --report-memory --max-tokens 4 --beams "$1" --input long "$data/stacks/t5" 2>&1 |
        sed -n 's/.*"kv_cache":\([0-9]*\).*/\1/p'
}
ok "seven beams hold the encoder's keys and values once" test "$(cached 7)" -lt $((3 * $(cached 1)))

# equals at the border of --top-k are all kept
printf '%s\n' '{"ids":[3],"seed":1}' '{"ids":[3],"seed":2}' '{"ids":[3],"seed":3}' '{"ids":[3],"seed":4}' |
    sed 's/}/,"logit_bias":{"5":1e9,"6":1e9,"7":1e9},"temperature":1,"top_k":1,"max_tokens":9}/' > ties
tp-run generate --json --input ties "$model" | sed 's/.*"ids":\[\([0-9,]*\)\],"text".*/\1/' | tr , '\n' | sort -u > drawn
ok "tokens as likely as the last of --top-k are kept" test "$(tr '\n' ' ' < drawn)" = "5 6 7 "
done_testing
