#!/bin/sh
# terminal.t - what foreign names hold does not reach a terminal; what does fits it
. "${top_srcdir:?}/tests/lib.sh"
ESC=$(printf '\033')

# clean NAME - the last run printed lines without control characters, and none of the forged ones
clean() {
    cat out err > both
    ok "$1: no control character" test "$(LC_ALL=C tr -d '\n -~' < both | LC_ALL=C tr -d '\200-\377' | wc -c)" -eq 0
    ok "$1: no forged line" test "$(grep -c '^forged' both)" -eq 0
}

# a help that is longer than a screen
"$top_builddir/tests/on-pty" tp-run train --help < /dev/null > shown
ok "a terminal has as many lines as it has room for" test "$(wc -l < shown)" -le 24
ok "and the number of the other options" grep -q "^More: [0-9]* options, which '--help | more' names and the page explains" shown
tp-run train --help > named
ok "whose names go to a file" grep -q '^  + .*--min-lr-ratio=X' named

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

# on a terminal of that many columns: on COLUMNS COMMAND...
on() {
    on_columns=$1
    shift
    TERM=${TERM_IS-xterm} script -qec "stty cols $on_columns; $*" /dev/null < /dev/null 2> err | tr -d '\r' > out
}

# fits COLUMNS NAME - the lines of the last run's table, of which the command's first and last words are not one
fits() {
    sed "s/$ESC\[[0-9;]*m//g" out > plain
    ok "$2 fits $1 columns" awk -v most="$1" 'length($0) > most { print; bad = 1 } END { exit bad || !NR }' plain
}

if command -v script > /dev/null; then
    set +u
    unset COLUMNS NO_COLOR
    set -u
    ln -s "$bard" bard
    while read -r rows command; do
        sh -c "$command" > piped
        on 80 "$command | head -n $rows"
        ok "in a pipe, '$command' has all its columns" test "$(head -n "$rows" piped | cksum)" = "$(cksum < out)"
        on 80 "$command"
        head -n "$rows" out > table
        mv table out
        fits 80 "$command"
        on 300 "$command"
        sed "s/${ESC}\[[0-9;]*m//g" out > plain
        ok "in a wide window, '$command' has them, too" cmp piped plain
    done << END
42 mem-estimate gpus
57 tp-shard show bard
107 tp-shard families --table
59 tp-shard plan --tp 2 bard
13 pp-partition schedule --compare --pp 4 --micro-batches 8
4 pp-partition plan --pp 2 bard
20 mem-estimate train --tp 2 --pp 2 --gpu h100-80g --seq 16 bard
END
    on 70 mem-estimate gpus
    out_has "left out: tf32, HOST; a pipe has them" "the columns that a window has no room for are named"
    on 50 mem-estimate gpus
    fits 50 "a narrower one, which has fewer,"
    out_has "left out: tf32, fp8, fp4, LINK, HOST" "and names more"
    on 300 COLUMNS=50 mem-estimate gpus
    fits 50 "the width that COLUMNS says"
    on 60 tp-shard show "$bard"
    fits 60 "a list of long names, which wrap,"
    on 80 mem-estimate infer --tp 1 --gpu t4 --seq 16 "$bard"
    out_has "${ESC}[32mfits${ESC}[0m in " "what fits is green"
    out_has "${ESC}[32myes${ESC}[0m" "in the table, too"
    on 80 mem-estimate infer --tp 1 --gpu-mem 4MiB --runtime 0 --seq 16 "$bard"
    out_has "${ESC}[31mdoes not fit${ESC}[0m in " "and what does not is red"
    on 80 tp-shard show nothing
    out_has "${ESC}[1;31mtp-shard:${ESC}[0m nothing: no such file or directory" "an error begins in bold"
    on 80 NO_COLOR=1 mem-estimate infer --tp 1 --gpu t4 --seq 16 "$bard"
    out_has "fits in " "NO_COLOR leaves the words"
    ok "without a colour" sh -c '! grep -q "$1" out' sh "${ESC}"
    TERM_IS=dumb on 80 mem-estimate infer --tp 1 --gpu t4 --seq 16 "$bard"
    ok "a dumb terminal gets none, too" sh -c 'grep -q "fits in" out && ! grep -q "$1" out' sh "${ESC}"
    on 80 "mem-estimate infer --tp 1 --gpu t4 --seq 16 '$bard' | cat"
    ok "nor does a pipe" sh -c 'grep -q "fits in" out && ! grep -q "$1" out' sh "${ESC}"

    # the last line says what was made, and where
    head -c 3000 "$heldout" > text
    on 80 tp-run train --data text --seq 16 --steps 1 --global-batch 1 -o trained "$bard"
    ok "train ends with its checkpoint" test "$(tail -n 1 out)" = "tp-run: finished after step 1 of 1: trained/step-000001"
    echo 'x: uniform(0, 1)' > made.yaml
    on 80 "hpo-sweep run -S made.db --trials 2 made.yaml -- echo {x}"
    ok "a sweep with its study" sh -c "tail -n 1 out | grep -q \"^hpo-sweep: 2 complete; best .*; study 'made' of made.db\""
    on 80 "hpo-sweep run -q -S made.db --trials 3 made.yaml -- echo {x}"
    ok "but not under -q" test ! -s out
    on 80 tp-shard split --tp 2 "$bard" made
    ok "split with its directory" sh -c 'tail -n 1 out | grep -q "tp-shard: made: 2 rank files"'
else
    skip "tables fit the window" "no script"
fi
done_testing
