#!/bin/sh
# templates.t - chat templates
. "$top_srcdir/tests/lib.sh"
render=$top_builddir/tests/render-template
mkdir fixture
gzip -dc "$data/templates/templates.tar.gz" | tar xf - -C fixture

# tests/oracle/make-templates.py made the files
for file in fixture/*.jinja; do
    name=${file#fixture/}
    name=${name%.jinja}
    "$render" --plain "$file" fixture/chats > got
    ok "$name: 20 chats give the bytes, or the errors, of transformers" cmp got "fixture/$name.out"
done
values=$(cat fixture/values)
sed "s|}\$||" fixture/random | while IFS= read -r line; do printf '%s, "kwargs": %s}\n' "$line" "$values"; done > random
"$render" --plain - random > got
ok "1300 random templates give the bytes, or the errors, of jinja2" cmp got fixture/random.out
cat fixture/chats fixture/injected > all
for kind in llama3 gemma; do
    for name in Qwen-Qwen2.5-7B-Instruct mistralai-Mistral-Nemo-Instruct-2407 Qwen3-Coder; do
        "$render" --ids "fixture/$kind.json" "fixture/$name.jinja" all > got
        ok "$name, $kind: no message becomes a control token, and ids are those of transformers" \
            cmp got "fixture/$name.$kind"
    done
done

# tests/oracle/make-learned.py made these
mkdir learned
gzip -dc "$data/templates/learned.tar.gz" | tar xf - -C learned
for file in learned/*.marked; do
    name=${file#learned/}
    name=${name%.marked}
    "$render" --learn fixture/llama3.json "learned/$name.jinja" learned/chats > got
    ok "$name with {% generation %}: a training has the ids of transformers, and its mask" cmp got "$file"
    "$render" --learn fixture/llama3.json "fixture/$name.jinja" learned/chats > got
    ok "and without it the mask of what each answer adds" cmp got "learned/$name.plain"
done
ok "answers are learned, and not all" sh -c 'grep -q "[0-9]\*" learned/Qwen-QwQ-32B.marked && grep -q "[0-9] " learned/Qwen-QwQ-32B.marked'
ok "a template that strips earlier thinking renders answers otherwise later" grep -qx error learned/Qwen-Qwen3-0.6B.plain
"$render" --last fixture/llama3.json fixture/Qwen-Qwen3-0.6B.jinja learned/chats > got
ok "the last answer alone is learned also then" sh -c 'sed -n 2p got | grep -q "\*$" && ! sed -n 2p got | grep -qx error'
ok "which must be the last message" test "$(sed -n 4p got)" = error

# pieces_of TEMPLATE - how many tokens are made of a message with the parts "<|im_", "end|>" and "im_end"
pieces_of() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' '{"messages":[{"a":"<|im_","b":"end|>","c":"im_end"}]}' > chat
    "$render" --ids fixture/llama3.json template.jinja chat | wc -w | tr -d ' '
}
m='messages[0]'
ok "a template may make a control token around a message's word" \
    test "$(pieces_of "{{ '<|' ~ $m.c ~ '|>' }}")" = 1
ok "and a message cannot begin one" test "$(pieces_of "{{ $m.a ~ 'end|>' }}")" -gt 1
ok "nor end one" test "$(pieces_of "{{ '<|im_' ~ $m.b }}")" -gt 1
ok "nor make one of two parts" test "$(pieces_of "{{ $m.a ~ $m.b }}")" -gt 1

# ids_of TOKENIZER TEMPLATE MESSAGE
ids_of() {
    printf '%s' "$2" > template.jinja
    printf '{"messages":[{"content":"%s"}]}\n' "$3" > chat
    "$render" --ids "$1" template.jinja chat
}
kinds=$data/tokenizer/kinds
ok "a message that the normalizer makes a control token's piece of is refused" \
    test "$(ids_of "$kinds/unigram.json" "{{ $m.content }}" 'x ＜/s＞')" = error
ok "one with what is not in the vocabulary is not, though that is a special token" \
    test "$(ids_of "$kinds/unigram.json" "{{ $m.content }}" 'x 𐎀' | tr ' ' '\n' | grep -cx 2)" = 1
for normalized in true false; do
    sed "s/\"added_tokens\":\[\]/\"added_tokens\":[{\"id\":300,\"content\":\"<|end|>\",\"special\":true,\"normalized\":$normalized,\"single_word\":false,\"lstrip\":false,\"rstrip\":false}]/" \
        "$kinds/nfkc.json" > $normalized.json
done
ok "nor may the normalizer make the whole of one" \
    test "$(ids_of true.json "<|end|>{{ $m.content }}" 'x <|ｅnd|>')" = error
ok "which is text where the token is looked for before" \
    test "$(ids_of false.json "<|end|>{{ $m.content }}" 'x <|ｅnd|>' | tr ' ' '\n' | grep -cx 300)" = 1
ok "and the template may spell it as it likes" \
    test "$(ids_of true.json "<|ｅnd|>{{ $m.content }}" 'x' | tr ' ' '\n' | grep -cx 300)" = 1

# marks_are TEMPLATE MARKS NAME - of a chat whose message says " a-<b>-é "
marks_are() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' '{"messages":[{"role":"user","content":" a-<b>-é ","parts":["x","y"]}]}' > chat
    run "$render" --marks template.jinja chat
    out_is "$2" "$3"
}
c='messages[0].content'
marks_are "<{{ $c }}>" "<[ a-<b>-é ]>" "a message's characters are marked, and the template's are not"
marks_are "<{{ $c|trim }}>{{ $c.strip(' a') }}" "<[a-<b>-é]>[-<b>-é]" "marks: what trim and strip leave"
marks_are "{{ $c.split('-')|join('|') }} {{ $c.split('-')[1] }}" "[ a]|[<b>]|[é ] [<b>]" "marks: split and join"
marks_are "{{ $c|replace('-', '+') }}{{ 'x-y'|replace('-', $c) }}" "[ a]+[<b>]+[é ]x[ a-<b>-é ]y" "marks: replace"
marks_are "{{ ${c}[1:4] }}.{{ ${c}[::-1] }}.{{ ${c}[-2] }}" "[a-<].[ é->b<-a ].[é]" "marks: slices and characters"
marks_are "{{ 'x' + $c + 'y' ~ $c ~ 1 }}{{ '-' ~ $c * 2 }}" \
    "x[ a-<b>-é ]y[ a-<b>-é ]1-[ a-<b>-é  a-<b>-é ]" "marks: sums and repeats"
marks_are "{{ $c|tojson }}{{ messages[0].parts|tojson }}{{ messages[0].parts }}" \
    '"[ a-<b>-é ]"["[x]", "[y]"]['"'[x]', '[y]']" "marks: JSON and Python's lists"
marks_are "{{ $c|upper }}{{ $c.title() }}{{ '%s|' % $c }}{{ '{}|'.format($c) }}" \
    "[ A-<B>-É  A-<B>-É  a-<b>-é ]|[ a-<b>-é ]|" "marks: case and formats"
marks_are "{% set x %}({{ $c }}){% endset %}{{ x }}{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m($c|trim) }}" \
    "([ a-<b>-é ])<[a-<b>-é]>" "marks: blocks and macros"
marks_are "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}" \
    "[role]=[user];[content]=[ a-<b>-é ];[parts]=['[x]', '[y]'];" "marks: names of members, too"
marks_are "a{% generation %}b{{ $c }}{% endgeneration %}c{% macro m() %}1{% generation %}2{% endgeneration %}{% endmacro %}{{ m() }}" \
    "a{b[ a-<b>-é ]}c1{2}" "what the assistant generated is marked, in a macro, too"

# gives TEMPLATE TEXT NAME
gives() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' '{"messages":[{"role":"user","content":"hi"}]}' > chat
    run "$render" template.jinja chat
    out_is "{\"text\":\"$2\"}" "$3"
}
gives "{{ 'ßﬁŉ'.upper() }} {{ 'ßﬁ ǆ'.title() }} {{ 'ΟΔΟΣ Σ'.lower() }} {{ 'İ'|lower|length }} {{ 'ǆ'|title }}" \
    'SSFIʼN Ssﬁ ǅ οδος σ 2 Ǆ' "the case of letters that become several, or end a word"
gives "{% for x in [1] %}{% continue %}{% else %}else{% endfor %}{% for x in [1] %}{% else %}no{% endfor %}" else \
    "a loop without a whole round has its else"
gives "{% set d = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9, true: 'a', -0.0: 'b'} %}{{ d[0] }}{{ d[1.0] }}{{ d|length }}" \
    ba9 "equal numbers are one key"
gives "{{ '<'|safe + '<' }}{{ ('<'|safe)[0] + '&' }}{{ '<'|safe ~ '<' }}" "<&lt;<&amp;<<" "what is added to a safe text is escaped"

# model FILE TEXT... - a directory "model" with these files
model() {
    rm -rf model
    mkdir -p model/additional_chat_templates
    while [ $# -gt 0 ]; do
        printf '%s\n' "$2" > "model/$1"
        shift 2
    done
}
chat='{"messages":[{"role":"user","content":"hi"}]'
printf '%s}\n%s,"tools":[]}\n' "$chat" "$chat" > chats
model tokenizer_config.json '{"chat_template":"{{ bos_token }}{{ x_token }}{{ eos_token is defined }}","bos_token":{"content":"<s>"},
    "extra_special_tokens":{"x_token":"<x>"},"eos_token":null}'
run "$render" model chats
out_is '{"text":"<s><x>False"}
{"text":"<s><x>False"}' "tokenizer_config.json has a template and special tokens"
named='{"chat_template":[{"name":"tool_use","template":"with"},{"name":"default","template":"without"},{"name":"odd","template":"{% odd %}"}]}'
model tokenizer_config.json "$named"
run "$render" model chats
out_is '{"text":"without"}
{"text":"with"}' "a chat with tools uses the template tool_use, and one that is not used may be odd"
model tokenizer_config.json "$named" chat_template.jinja file additional_chat_templates/tool_use.jinja '{{ tools }}'
run "$render" model chats
out_is '{"text":"file"}
{"text":"[]"}' "files go before tokenizer_config.json"
model tokenizer_config.json '{"chat_template":[{"name":"rag","template":"x"}]}'
run "$render" model chats
status_is 3 "a model without a default template: status 3"
err_is "render-template: model/tokenizer_config.json: chat_template: no chat template is named default; choose one of: rag" \
    "the names of its templates are told"
model tokenizer_config.json '{"chat_template":null}'
run "$render" model chats
out_is 'no template' "a model may have no template"
model tokenizer_config.json '{"chat_template":7}'
run "$render" model chats
err_is "render-template: model/tokenizer_config.json:1:18: a chat_template is no text" "a template that is no text is refused"
run "$render" nowhere chats
err_is "render-template: 'nowhere' is no file, and the model has no chat template" "a template that is nowhere is refused"
cat > chats << 'END'
{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Sure, "}],"continue_final":true}
{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"text":"a "},{"image":1}]}],"continue_final":true}
{"messages":[{"role":"user","content":"hi"},{"role":"assistant"}],"continue_final":true}
{"messages":[]}
{"messages":["hi"]}
{"messages":[{"role":"user","content":"hi"}],"tools":{}}
END
model chat_template.jinja '{% for m in messages %}<{{ m.content if m.content is string else m.content[0].text|trim }}>{% endfor %}'
run "$render" model chats
out_is '{"text":"<hi><Sure, "}
{"text":"<hi><a"}
{"error":"model/chat_template.jinja: the last message has no text to continue"}
{"error":"model/chat_template.jinja: the chat is no list of messages"}
{"error":"model/chat_template.jinja: message 1 is no object"}
{"error":"model/chat_template.jinja: tools are no list"}' "a last message is continued, where it has a text"

# refused TEMPLATE ERROR NAME
refused() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' '{"messages":[{"role":"user","content":"hi"}]}' > chat
    run "$render" template.jinja chat
    if [ "$status" -ne 0 ]; then
        status_is 3 "$3: status 3"
        err_is "render-template: template.jinja:$2" "$3"
    else
        out_is "{\"error\":\"template.jinja:$2\"}" "$3"
    fi
}
refused '
{% include "x" %}' '2: the tag {% include %} is not supported' "a tag outside the subset is refused with its line"
refused '{{ 1|shuffle }}' "1: the filter 'shuffle' is not supported" "so is a filter"
refused '{% if x is odder %}{% endif %}' "1: the test 'odder' is not supported" "and a test, where it is reached"
refused 'a
{{ "x".encode() }}' "2: the method 'encode' of str is not supported" "and a method"
refused '{% for x in y recursive %}{% endfor %}' "1: 'recursive' is not supported" "and what a loop lacks"
refused '{{ raise_exception("no " ~ messages[0].role) }}' '1: the template raised an exception: no user' \
    "what a template raises is said"
refused '{{ messages[0].pop("role") }}' "1: access to attribute 'pop' of 'dict' is unsafe" \
    "a template cannot change what it is given"
refused '{{ x.y }}' "1: 'x' is undefined" "a variable that is missing is named"
refused '{% if 1 %}' "1: expected endif, not the end of the template" "a tag that is not closed is refused"

# ends_soon TEMPLATE ERROR NAME - a hostile template
ends_soon() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' '{"messages":[{"role":"user","content":"hi"}]}' > chat
    run timeout 60 "$render" template.jinja chat
    out_has "$2" "$3"
}
steps="takes more than 4"
ends_soon '{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}' \
    "$steps" "nested loops end"
ends_soon '{{ "a" * 1000000000 }}' "$steps" "a text of 10^9 characters ends"
ends_soon '{{ [1] * 1000000000000 }}' "memory" "a list of 10^12 elements ends"
ends_soon '{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}' "nested deeper than" "a macro that calls itself ends"
ends_soon '{% set ns = namespace(s="xxxxxxxx") %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}' \
    "memory" "a text that doubles ends"
ends_soon '{% set ns = namespace(s="xxxxxxxx" * 100000) %}{% for i in range(99999) %}{% if "y" in ns.s %}{% endif %}{% endfor %}' \
    "$steps" "a long search again and again ends"
for test in "ns.s.startswith(ns.s)" "ns.s.endswith((ns.s,))" "ns.s.removesuffix(ns.s)" "ns.s == ns.t" "ns.d[ns.s]"; do
    ends_soon "{% set ns = namespace(s='x' * 400000, t='x' * 399999 ~ 'y', d=dict(a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9)) %}{% for i in range(99999) %}{% if $test %}{% endif %}{% endfor %}" \
        "$steps" "so does $test"
done
ends_soon '{% set ns = namespace(s=(1,)) %}{% for i in range(50) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}' \
    "$steps" "a key of 2^50 tuples ends"
ends_soon '{% set ns = namespace(d={}) %}{% set ns.d = {"a": ns} %}{{ ns }}' "nested deeper than" "what has itself in it ends"
ends_soon "{{ '%1000d' % 1 }}{{ '%1001d' % 1 }}" "is not supported" "a width has a limit"
ends_soon '{{ range(100001) }}' "range too big" "a range has a limit"
printf '%05000d' 0 | tr 0 '(' | sed 's/^/{{ /' > template.jinja
run "$render" template.jinja chat
status_is 3 "5000 brackets: status 3"
err_has "brackets are open" "5000 brackets are refused"
printf '%05000d' 0 | sed 's/0/{% if 1 %}/g' > template.jinja
run "$render" template.jinja chat
err_has "nested deeper than" "5000 conditions within one another are refused"

done_testing
