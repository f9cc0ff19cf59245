#!/bin/sh
# answers.t - files of answers: generate --output, continued by --resume where a run was killed
. "${top_srcdir:?}/tests/lib.sh"
prompts=60
awk -v n=$prompts 'NF { print substr($0, 1, 40); if (++i == n) exit }' "$heldout" > lines
generate() {
    tp-run generate -q --backend cpu --threads 1 --max-tokens 12 --input lines "$@" "$bard"
}
# times differ
answers() {
    sed 's/"tokens_per_second":[^,}]*//' "$1"
}

run generate --output all.jsonl
status_is 0 "answers go to a file"
ok "not to standard output" test ! -s out
ok "and the file has its name" test ! -e all.jsonl.partial
answers all.jsonl > want
generate --json > printed
sed 's/,"input_crc32":"[0-9a-f]*"//' all.jsonl | tail -n +2 > bare
ok "they are those of --json" test "$(answers bare)" = "$(answers printed)"
ok "the first line has the settings" test "$(json all.jsonl type | head -n 1) $(json all.jsonl inputs | head -n 1)" = "settings $prompts"

# killed FILE OPTION... - kills a run when it has some answers
killed() {
    file=$1
    shift
    rm -f "$file" "$file.partial"
    tp-run generate -q --backend cpu --threads 1 --max-tokens 12 --input lines --requests 3 --output "$file" "$@" "$bard" &
    pid=$!
    for _ in $(seq 3000); do
        [ "$(wc -l < "$file.partial" 2> /dev/null || echo 0)" -lt 6 ] || break
        sleep 0.01
    done
    kill -9 $pid
    wait $pid 2> /dev/null
    [ ! -e "$file" ] && [ -e "$file.partial" ]
}
for layout in "--tp 1" "--tp 2" "--pp 2"; do
    # shellcheck disable=SC2086 # an option and its value
    ok "$layout: a killed run leaves what it has" killed cut.jsonl $layout
    ok "$layout: whole lines, but for the last" test "$(head -n 5 cut.jsonl.partial | answers /dev/stdin)" = "$(head -n 5 want)"
    before=$(wc -l < cut.jsonl.partial)
    # shellcheck disable=SC2086 # an option and its value
    run generate --output cut.jsonl --resume $layout
    status_is 0 "$layout: --resume goes on"
    ok "$layout: and the file is that of one run" test "$(answers cut.jsonl)" = "$(cat want)"
    ok "$layout: which had some answers" test "$before" -ge 6
done

# what --resume finds
head -n 20 all.jsonl > torn.jsonl.partial
printf '{"type":"generation","li' >> torn.jsonl.partial
run generate --output torn.jsonl --resume
status_is 0 "a torn last line is cut"
ok "and written anew" test "$(answers torn.jsonl)" = "$(cat want)"
head -c 30 all.jsonl > torn.jsonl.partial
run generate --output torn.jsonl --resume
ok "also the only one" test "$(answers torn.jsonl)" = "$(cat want)"
run generate --output all.jsonl --resume
status_is 0 "a finished file is finished"
ok "and is as it was" test "$(answers all.jsonl)" = "$(cat want)"
head -n 20 all.jsonl > other.jsonl.partial
cp other.jsonl.partial kept
run generate --output other.jsonl --resume --max-tokens 13
status_is 3 "other settings are refused"
err_is "tp-run: other.jsonl.partial: was begun with max_tokens 12, not 13; without --resume it is begun anew" "by name"
run generate --output other.jsonl --resume --seed 7
err_has "was begun with seed 0, not 7" "each of them"
ok "and the file is as it was" cmp other.jsonl.partial kept
mv lines lines.kept
sed '7s/^/x/' lines.kept > lines
run generate --output other.jsonl --resume
status_is 3 "so is another input"
err_has "tp-run: other.jsonl.partial:8: is no answer to lines:7, which has changed" "by its place"
mv lines.kept lines
run generate --output other.jsonl
status_is 0 "without --resume it is begun anew"
ok "to the same answers" test "$(answers other.jsonl)" = "$(cat want)"
run generate --resume
status_is 2 "--resume needs --output"
run generate --output -
status_is 2 "standard output is no such file"
run generate --output /dev/full/x
ok "a file that cannot be written is an error" test "$status" -ge 3

# what is no file, or is what is read, is not replaced
mkfifo pipe
mkdir directory
ln -s want link
for place in pipe directory link; do
    run generate --output $place
    status_is 3 "no answers go to a $place"
    err_is "tp-run: $place: is no regular file" "which is told"
done
ok "and all are still there" test -p pipe -a -d directory -a -L link
mv link link.partial
run generate --output link
err_is "tp-run: link.partial: is no regular file" "a link is no file to go on with"
cp lines again
run generate --output lines
status_is 2 "an input is not replaced by its answers"
err_has "--output: lines is the input lines" "which is told, too"
ok "and is as it was" cmp lines again

# a model is also what its family file says
sed 's/"eps": "[^"]*"/"eps": "90"/' "$top_srcdir/lib/model/families/llama.json" > family.json
cp other.jsonl family.jsonl.partial
run generate --output family.jsonl --resume --family family.json
status_is 3 "another family is another model"
err_has "family.jsonl.partial: was begun with model" "by name"

# lines that cannot be used
printf '%s\n' '{"text":"one"}' '{"txt":"two"}' '{"ids":[5,6]}' > mixed
run tp-run generate -q --backend cpu --max-tokens 3 --input mixed --output mixed.jsonl --echo "$bard"
status_is 3 "a line that cannot be used is status 3"
ok "and a line of the file" test "$(sed 's/"type":"\([a-z]*\)".*/\1/; s/{//' mixed.jsonl | tr '\n' ' ')" = "settings generation error generation "
ok "--echo returns an input's text, or null for ids" \
    test "$(sed -n 's/.*"prompt":\("[a-z]*"\|null\).*/\1/p' mixed.jsonl | tr '\n' ' ')" = '"one" null '
run tp-run generate -q --backend cpu --max-tokens 3 --prompt ROMEO: --echo "$bard"
ok "and prints it before the text" test "$(head -c 6 out)" = ROMEO:
done_testing
