#!/bin/sh
# tokens - the tokens of texts, printed, and as Megatron's indexed dataset
. "${top_srcdir:?}/tests/lib.sh"

# the number of WIDTH bytes at OFFSET of FILE
number() {
    od -An -v -t "u$2" -j "$3" -N "$2" "$1" | tr -d ' '
}

run tp-run tokens -o text --tokenizer "$bard" "$bard/heldout.txt"
status_is 0 "a text is written as tokens"
out_is "text: 1 documents, 5084 tokens, 10168 bytes, end id 0" "and counted"
err_empty "without a word"
ok "a token is two bytes" test "$(wc -c < text.bin)" -eq 10168
ok "the end id is the last" test "$(number text.bin 2 10166)" -eq 0
ok "the index begins as Megatron's" test "$(head -c 7 text.idx)" = MMIDIDX
ok "version 1, 16 bits, a sequence, two bounds" test \
    "$(number text.idx 8 9),$(number text.idx 1 17),$(number text.idx 8 18),$(number text.idx 8 26)" = 1,8,1,2
ok "its length, its place, and the bounds" test \
    "$(number text.idx 4 34),$(number text.idx 8 38),$(number text.idx 8 46),$(number text.idx 8 54)" = 5084,0,0,1
ok "and nothing more" test "$(wc -c < text.idx)" -eq 62
head -n 1 "$bard/heldout.txt" > first
run tp-run generate --json --max-tokens 1 --prompt "$(cat first)" "$bard"
ok "its ids are those of a prompt" test "$(sed 's/.*"prompt_ids":.\([0-9]*,[0-9]*,[0-9]*\),.*/\1/' out)" = \
    "$(number text.bin 2 0),$(number text.bin 2 2),$(number text.bin 2 4)"

# JSON lines: one for each line of the text
sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/{"text": "&\\n", "meta": {"a": [1]}}/' "$bard/heldout.txt" > lines.jsonl
echo >> lines.jsonl
i=0
while [ $i -lt 40 ]; do
    cat lines.jsonl
    i=$((i + 1))
done | gzip > many.jsonl.gz
lines=$(grep -c text lines.jsonl)
run tp-run tokens --json -o one --threads 1 --tokenizer "$bard" many.jsonl.gz
status_is 0 "compressed JSON lines are read"
ok "a line is a document" test "$(json out documents)" -eq $((40 * lines))
run tp-run tokens --json -o three --threads 3 --tokenizer "$bard/tokenizer.json" many.jsonl.gz
ok "the tokens are the same by three threads" cmp one.bin three.bin
ok "so is the index" cmp one.idx three.idx
ok "each document has its end id" test "$(od -An -v -t u2 -w2 one.bin | grep -c '^ *0$')" -eq $((40 * lines))
run tp-run tokens --json -o none --end-id none --tokenizer "$bard" lines.jsonl
ok "--end-id none adds none" test "$(od -An -v -t u2 -w2 none.bin | grep -c '^ *0$')" -eq 0
ok "and says so" grep -q '"end_id":null' out

# ids need no tokenizer; those of a text in which the end id stands are documents
printf '{"ids":[1,2,70000]}\n{"ids":[4]}\n' > ids.jsonl
run tp-run tokens -o ids ids.jsonl
out_is "ids: 2 documents, 4 tokens, 16 bytes, end id none" "ids are taken as they are, in 32 bits"
printf 'One.<|endoftext|>Two.<|endoftext|>' | tp-run tokens -o two --tokenizer "$bard" > out
ok "standard input is text, parted by end ids" grep -q '^two: 2 documents' out

# a first line that is a JSON object is never taken as text
printf '{"ids":[1,2]}\n{"ids":[4]}\n' > own.jsonl
tp-run tokens -o want own.jsonl > out
for how in "-" ""; do
    # shellcheck disable=SC2086
    tp-run tokens -o own $how < own.jsonl > out 2> err
    ok "JSON lines on standard input are JSON, '$how'" cmp want.bin own.bin
done
cp own.jsonl own.txt
run tp-run tokens -o own own.txt
ok "and in a file of another name" cmp want.bin own.bin
ok "with the same documents" cmp want.idx own.idx
run tp-run tokens -o own --input-format text --tokenizer "$bard" own.txt
out_has "own: 1 documents" "--input-format text takes them as text"
printf 'x\n' | tp-run tokens -o own --input-format json > out 2> err
ok "--input-format json takes no text" test $? -eq 3
mark=$(printf '\357\273\277')
printf '%s' "$mark" | cat - own.jsonl > mark.jsonl
printf '[{"ids":[1,2]},{"ids":[4]}]' > short.json
printf '%s\n' "${mark}[" '  {' '    "ids": [1, 2]' '  },' '  { "ids": [4] }' ']' > pretty.json
gzip -k pretty.json
for file in mark.jsonl short.json pretty.json pretty.json.gz; do
    run tp-run tokens -o own $file
    status_is 0 "$file is read"
    ok "as its lines are" cmp want.bin own.bin
    ok "document by document" cmp want.idx own.idx
done
run tp-run tokens -o own --input-format json - < pretty.json
cp pretty.json pretty.txt
run tp-run tokens -o own --tokenizer "$bard" pretty.txt
status_is 2 "an array under another name is no text"
err_has "tp-run: pretty.txt: begins like an array of JSON objects; --input-format json reads its elements, --input-format text reads text" \
    "and it is said what to give"
run tp-run tokens -o own --input-format json pretty.txt
ok "--input-format json reads it" cmp want.bin own.bin
printf '[{"ids":[1,2]},\n  {"ids":["x"]}]' > bad.json
run tp-run tokens -o own bad.json
status_is 3 "a bad element is refused"
err_is "tp-run: bad.json:2:11: 'ids' holds what is no id" "by line and column"
for bad in '[{"ids":[1,2]},' '[{"ids":[1,2]}] x' '[{"ids":[1,2]}, 3]' '[]'; do
    printf '%s' "$bad" > bad.json
    run tp-run tokens -o own bad.json
    status_is 3 "no array of objects: $bad"
done
printf '%sRomeo\n' "$mark" > marked.txt
printf 'Romeo\n' > romeo.txt
tp-run tokens -o want --tokenizer "$bard" romeo.txt > out
tp-run tokens -o own --tokenizer "$bard" marked.txt > out
ok "a byte order mark is no text" cmp want.bin own.bin

# training reads standard input, too
tp-run train -q --data "$bard/heldout.txt" --seq 32 --steps 2 -o file "$bard"
for from in pipe file; do
    case $from in
    pipe) cat "$bard/heldout.txt" | tp-run train -q --data - --seq 32 --steps 2 -o piped "$bard" 2> err ;;
    file) tp-run train -q -f --data - --seq 32 --steps 2 -o piped "$bard" < "$bard/heldout.txt" 2> err ;;
    esac
    ok "train --data - reads a $from" test $? -eq 0
    ok "as the file itself: $from" test "$(grep '"type":"step"' file/log.jsonl | cut -d, -f1-5)" = \
        "$(grep '"type":"step"' piped/log.jsonl | cut -d, -f1-5)"
done
cat "$bard/heldout.txt" | tp-run train -q --resume --data - --steps 3 -o piped 2> err
ok "and resumes with the same text" test $? -eq 0
cat romeo.txt | tp-run train -q --resume --data - --steps 4 -o piped 2> err
ok "but not with another" test $? -eq 2
run tp-run train --data - --eval-data - -o twice "$bard"
status_is 2 "standard input is given once"

# what is wrong
mkdir before
cp text.bin text.idx before
for case in '2:10:@{"text": "a"}\n{"text": x}\n' \
    "4: no 'text', 'ids', 'prompt' or 'messages'@{\"text\": \"a\"}\n\n\n{\"txt\": \"b\"}\n" \
    "1: 'prompt': which tokens are learnt has no place in a token file@{\"prompt\": \"a\", \"completion\": \"b\"}\n" \
    "2:9: id 99999, and the vocabulary has@{\"ids\": [1]}\n{\"ids\":[99999]}\n"; do
    # shellcheck disable=SC2059 # it is a format
    printf "${case#*@}" > bad.jsonl
    run tp-run tokens -o text --threads 2 --tokenizer "$bard" bad.jsonl
    status_is 3 "a wrong line is refused: ${case%%@*}"
    ok "by its number" grep -q "^tp-run: bad.jsonl:${case%%@*}" err
    err_lines 1 "in one line"
done
printf '{"ids":[1,2]}\n' | gzip | head -c 20 > cut.jsonl.gz
run tp-run tokens -o text cut.jsonl.gz
status_is 3 "a file that is cut short is refused"
err_is "tp-run: cut.jsonl.gz: truncated" "by name"
head -c 50000000 /dev/zero | tr '\0' a | gzip -1 > bomb.txt.gz
run tp-run tokens -o text --tokenizer "$bard" bomb.txt.gz
status_is 3 "so is a small file that would be a very large text"
err_has "bomb.txt.gz: refused: its" "by name"
cp bomb.txt.gz bomb.jsonl.gz
run tp-run tokens -o text --tokenizer "$bard" bomb.jsonl.gz
err_has "bomb.jsonl.gz: refused: its" "or line"
run tp-run tokens -o text text.bin
err_is "tp-run: text.bin: a file of token ids, not of text" "tokens are no text"
run tp-run tokens -o text ids.jsonl no-such.jsonl
status_is 4 "a file that is not there is"
ok "what was written before is as it was" cmp text.bin before/text.bin
ok "so is its index" cmp text.idx before/text.idx
run tp-run tokens "$bard/heldout.txt"
status_is 2 "text needs a tokenizer"
run tp-run tokens -o x --end-id 99999 --tokenizer "$bard" "$bard/heldout.txt"
status_is 2 "an end id is one of the tokenizer's"
run tp-run tokens -o no/such/place --tokenizer "$bard" "$bard/heldout.txt"
status_is 4 "a directory that is not there ends it"
ok "nothing is left of what failed" test -z "$(find . -name '.*.tmp')"

# gzip that ends early, or whose bytes are not what was written
printf 'hello hello world\n' | gzip -n > good.txt.gz
size=$(wc -c < good.txt.gz)
head -c $((size - 9)) good.txt.gz > short.txt.gz
{
    head -c 12 good.txt.gz
    printf '\377\377\377\377\377'
    tail -c +18 good.txt.gz
} > changed.txt.gz
run tp-run tokens -q --tokenizer "$bard" -o t.bin short.txt.gz
status_is 3 "gzip that ends early is refused"
err_is "tp-run: short.txt.gz: truncated" "in one line"
run tp-run tokens -q --tokenizer "$bard" -o t.bin changed.txt.gz
status_is 3 "and so is gzip whose checksum is wrong"
err_has "tp-run: changed.txt.gz: not read as gzip: " "in one line"
ok "nothing is written of either" test ! -e t.bin
{ cat good.txt.gz good.txt.gz && head -c 9000 /dev/zero; } > twice.gz
{ cat romeo.txt && cat romeo.txt; } | sed 's/.*/hello hello world/' > twice
for file in twice twice.gz; do
    tp-run tokens -q --tokenizer "$bard" -o $file.out $file
done
ok "members of gzip are one text, and what follows them is left out" cmp twice.out.bin twice.gz.out.bin
# zstd, by how a file begins: a frame of six lines that is compressed, a skippable one, and a frame of one line
{
    printf '\050\265\057\375\004\150\315\000\000\220\173\042\151\144\163\042\072\133\061\054\062\054\063\054\064\135\175'
    printf '\012\001\000\256\246\031\006\317\331\063\322'
} > six.zst
printf '\050\265\057\375\004\130\141\000\000\173\042\151\144\163\042\072\133\064\135\175\012\343\117\276\336' > one.zst
printf '\120\052\115\030\003\000\000\000{x}' > skipped.zst
# frame WINDOW - the header of one with that descriptor of a window, without a checksum
frame() {
    printf '\050\265\057\375\000%b' "$1"
}
if tp-run --version | grep -q '+zstd'; then
    for k in 1 2 3 4 5 6; do
        echo '{"ids":[1,2,3,4]}'
    done > seven.jsonl
    echo '{"ids":[4]}' >> seven.jsonl
    tp-run tokens -o want seven.jsonl > out
    cat six.zst skipped.zst one.zst > seven.jsonl.zst
    cat skipped.zst seven.jsonl.zst skipped.zst > other.name
    for file in seven.jsonl.zst other.name; do
        run tp-run tokens -o own $file
        status_is 0 "zstd is read: $file"
        ok "its frames are one text" cmp want.bin own.bin
        ok "document by document" cmp want.idx own.idx
    done
    cat seven.jsonl.zst | tp-run tokens -o own - > out
    ok "from a pipe, too" cmp want.bin own.bin
    for file in seven.jsonl seven.jsonl.zst; do
        tp-run train -q --data $file --seq 2 --steps 2 -o "$file.run" "$bard"
    done
    ok "train --data reads the same" test "$(grep '"type":"step"' seven.jsonl.run/log.jsonl | cut -d, -f1-5)" = \
        "$(grep '"type":"step"' seven.jsonl.zst.run/log.jsonl | cut -d, -f1-5)"
    for n in 5 12 37; do
        head -c $n six.zst > short.jsonl.zst
        run tp-run tokens -o t.bin short.jsonl.zst
        status_is 3 "a frame that ends early is refused: $n bytes"
        err_is "tp-run: short.jsonl.zst: truncated" "in one line"
    done
    { cat one.zst six.zst | head -c 50; } > short.jsonl.zst
    run tp-run tokens -o t.bin short.jsonl.zst
    err_is "tp-run: short.jsonl.zst: truncated" "so is the second"
    { head -c 14 one.zst && printf 5 && tail -c 10 one.zst; } > changed.zst
    run tp-run tokens -o t.bin changed.zst
    status_is 3 "so is a frame whose checksum is wrong"
    err_is "tp-run: changed.zst: not read as zstd: Restored data doesn't match checksum" "in one line"
    { cat one.zst && echo 'no frame'; } > behind.zst
    run tp-run tokens -o t.bin behind.zst
    status_is 3 "nothing else may follow a frame"
    err_has "tp-run: behind.zst: not read as zstd: " "in one line"
    # windows of 8 and 16 MiB
    { frame '\0150' && printf '\061\000\000Romeo\n'; } > window.txt.zst
    tp-run tokens -o want --tokenizer "$bard" romeo.txt > out
    run tp-run tokens -o own --tokenizer "$bard" window.txt.zst
    ok "a window of 8 MiB is read" cmp want.bin own.bin
    { frame '\0160' && printf '\061\000\000Romeo\n'; } > window.txt.zst
    run tp-run tokens -o t.bin --tokenizer "$bard" window.txt.zst
    status_is 3 "a larger one is refused"
    err_is "tp-run: window.txt.zst: its zstd window is larger than 8 MiB; decompress it first (zstd -d --long=31)" \
        "and it is said what to do"
    # 50 MiB: 400 blocks that are one byte each, repeated
    blocks=$(awk 'BEGIN { for (i = 0; i < 400; i++) printf "\\002\\000\\020a" }')
    # shellcheck disable=SC2059 # it is a format
    { frame '\0150' && printf "$blocks" && printf '\001\000\000'; } > bomb.zst
    run tp-run tokens -o t.bin --tokenizer "$bard" bomb.zst
    status_is 3 "a small frame that would be a very large text is refused"
    err_has "bomb.zst: refused: its" "by name"
else
    run tp-run tokens -o t.bin six.zst
    status_is 3 "zstd is refused by a build without it"
    err_is "tp-run: six.zst: compressed by zstd, which this build does not read; decompress it first (zstd -d)" "in one line"
fi
ok "nothing is written of what is refused" test ! -e t.bin.bin
mkdir corpus
run tp-run tokens -q --tokenizer "$bard" -o t.bin corpus
status_is 3 "a directory is no text"
err_is "tp-run: corpus: a directory" "which is said"
run tp-run tokens -q --tokenizer "$bard" -o t.bin none.txt
status_is 4 "nor is what is not there"
err_is "tp-run: none.txt: No such file or directory" "which is said"
if [ -r /proc/self/mem ]; then
    run tp-run tokens -q --tokenizer "$bard" -o t.bin /proc/self/mem
    status_is 4 "a text whose bytes cannot be read is an error of the machine"
    err_is "tp-run: /proc/self/mem: Input/output error" "which is said"
else
    skip "a text whose bytes cannot be read is an error of the machine" "no such file here"
fi
ok "nor is anything written of these" test ! -e t.bin

# ---- printed
llama=$data/tokenizer/old/llama
run tp-run tokens --tokenizer "$llama" -p ' is 日<u>z'
status_is 0 "without -o tokens are printed"
cat > want << 'END'
      1  -              "<s>"
    293  0-3            "▁is"
    434  3-4            "▁"
    234  4-7            "<0xE6>"
    155  4-7            "<0x97>"
    169  4-7            "<0xA5>"
      3  7-10           "<u>"
    126  10-11          "<0x7A>"
END
ok "ids, bytes and pieces; parts of a character have all of it" cmp out want
run tp-run tokens --tokenizer "$llama/tokenizer.model" -p ' is 日<u>z'
ok "tokenizer.model may be named itself" cmp out want
run tp-run tokens --count --no-special --tokenizer "$data/tokenizer/old/tekken/tekken.json" -p 'the'
out_is 2 "so may tekken.json"
run tp-run tokenize --json --no-special --tokenizer "$llama" -p ' is 日'
out_is '{"type":"tokens","file":null,"count":5,"ids":[293,434,234,155,169],"pieces":["▁is","▁","<0xE6>","<0x97>","<0xA5>"],"offsets":[[0,3],[3,4],[4,7],[4,7],[4,7]]}' \
    "tokenize is its name too; JSON, without tokens around the text"
# those of tokenizers: tests/oracle/fuzz-tokenizers.py compares more of them
kinds=$data/tokenizer/kinds
run tp-run tokens --json --tokenizer "$kinds/bert.json" -p 'WHERE Élan 文本'
out_has '"offsets":[[0,0],[0,5],[6,8],[8,9],[9,11],[12,15],[15,18],[0,0]]' "a text that a normalizer changes has its own places"
run tp-run tokens --json --tokenizer "$kinds/nfkc.json" -p 'ﬁne ½'
out_has '"offsets":[[0,3],[0,4],[4,5],[5,6],[6,8],[6,8],[6,8],[6,8],[6,8]]' "what a character becomes has its place"
run tp-run tokens --json --tokenizer "$kinds/precompiled.json" -p 'Ａﬁ ①'
out_has '"offsets":[[0,3],[0,3],[3,6],[3,6],[7,10],[7,10],[0,0]]' "and so with a precompiled map"
run tp-run tokens --json --tokenizer "$kinds/roberta.json" -p ' the  king'
out_has '"offsets":[[0,0],[0,4],[5,5],[6,6],[6,7],[7,10],[0,0]]' "spaces at a token's ends are left out where the file says so"
run tp-run tokens --json --tokenizer "$kinds/roberta.json" -p '  <mask>'
out_has '"offsets":[[0,0],[2,8],[0,0]]' "of an added token, too"
run tp-run tokens --json --tokenizer "$kinds/bert.json" -p "$(printf 'a\377b')"
out_has '"offsets":null' "bytes that are no UTF-8 have none"
printf 'The king\n' > king.txt
run tp-run tokens --count --tokenizer "$bard" king.txt "$bard/heldout.txt"
out_is "$(tp-run tokens --json --count --tokenizer "$bard" king.txt | sed 's/.*"count":\([0-9]*\).*/\1/') king.txt
5083 $bard/heldout.txt" "--count prints how many each file has"
tp-run tokens --json --tokenizer "$bard" < "$bard/heldout.txt" | sed 's/.*"ids"://; s/\].*/]/' > ids
tp-run detokenize --tokenizer "$bard" < ids > back
ok "detokenize is the way back, byte for byte" cmp back "$bard/heldout.txt"
run tp-run detokenize --json --skip-special --tokenizer "$llama" 1 293,434 '[126]'
out_is '{"type":"text","count":4,"text":"is z"}' "ids stand in any list; special tokens are left out if asked"
run tp-run detokenize --tokenizer "$bard" 1 1024
status_is 3 "an id that the tokenizer lacks is refused"
err_is "tp-run: ids: '1024' is no id from 0 to 1023" "by number"
run tp-run detokenize 1
status_is 2 "ids need a tokenizer"
run tp-run tokens -o x --count --tokenizer "$bard" king.txt
status_is 2 "what is written is not printed"
run tp-run tokens --tokenizer "$bard" -p a king.txt
status_is 2 "a text and files exclude one another"
mkdir bare
run tp-run tokens --tokenizer bare -p a
status_is 3 "a directory without a tokenizer is refused"
err_is "tp-run: bare: no tokenizer.json, nor an older tokenizer" "by name"
done_testing
