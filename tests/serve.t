#!/bin/sh
# serve.t - a web server of answers, and its clients
. "${top_srcdir:?}/tests/lib.sh"
heeds_hup=$(env --default-signal=HUP echo yes 2> env.err) || heeds_hup=
model=$data/chat
talk=$top_builddir/tests/http-talk

if ! tp-run --version | grep -q '+microhttpd'; then
    run tp-run serve --backend cpu --listen 127.0.0.1:0 "$model"
    status_is 1 "without libmicrohttpd there is no server"
    err_is "tp-run: this build has no libmicrohttpd, which serves HTTP" "and one line says so"
    done_testing
fi

# serve OPTION... - starts a server; sets $server, its process, and $url when it is ready
serve() {
    rm -f ready
    mkfifo ready
    # where the tests run under nohup, SIGHUP would stay ignored
    env ${heeds_hup:+--default-signal=HUP} tp-run serve --backend cpu --listen 127.0.0.1:0 "$@" > ready 2> log &
    server=$!
    read -r listening < ready || listening=
    printf '%s\n' "$listening" > listening
    url=$(json listening url)
}

# ends SIGNAL - the server ends with $status
ends() {
    kill "-$1" "$server"
    status=0
    wait "$server" 2> /dev/null || status=$?
}
trap '[ -z "${server-}" ] || kill -9 "$server" 2> /dev/null; chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT

# until COMMAND... - waits until it succeeds, a minute at most
until_ok() {
    for _ in $(seq 600); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    return 1
}

# get PATH, post PATH BODY - the answer's status and body are in out
get() { run "$talk" "$url" GET "$@"; }
post() {
    post_path=$1
    printf '%s' "$2" > body
    shift 2
    status=0
    "$talk" "$url" POST "$post_path" "$@" < body > out 2> err || status=$?
}
# answered STATUS TEXT NAME - the last one had this status and this text in its body
answered() {
    if [ "$(head -n 1 out)" = "$1" ] && grep -qF -e "$2" out; then pass "$3"; else fail "$3" "$(head -n 5 out err)"; fi
}
# texts KEY - the values of KEY in the events of out, put together
texts() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" out | tr -d '\n'; }

hello='"messages":[{"role":"user","content":"Hello"}]'

# ---- the interface ----

printf '{"ids":[40,69,76,76,79,40,69,76]}\n' > some.jsonl
tp-run train -q --backend cpu --data some.jsonl --seq 8 --steps 2 --lr 0.1 --lora 2 -o other "$model"
serve --served-name bob --body-timeout 600 --idle-timeout 600 --adapter carol=other/step-000002 "$model"
ok "when it listens it says where, as JSON" grep -q '^{"type":"listening","url":"http://127.0.0.1:[0-9]*","model":"bob","max_model_len":256}$' listening
get /health
answered 200 "" "it is healthy"
get /v1/models
answered 200 '{"object":"list","data":[{"id":"bob","object":"model","created":' "it lists its model"
get /v1/models/bob
answered 200 '{"id":"bob","object":"model"' "and tells of it"
get /v1/models
answered 200 ',"owned_by":"shardutils","max_model_len":256,"parent":"bob"}]}' "and the adapters that it can have,"
get /v1/models/carol
answered 200 '{"id":"carol","object":"model"' "by name"
for of in bob carol; do
    [ $of = bob ] || set -- --adapter other/step-000002
    tp-run generate --backend cpu --json --temperature 0 --max-tokens 8 --prompt Hello "$@" "$model" > alone
    text=$(json alone text | head -c 6)
    post /v1/completions "{\"model\":\"$of\",\"temperature\":0,\"max_tokens\":8,\"prompt\":\"Hello\"}"
    answered 200 "\"model\":\"$of\"" "$of is asked for by its name"
    answered 200 "\"text\":\"$text" "and answers as tp-run generate"
    echo "$text" > "text.$of"
done
ok "which are two texts" sh -c '! cmp -s text.bob text.carol'
post /v1/chat/completions "{\"model\":\"bob\",\"temperature\":0,$hello}"
answered 200 '"choices":[{"index":0,"message":{"role":"assistant","content":"Good day to you."},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":22,"completion_tokens":13,"total_tokens":35' "a chat is answered as generate --chat does"
post /v1/chat/completions "{\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true},$hello}"
answered 200 'data: [DONE]' "and in a stream,"
ok "whose pieces are the same text" test "$(texts content)" = "Good day to you."
ok "the role comes first" grep -q '^200$' out
sed -n '2p' out > first
ok "with empty content" grep -q '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}\],"usage":null}' first
ok "the reason of the end last" grep -q '"delta":{},"logprobs":null,"finish_reason":"stop"}' out
ok "and the usage in a chunk of its own" grep -q '"choices":\[\],"usage":{"prompt_tokens":22,"completion_tokens":13,' out
post /v1/chat/completions "{\"temperature\":0,\"max_tokens\":3,$hello}"
answered 200 '"content":"Goo"},"logprobs":null,"finish_reason":"length"' "max_tokens ends it"
post /v1/chat/completions "{\"temperature\":0,\"stop\":[\"zz\",\"y t\"],$hello}"
answered 200 '"content":"Good da"},"logprobs":null,"finish_reason":"stop"' "a text that is to stop it does, and is left out"
post /v1/chat/completions '{"temperature":0,"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}]}'
answered 200 '"content":"Good day to you."' "a message may have parts"
post /v1/chat/completions '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}'
answered 400 "a part of a message of type 'image_url' is not supported" "of text"
post /v1/chat/completions "{\"temperature\":0,\"stream\":true,\"stop\":\"y t\",$hello}"
ok "in a stream, too, though it is made of several tokens" test "$(texts content)" = "Good da"

# the same text as generate, alone
same() {
    tp-run generate --backend cpu --json --seed "$1" --temperature 1 --max-tokens 30 --prompt Hello "$model" > alone
    post /v1/completions "{\"prompt\":\"Hello\",\"seed\":$1,\"max_tokens\":30}"
    [ -n "$(json alone text)" ] && [ "$(json alone text)" = "$(json out text)" ]
}
ok "a seed gives the text that generate --seed gives" same 7
ok "another one another" same 8
post /v1/completions '{"prompt":["Hello",[1,2,3]],"n":2,"max_tokens":4,"seed":1}'
ok "several prompts have several choices each" test "$(grep -o '"index":[0-9]*' out | tr '\n' ' ')" = '"index":0 "index":1 "index":2 "index":3 '
request='"prompt":["Hello","x"],"max_tokens":9,"seed":2,"temperature":2,"logprobs":0,"ignore_eos":true'
post /v1/completions "{$request,\"n\":6}"
grep -o '"text":"[^"]*"\|"token_logprobs":\[[^]]*' out | paste - - | awk -F '\t' '{ n = split($2, p, /[][,]/); s = 0; for (i = 2; i <= n; i++) s += p[i]; print (NR > 6), s, $1 }' |
    sort -k 1,1n -k 2,2gr | awk '{ if (seen[$1]++ < 2) print }' | sed 's/^[^"]*//' > best
post /v1/completions "{$request,\"n\":2,\"best_of\":6}"
grep -o '"text":"[^"]*"' out > got
ok "best_of gives the likeliest of so many" cmp best got
ok "numbered as others" test "$(grep -o '"index":[0-9]*' out | tr '\n' ' ')" = '"index":0 "index":1 "index":2 "index":3 '
post /v1/completions '{"prompt":"Hello","best_of":3,"max_tokens":4}'
answered 200 '"logprobs":null' "without log-probabilities, too"
answered 200 '"completion_tokens":12,' "and counts all"
post /v1/completions '{"prompt":"Hello","max_tokens":64,"ignore_eos":true}'
answered 200 '"completion_tokens":64,' "ignore_eos goes on to max_tokens"

# ---- how tokens are chosen, and what is told of them ----

# sets REQUEST OPTION... - the request's settings give what generate's options give, which others do not
sets() {
    sets_name=${1%%:*}
    post /v1/completions "{\"prompt\":\"Hello\",\"seed\":5,\"max_tokens\":30,\"ignore_eos\":true,$1}"
    shift
    tp-run generate --backend cpu --json --ignore-eos --seed 5 --temperature 1 --max-tokens 30 --prompt Hello "$@" "$model" > alone
    ok "$sets_name is that of generate $1" test "$(json alone text)" = "$(json out text)"
    ok "and changes the text" test "$(json plain text)" != "$(json out text)"
}
post /v1/completions '{"prompt":"Hello","seed":5,"max_tokens":30,"ignore_eos":true}'
cp out plain
sets '"presence_penalty":2' --presence-penalty 2
sets '"frequency_penalty":2' --frequency-penalty 2
sets '"repetition_penalty":3' --repetition-penalty 3
sets '"min_p":0.3' --min-p 0.3
sets '"typical_p":0.3' --typical-p 0.3
sets '"bad_words":["e","o"]' --bad-words e --bad-words o
sets '"logit_bias":{"69":-100,"79":5}' --logit-bias 69:-100 --logit-bias 79:5
post /v1/chat/completions "{\"temperature\":0,\"min_tokens\":20,$hello}"
answered 200 '"completion_tokens":2' "min_tokens goes on after what would be the end"

tp-run generate --backend cpu --json --logprobs 2 --max-tokens 4 --prompt Hello "$model" > alone
post /v1/completions '{"prompt":"Hello","max_tokens":4,"temperature":0,"logprobs":2}'
ok "the log-probabilities of a completion are those of generate --logprobs" \
    test "$(sed -n 's/.*"token_logprobs":\[\([^]]*\).*/\1/p' out)" = "$(grep -o '"logprob":[-0-9.e]*,"top"' alone | cut -d : -f 2 | sed 's/,.*//' | paste -s -d ,)"
ok "as are those of the likeliest" \
    test "$(sed -n 's/.*"top_logprobs":\[\([^]]*\).*/\1/p' out | grep -o ':[-0-9.e]*' | tr -d :)" = "$(sed 's/"logprob":[-0-9.e]*,"top"//g' alone | grep -o '"logprob":[-0-9.e]*' | cut -d : -f 2)"
ok "and where each token begins" test "$(sed -n 's/.*"text_offset":\[\([^]]*\).*/\1/p' out | tr , '\n' | head -n 2 | paste -s -d ,)" = 0,2
sed -n 's/.*"token_logprobs":\[\([^]]*\).*/\1/p' out | tr , '\n' > whole
post /v1/completions '{"prompt":"Hello","max_tokens":4,"temperature":0,"logprobs":2,"stream":true}'
sed -n 's/.*"token_logprobs":\[\([^]]*\).*/\1/p' out > streamed
ok "in a stream, too" cmp whole streamed
post /v1/completions '{"prompt":"Hello","max_tokens":12,"seed":3,"logprobs":0,"ignore_eos":true}'
answered 200 '"<|im_start|>","a","s","t"' "special tokens are told"
answered 200 '"text_offset":[0,2,3,5,6,7,7,8,9' "but take no place in the text"
post /v1/chat/completions "{\"temperature\":0,\"logprobs\":true,\"top_logprobs\":1,\"max_tokens\":2,$hello}"
answered 200 '"logprobs":{"content":[{"token":"G","logprob":-0.00' "those of a chat have OpenAI's form"
answered 200 ',"bytes":[71],"top_logprobs":[{"token":"G","logprob":-0.00' "with bytes and the likeliest"
post /v1/completions '{"prompt":["Hello",[40,69]],"max_tokens":1,"temperature":0,"echo":true}'
answered 200 '"text":"Hello y"' "echo repeats the prompt"
answered 200 '"text":"Het"' "of ids, too"
post /v1/completions '{"prompt":"Hello","max_tokens":1,"temperature":0,"echo":true,"stream":true}'
ok "and in a stream" test "$(texts text)" = "Hello y"

head -c 250 "$heldout" | tr -d '"\\\n' > long
printf '{"prompt":["%s","%s","H"],"n":2,"max_tokens":0,"echo":true,"logprobs":1}' "$(cat long)" "$(head -c 90 long)" > told.body
# mean FILE - of the log-probabilities of its first choice but the first, and their number
mean() { tail -n 1 "$1" | sed 's/.*"index":0,[^[]*"tokens":.*"token_logprobs":\[null,\([^]]*\).*"index":1,.*/\1/' | tr , '\n' | awk '{ s -= $1 } END { printf "%d %.4f\n", NR, s / NR }'; }
tp-run score --backend cpu --json long "$model" > scored
"$talk" "$url" POST /v1/completions < told.body > told
ok "echo with logprobs tells the prompt, as score does" \
    test "$(mean told)" = "$(json scored tokens) $(json scored nll | awk '{ printf "%.4f", $1 }')"
ok "a prompt of one token, too" grep -q '"text":"H","logprobs":{"tokens":\["H"\],"token_logprobs":\[null\],"top_logprobs":\[null\]' told
post /v1/completions '{"prompt":"Hello","max_tokens":1,"temperature":0,"echo":true,"logprobs":1}'
answered 200 '"tokens":["H","e","l","l","o"," y"]' "and what follows it"
answered 200 '"completion_tokens":1,' "which alone is counted"

post /v1/responses '{"temperature":0,"input":"Hello"}'
answered 200 '"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Good day to you."}]}],"usage":{"input_tokens":22,' "a response is a chat in another form"
answered 200 '"status":"completed","model":"bob","error":null,"incomplete_details":null,' "that is completed"
post /v1/responses '{"temperature":0,"stream":true,"max_output_tokens":3,"instructions":"","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}'
ok "in a stream, too" test "$(sed -n 's/^event: //p' out | uniq | tr '\n' ' ')" = "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.done response.content_part.done response.output_item.done response.incomplete "
ok "numbered" test "$(grep -o '"sequence_number":[0-9]*' out | cut -d : -f 2 | paste -s -d ' ')" = "$(seq -s ' ' 0 "$(($(grep -c ^event out) - 1))")"
for key in '"previous_response_id":"x"' '"store":true' '"text":{"format":{"type":"grammar"}}' '"truncation":"auto"' '"top_logprobs":1' '"reasoning":{"effort":"low"}' '"tools":[{"type":"web_search"}]' '"instructions":1'; do
    post /v1/responses "{\"input\":\"x\",$key}"
    answered 400 "\"param\":\"$(echo "$key" | cut -d '"' -f 2)\"" "$key is refused"
done
for value in 7 '[7]' '[{"type":"item_reference"}]' '[{"role":"user"}]' '[{"type":"function_call","name":"f"}]' '[{"type":"function_call_output"}]'; do
    post /v1/responses "{\"input\":$value}"
    answered 400 '"param":"input"' "the input $value is refused"
done
post /tokenize '{"prompt":"Hello"}'
answered 200 '{"count":5,"max_model_len":256,"tokens":[40,69,76,76,79]}' "a text is tokenized"
post /tokenize "{$hello}"
answered 200 '{"count":22,' "and a chat"
post /detokenize '{"tokens":[40,69,76,76,79]}'
answered 200 '{"prompt":"Hello"}' "tokens are a text again"
get /version
answered 200 '"model":"bob","layout":"tp=1"}' "the version, the model and the layout are told"
get /
answered 200 '<!doctype html>' "and there is a page"
ok "that needs nothing from elsewhere" sh -c '! grep -q "[a-z]*://" out'

# ---- many at a time ----

# what each client is answered alone
for i in $(seq 24); do
    case $((i % 4)) in
    0) printf '{"prompt":"Hello %s","seed":%s,"max_tokens":%s,"ignore_eos":true}' "$i" "$i" "$((10 + i * 5))" ;;
    1) printf '{"prompt":"Hello","temperature":0,"max_tokens":%s,"stop":["%s"]}' "$((10 + i * 5))" "$((i % 10))" ;;
    2) printf '{"prompt":["a %s","b"],"seed":%s,"n":2,"max_tokens":30,"stream":true}' "$i" "$i" ;;
    3) printf '{"prompt":"%s","seed":%s,"top_k":5,"max_tokens":90,"stream":true,"ignore_eos":true}' "$(head -c $((i * 4)) "$heldout" | tr -d '"\n')" "$i" ;;
    esac > "$i.body"
done
# its status, the pieces of each choice, and why it ended
plain() {
    head -n 1 "$1"
    grep -oE '"index":[0-9]*,"text":"([^"\\]|\\.)*"|"finish_reason":"[a-z]*"|"completion_tokens":[0-9]*' "$1" | sort -s -t , -k 1,1
}
for i in $(seq 24); do "$talk" "$url" POST /v1/completions < "$i.body" > "$i.alone"; done
clients=
for i in $(seq 24); do
    "$talk" "$url" POST /v1/completions < "$i.body" > "$i.together" &
    clients="$clients $!"
done
# shellcheck disable=SC2086 # words
wait $clients
for i in $(seq 24); do plain "$i.alone" && plain "$i.together" >&3; done > alone 3> together
ok "24 clients at a time are answered as one by one" cmp alone together
ok "all of them" test "$(grep -c '^200$' together)" -eq 24

# ---- measured ----

run tp-run load --clients 1,3 --requests 4 --max-tokens 5 --price 2 --json "$url"
status_is 0 "load measures a server"
ok "at each number of clients" test "$(sed 's/,"seconds.*//' out | tr '\n' ' ')" = '{"type":"load","clients":1,"requests":4,"failed":0,"prompt_tokens":28,"tokens":20 {"type":"load","clients":3,"requests":4,"failed":0,"prompt_tokens":28,"tokens":20 '
ok "with times and a cost" grep -q '"time_to_first_token":{"p50":[0-9.e-]*,.*"between_tokens":{.*"cost_per_million_tokens":' out
run tp-run load --rate 30,60 --requests 6 --max-tokens 5 --json "$url"
ok "at a rate of its own" test "$(sed 's/,"seconds.*//' out | tr '\n' ' ')" = '{"type":"load","rate":30,"requests":6,"failed":0,"prompt_tokens":42,"tokens":30 {"type":"load","rate":60,"requests":6,"failed":0,"prompt_tokens":42,"tokens":30 '
printf '0.5\n{"at":0,"prompt":"Bye","max_tokens":3}\n' > arrivals
run tp-run load --arrivals arrivals --max-tokens 5 --json --plot load.svg "$url"
ok "or at the times of a file, with its prompts" grep -q '"rate":4,"requests":2,"failed":0,"prompt_tokens":[0-9]*,"tokens":8,"seconds":0\.[5-9]' out
if tp-run --version | grep -q '+cairo'; then ok "drawn" grep -q '<svg' load.svg; fi
for line in '{"at":-1}' '{"at":0,"prompt":1}' '[0]'; do
    echo "$line" > arrivals
    run tp-run load --arrivals arrivals "$url"
    status_is 3 "$line is no arrival"
done
run tp-run load --rate 0 "$url"
status_is 2 "nor 0 a rate"
run tp-run load --clients 2 --model alice "$url"
status_is 1 "requests that fail are counted"
err_has "status 404: " "and one of them is explained"
run tp-run load http://127.0.0.1:1
status_is 4 "a server that is not there is the machine's"

# ---- refused ----

post /v1/chat/completions "{\"model\":\"alice\",$hello}"
answered 404 '"param":"model","code":"model_not_found"' "another model is not found"
get /v1/models/alice
answered 404 '"code":"model_not_found"' "nor told of"
get /v2
answered 404 '"type":"invalid_request_error"' "nor another path"
get /v1/completions
answered 405 "is for POST" "a method that a path has not is said"
post /v1/completions '{"prompt":'
answered 400 '"code":"invalid_json"' "what is no JSON is refused"
post /v1/completions '{"prompt":"x","length_penalty":2}'
answered 400 '"message":"length_penalty is not supported by this server","type":"invalid_request_error","param":"length_penalty"' "a parameter that would change the answer is named"
for key in reasoning_effort verbosity; do
    post /v1/chat/completions "{\"$key\":\"low\",$hello}"
    answered 400 "\"param\":\"$key\",\"code\":\"unsupported_parameter\"" "$key is"
done
for host in elsewhere.example elsewhere.example:80 127.0.0.1.example '[::2]:80' 10.0.0.1 localhost.example ''; do
    get /v1/models "Host: $host"
    answered 403 'without an API key' "without a key nobody may call it '$host'"
done
for host in localhost LOCALHOST:1 127.0.0.1 127.1.2.3:80 '[::1]' '[::1]:80'; do
    get /v1/models "Host: $host"
    answered 200 '"id":"bob"' "but $host"
done
get /health "Host: elsewhere.example"
answered 200 "" "and whatever one likes to see whether it is healthy"
post /v1/completions '{"prompt":"x","max_tokens":0}'
answered 400 '"param":"max_tokens"' "no token is for an echo alone"
post /v1/completions '{"prompt":"x","min_tokens":9,"max_tokens":8}'
answered 400 '"param":"min_tokens"' "min_tokens is at most max_tokens"
post /v1/completions '{"prompt":"x","frequency_penalty":0,"logit_bias":null,"user":"u","unheard":1,"max_tokens":1}'
answered 200 '"finish_reason":"length"' "one that would not is ignored"
while read -r key value; do
    post /v1/completions "{\"prompt\":\"x\",\"$key\":$value}"
    answered 400 "\"param\":\"$key\"" "$key $value is refused"
done << 'END'
temperature -1
temperature "hot"
top_p 0
top_p 1.5
top_k -2
max_tokens 0
max_tokens 1.5
max_tokens 300
n 0
n 129
best_of 129
seed 0.5
stop [""]
stop 3
stop_token_ids [-1]
stream 1
min_p 2
typical_p 0
presence_penalty 3
frequency_penalty "x"
repetition_penalty 0
min_tokens 0.5
logit_bias [1]
logit_bias {"x":1}
logit_bias {"99999":1}
logit_bias {"1":101}
bad_words ""
bad_words [""]
logprobs 21
logprobs true
echo 1
END
post /v1/completions '{"prompt":"a","max_tokens":2,"min_tokens":1,"stop_token_ids":[2147483647]}'
answered 200 '"completion_tokens":2' "an id to stop at that the model lacks is none"
ok "and takes no memory" sh -c 'awk "/^VmHWM/ { exit \$2 > 4000000 }" /proc/'"$server"/status
post /v1/completions "{\"prompt\":\"a\",\"stop_token_ids\":[$(seq -s , 1025)]}"
answered 400 'at most 1024 ids' "more of them than anyone needs are refused"
for with in '"n":3' '"stream":true'; do
    post /v1/completions "{\"prompt\":\"x\",\"best_of\":2,$with}"
    answered 400 '"param":"best_of"' "best_of 2 does not go with $with"
done
for value in '[]' '[1,"x"]' '[99999]' '""' '7'; do
    post /v1/completions "{\"prompt\":$value}"
    answered 400 '"param":"prompt"' "the prompt $value is refused"
done
post /v1/chat/completions '{"messages":[{"role":"robot","content":"x"}]}'
answered 400 "no role robot" "a message that the template refuses is, with its reason"

# ---- HTTP ----

raw() { status=0; "$talk" --raw "$url" > out 2> err || status=$?; }
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' | "$talk" --slow --raw --hold --leave 12 "$url"
ok "a head that comes a byte at a time is read" test $? -eq 0
{ printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n'
  printf '9\r\n{"prompt"\r\n4\r\n:"x"\r\n11\r\n,"max_tokens": 1}\r\n0\r\n\r\n'; } > bytes
"$talk" --raw --hold --leave 15 "$url" < bytes > out
ok "a body in chunks is read" test $? -eq 0
{ printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n'; } | raw
ok "a bad chunk is an error" grep -q '^HTTP/1.1 400' out
head -c 100000 /dev/zero | tr '\0' 'x' | raw
ok "so is garbage" test "$(grep -c '^HTTP/1.[01] 4' out)" -eq "$([ -s out ] && echo 1 || echo 0)"
{ printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n'; head -c 100000 /dev/zero | tr '\0' 'x'; printf '\r\n\r\n'; } | raw
ok "so is a head without end" sh -c '! grep -q "^HTTP/1.1 200" out'
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n' | raw
ok "a body that is too large is refused before it comes" grep -q '^HTTP/1.1 413' out
get /health
answered 200 "" "and the server goes on"
open_files() { [ "$(ls "/proc/$server/fd" | wc -l)" -le "$1" ]; }
files=$(ls "/proc/$server/fd" | wc -l)
# closed BYTES OPTION... NAME - 10 times 20 clients that send these and leave, leave no connection
closed() {
    # shellcheck disable=SC2059 # its escapes are wanted
    printf "$1" > bytes
    shift
    closed_name=$1
    shift
    for _ in $(seq 10); do "$talk" --raw --burst 20 "$@" "$url" < bytes; done
    ok "$closed_name leave no connection" until_ok open_files "$files"
}
stream='{"prompt":"x","max_tokens":100,"stream":true,"ignore_eos":true}'
request="POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${#stream}\r\n\r\n"
closed '' "clients that say nothing"
closed 'GET /hea' "clients that close in the middle of a head"
closed "$request{}" "of a body"
closed "$request$stream" "before an answer"
closed "$request$stream" "in the middle of one" --leave 50
closed "$request$stream" "or reset it" --leave 50 --reset
closed "$(printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n%.0s' 1 2 3)" "after the first of three" --leave 5
closed '\1\2\3\r\n\r\n' "and those that talk garbage" --leave 5

# ---- the end ----

ends TERM
status_is 0 "SIGTERM ends it with status 0"
ok "without a word" test ! -s log

# ---- what it does ----

# metric NAME - its number in out; of several labels the last
metric() { sed -n "s/^vllm:$1{[^}]*} //p" out | tail -n 1; }
is() { get /metrics && [ "$(metric "$1")" = "$2" ]; }
# a body of a request that takes a while: N choices, one after another
long() { printf '{"prompt":"Hello","n":%s,"max_tokens":200,"ignore_eos":true,"stream":%s}' "$1" "$2"; }
# begins N - a client of such a stream, $client, whose answer, in stream, has begun
begins() {
    rm -f begun
    long "$1" true > stream.body
    "$talk" --mark begun "$url" POST /v1/completions < stream.body > stream 2> stream.err &
    client=$!
    until_ok test -e begun
}
# ranks - the processes of the server's ranks
ranks() { cat /proc/[0-9]*/stat 2> /dev/null | awk -v p="$server" '$4 == p { print $1 }'; }

serve --requests 1 --access-log access --draft lookup "$model"
post /v1/completions '{"prompt":"Hello","max_tokens":7,"ignore_eos":true}'
get /metrics
ok "tokens are counted" test "$(metric generation_tokens_total) $(metric prompt_tokens_total)" = "7 5"
ok "and ends" grep -q '^vllm:request_success_total{model_name="chat",finished_reason="length"} 1$' out
ok "and times, in buckets" grep -q '^vllm:time_to_first_token_seconds_bucket{model_name="chat",le="+Inf"} 1$' out
ok "a draft changes no text" same 7
long 128 true > body
"$talk" --leave 200 "$url" POST /v1/completions < body
ok "when a client leaves, its answer is given up" until_ok is request_success_total 1
ok "before it has been made" test "$(metric generation_tokens_total)" -lt 25600
ok "and its room is free" until_ok is kv_cache_usage_perc 0
long 128 false > body
"$talk" "$url" POST /v1/completions < body > whole 2> whole.err &
client=$!
ok "one that is not streamed" until_ok is num_requests_running 1
kill $client
wait $client 2> /dev/null
ok "as well" until_ok is request_success_total 2

logged='"method":"POST","path":"/v1/completions","status":200,"left":'
ok "requests are logged" grep -q "^{\"type\":\"request\",\"time\":[0-9.]*,\"client\":\"127.0.0.1\",${logged}false,\"seconds\":[0-9.]*,\"prompt_tokens\":5,\"completion_tokens\":7}\$" access
ok "those of clients that left, too" grep -q "${logged}true," access
ok "without prompts" sh -c '! grep -q Hello access'
mv access access.1
kill -HUP "$server"
ok "SIGHUP begins a new log" until_ok test -e access

# the end of a server that works
begins 64
kill "$server"
unhealthy() { get /health && [ "$(head -n 1 out)" = 503 ]; }
ok "after SIGTERM it is not healthy" until_ok unhealthy
printf '{"prompt":"x"}' > body
"$talk" --headers "$url" POST /v1/completions < body > out
ok "and takes no more requests, but says when to come again" grep -q '^HTTP/1.1 503' out
ok "in seconds" grep -q '^Retry-After: ' out
status=0
wait "$client" || status=$?
status_is 0 "it finishes what it has"
ok "to the end" test "$(tail -n 3 stream | head -n 1)" = 'data: [DONE]'
status=0
wait "$server" || status=$?
status_is 0 "and ends with status 0"
serve --requests 1 --drain-timeout 0 "$model"
begins 128
ends TERM
status_is 0 "with --drain-timeout 0"
wait "$client"
ok "what is not finished has an error in its stream" grep -q '^data: {"error":{"message":"the server has been ended","type":"server_error"' stream

# a rank that stands still, and one that dies
serve --tp 2 --requests 1 --max-waiting 1 "$model"
last=$(ranks | sort -n | tail -n 1)
kill -STOP "$last"
for i in 1 2 3 4; do
    printf '{"prompt":"x","max_tokens":1}' > "$i.body"
    "$talk" --headers "$url" POST /v1/completions < "$i.body" > "$i.out" 2> /dev/null &
    eval "client$i=\$!"
done
refused() { [ "$(cat ?.out | grep -c '^HTTP/1.1 429')" -ge 2 ]; }
ok "when too many wait, others are refused" until_ok refused
ok "and told when to come again" test "$(cat ?.out | grep -c '^Retry-After: ')" -ge 2
ok "as OpenAI's client expects" grep -q '"type":"rate_limit_error","param":null,"code":"queue_full"' ?.out
get /health
answered 200 "" "while others are answered: the web server waits for no model"
kill -KILL "$last"
# shellcheck disable=SC2154 # set by eval
wait "$client1" "$client2" "$client3" "$client4"
ok "a rank that dies is told to those that wait" grep -q '^HTTP/1.1 500' ?.out
status=0
wait "$server" || status=$?
status_is 4 "and ends the server with status 4"
serve --tp 2 --requests 1 "$model"
begins 128
kill -KILL "$(ranks | sort -n | tail -n 1)"
wait "$client"
ok "a stream has the error as an event" grep -q '^data: {"error":{"message":"' stream
ok "and an end" grep -q '^data: \[DONE\]' stream
status=0
wait "$server" || status=$?
status_is 4 "status 4"
serve --tp 2 "$model"
kill -STOP "$(ranks | sort -n | tail -n 1)"
long 1 true > body
"$talk" "$url" POST /v1/completions < body > /dev/null 2>&1 &
client=$!
kill -TERM "$server"
until_ok sh -c "! kill -TERM $server 2> /dev/null" > /dev/null
status=0
wait "$server" 2> /dev/null || status=$?
status_is 143 "a second SIGTERM ends a server that cannot finish"
wait "$client" 2> /dev/null

# ---- prompts that begin alike ----

printf '{"prompt":"%s","max_tokens":20,"seed":4,"logprobs":1,"ignore_eos":true}' "$(cat long)" > alike.body
for how in --cache-tokens=1024 --no-prefix-cache; do
    serve --requests 4 $how "$model"
    for i in 1 2; do
        "$talk" "$url" POST /v1/completions < alike.body > alike
        sed 's/.*"choices"//; s/"usage".*//' alike | tail -n 1 > "alike.$i$how"
        sed 's/.*"cached_tokens":\([0-9]*\).*/\1/' alike | tail -n 1 > "cached.$i$how"
    done
    ends TERM
done
ok "a prompt that was computed is not again" test "$(cat cached.?--cache* | paste -s -d ' ')" = "0 192"
ok "but with --no-prefix-cache" test "$(cat cached.?--no* | paste -s -d ' ')" = "0 0"
ok "and has the same text and log-probabilities, to the last digit" sh -c 'for i in alike.[12]*; do cmp -s alike.1--no-prefix-cache "$i" || exit 1; done'

# ---- who may ask, and for how long ----

printf '# ours\nfirst-key\n\n  second-key \n' > keys
serve --api-key-file keys --header-timeout 1 --body-timeout 1 --idle-timeout 1 --max-body 1K "$model"
get /v1/models
answered 401 '"type":"authentication_error","param":null,"code":"invalid_api_key"' "without a key there is no answer"
get /v1/models "Authorization: Bearer first"
answered 401 'this API key is not valid' "nor with a part of one"
get /v1/models "Authorization: Bearer first-key"
answered 200 '"id":"chat"' "with one of the keys there is"
get /v1/models "Authorization: bearer second-key"
answered 200 '"id":"chat"' "with another one, too"
get /v1/models "Authorization: Basic $(printf 'me:second-key' | base64)"
answered 200 '"id":"chat"' "and with one as a password"
get /metrics
answered 401 "" "metrics need it, too"
get /health
answered 200 "" "health does not"
echo third-key > keys
kill -HUP "$server"
third() { get /v1/models "Authorization: Bearer third-key" && [ "$(head -n 1 out)" = 200 ]; }
ok "SIGHUP reads the keys again" until_ok third
get /v1/models "Authorization: Bearer first-key"
answered 401 "" "and forgets the old ones"
: > keys
kill -HUP "$server"
ok "a file without a key changes nothing" until_ok grep -q 'keys: no key; the keys stay as they were' log
get /v1/models "Authorization: Bearer third-key"
answered 200 "" "and the keys stay"
get /v1/models "Authorization: Bearer third-key" "Origin: http://elsewhere.example"
answered 403 "" "a page of another site may not ask"
head -c 2000 /dev/zero | tr '\0' ' ' > body
post /v1/completions "$(cat body)" "Authorization: Bearer third-key"
answered 413 "" "a body above --max-body is refused"
printf 'GET /health HTTP/1.1\r\n' | "$talk" --raw --hold "$url" > out
ok "a head that does not end, ends at --header-timeout" test ! -s out
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{' | "$talk" --raw --hold "$url" > out
ok "a body at --body-timeout" test ! -s out
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' | "$talk" --raw --hold "$url" > out
ok "a connection without requests at --idle-timeout" grep -q '^HTTP/1.1 200' out
ends TERM
run tp-run serve --backend cpu --listen 0.0.0.0:0 "$model"
status_is 2 "without a key it listens on this machine alone"
err_has "others can connect to it, and there is no key" "and says why"
run env SHARDUTILS_API_KEY= tp-run serve --backend cpu --listen 127.0.0.1:0 "$model"
status_is 3 "an empty key is none"
run tp-run serve --backend cpu --listen 127.0.0.1:0 --api-key-file nothing "$model"
status_is 3 "a file of keys must be there"

serve --access-log /dev/full "$model"
post /v1/completions '{"prompt":"Hello","max_tokens":7,"ignore_eos":true}'
answered 200 '"completion_tokens":7' "a log without room keeps nobody from an answer"
ok "and is said" until_ok grep -q '^tp-run: /dev/full: No space left on device; requests are answered all the same' log
ends TERM

# ---- tools and thoughts ----

# talks MARK GOOD DOT - a model whose answer to Hello is GOOD "ood day to you" DOT, and whose template has MARK
talks() {
    rm -rf talks
    mkdir talks
    cp "$model/"*.json "$model/model.safetensors" talks
    sed "s#\"G\": *39#\"$2\": 39#; s#\"\\.\": *14#\"$3\": 14#" "$model/tokenizer.json" > talks/tokenizer.json
    printf '%s' "{%- if false %}$1{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ (m.content or '') | trim }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.x }}){% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if ponders %}<think>
{% endif %}{%- endif %}" > talks/chat_template.jinja
    serve talks
}
tools='"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]'
called='"tool_calls":\[{"id":"[0-9a-v]\{9\}","type":"function","function":{"name":"f","arguments":"{\\"x\\":\\"ood day to you\\"}"}}\]},"logprobs":null,"finish_reason":"tool_calls"'
talks '<tool_call>' '<tool_call>{\\"name\\":\\"f\\",\\"arguments\\":{\\"x\\":\\"' '\\"}}<\/tool_call>'
post /v1/chat/completions "{\"temperature\":0,$tools,$hello}"
ok "a call of Hermes' form is told" grep -q "\"content\":null,$called" out
post /v1/chat/completions "{\"temperature\":0,\"stream\":true,$tools,$hello}"
ok "in a stream" grep -q '"delta":{"tool_calls":\[{"index":0,"id":"[0-9a-v]*","type":"function","function":{"name":"f","arguments":"{\\"x\\":\\"ood day to you\\"}"}}\]}' out
ok "with why it ended" grep -q '"delta":{},"logprobs":null,"finish_reason":"tool_calls"' out
ok "and nothing else" test -z "$(texts content)"
post /v1/chat/completions "{\"temperature\":0,\"tool_choice\":\"none\",$tools,$hello}"
answered 200 '"content":"<tool_call>' "tool_choice none leaves it as it is"
post /v1/chat/completions "{\"tool_choice\":\"sometimes\",$tools,$hello}"
answered 400 '"param":"tool_choice"' "another one is refused"
two='"tools":[{"type":"function","function":{"name":"g","parameters":{"properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"],"$defs":{"n":{"enum":[7]}}}}},{"type":"function","function":{"name":"h"}}]'
one='"tool_choice":{"type":"function","function":{"name":"g"}}'
must='"content":null,"tool_calls":\[{"id":"[0-9a-v]*","type":"function","function":{"name":"g","arguments":"{\\"n\\":7}"}}\]'
forced() {
    post /v1/chat/completions "{\"max_tokens\":90,\"seed\":3,\"logit_bias\":{\"199\":-99,\"221\":-99},$one,$two,$hello}"
    ok "a call that is asked for is made, as the tool's schema says: $1" grep -q "$must" out
}
forced Hermes
post /v1/chat/completions "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}},$two,$hello}"
answered 400 'there is no tool of that name' "which has to be there"
post /v1/chat/completions "{\"tool_choice\":\"required\",$hello}"
answered 400 'there are no tools' "and there have to be some"
shape() {
    post "$1" "{\"max_tokens\":60,\"seed\":1,\"logit_bias\":{\"199\":-99,\"221\":-99},$2}"
    answered 200 "$3" "$4"
}
shape /v1/chat/completions '"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[[12]]}}},'"$hello" '"content":"[12]"' "an answer is what its schema says"
twelve='"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[[12]]}}}'
post /v1/chat/completions "{\"temperature\":0,$twelve,$tools,$hello}"
ok "or a call, where there are tools" grep -q "\"content\":null,$called" out
post /v1/chat/completions "{\"temperature\":0,\"logit_bias\":{\"39\":-99,\"199\":-99,\"221\":-99},$twelve,$tools,$hello}"
answered 200 '"content":"[12]"' "which need not be made"
post /v1/chat/completions "{\"temperature\":0,\"tool_choice\":\"none\",$twelve,$tools,$hello}"
answered 200 '[12]"' "or must not"
shape /v1/chat/completions '"response_format":{"type":"json_object"},"stream":true,'"$hello" '"content":"{' "an object, in a stream"
shape /v1/responses '"input":"Hello","text":{"format":{"type":"json_schema","name":"x","schema":{"const":"a"}}}' '"text":"\"a\""' "in a response, too"
shape /v1/completions '"prompt":"Hello","guided_choice":["(no.)","yes|"]' '|","logprobs":null,"finish_reason":"stop"' "or one of some texts"
shape /v1/completions '"prompt":"Hello","guided_regex":"[a-b]{2}\\d{0}!"' '!","logprobs":null,"finish_reason":"stop"' "or what an expression matches"
shape /v1/completions '"prompt":"Hello","structured_outputs":{"json":{"const":null}}' '"text":"null"' "or what vLLM calls structured outputs"
post /v1/completions '{"prompt":"Hello","guided_json":{"properties":{"a":{"not":{}}}}}'
answered 400 "guided_json: schema:1:27: 'not' is not supported" "a schema that cannot be met here is refused"
post /v1/completions '{"prompt":"Hello","guided_regex":"a","guided_json":{}}'
answered 400 '"param":"guided_regex"' "and two of them"
post /v1/completions '{"prompt":"Hello","guided_regex":"a","ignore_eos":true}'
answered 400 'a grammar needs an id that ends a text' "and an end that does not count"
post /v1/chat/completions "{\"tools\":[{\"type\":\"function\"}],$hello}"
answered 400 '"param":"tools"' "a tool has a name"
post /tokenize "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":\\\"now\\\"}\"}}]},{\"role\":\"tool\",\"content\":\"noon\"}]}"
post /detokenize "{$(grep -o '"tokens":[^}]*' out)}"
answered 200 'assistant\nf(now)<|im_end|>\n<|im_start|>tool\nnoon' "calls of earlier messages have arguments as templates want them"
post /v1/chat/completions "{\"temperature\":0,\"chat_template_kwargs\":{\"ponders\":true},$hello}"
ok "without </think> in the template nothing is a thought" grep -q '"content":"' out
ends TERM
talks '{"name": function name, "parameters"' '{\\"name\\":\\"f\\",\\"parameters\\":{\\"x\\":\\"' '\\"}}'
post /v1/chat/completions "{\"temperature\":0,$tools,$hello}"
ok "a call of Llama's form" grep -q "\"content\":null,$called" out
forced Llama
post /v1/chat/completions "{\"temperature\":0,$twelve,$tools,$hello}"
ok "or may be, beside a schema" grep -q "\"content\":null,$called" out
ends TERM
talks '[TOOL_CALLS]' '[TOOL_CALLS]f[ARGS]{\\"x\\":\\"' '\\"}'
post /v1/chat/completions "{\"temperature\":0,$tools,$hello}"
ok "and of Mistral's" grep -q "\"content\":null,$called" out
forced Mistral
post /v1/responses '{"temperature":0,"input":"Hello","tools":[{"type":"function","name":"f","strict":true,"parameters":{}}]}'
answered 200 '"name":"f","arguments":"{\"x\":\"ood day to you\"}"}],"usage"' "and of a response"
ends TERM
talks '</think>' '<think>hm<\/think>' '!!'
post /v1/chat/completions "{\"temperature\":0,$hello}"
answered 200 '"content":"ood day to you!!","reasoning_content":"hm"}' "thoughts are apart"
post /v1/chat/completions "{\"temperature\":0,\"stream\":true,$hello}"
ok "in a stream" test "$(texts reasoning_content),$(texts content)" = "hm,ood day to you!!"
post /v1/chat/completions "{\"temperature\":0,\"max_tokens\":6,\"chat_template_kwargs\":{\"ponders\":true},$hello}"
answered 200 '"content":"","reasoning_content":"' "also those that the prompt begins"
post /v1/chat/completions "{$tools,$hello}"
answered 400 '"param":"tools"' "without a form of calls tools are refused"
ends TERM

# ---- vectors ----

# numbers FILE - of the first vector in it, on any layout
numbers() { sed 's/},{"object.*//' "$1" | sed -n 's/.*"embedding":\[\([^]]*\)\].*/\1/p' | tr , '\n' | awk '{ printf "%.4f ", $1 }'; }
tp-run embed --backend cpu --json --prompt Hello "$model" > alone
printf 'Hello\nGood bye\n' | tp-run embed --backend cpu --input - "$model" |
    awk 'NR == 1 { for (i = 1; i <= NF; i++) a[i] = $i } NR == 2 { for (i = 1; i <= NF; i++) { p += a[i] * $i; x += a[i] ^ 2; y += $i ^ 2 } printf "%.5f", p / sqrt(x * y) }' > cosine
for layout in --tp=2 --pp=2 --dp=2 --tp=1; do
    serve --task embed $layout "$model"
    post /v1/embeddings '{"input":"Hello"}'
    answered 200 '"object":"embedding","index":0' "$layout: there are embeddings"
    ok "$layout: as embed makes them" test "$(numbers out)" = "$(numbers alone)"
    for i in $(seq 40); do printf '%s"Hello%*s"' "$([ "$i" = 1 ] || echo ,)" "$i" ''; done > many
    post /v1/embeddings "{\"input\":[\"Hello\",$(cat many)]}"
    ok "$layout: of many texts" test "$(grep -o '"index"' out | wc -l)" -eq 41
    ok "$layout: in their order" test "$(numbers out)" = "$(numbers alone)"
    [ $layout = --tp=1 ] || ends TERM
done
post /v1/embeddings '{"input":[[40,69,76,76,79]],"dimensions":2}'
ok "of ids, too, and of few dimensions" test "$(numbers out)" = "$(numbers alone | cut -d " " -f 1,2) "
post /v1/embeddings '{"input":"Hello","encoding_format":"base64"}'
ok "or as text" test "$(sed -n 's/.*"embedding":"\([^"]*\)".*/\1/p' out | base64 -d | od -A n -t f4 -N 4 -v | awk '{ printf "%.4f", $1 }')" = "$(numbers alone | cut -d , -f 1 | awk '{ printf "%.4f", $1 }')"
post /rerank '{"query":"Hello","documents":["Good bye",{"text":"Hello"}]}'
answered 200 '"results":[{"index":1,"document":{"text":"Hello"},"relevance_score":1},{"index":0,' "rerank compares vectors"
ok "by their angle" test "$(sed 's/.*"relevance_score":\([^}]*\)}.*/\1/' out | tail -n 1 | awk '{ printf "%.5f", $1 }')" = "$(cat cosine)"
while read -r key value; do
    post /v1/embeddings "{\"input\":\"x\",\"$key\":$value}"
    answered 400 "\"param\":\"$key\"" "$key $value is refused"
done << 'END'
dimensions 0
dimensions 49
encoding_format "int8"
truncate_prompt_tokens 3
END
for value in '[]' '[""]' 7; do
    post /v1/embeddings "{\"input\":$value}"
    answered 400 '"param":"input"' "the input $value is refused"
done
post /rerank '{"query":"x"}'
answered 400 '"param":"documents"' "and no documents"
post /v1/chat/completions "{$hello}"
answered 400 '"code":"unsupported_task"' "a server of vectors generates nothing"
ends TERM
mkdir score
cp "$data/heads/gemma2-score/"*.json "$data/heads/gemma2-score/model.safetensors" score
run tp-run serve --backend cpu --listen 127.0.0.1:0 score
status_is 3 "without a tokenizer there is no server of vectors either"
cat > score/tokenizer.json << 'END'
{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"BertPreTokenizer"},
 "post_processor":{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
  "vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"who":4,"is":5,"here":6,"anna":7}}}
END
for text in "anna is here" "who"; do
    tp-run classify --backend cpu --json --prompt "who is here" --pair "$text" score | sed 's/.*"score":\([^,]*\),.*/\1/' | awk '{ printf "%.6f\n", $1 }'
done | sort -r > scores
serve score
post /v1/rerank '{"query":"who is here","documents":["anna is here","who"],"return_documents":false}'
ok "a model with one label ranks pairs by the score that classify prints" \
    test "$(grep -o 'score":[^}]*' out | cut -d : -f 2 | awk '{ printf "%.6f\n", $1 }')" = "$(cat scores)"
answered 200 '"results":[{"index":' "without their texts"
post /v1/rerank '{"query":"who is here","documents":["anna is here","who"],"top_n":1}'
ok "the best alone" test "$(grep -o '"index"' out | wc -l)" -eq 1
post /v1/embeddings '{"input":"who"}'
answered 400 '"code":"unsupported_task"' "it has no embeddings"
ends TERM
run tp-run serve --backend cpu --listen 127.0.0.1:0 --task rerank "$model"
status_is 3 "a model without such a head ranks nothing"

# ---- where it listens ----

run tp-run serve --backend cpu --listen nowhere "$model"
status_is 2 "an address without a port is a usage error"
run tp-run serve --backend cpu --listen 127.0.0.1:99999 "$model"
status_is 2 "so is a port that none is"
serve "$model"
run tp-run serve --backend cpu --listen "${url#http://}" "$model"
status_is 4 "an address that is taken is the machine's"
err_has "Address already in use" "as one line says"
ends TERM
for layout in "--tp 2" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words
    serve $layout "$model"
    post /v1/chat/completions "{\"temperature\":0,$hello}"
    answered 200 '"content":"Good day to you."' "$layout: the same answer"
    "$talk" "$url" POST /v1/completions < told.body > told.here
    ok "$layout: and the same log-probabilities of prompts" test "$(mean told.here)" = "$(mean told)"
    ends TERM
    status_is 0 "$layout: SIGTERM ends all ranks"
done

# systemd
"$talk" --told told.sock > told &
teller=$!
until_ok test -S told.sock
NOTIFY_SOCKET=told.sock
export NOTIFY_SOCKET
serve "$model"
unset NOTIFY_SOCKET
wait "$teller"
ok "systemd is told when it is ready" test "$(cat told)" = READY=1
ends TERM

rm -f ready
mkfifo ready
"$talk" --sockets 1 tp-run serve --backend cpu --tp 2 "$model" > ready 2> log &
server=$!
read -r listening < ready
printf '%s\n' "$listening" > listening
url=$(json listening url)
get /v1/models
answered 200 '"id":"chat"' "a socket of systemd's is served"
get /v1/models "Host: elsewhere.example"
answered 403 "" "as one of its own"
ends TERM
status_is 0 "to its end"
run "$talk" --sockets 2 tp-run serve --backend cpu "$model"
status_is 2 "of two sockets none is served"
run "$talk" --sockets 1 tp-run serve --backend cpu --listen 127.0.0.1:0 "$model"
status_is 2 "nor one beside --listen"
run "$talk" --sockets 0 env LISTEN_FDS=1 tp-run serve --backend cpu "$model" < /dev/null 3< /dev/null
status_is 2 "nor what is no socket"
err_has "descriptor 3 is no socket that listens" "as one line says"

# a Unix socket
rm -f ready
mkfifo ready
tp-run serve --backend cpu --listen unix:here.sock "$model" > ready 2> log &
server=$!
read -r listening < ready
url=unix:here.sock
ok "it listens at a Unix socket" test "${listening%%,\"model*}" = '{"type":"listening","url":"unix:here.sock"'
ok "which is this user's alone" test "$(ls -l here.sock | cut -c 1-10)" = srwx------
get /health
answered 200 "" "and answers there"
ends TERM
ok "and removes it at the end" test ! -e here.sock
done_testing
