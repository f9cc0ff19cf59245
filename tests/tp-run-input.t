#!/bin/sh
# tp-run-input.t - lines that are prompts: their format, and those that cannot be used
. "${top_srcdir:?}/tests/lib.sh"

# what begins as JSON and is none
printf '%s\n' '"Hello," said she.' 'and went' > said
for command in "generate --max-tokens 2" score "logits -o l"; do
    # shellcheck disable=SC2086 # an option and its value
    run tp-run $command --input said "$bard"
    status_is 2 "${command%% *}: a first line that begins as JSON and is none is a usage error"
    err_has "tp-run: said:1: begins like JSON but is not valid; --input-format text reads lines as text" \
        "which says what to give"
    ok "and nothing is run" test ! -s out
done
run tp-run score --json --input-format text --input said "$bard"
status_is 0 "--input-format text takes it as text"
printf '%s' '"Hello," said she.' > one
tp-run score --json one "$bard" > whole
ok "all of it" test "$(json out nll | head -n 1)" = "$(json whole nll)"
run tp-run score --input-format json --input said "$bard"
status_is 3 "--input-format json takes no such line"
run tp-run score --input-format xml --input said "$bard"
status_is 2 "there is no third format"
printf '%s\n' '' '{"text":"Q: what"} ' > blank
run tp-run score --input blank "$bard"
status_is 0 "the first line that is not empty decides"
out_has "blank:2: " "and lines keep their numbers"

# a byte order mark, and arrays
mark=$(printf '\357\273\277')
printf '%s\n' '{"ids":[5,6,7]}' '{"ids":[8,9]}' > plain.jsonl
tp-run score --input plain.jsonl "$bard" | sed 's/.*: //' > want
printf '%s' "$mark" | cat - plain.jsonl > mark.jsonl
printf '[{"ids":[5,6,7]},{"ids":[8,9]}]' > short.json
printf '%s\n' "${mark}[" '  {' '    "ids": [5, 6, 7]' '  },' '  { "ids": [8, 9] }' ']' > pretty.json
for file in mark.jsonl short.json pretty.json; do
    run tp-run score --input $file "$bard"
    status_is 0 "$file is JSON"
    ok "of the same texts" test "$(sed 's/.*: //' out)" = "$(cat want)"
done
ok "an element has a number" test "$(cut -d: -f1,2 out | tr '\n' ' ')" = "pretty.json:1 pretty.json:2 "
cp pretty.json pretty.list
run tp-run score --input pretty.list "$bard"
status_is 2 "an array under another name is not taken as text"
err_has "tp-run: pretty.list: begins like an array of JSON objects; --input-format json reads its elements, --input-format text reads lines as text" \
    "and it is said what to give"
run tp-run score --input-format json --input pretty.list "$bard"
ok "--input-format json reads it" test "$(sed 's/.*: //' out)" = "$(cat want)"
printf '[{"ids":[5,6,7]},{"no":1}]' > bad.json
run tp-run score --input bad.json "$bard"
status_is 3 "a bad element is a bad line"
err_is "tp-run: bad.json:2: neither a text nor an object with 'text' or 'ids'" "with its number"
out_has "bad.json:1: " "beside the good ones"
printf '[{"ids":[5,6,7]},' > bad.json
run tp-run score --input bad.json "$bard"
status_is 3 "an array without an end is refused"
err_is "tp-run: bad.json: not valid JSON" "whole"
printf '%s\n' 'ROMEO: what' > said.txt
printf '%s' "$mark" | cat - said.txt > marked.txt
tp-run score --input said.txt "$bard" | sed 's/.*: //' > want
run tp-run score --input marked.txt "$bard"
ok "a mark is no text" test "$(sed 's/.*: //' out)" = "$(cat want)"
tp-run score said.txt "$bard" | sed 's/.*: //' > want
run tp-run score marked.txt "$bard"
ok "nor of a file that is one text" test "$(sed 's/.*: //' out)" = "$(cat want)"

# a file that is no --input, and standard input: JSON lines if the first line is an object
tp-run score --input plain.jsonl "$bard" | sed 's/.*: //' > want
run tp-run score plain.jsonl "$bard"
status_is 0 "score reads a file of JSON lines as lines"
ok "as --input does" test "$(sed 's/.*: //' out)" = "$(cat want)"
ok "with their numbers" test "$(cut -d: -f1,2 out | tr '\n' ' ')" = "plain.jsonl:1 plain.jsonl:2 "
tp-run score "$bard" < mark.jsonl > out
ok "standard input, too" test "$(sed 's/.*: //' out)" = "$(cat want)"
run tp-run score --input-format text plain.jsonl "$bard"
ok "--input-format text scores it as one text" test "$(grep -c . out)" -eq 1
run tp-run score --input-format json pretty.list "$bard"
ok "--input-format json reads an array of it" test "$(sed 's/.*: //' out)" = "$(cat want)"
printf '{\n  "ids": [5, 6, 7]\n}\n' > several
run tp-run score several "$bard"
ok "an object of several lines is a text" test "$(cut -d: -f1 out)" = several
tp-run generate --max-tokens 2 --json --input plain.jsonl "$bard" | sed 's/.*"ids":\(.[0-9,]*\).*/\1/' > want
tp-run generate --max-tokens 2 --json "$bard" < plain.jsonl | sed 's/.*"ids":\(.[0-9,]*\).*/\1/' > out
ok "generate reads prompts from standard input so" cmp want out
tp-run generate --max-tokens 2 --json --input-format text "$bard" < plain.jsonl > out
ok "--input-format text takes one prompt" test "$(grep -c '"prompt_ids"' out)" -eq 1

# text that is none
printf '%s\n' '"ROMEO: \ud83d\ude00"' '"a \ud800 b"' '{"text":"x\udc00"}' > half
run tp-run generate --max-tokens 2 --input half "$bard"
status_is 3 "half of a surrogate pair is bad input"
err_is 'tp-run: half:2: not valid JSON: half of a surrogate pair, \ud800, at byte 3
tp-run: half:3: not valid JSON: half of a surrogate pair, \udc00, at byte 10' "told with its line and byte"
tail -n 2 half > halves
run tp-run score --input halves "$bard"
status_is 3 "in the first line, too"
err_has 'halves:1: not valid JSON: half of a surrogate pair, \ud800, at byte 3' "with its cause"
printf 'ROMEO: \377 what\n' > bytes
for command in "generate --max-tokens 2" score "logits -o l"; do
    # shellcheck disable=SC2086 # an option and its value
    run tp-run $command --input bytes "$bard"
    status_is 3 "${command%% *}: bytes that are not UTF-8 are refused"
    err_is "tp-run: bytes:1: not UTF-8 at byte 7; see --invalid" "with their place"
    # shellcheck disable=SC2086
    run tp-run $command --invalid replace --input bytes "$bard"
    status_is 0 "unless U+FFFD is to stand for them"
done
run tp-run generate --max-tokens 2 --prompt "$(cat bytes)" "$bard"
status_is 3 "a prompt's are"
err_is "tp-run: --prompt: not UTF-8 at byte 7; see --invalid" "as well"

# later lines
printf '%s\n' '"ROMEO: what"' 'ROMEO: what' '{"ids":[1,2' '{"ids":[5000]}' '{}' '{"text":"Q"} x' '"Q"' > lines
run tp-run generate --max-tokens 3 --input lines "$bard"
status_is 3 "bad lines are bad input"
err_is "tp-run: lines:2: not valid JSON
tp-run: lines:3: not valid JSON
tp-run: lines:4: id 5000 is not in the vocabulary of 1024
tp-run: lines:5: neither a text nor an object with 'text' or 'ids'
tp-run: lines:6: not valid JSON" "each is told in a line"
ok "the others are continued, and bad ones are empty lines" \
    test "$(sed 's/..*/x/' out | paste -sd, - | sed 's/.*x,,,,,,x.*/yes/')" = yes
for mesh in tp=1 tp=2 pp=2 dp=2 dp=3,pp=2; do
    run tp-run generate --json --max-tokens 3 --mesh $mesh --input lines "$bard"
    sed 's/.*"type":"\([a-z]*\)".*"line":\([0-9]*\).*/\1 \2/' out > seen
    ok "--json says which ($mesh)" test "$(paste -sd, seen)" = \
        "generation 1,error 2,error 3,error 4,error 5,error 6,generation 7"
    ok "with status 3" test "$status" -eq 3
    run tp-run score --json --mesh $mesh --input lines "$bard"
    sed 's/.*"type":"\([a-z]*\)".*"line":\([0-9]*\).*/\1 \2/' out > seen
    ok "score too" test "$(paste -sd, seen)" = \
        "score 1,error 2,error 3,error 4,error 5,error 6,error 7"
    run tp-run logits -o l.$mesh --mesh $mesh --input lines "$bard"
    status_is 3 "and logits"
    ok "which writes those of the good lines" test "$(grep -ao '"[0-9]*.logits"' l.$mesh | paste -sd, -)" = \
        '"0.logits","6.logits"'
done
run tp-run generate --json --max-tokens 3 --input lines "$bard"
out_has '{"type":"error","file":"lines","line":2,"error":"not valid JSON"}' "file, line and cause are named, once"

# an input's "id" comes back as it was written
cat > named << 'END'
{"id": 12345678901234567890, "text": "To be"}
{"text": "or", "id": {"a": [1e400, "x\u00e9"], "id": null}}
{"text": "not to be"}
{"id": "no text", "text": 5}
{"id": false, "ids": [5000]}
{"id": null, "ids": [1, 2]}
{"nested": {"id": 7}, "ids": [1, 2]}
END
ids='12345678901234567890
{"a": [1e400, "x\u00e9"], "id": null}
"no text"
false
null'
for mesh in tp=1 dp=2; do
    for command in 'generate --max-tokens 2' score embed; do
        # shellcheck disable=SC2086 # words are wanted
        run tp-run ${command} --json --mesh $mesh --input named "$bard"
        sed -n 's/^{"type":"[a-z]*",\("file":"named",\)*"line":[0-9]*,"id":\(.*\),"\(prompt_ids\|tokens\|error\)":.*/\2/p' out > got
        same_text got "$ids" "${command%% *} gives back every id ($mesh)"
        out_has '{"type":"error","file":"named","line":4,"id":"no text","error":"neither a text nor an object with '"'text' or 'ids'\"}" "with the cause of an error"
        out_has '"line":5,"id":false,"error":"id 5000 is not in the vocabulary of 1024"}' "which names no place twice"
    done
done
printf '%s\n' '[{"id": 12345678901234567890, "ids": [1, 2]},' '{"ids": [3, 4], "id": {"a":' '[1, 2]}}]' > array.json
run tp-run score --json --input array.json "$bard"
ok "so do those of an array's elements, in a line" test \
    "$(sed -n 's/.*"line":[0-9],"id":\(.*\),"tokens":.*/\1/p' out | paste -sd';' -)" = '12345678901234567890;{"a": [1, 2]}'
printf '%s\n' '{"id":[1],"ids":[5,6,7]}' '{"ids":[1000],"id":{"b":2}}' > named
run tp-run classify --json --input named "$data/models/bert-classify"
ok "classify gives it back, too" test "$(sed -n 's/.*"line":[0-9],"id":\(.*\),"\(tokens\|error\)":.*/\1/p' out | paste -sd' ' -)" = '[1] {"b":2}'
printf '%s\n' '{}' '{}' > none
run tp-run generate --json --input none "$bard"
status_is 3 "nothing but bad lines"
ok "is nothing but errors" test "$(grep -c '"type":"error"' out)" -eq 2

# members of the wrong kind are not left out
printf '%s\n' '{"text":"a","pair":3}' '{"text":"a","choices":"b"}' '{"question":"a","context":["b"]}' '{"text":1}' \
    '{"ids":"1"}' '{"ids":[1,"a"]}' '{"source":"a"}' '{"ids":[1],"token_types":[0,0]}' '{"text":"a","choices":[1]}' > kinds
run tp-run score --input kinds "$bard"
status_is 3 "members of another kind are bad input"
err_is "tp-run: kinds:1: 'pair' is no text
tp-run: kinds:2: 'choices' is no list
tp-run: kinds:3: 'context' is no text
tp-run: kinds:4: neither a text nor an object with 'text' or 'ids'
tp-run: kinds:5: 'ids' is no list
tp-run: kinds:6: 'ids' has an element that is no number
tp-run: kinds:8: family llama has no 'token_types'
tp-run: kinds:9: choices are texts after a 'text', or lists after 'ids'
tp-run: kinds:7: family llama has no encoder input" "each told by its name"

# prompts and the context
model=$data/models/llama-gqa
context=$(sed -n 's/.*"max_position_embeddings": *\([0-9]*\).*/\1/p' "$model/config.json")
full=$(seq -s, 1 "$context" | sed 's/[0-9]*/3/g')
run tp-run generate --json --ids "$full" "$model"
status_is 0 "a prompt that fills the context"
ok "gets the token that its last logits allow" test "$(json out ids | tr -cd , | wc -c)" -eq 0
out_has '"finish":"context"' "and ends there"
run tp-run generate --ids "$full,3" "$model"
err_is "tp-run: the prompt has $((context + 1)) tokens, the model takes $context" \
    "a longer one is refused"
printf '{"ids":[%s]}\n' 3,4 "$full,3" 3,4 > long
run tp-run generate --input long --max-tokens 2 "$model"
status_is 3 "so is a longer one of many"
err_is "tp-run: long:2: the prompt has $((context + 1)) tokens, the model takes $context" \
    "alone, and by its line"
ok "the others are made" test "$(grep -c . out)" -eq 2

# sampling
for option in --top-k=5 --top-p=0.9; do
    run tp-run generate --prompt Q $option --max-tokens 2 "$bard"
    status_is 2 "${option%=*} without a temperature is a usage error"
    err_has "tp-run: ${option%=*} needs --temperature" "that says so"
    run tp-run generate --prompt Q $option --temperature 0 --max-tokens 2 "$bard"
    status_is 0 "with one of 0 it is greedy"
done
run tp-run generate --temperature 1 --max-tokens 12 --prompt Q: --prompt Q: "$bard"
ok "the same prompt twice gives two samples" test "$(sed -n '$=' out)" -ge 2
tp-run generate --json --temperature 1 --max-tokens 12 --prompt Q: --prompt Q: "$bard" |
    sed 's/.*"ids"/"ids"/; s/,"text.*//' > two
ok "that differ" test "$(sort -u two | wc -l)" -eq 2
tp-run generate --json --temperature 1 --max-tokens 12 --prompt Q: --prompt Q: --dp 2 "$bard" |
    sed 's/.*"ids"/"ids"/; s/,"text.*//' > twodp
ok "and are the same on any layout" cmp two twodp

# no tokenizer
run tp-run score "$heldout" "$model"
err_is "tp-run: $model: no tokenizer.json; give --ids-file" "score without a tokenizer names --ids-file"
printf '%s\n' '{"ids":[1,2,3]}' 'x' '{"ids":[3,4]}' > ids
run tp-run score --input ids "$model"
status_is 3 "lines of ids need no tokenizer"
ok "and a bad one ends no other" test "$(grep -c nll out)" -eq 2

# a model whose encoder and decoder have tables of their own: 61 and 59 tokens, 61 positions
{
    printf '%s\n' '{"source":[2,60],"ids":[58]}' '{"source":[2,61],"ids":[2]}' '{"source":[2],"ids":[2,59]}' '{"ids":[3]}'
    printf '{"source":[3'
    head -c 61 /dev/zero | tr '\0' x | sed 's/x/,3/g'
    printf '],"ids":[2]}\n'
} > sources
run tp-run score --input sources "$data/stacks/fsmt-odd"
status_is 3 "a source is checked"
err_is "tp-run: sources:2: id 61 is not in the vocabulary of 61
tp-run: sources:3: id 59 is not in the vocabulary of 59
tp-run: sources:4: family fsmt needs an encoder input, a source
tp-run: sources:5: the source has 62 tokens, more than the model's 61" "against the encoder's own tables, and ids against the decoder's"
out_has "sources:1: 1 tokens" "and what is in both is scored"

# halves of surrogate pairs, as a program writes them that cuts UTF-16
printf '%s\n' '{"text":"\ud83d"}' '{"text":"\ude00a"}' '{"text":"\ud83d\ude00"}' '{"text":"\ud83dx"}' '{"text":"\ud83d\n"}' \
    '{"text":"\\ud83d"}' '{"text":"a\u00' > halves
status=0
tp-run score --input - "$bard" < halves > out 2> err || status=$?
status_is 3 "half of a pair is no text"
err_is "tp-run: standard input:1: not valid JSON: half of a surrogate pair, \\ud83d, at byte 9
tp-run: standard input:2: not valid JSON: half of a surrogate pair, \\ude00, at byte 9
tp-run: standard input:4: not valid JSON: half of a surrogate pair, \\ud83d, at byte 9
tp-run: standard input:5: not valid JSON: half of a surrogate pair, \\ud83d, at byte 9
tp-run: standard input:7: not valid JSON" "of standard input too"
ok "a whole one is, and so are its letters" test "$(grep -c '^standard input:[36]: ' out)" -eq 2
done_testing
