#!/bin/sh
# chat.t - chats: prompts of files, and a person at a terminal
. "${top_srcdir:?}/tests/lib.sh"
model=$data/chat
XDG_STATE_HOME=$scratch/state
HOME=$scratch # without key bindings of its own
export XDG_STATE_HOME HOME
unset SOURCE_DATE_EPOCH

# talk COMMAND... - runs tp-run chat COMMAND... on a terminal, by the script on standard input
talk() {
    status=0
    "$top_builddir/tests/on-pty" tp-run chat --backend cpu "$@" > raw 2> err || status=$?
    tr -d '\r' < raw > out
}

# ---- files of chats ----

# what transformers makes of them
run tp-run generate --backend cpu --json --echo --max-tokens 24 --chat "$model/chats.jsonl" "$model"
status_is 0 "chats are answered"
sed 's/.*\("prompt":.*"ids":\[[^]]*\],"text":\)/{\1/; s/,"role":.*/}/' out > got
ok "the prompt's text and ids, and the greedy answer are those of transformers" diff "$model/expected.jsonl" got
ok "one that has an id keeps it" grep -q '"line":3,"id":"bob",' out
ok "an answer has a role and content" grep -q '"text":"Good day to you.","role":"assistant","content":"Good day to you.","finish":"stop"' out
for layout in "--tp 2" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run generate --backend cpu --json --echo --max-tokens 24 --chat "$model/chats.jsonl" $layout "$model"
    sed 's/.*\("prompt":.*"ids":\[[^]]*\],"text":\)/{\1/; s/,"role":.*/}/' out > again
    ok "$layout: the same" cmp got again
done
tp-shard split -q --tp 2 "$model" cut
run tp-run generate --backend cpu --max-tokens 24 --chat "$model/chats.jsonl" cut
ok "a sharded checkpoint has its template" grep -qx 'Good day to you.' out

# files
cat > bad.jsonl << 'END'

[{"role":"user","content":"Hello"}]
{"messages":[{"role":"robot","content":"Hello"}]}
{"messages":[]}
{"messages":[{"content":"Hello"}]}
{"id":7,"tools":{},"messages":[{"role":"user","content":"Hello"}]}
{"messages":[{"role":"user","content":"Hello"
7
{"messages":[{"role":"user","content":"Hello"}],"continue_final_message":true,"add_generation_prompt":true}
{"messages":[{"role":"user","content":"Hello"}],"add_generation_prompt":1}
{"messages":[{"role":"user","content":"Hello"}],"chat_template_kwargs":{"terse":false}}
END
run tp-run generate --backend cpu --chat bad.jsonl "$model"
status_is 3 "a file with chats that cannot be used"
ok "the others are answered" test "$(grep -cx 'Good day to you.' out)" -eq 2
sed "s|$model|MODEL|; s/^tp-run: //" err > got
cat > want << 'END'
bad.jsonl:3: MODEL/chat_template.jinja:11: the template raised an exception: no role robot
bad.jsonl:4:13: no message
bad.jsonl:5:14: a message without a "role"
bad.jsonl:6:17: "tools" is not a list
bad.jsonl:7:46: unexpected end
bad.jsonl:8:1: neither a list of messages nor an object with "messages"
bad.jsonl:9:1: "add_generation_prompt" and "continue_final_message" exclude each other
bad.jsonl:10:73: "add_generation_prompt" is neither true nor false
END
ok "and each is named by file, line and cause" diff want got
run tp-run generate --backend cpu --json --chat bad.jsonl "$model"
ok "with --json, too" grep -q '^{"type":"error","file":"bad.jsonl","line":6,"id":7,"error":' out
printf '[\n {"messages": [\n  {"role": "user", "content": "Hello"}]},\n [{"role":"user","content":"Escape"}]\n]\n' > many.json
run tp-run generate --backend cpu --chat many.json "$model"
ok "a document may have an array of chats" test "$(head -n 1 out)$(wc -l < out)" = "Good day to you.2"
printf '[\n {"role": "user", "content": "Hello"}\n]\n' | tp-run generate --backend cpu --chat - "$model" > out
out_is "Good day to you." "or one, also on standard input"
run tp-run generate --backend cpu --chat /dev/null "$model"
err_is "tp-run: /dev/null: no chat" "an empty file has none"

# options
run tp-run generate --backend cpu --chat many.json --prompt x "$model"
status_is 2 "other prompts do not mix with chats"
for option in --template=x --template-arg=a=1 --date=2026-01-01; do
    run tp-run generate --backend cpu "$option" --prompt x "$model"
    status_is 2 "${option%%=*} needs --chat"
done
for value in "--date=2026-02-30" "--date=now" "--template-arg=x" "--template-arg=x=y"; do
    run tp-run generate --backend cpu "$value" --chat many.json "$model"
    status_is 2 "$value is a usage error"
    err_lines 2 "of two lines"
done
echo '{{ strftime_now("%d %b %Y %H:%M") }} {{ one }} {{ two }}' > date.jinja
chat='{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"one":1,"two":2}}'
echo "$chat" | tp-run generate --backend cpu --template date.jinja --template-arg two='"zwei"' --date '2026-01-31 12:34:56' --echo \
    --max-tokens 1 --chat - "$model" > out
ok "--date and --template-arg reach the template, the second before what the chat says" grep -q '^31 Jan 2026 12:34 1 zwei' out
echo "$chat" | SOURCE_DATE_EPOCH=0 TZ=XYZ-5 tp-run generate --backend cpu --template date.jinja --echo --max-tokens 1 --chat - "$model" > out
ok "SOURCE_DATE_EPOCH is the date, in UTC" grep -q '^01 Jan 1970 00:00 1 2' out
run tp-run generate --backend cpu --chat many.json "$bard"
status_is 3 "a model without a template"
err_is "tp-run: $bard: no chat template: neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json; --template FILE gives one" \
    "says which files were looked for"
cp -R "$model" bare
chmod -R u+w bare
rm bare/tokenizer.json
run tp-run generate --backend cpu --chat many.json bare
err_is "tp-run: bare: no tokenizer.json, which messages need" "so does one without a tokenizer"

# ---- a pipe ----

printf '%s\n' Hello '' '/system You are Bob.' 'Who are you?' /system '/save kept.jsonl' '"""' two lines '"""' '//reset is a word' \
    'tw\' > typed
sed -i 's/^tw\\$/two\\/' typed
echo lines >> typed
tp-run chat --backend cpu "$model" < typed > out 2> err
status=$?
status_is 0 "messages come from a pipe"
printf '%s\n' 'Good day to you.' 'I am Bob.' 'You are Bob.' first second 'It is.' first second > want
ok "each is answered, and commands are obeyed" diff want out
err_empty "without a word on standard error"
printf '%s\n' '{"messages":[{"role":"system","content":"You are Bob."},{"role":"user","content":"Hello"},{"role":"assistant","content":"Good day to you."},{"role":"user","content":"Who are you?"},{"role":"assistant","content":"I am Bob."}]}' > want
ok "/save writes the conversation" diff want kept.jsonl
ok "no file of lines is made" test ! -e state
run tp-run chat --backend cpu --load kept.jsonl --json "$model"
ok "a conversation that waits for the person says nothing" test ! -s out
# the cache keeps the conversation: of the second prompt what is new is computed
for layout in "--tp 1" "--pp 2"; do
    # shellcheck disable=SC2086 # an option and its value
    printf 'Hello\nWho are you?\n/save talk.jsonl\n' | tp-run chat --backend cpu --json $layout "$model" > out
    cached=$(sed -n '2s/.*"cached_tokens":\([0-9]*\).*/\1/p' out)
    ok "an answer computes what is new, $layout" test "$(json out cached_tokens | head -n 1) $((cached >= 16))" = "0 1"
    sed 's/,{"role":"assistant"[^}]*}]/]/' talk.jsonl > asked.jsonl
    ok "and is the same, $layout" test "$(tp-run generate --backend cpu --json --chat asked.jsonl "$model" | sed 's/.*"content":"\([^"]*\)".*/\1/')" = \
        "$(sed -n '2s/.*"content":"\([^"]*\)".*/\1/p' out)"
done

echo '{"id":1,"tools":[{"name":"now"}],"messages":[{"role":"user","content":"Hello"}]}' > asked.jsonl
echo '/save again.jsonl' | tp-run chat --backend cpu --load asked.jsonl --json "$model" > out
ok "one that waits for the model is answered" grep -q '^{"type":"message","role":"assistant","content":"Good day to you.","finish":"stop","prompt_tokens":48,"tokens":13,' out
printf '%s\n' '{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Good day to you."}],"id":1,"tools":[{"name":"now"}]}' > want
ok "what else the file says stays in it" diff want again.jsonl
run tp-run generate --backend cpu --chat again.jsonl "$model"
status_is 0 "generate reads it"
cat kept.jsonl again.jsonl > two.jsonl
run tp-run chat --backend cpu --load two.jsonl "$model"
status_is 3 "a file of two chats is no conversation"
err_is "tp-run: two.jsonl:2: a second chat, where one is expected" "and says so"
echo 'Who are you?' | tp-run chat --backend cpu --load kept.jsonl --system "You are Bob." "$model" > out
out_is "I am Bob." "--system takes the place of the file's"
for line in /nothing /save '/save early' '/save /nowhere/file'; do
    case $line in *nowhere*) echo Hello ;; esac > typed
    echo "$line" >> typed
    status=0
    tp-run chat --backend cpu "$model" < typed > out 2> err || status=$?
    case $line in *nowhere*) want=4 ;; *) want=3 ;; esac
    ok "'$line' ends a pipe's conversation with one line" test "$status,$(wc -l < err)" = "$want,1"
done
printf 'a\377\n' > typed
tp-run chat --backend cpu "$model" < typed > out 2> err
err_is "tp-run: standard input: a message is not UTF-8" "bytes that are not UTF-8 are no message"
printf 'Hello\0, and more\n' > typed
tp-run chat --backend cpu "$model" < typed > out 2> err
err_is "tp-run: standard input: a message has a NUL character" "nor is one of them cut at a NUL"
printf '%s\n' '"""' '/* no command */' '"""' '"""' '//' '"""' '//x' '/save slashes.jsonl' > typed
tp-run chat --backend cpu --max-tokens 1 -q "$model" < typed > out 2> err
ok "a quoted line that begins with a slash is no command" test \
    "$(grep -o '"user","content":"[^"]*"' slashes.jsonl | tr -d '\n')" = \
    '"user","content":"/* no command */""user","content":"//""user","content":"/x"'
if [ -w /dev/full ]; then
    status=0
    echo Hello | tp-run chat --backend cpu "$model" > /dev/full 2> err || status=$?
    status_is 4 "a full disk is an error of the machine"
    echo '/save /dev/full' | tp-run chat --backend cpu --load kept.jsonl "$model" > out 2> err
    err_has "/dev/full: " "also one that /save meets"
fi
run tp-run chat --backend cpu --dp 2 "$model"
status_is 2 "replicas cannot share a conversation"
run tp-run chat --backend cpu "$data/stacks/t5"
status_is 3 "an encoder-decoder has none"
run tp-run chat --backend cpu "$bard"
status_is 3 "nor a model without a template"

# limits
printf '%s\n' Count Hello | tp-run chat --backend cpu --max-tokens 5 "$model" > out 2> err
ok "--max-tokens ends an answer" grep -qx 'one two three four five' out
err_has "tp-run: the answer was ended after 5 tokens (--max-tokens)" "and says so"
status=0
printf '%s\n' Count Hello | tp-run chat --backend cpu --json "$model" > out 2> err || status=$?
ok "the context ends one, too" grep -q '"finish":"context","prompt_tokens":21,"tokens":236,' out
status_is 3 "and the next message has no room"
err_has "and the model takes 256: /reset begins a new one, after /save FILE perhaps" "of which the error tells the ways out"
status=0
printf '%s\n' Hello Hello Hello | tp-run chat --backend cpu --cache-tokens 64 --json "$model" > out 2> err || status=$?
err_has "tokens, and there is room for 64: /reset begins a new one, and --cache-tokens makes room" "a smaller room is named, too"

# ---- a terminal ----

# counts for seconds, so that ^C comes in the answer on a busy machine, too
cp -r "$model" long && chmod -R u+w long
sed -i 's/"max_position_embeddings": 256/"max_position_embeddings": 8192/' long/config.json
cat > script << 'END'
wait > 
type Helxx\ch\chlo\r
wait Good day to you.
wait > 
type Count\r
wait one two three four
type \cc
wait what was said stays
wait > 
type /save stopped.jsonl\r
wait > 
type never sent\cc
wait ^C
wait > 
type /reset\r
wait > 
type \e[A\e[A\e[A\e[A\r
wait Good day to you.
wait > 
type """\r
wait . 
type two\r
wait . 
type lines\r
wait . 
type """\r
wait second
wait > 
type Greet the w\e[D\e[D\e[C\e[Corld\r
wait Grüß dich, 世界! 🙂🙂
wait > 
type Grüße\ch\ch\cu
type Escape\r
wait red
wait > 
type /bad\r
wait /bad is no command
wait > 
type /save /nowhere/file\r
wait No such file
wait > 
type /save talk.jsonl\r
wait > 
type \cd
END
for layout in "" "--tp 2" "--pp 2"; do
    rm -rf state talk.jsonl stopped.jsonl
    # shellcheck disable=SC2086 # words
    talk $layout long < script
    status_is 0 "a person talks on a terminal${layout:+, $layout}"
    ok "an answer that ^C stopped is kept" grep -q '{"role":"user","content":"Count"},{"role":"assistant","content":"one two three four[^"]*"}\]}$' stopped.jsonl
    printf '%s\n' '{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Good day to you."},{"role":"user","content":"two\nlines"},{"role":"assistant","content":"first\nsecond"},{"role":"user","content":"Greet the world"},{"role":"assistant","content":"Grüß dich, 世界! 🙂🙂"},{"role":"user","content":"Escape"},{"role":"assistant","content":"\u001b[31mred\u001b[0m"}]}' > want
    ok "the conversation since /reset is what was said" diff want talk.jsonl
done
out_has '\x1b[31mred\x1b[0m' "a control character in an answer is shown, not obeyed"
: > script
# shellcheck disable=SC2016 # the inner shell's
"$top_builddir/tests/on-pty" sh -c 'echo Escape | tp-run chat --backend cpu "$1"' sh "$model" < script > out
out_has '\x1b[31mred\x1b[0m' "nor where messages come from a pipe"
if tp-run --version | grep -q '+libedit'; then
    ok "the file of lines is the person's alone" test "$(stat -c %a state/shardutils state/shardutils/chat-history | tr '\n' ' ')" = "700 600 "
    printf '%s\n' Hello Count '/save stopped.jsonl' /reset Hello '"""' > want
    head -n 6 state/shardutils/chat-history > got
    ok "and has what was entered" diff want got
    i=0
    while [ $((i += 1)) -le 2500 ]; do echo "line $i"; done > state/shardutils/chat-history
    printf 'wait > \ntype \\e[A\\r\nwait > \ntype \\cd\n' > script
    talk "$model" < script
    out_has "line 2500" "the next conversation has them"
    ok "a file that grows too long is cut" test "$(wc -l < state/shardutils/chat-history)" -eq 1001
    cp state/shardutils/chat-history before
    talk --no-history "$model" < script
    ok "--no-history neither reads nor writes it" cmp before state/shardutils/chat-history
    printf 'wait > \nsize 20\ntype Hello Hello Hello Hello\\cu\ntype Hello\\r\nwait Good day\nwait > \ntype \\cd\n' > script
    talk "$model" < script
    status_is 0 "a window that becomes narrow"
fi
# a terminal that nobody reads has room for some 18 KiB here, which so many times /help nearly fill
for times in 45 46; do
    {
        echo 'wait > '
        i=0
        while [ $((i += 1)) -le $times ]; do echo 'type /help\r'; done
        printf 'type Count\\r\npause 8\ntype \\cc\npause 3\n'
        # a ^D that comes before the prompt is none
        printf 'type /bad\\r\nwait /bad is no command\nwait > \ntype \\cd\n'
    } > script
    talk "$model" < script
    status_is 0 "^C while the terminal takes nothing more is no error of writing"
done
# of a script the first ^C ends all; a shell has it ignored in the background, and env gives it back
yes Count | head -n 50 > typed
for layout in "" "--tp 2"; do
    status=0
    # shellcheck disable=SC2086 # words
    env --default-signal=INT timeout -k 2 -s INT 1 tp-run chat --backend cpu $layout long < typed > out 2> err || status=$?
    ok "^C ends a script's conversation${layout:+, $layout}" test "$status" = 124
done
printf 'wait > \ntype Hello\\r\nwait Good day\nwait > \nkill 15\n' > script
talk "$model" < script
status_is 143 "SIGTERM ends it at the prompt"
cat > stty.sh << 'END'
before=$(stty -g)
"$@"
test "$(stty -g)" = "$before" && echo "as it was"
END
for layout in "" "--tp 2"; do
    printf 'wait > \ntype \\cd\nwait as it was\n' > script
    # shellcheck disable=SC2086 # words
    "$top_builddir/tests/on-pty" sh stty.sh tp-run chat --backend cpu $layout "$model" < script > out
    ok "the terminal is as it was${layout:+, $layout}" grep -q "as it was" out
done
done_testing
