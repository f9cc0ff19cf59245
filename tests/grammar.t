#!/bin/sh
# grammar.t - texts that --grammar allows: the same on every layout, with drafts and in searches
. "${top_srcdir:?}/tests/lib.sh"

bard=$top_srcdir/examples/bard
cat > person.json << 'EOS'
{"type": "object", "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 8}, "age": {"type": "integer",
 "minimum": 1, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["a", "b\n"]}, "maxItems": 2}},
 "required": ["name", "age"], "additionalProperties": false}
EOS
# texts OPTION...: what bard says
texts() {
    tp-run generate --json --max-tokens 90 "$@" "$bard" > out 2> err || return
    sed 's/,"tokens_per_second.*//' out
}
same() {
    texts "$@" > got && cmp want got
}
# whole: each text of out has ended by itself, and is a person
whole() {
    ! grep -v '"finish":"stop"' out &&
        ! grep -Ev '"text":"[ \\nt]*\{[ \\nt]*\\"name\\":[ \\nt]*\\"[^"]{2,}\\",[ \\nt]*\\"age\\":[ \\nt]*[1-9][0-9]{0,2}(,[ \\nt]*\\"tags\\":[ \\nt]*\[[^]]*\])?[ \\nt]*\}"' out
}

for i in 1 2 3 4; do
    echo "{\"prompt\":\"ROMEO:\",\"seed\":$i,\"temperature\":$((i % 2)).$i,\"logit_bias\":{\"11\":-99,\"33\":-9}}"
done > lines
texts --grammar person.json --input lines > want
ok "texts are what the schema says, drawn or not" whole
[ "${SHORT:-}" ] || ok "two ranks and two stages give the same" same --grammar person.json --input lines --tp 2 --pp 2
ok "a model's draft changes nothing" same --grammar person.json --input lines --draft "$bard"
ok "nor does looking up" same --grammar person.json --input lines --draft lookup
texts --grammar person.json -p ROMEO: --beams 3 --num-return 2 > /dev/null
ok "nor does a search forget it" grep -Eq '"text":"[ \\nt]*\{[ \\nt]*\\"name\\":.*"finish":"stop".*"text":"[ \\nt]*\{[ \\nt]*\\"name\\":.*"finish":"stop"' out
texts --grammar person.json -p ROMEO: --temperature 1 --num-return 2 --logit-bias 11:-99 --logit-bias 33:-2 > /dev/null
ok "nor do several texts of a prompt" [ "$(grep -o '"text":"[ \\nt]*{' out | wc -l)" = 2 ]

cat > several << 'EOS'
{"prompt":"ROMEO:","grammar":"regex:(yes|no)!"}
{"prompt":"ROMEO:","grammar":{"enum":[12.5,"x"]},"logprobs":1}
{"prompt":"ROMEO:","grammar":{"type":"integer","maximum":-5,"minimum":-7},"min_new_tokens":30}
EOS
texts --input several > /dev/null
ok "each line has its own" [ "$(grep -Ec '"text":"(yes|no)!"|"text":"[ \\n]*(12.5|\\"x\\")"|"text":"[ \\n]*-[567]"' out)" = 3 ]
texts --grammar json -p ROMEO: --logit-bias 11:-99 --logit-bias 33:-9 > /dev/null
ok "json is an object" grep -Eq '"text":"[ \\n]*\{' out

refused() {
    want=$1 text=$2
    shift 2
    run tp-run generate -p ROMEO: "$@" "$bard"
    status_is "$want" "status $want: $text"
    err_is "tp-run: $text" "refused: $text"
}
echo '{"properties": {"a": {"not": {}}}}' > not.json
refused 3 "not.json: schema:1:30: 'not' is not supported" --grammar not.json
refused 3 "--grammar: a group without ), at byte 2 of the regular expression" --grammar 'regex:(a'
refused 4 "missing.json: No such file or directory" --grammar missing.json
refused 3 "--prompt: a grammar needs an id that ends a text, and there is none: the model's are ignored" --grammar json --ignore-eos
refused 3 "--context slide: not with a grammar" --grammar json --context slide
echo '{"prompt":"a","grammar":"xml"}' > xml
run tp-run generate --input xml "$bard"
err_is 'tp-run: xml:1: grammar is neither "json", nor "regex:...", nor a schema' "a line's grammar is checked, too"
done_testing
