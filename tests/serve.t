#!/bin/sh
# serve.t - a web server of answers, and its clients
. "${top_srcdir:?}/tests/lib.sh"
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
    tp-run serve --backend cpu --listen 127.0.0.1:0 "$@" > ready 2> log &
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

serve --served-name bob "$model"
ok "when it listens it says where, as JSON" grep -q '^{"type":"listening","url":"http://127.0.0.1:[0-9]*","model":"bob","max_model_len":256}$' listening
get /health
answered 200 "" "it is healthy"
get /v1/models
answered 200 '{"object":"list","data":[{"id":"bob","object":"model","created":' "it lists its model"
get /v1/models/bob
answered 200 '{"id":"bob","object":"model"' "and tells of it"
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
post /v1/completions '{"prompt":"Hello","max_tokens":64,"ignore_eos":true}'
answered 200 '"completion_tokens":64,' "ignore_eos goes on to max_tokens"

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
post /v1/completions '{"prompt":"x","frequency_penalty":1}'
answered 400 '"message":"frequency_penalty is not supported by this server","type":"invalid_request_error","param":"frequency_penalty"' "a parameter that would change the answer is named"
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
seed 0.5
stop [""]
stop 3
stop_token_ids [-1]
stream 1
END
for value in '[]' '[1,"x"]' '[99999]' '""' '7'; do
    post /v1/completions "{\"prompt\":$value}"
    answered 400 '"param":"prompt"' "the prompt $value is refused"
done
post /v1/chat/completions '{"messages":[{"role":"robot","content":"x"}]}'
answered 400 "no role robot" "a message that the template refuses is, with its reason"

# ---- HTTP ----

raw() { status=0; "$talk" --raw "$url" > out 2> err || status=$?; }
printf 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n' | "$talk" --slow --raw --hold --leave 12 "$url"
ok "a head that comes a byte at a time is read" test $? -eq 0
{ printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'
  printf '9\r\n{"prompt"\r\n4\r\n:"x"\r\n11\r\n,"max_tokens": 1}\r\n0\r\n\r\n'; } > bytes
"$talk" --raw --hold --leave 15 "$url" < bytes > out
ok "a body in chunks is read" test $? -eq 0
{ printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n'; } | raw
ok "a bad chunk is an error" grep -q '^HTTP/1.1 400' out
head -c 100000 /dev/zero | tr '\0' 'x' | raw
ok "so is garbage" test "$(grep -c '^HTTP/1.[01] 4' out)" -eq "$([ -s out ] && echo 1 || echo 0)"
{ printf 'GET /health HTTP/1.1\r\nHost: x\r\n'; head -c 100000 /dev/zero | tr '\0' 'x'; printf '\r\n\r\n'; } | raw
ok "so is a head without end" sh -c '! grep -q "^HTTP/1.1 200" out'
printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n' | raw
ok "a body that is too large is refused before it comes" grep -q '^HTTP/1.1 413' out
get /health
answered 200 "" "and the server goes on"

# ---- the end ----

ends TERM
status_is 0 "SIGTERM ends it with status 0"
ok "without a word" test ! -s log

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
    ends TERM
    status_is 0 "$layout: SIGTERM ends all ranks"
done

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
