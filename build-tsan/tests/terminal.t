#!/bin/sh
# terminal.t - what foreign names hold does not reach a terminal
. "${top_srcdir:?}/tests/lib.sh"
ESC=$(printf '\033')

# clean NAME - the last run printed lines without control characters, and none of the forged ones
clean() {
    cat out err > both
    ok "$1: no control character" test "$(LC_ALL=C tr -d '\n -~' < both | LC_ALL=C tr -d '\200-\377' | wc -c)" -eq 0
    ok "$1: no forged line" test "$(grep -c '^forged' both)" -eq 0
}

# a file of tensors with such names
name='a\u001b[2J\u001b]0;x\u0007\nforged: ok\u009b31m\u202e\u007f'
header="{\"$name\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
{
    # shellcheck disable=SC2059 # the octal digit is the format
    printf "$(printf '\\%03o' ${#header})\0\0\0\0\0\0\0%s" ''
    printf '%s' "$header"
    printf '1234'
} > evil.safetensors
{ head -c $((8 + ${#header})) evil.safetensors; printf '4321'; } > other.safetensors
run tp-shard show evil.safetensors
status_is 0 "a file whose names hold control characters is shown"
clean show
out_has 'a\x1b[2J\x1b]0;x\x07\nforged: ok\u009b31m\u202e\x7f  F32' "escaped, on one line"
run tp-shard diff evil.safetensors other.safetensors
status_is 1 "compared"
clean diff
out_has 'a\x1b[2J\x1b]0;x\x07\nforged: ok\u009b31m\u202e\x7f: 1 elements' "and named so"
head -c $((9 + ${#header})) evil.safetensors > short.safetensors
run tp-shard show short.safetensors
status_is 3 "in an error"
clean error
run tp-shard show "x${ESC}[2J"
err_is 'tp-shard: x\x1b[2J: no such file or directory' "and so are names of files"
run tp-shard show "$(printf 'x\377\302\205y')"
err_is 'tp-shard: x\xff\u0085y: no such file or directory' "that are not UTF-8, and C1"
run tp-shard show 'gr\303\266\303\237e-größe-漢字'
err_has 'größe-漢字' "letters stay"
run tp-shard "${ESC}[2J"
err_has 'tp-shard: unknown command '"'"'\x1b[2J'"'" "usage errors too"

# a model with such a tensor, planned and cut
cp -R "$data/models/llama-gqa" model
chmod -R u+w model
size=$(od -An -tu8 -N8 model/model.safetensors | tr -d ' ')
tail -c +9 model/model.safetensors | head -c "$size" |
    sed 's/"__metadata__":{[^}]*},*//; s/^{/{"forged\\u001b[2J\\n":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},/; s/ *$//' > header
while [ $(($(wc -c < header) % 8)) -ne 0 ]; do printf ' ' >> header; done
length=$(wc -c < header)
{
    # shellcheck disable=SC2059 # the octal digits are the format
    printf "$(printf '\\%03o\\%03o' $((length % 256)) $((length / 256)))\0\0\0\0\0\0"
    cat header
    tail -c +$((9 + size)) model/model.safetensors
} > changed
mv changed model/model.safetensors
run tp-shard plan --tp 2 model
status_is 3 "a plan refuses it"
err_is 'tp-shard: model: tensor forged\x1b[2J\n: no rule of family llama matches it' "by its escaped name"
tp-shard split -q --tp 2 "$bard" cut
rm cut/rank-tp0-pp0.safetensors
cp cut/rank-tp1-pp0.safetensors "cut/rank-$(printf '\033')[2J.safetensors"
run tp-shard verify cut
status_is 1 "and verify a file so named"
clean verify

# studies
cat > sweep.json << 'END'
{"parameters": {"a": {"values": ["x\u001b[2J\nforged", "y\u001b[2J"]}}}
END
run hpo-sweep run -q -S journal:study --trials 2 --sampler grid sweep.json -- echo 1
run hpo-sweep show -S journal:study
clean "hpo-sweep show"
sed -i 's/"a"/"a\\u001b[2J"/g' study
run hpo-sweep show -S journal:study
clean "hpo-sweep show of another's study"
run hpo-sweep importance -S journal:study
clean "hpo-sweep importance"
done_testing
