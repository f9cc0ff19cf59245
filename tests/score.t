#!/bin/sh
# score - windows that overlap, text that is not UTF-8, and what the line says
. "${top_srcdir:?}/tests/lib.sh"

use_model "$data/models/llama-gqa"
echo "$ids" | tr ',' ' ' > ids

# transformers 5.23 in float64: the loss of each window's new targets, summed over 23 tokens
for case in 10:4:5.537988 10:3:5.649682; do
    window=${case%%:*}
    nll=${case##*:}
    stride=${case#*:}
    stride=${stride%:*}
    for layout in "--tp 1" "--tp 3" "--pp 2"; do
        run tp-run score --json $layout --window "$window" --stride "$stride" --ids-file ids "$dir"
        ok "window $window, stride $stride, $layout: the likelihood is that of transformers" \
            near "$(json out nll)" "$nll" 1e-5
        ok "each token but the first is predicted once" test "$(json out tokens)" -eq 23
    done
done
run tp-run score --window 10 --stride 3 --ids-file ids "$dir"
out_is "ids: 23 tokens, nll 5.64968, perplexity 284.2012, window 10, stride 3" "the line names both"
run tp-run score --window 7 --ids-file ids "$dir"
out_has ", window 7" "without a stride it names the window"
run tp-run score --window 7 --stride 7 --ids-file ids "$dir"
status_is 2 "a stride is less than the window"

# choices: transformers 5.24's log-probabilities of the tokens that lm_eval would count
cat > choices << 'END'
{"id":7,"prompt":"ROMEO:\nI'll give thee ","choices":["leave to","xyz","my bride now"]}
{"prompt":"KING HENRY","choices":[" xq"," VI"]}
{"prompt":"a","choices":["c"]}
{"ids":[1,2],"choices":[[4],[5,6]]}
{"prompt":"KING HENRY","choices":["b",7]}
END
for layout in "--tp 1" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086
    run tp-run score --json $layout --input choices "$bard"
    grep -o '"logprob":[-0-9.]*' out | cut -d: -f2 | head -n 5 > got
    printf '%s\n' -3.944592 -30.967273 -17.314776 -40.850450 -0.394619 > want
    ok "$layout: choices have transformers' log-probabilities" \
        sh -c 'paste got want | awk "{ d = \$1 - \$2; if (d > 1e-4 || d < -1e-4) exit 1 } END { if (NR != 5) exit 1 }"'
done
status_is 3 "lines whose choices cannot be scored are refused"
err_is "tp-run: choices:3: fewer than two choices
tp-run: choices:5: choices are texts after a 'text', or lists after 'ids'" "by their places"
ok "the best and its margin" grep -q '"id":7,.*"best":0,"margin":13.3701.*"best_by_token":0,.*"best_by_character":0' out
ok "of ids there is none by character" grep -q '"line":4,.*"margin_by_token":[0-9.]*}' out
run tp-run score --per-token --input choices "$bard"
out_has '548	-0.25242	" V"' "--per-token prints each token"
out_has "choices:2: best 1 (margin 40.45583), by token 1 (margin 13.41951), by character 1" "and the line says which is the best"
echo "KING HENRY VI" | tp-run score --json --per-token "$bard" | grep -o '"logprob":[-0-9.]*' | cut -d: -f2 > each
ok "a choice's is the sum of its tokens'" near "$(awk '{ s += $1 } NR > 2 && NR < 6 { x += $1 } END { print s }' each)" \
    "$(echo "KING HENRY VI" | tp-run score --json "$bard" | sed 's/.*"tokens":\([0-9]*\),"nll":\([0-9.]*\).*/\1 \2/' | awk '{ print -$1 * $2 }')" 1e-4
echo '{"source":[5,6,7],"choices":[[8,9],[9,10,11]]}' > line
run tp-run score --json --input line "$data/stacks/bart"
ok "of an encoder-decoder they are texts of the decoder" near "$(grep -o '"logprob":[-0-9.]*' out | head -n 1 | cut -d: -f2)" -10.611096 1e-4
echo '{"choices":["a","b"]}' > line
run tp-run score --input line "$data/stacks/bart"
status_is 3 "and come after a source"
err_is "tp-run: line:1: choices need a 'text' or a 'source'" "or are refused"
echo '{"ids":[1,2],"choices":[[1],["x"]]}' > line
run tp-run score --input line "$bard"
err_is "tp-run: line:1: 'choices' has an element that is no number" "a list that is none is told by its key"
run tp-run score --window 3 --input choices "$bard"
err_has "tp-run: choices:1: the text and a choice have 12 tokens, a window 3" "a choice has one window"
ok "and lines that fit are scored" grep -q '^choices:4: best 0' out

printf 'To be \377 or not' > bad.txt
run tp-run score bad.txt "$bard"
status_is 3 "text that is not UTF-8 is refused"
err_is "tp-run: bad.txt: not UTF-8 at byte 6; see --invalid" "with its place"
run tp-run score --invalid replace bad.txt "$bard"
status_is 0 "--invalid replace scores it"
printf 'To be \357\277\275 or not' > replaced.txt
cp out bad.out
run tp-run score replaced.txt "$bard"
ok "with U+FFFD in its place" test "$(cut -d: -f2 out)" = "$(cut -d: -f2 bad.out)"

# positions that leave padding out
use_model "$data/models/roberta-mlm"
run tp-run logits --ids 5,1,6 -o o "$dir"
status_is 3 "padding inside a text is refused by RoBERTa"
err_is "tp-run: --ids: id 1 is the padding id of family roberta, which gives it no position" "by name"

done_testing
