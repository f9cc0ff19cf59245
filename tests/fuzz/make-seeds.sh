#!/bin/sh
# make-seeds.sh CORPUS - seeds of the fuzz targets
#
# With tp-shard in PATH and the tests' models beside this script: small checkpoints of a family that has
# every kind of axis, on many meshes and with every option of split, packed into one file each; their
# manifests; and the configurations of the models and of the families' examples.
set -eu
corpus=$1
data=$(cd "$(dirname "$0")/../data" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$corpus/checkpoint" "$corpus/manifest" "$corpus/config"

cat > "$work/tiny.json" << 'EOF'
{"family":"tiny","match":{"model_type":["tiny"]},
"symbols":{"hidden":"h","layers":"l","heads":"a","kv_heads":"k","head_dim":"d","ffn":"f","vocab":"v","experts":"e"},
"captures":{"layer":"layers","expert":"experts"},
"deal":{"heads":{"over":"tp","groups":"kv_heads"},"ffn":{"over":"tp"},"vocab":{"over":"tp"},"experts":{"over":"ep"}},
"tensors":{"t":["t","vocab","hidden"],
"n":["{layer}.n","hidden",{"optional":true}],
"w":["{layer}.w","kv_heads*(q:group + k:1 + v:1)*head_dim","hidden"],
"o":["{layer}.o","hidden","heads*head_dim"],
"g":["{layer}.g","ffn*(gate:1 + up:1)"],
"x":["{layer}.{expert}.x","ffn","hidden"]},
"part_config":{"when":"hidden % heads == 0","a":"heads","k":"kv_heads","f":"ffn"},
"carry":["mask"],"forward":{"layer":[]}}
EOF

# model H L A K D F V E DTYPE - a directory "model" of that family
model() {
    rm -rf "$work/model"
    mkdir "$work/model"
    printf '{"model_type":"tiny","h":%s,"l":%s,"a":%s,"k":%s,"d":%s,"f":%s,"v":%s,"e":%s}\n' \
        "$1" "$2" "$3" "$4" "$5" "$6" "$7" "$8" > "$work/model/config.json"
    case $9 in F32) bytes=4 ;; BF16 | F16) bytes=2 ;; *) bytes=1 ;; esac
    {
        echo "t:$7,$1"
        echo "mask:3"
        for layer in $(seq 0 $(($2 - 1))); do
            echo "$layer.n:$1"
            echo "$layer.w:$((($3 + 2 * $4) * $5)),$1"
            echo "$layer.o:$1,$(($3 * $5))"
            echo "$layer.g:$((2 * $6))"
            for expert in $(seq 0 $(($8 - 1))); do
                echo "$layer.$expert.x:$6,$1"
            done
        done
    } | awk -F: -v dtype="$9" -v bytes=$bytes -v size="$work/size" '
        {
            n = split($2, axis, ","); b = bytes
            for (i = 1; i <= n; i++) b *= axis[i]
            printf "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                (NR == 1 ? "{" : ","), $1, dtype, $2, end, end + b
            end += b
        }
        END { printf "}"; print end > size }' > "$work/header"
    {
        n=$(wc -c < "$work/header")
        printf "$(printf '\\%03o\\%03o' $((n % 256)) $((n / 256)))\0\0\0\0\0\0"
        cat "$work/header"
        awk -v n="$(cat "$work/size")" 'BEGIN { for (i = 0; i < n; i++) printf "\\%03o", (i * 7 + int(i / 64)) % 120 }' \
            > "$work/escapes"
        printf "$(cat "$work/escapes")"
    } > "$work/model/model.safetensors"
}

# pack DIRECTORY - its files one after another
pack() {
    (cd "$1" && find . -maxdepth 1 -type f | sed 's|^\./||' | sort | while read -r f; do
        printf '%s %d\n' "$f" "$(wc -c < "$f")"
        cat "$f"
    done)
}

seeds=0
# seed OPTION... - one more checkpoint of the present model
seed() {
    rm -rf "$work/cut"
    tp-shard split -q --family "$work/tiny.json" "$@" "$work/model" "$work/cut" || return 0
    seeds=$((seeds + 1))
    name=$(printf '%02d' $seeds)$(echo "$*" | tr -d ' ' | sed 's/--/-/g; s/=//g')
    pack "$work/cut" > "$corpus/checkpoint/$name"
    cp "$work/cut/checkpoint.json" "$corpus/manifest/$name.json"
}

for dtype in BF16 F32 F8_E4M3; do
    model 4 2 4 2 2 5 7 2 $dtype
    for mesh in --tp=1 --tp=2 --tp=3 --tp=4 --pp=2 --ep=2 "--tp=2 --ep=2" "--tp=3 --pp=2" "--tp=2 --pad-vocab=3" \
        "--tp=3 --keep-vocab" "--tp=2 --keep-vocab --rank-configs" "--pp=2 --rank-configs"; do
        # shellcheck disable=SC2086 # options
        seed $mesh
    done
done
model 4 1 2 1 3 4 5 1 F32
for mesh in --tp=1 --tp=2 "--tp=2 --dtype=bf16" "--tp=2 --dtype=f16" "--tp=2 --pad-vocab=64" "--tp=2 --keep-vocab"; do
    # shellcheck disable=SC2086 # options
    seed $mesh
done
model 6 3 6 3 2 9 4 3 F16
for mesh in --tp=2 --tp=3 --tp=6 --ep=3 "--tp=2 --pp=3" "--tp=2 --ep=3" "--tp=3 --ep=2" "--tp=3 --keep-vocab --rank-configs" \
    "--tp=4 --pad-vocab=2"; do
    # shellcheck disable=SC2086 # options
    seed $mesh
done
# directories that are not cut, and a checkpoint of version 1
pack "$work/model" > "$corpus/checkpoint/uncut"
pack "$data/version-1/bigcode-heads" > "$corpus/checkpoint/version-1"

# tied NAME METADATA MORE TIE - a model of one layer whose table is stored as NAME, uncut and cut
tied() {
    rm -rf "$work/model"
    mkdir "$work/model"
    printf '{"model_type":"llama","hidden_size":2,"num_hidden_layers":1,"num_attention_heads":1,"intermediate_size":2,"vocab_size":3,"tie_word_embeddings":%s}\n' \
        "$4" > "$work/model/config.json"
    {
        printf '%s:3,2\n%s' "$1" "$3"
        cat << 'EOF'
model.layers.0.input_layernorm.weight:2
model.layers.0.self_attn.q_proj.weight:2,2
model.layers.0.self_attn.k_proj.weight:2,2
model.layers.0.self_attn.v_proj.weight:2,2
model.layers.0.self_attn.o_proj.weight:2,2
model.layers.0.post_attention_layernorm.weight:2
model.layers.0.mlp.gate_proj.weight:2,2
model.layers.0.mlp.up_proj.weight:2,2
model.layers.0.mlp.down_proj.weight:2,2
model.norm.weight:2
EOF
    } | awk -F: -v metadata="$2" -v size="$work/size" '
        BEGIN { printf "{\"__metadata__\":%s", metadata }
        NF == 2 {
            n = split($2, axis, ","); b = 2
            for (i = 1; i <= n; i++) b *= axis[i]
            printf ",\"%s\":{\"dtype\":\"F16\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", $1, $2, end, end + b
            end += b
        }
        END { printf "}"; print end > size }' > "$work/header"
    {
        n=$(wc -c < "$work/header")
        printf "$(printf '\\%03o\\%03o' $((n % 256)) $((n / 256)))\0\0\0\0\0\0"
        cat "$work/header"
        awk -v n="$(cat "$work/size")" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 65 + i % 26 }'
    } > "$work/model/model.safetensors"
    notes=$((notes + 1))
    pack "$work/model" > "$corpus/checkpoint/tied-$notes"
    cp "$work/model/model.safetensors" "$corpus/safetensors/tied-$notes"
    rm -rf "$work/cut"
    tp-shard split -q --pp 1 --tp 1 "$work/model" "$work/cut" || return 0
    pack "$work/cut" > "$corpus/checkpoint/tied-$notes-cut"
}
notes=0
mkdir -p "$corpus/safetensors"
tied lm_head.weight '{"format":"pt","model.embed_tokens.weight":"lm_head.weight"}' '' true
tied model.embed_tokens.weight '{"lm_head.weight":"model.embed_tokens.weight"}' '' false
tied model.embed_tokens.weight '{"lm_head.weight":"model.norm.weight","lm_head.weight":"lm_head.weight"}' '' false
tied model.embed_tokens.weight null 'lm_head.weight:3,2
model.rotary_emb.inv_freq:1
' true

# in 8 and 4 bits
for bits in 8 4; do
    tr -d '\n' < "$data/../../examples/bard/config.json" | sed "s/  */ /g; s/{/{\"quantization_config\":{\"quant_method\":\"shardutils\",\"bits\":$bits,\"group_size\":32,\"dtype\":\"bfloat16\"},/" \
        > "$corpus/config/bard-int$bits"
done
tr -d '\n' < "$data/../../examples/bard/config.json" |
    sed 's/  */ /g; s/{/{"time_step_limit":[0.0,Infinity],"low":-Infinity,"none":NaN,/' > "$corpus/config/python"
for config in "$data"/models/*/config.json "$data"/models/*/hf/config.json "$data"/stacks/*/config.json \
    "$data"/quantized/*/config.json; do
    name=${config#"$data/"}
    tr -d '\n' < "$config" | sed 's/  */ /g' > "$corpus/config/$(echo "${name%/config.json}" | tr / -)"
done
tp-shard families | sed 's/ .*//' | while read -r family; do
    tp-shard families "$family" | sed -n 's/^  "example": \(.*\),$/\1/p' > "$corpus/config/example-$family"
done
echo "$seeds checkpoints"

# stages of a model of 8 layers, in Megatron's notation and as numbers; some are wrong
mkdir -p "$corpus/layout"
n=0
while read -r line; do
    n=$((n + 1))
    printf '%s' "$line" > "$corpus/layout/$(printf '%02d' $n)"
done << 'EOF'
Et*8L
Etttt|ttttL
Et*4|t*4L
E|t*8|L
E|t*4|t*4|L
Et|tt|tt|tttL
(Et)|t*7L
E(tt)*4L
E(tt|)*4L
E(t|)*8L
E(tt|)*3ttL
Et*2|(tt|)*2ttL
E,t,t,t,t,|,t,t,t,t,L
Et*1|t*7L
Et*7|tL
Et*8|L
E|t*8L
E||t*8L
E(t*2|)*4L
E(t*2)*4L
EtttttttttL
EtttttttL
Et*9L
Et*0L
Et*L
Et*-1L
Et*99999999999L
E(tt
Ett)*2L
E((t)*2)*4L
tE*8L
LtE
Et*8LL
EEt*8L
Et*8m
Et*8mL
t*8
|
(|)*8
*
8
4,4
1,2,3,2
2,2,2,2
8,0
0,8
0,0,8,0
3,5
4,4,
,4,4
4;4
-1,9
4,-4,8
1,1,1,1,1,1,1,1
9999999999999,1
4 4
EOF

# what may have become of a study: values of other types, rows that lack or contradict others
mkdir -p "$corpus/study"
n=0
while read -r line; do
    n=$((n + 1))
    printf '%s\n' "$line" > "$corpus/study/$(printf '%02d' $n).sql"
done << 'EOF'
SELECT 1;
UPDATE trials SET state = 'DONE';
UPDATE trials SET state = '';
UPDATE trials SET number = 0;
UPDATE trials SET number = -1;
UPDATE trials SET number = 9223372036854775807;
UPDATE trials SET number = NULL;
UPDATE trials SET number = number + 100;
UPDATE trials SET number = 3 - number;
UPDATE trials SET number = 'one';
UPDATE trials SET study_id = 2;
UPDATE trials SET datetime_start = 'yesterday';
UPDATE trials SET datetime_start = 5, datetime_complete = 6.5;
UPDATE trials SET datetime_complete = x'00ff';
DELETE FROM trials;
DELETE FROM trials WHERE number = 1;
DELETE FROM studies;
DELETE FROM study_directions;
DELETE FROM study_directions WHERE objective = 0;
DELETE FROM version_info;
UPDATE version_info SET schema_version = 13;
UPDATE version_info SET schema_version = NULL;
UPDATE version_info SET library_version = 'x';
UPDATE studies SET study_name = '';
UPDATE studies SET study_name = x'ff00';
INSERT INTO studies VALUES (2, 't'), (3, 'u'), (4, 'v'), (5, 'w'); UPDATE trials SET study_id = number + 1;
UPDATE study_directions SET direction = 'UP';
UPDATE study_directions SET objective = objective + 1;
UPDATE study_directions SET objective = -1;
UPDATE study_directions SET objective = 2147483647 WHERE objective = 1;
INSERT INTO study_directions VALUES (3, 'MINIMIZE', 1, 2);
UPDATE trial_params SET param_value = 99;
UPDATE trial_params SET param_value = 'a';
UPDATE trial_params SET param_value = NULL;
UPDATE trial_params SET param_value = -0.5;
UPDATE trial_params SET param_value = 9e999;
UPDATE trial_params SET param_name = 'x' WHERE param_id > 1; UPDATE trial_params SET trial_id = param_id;
UPDATE trial_params SET param_name = NULL;
UPDATE trial_params SET distribution_json = '{}';
UPDATE trial_params SET distribution_json = 'null';
UPDATE trial_params SET distribution_json = NULL;
UPDATE trial_params SET distribution_json = '{"name": "UniformDistribution", "attributes": {"low": 0, "high": 1}}';
UPDATE trial_params SET distribution_json = '{"name": "IntDistribution", "attributes": {"low": 5, "high": 1}}';
UPDATE trial_params SET distribution_json = '{"name": "IntDistribution", "attributes": {"log": true, "low": 0, "high": 9, "step": 2}}';
UPDATE trial_params SET distribution_json = '{"name": "CategoricalDistribution", "attributes": {"choices": []}}';
UPDATE trial_params SET distribution_json = '{"name": "FloatDistribution", "attributes": {"low": NaN, "high": Infinity}}';
UPDATE trial_values SET value = NULL;
UPDATE trial_values SET value_type = 'NAN';
UPDATE trial_values SET objective = 7;
UPDATE trial_values SET objective = -7, value = 'x';
UPDATE trial_intermediate_values SET step = -1 - step;
UPDATE trial_intermediate_values SET step = 9223372036854775807 - step;
UPDATE trial_intermediate_values SET intermediate_value_type = 'INF_NEG';
UPDATE trial_system_attributes SET value_json = '{';
UPDATE trial_system_attributes SET "key" = NULL;
UPDATE study_user_attributes SET value_json = x'22ff22';
DROP TABLE trials;
DROP TABLE version_info;
ALTER TABLE trials RENAME COLUMN state TO status;
CREATE TABLE more (a, b);
EOF

# files of documents and of token ids: kind, samples' length, and what printf makes of the rest
mkdir -p "$corpus/data"
n=0
# add TEXT - the next seed
add() {
    n=$((n + 1))
    # shellcheck disable=SC2059 # it is a format
    printf "$1" > "$corpus/data/$(printf '%02d' $n)"
}
# numbers WIDTH N... - little-endian, as printf takes them
numbers() {
    width=$1
    shift
    for x; do
        i=0
        while [ $i -lt "$width" ]; do
            printf '\\%03o' $((x & 255))
            x=$((x >> 8)) i=$((i + 1))
        done
    done
}
for kind in j4 c2; do
    while read -r line; do
        add "$kind$line"
    done << 'EOF'
{"ids":[0,1,2,3]}\n{"ids":[4,5]}\n\n{"ids":[]}\n{"ids":[1]}\n
{"text":"aab ab"}\n{"text":"<e>a<e><e>b"}\r\n{"text":""}
{"prompt":"aa","completion":"b"}\n{"completion":"","prompt":"abab"}\n{"prompt":"","completion":"ab"}\n
{"meta":{"a":[1,{"b":null}]},"ids":[5,4,3,2,1,0,1,2,3,4,5],"x":"y"}
{"text":"a\\u0062\\n\\ud83d\\ude00"}\n{"ids":[1.5]}\n
{"ids":[1,-1]}\n
{"ids":[6]}\n
{"ids":[1,2],"ids":[3]}\n
{"ids":[1,2],"text":"a"}\n
{"ids":"a"}\n{"text":[1]}\n
[1]\n
{"ids":[1,2]} {"ids":[3]}\n
{"ids":[[1]]}\n
{"text":"\\\\x"}\n
{"text":"\377"}\n
{"te\0xt":"a\0b"}\n
EOF
done
for text in aabab 'a<e>b<e>' '' '<e>' 'ab\nab\0ab\n' 'ab\377' '\357\277\275a' 'x y z'; do
    add "t3$text"
done
printf '{"ids":[1,2,3]}\n' | gzip -n > "$work/ids.gz"
{
    printf g4
    cat "$work/ids.gz"
} > "$corpus/data/gzip"
head -c 30 "$corpus/data/gzip" > "$corpus/data/gzip-short"
cat "$corpus/data/gzip" "$work/ids.gz" > "$corpus/data/gzip-twice"
# a frame of zstd of six lines, one of one line, and a skippable one
{
    printf 'z4\050\265\057\375\004\150\315\000\000\220\173\042\151\144\163\042\072\133\061\054\062\054\063\054\064\135\175'
    printf '\012\001\000\256\246\031\006\317\331\063\322'
} > "$corpus/data/zstd"
head -c 30 "$corpus/data/zstd" > "$corpus/data/zstd-short"
{
    cat "$corpus/data/zstd"
    printf '\120\052\115\030\003\000\000\000{x}'
    printf '\050\265\057\375\004\130\141\000\000\173\042\151\144\163\042\072\133\064\135\175\012\343\117\276\336'
} > "$corpus/data/zstd-frames"
for seq in 1 7; do
    add "b$seq$(numbers 2 1 2 3 4 5 3 3 0 1)"
    add "l$seq$(numbers 2 3 1 2 3 3 4 5 0)"
    add "w$seq$(numbers 4 3 1 2 3 4 5 0)"
done
add "b4$(numbers 2 1 2 9)"
add "b4\\001"
add "l4$(numbers 2 3 65535)"
add "b4$(numbers 4 20240520 1 77)"
# records of parts: what split, reshard and merge leave, without their checksums
mkdir -p "$corpus/part"
tp-shard split -q --tp 2 --ranks 1 "$data/models/llama-sharded" "$work/made"
head -n -1 "$work/made.parts/1-1/part" > "$corpus/part/split"
tp-shard split -q --tp 2 "$data/models/llama-sharded" "$work/cut"
tp-shard reshard -q --tp 3 --ranks 0-1 "$work/cut" "$work/again"
head -n -1 "$work/again.parts/0-1/part" > "$corpus/part/reshard"
tp-shard merge -q --ranks 2-3 "$work/cut" "$work/merged"
head -n -1 "$work/merged.parts/2-3/part" > "$corpus/part/merge"

# ids FORM TEXT - a file with token ids: 0 tokenizer.json, 1 vocab.json, 2 tokenizer_config.json, 3 config.json
nids=0
mkdir -p "$corpus/ids"
ids() {
    nids=$((nids + 1))
    # shellcheck disable=SC2059 # octal
    { printf "\\00$1"; printf '%s' "$2"; } > "$corpus/ids/seed-$nids"
}
ids 0 '{"added_tokens":[{"id":100,"content":"x"}],"model":{"type":"BPE","vocab":{"a":0,"b":101},"merges":["a b"]}}'
ids 0 '{"model":{"type":"Unigram","vocab":[["a",-1.5],["b",NaN]]}}'
ids 1 '{"a":0,"b":-1,"c":99}'
ids 2 '{"added_tokens_decoder":{"3":{"content":"a"},"400":{}}}'
ids 3 '{"eos_token_id":[1,500],"pad_token_id":-1,"text_config":{"bos_token_id":7}}'

# index TYPE WIDTH "LENGTHS" "STARTS" "FIRST SEQUENCES" TOKENS... - with its .bin
index() {
    type=$1 width=$2 lengths=$3 starts=$4 first=$5
    shift 5
    # shellcheck disable=SC2086 # lists
    set -- "$(numbers 1 77 77 73 68 73 68 88 0 0)$(numbers 8 1)$(numbers 1 "$type")$(numbers 8 $(echo $lengths | wc -w) \
        $(echo $first | wc -w))$(numbers 4 $lengths)$(numbers 8 $starts)$(numbers 8 $first)" "$(numbers "$width" "$@")"
    add "m5$(numbers 2 $((${#1} / 4)))$1$2"
}
index 8 2 "3 2" "0 6" "0 1 2" 1 2 3 4 5
index 4 4 "3 2" "0 12" "0 1 2" 1 2 3 4 5
index 5 8 "3 2" "0 24" "0 2 2" 1 2 3 4 5
index 1 1 "3 0 2" "0 3 3" "0 1 1 3" 1 2 3 4 5
index 2 1 "5" "0" "0 1" 1 2 3 4 255
index 3 2 "5" "0" "0 1" 1 2 3 4 65535
index 8 2 "3 2" "0 6" "0 1" 1 2 3 4 5
index 8 2 "3 2" "0 4" "0 1 2" 1 2 3 4 5
index 8 2 "3 2" "0 6" "0 2 1" 1 2 3 4 5
index 8 2 "3 2" "0 6" "0 1 3" 1 2 3 4 5
index 8 2 "3 3" "0 6" "0 1 2" 1 2 3 4 5
index 6 8 "3 2" "0 24" "0 1 2" 1 2 3 4 5
index 9 4 "3 2" "0 12" "0 1 2" 1 2 3 4 5
index 8 2 "3 -2" "0 6" "0 1 2" 1
index 8 2 "" "" "0"
index 8 2 "2147483647 2" "0 4294967294" "0 1 2" 1 2

# list NAME - each line of standard input, which printf expands, is a seed of fuzz-NAME
list() {
    mkdir -p "$corpus/$1"
    n=0
    while IFS= read -r line; do
        n=$((n + 1))
        # shellcheck disable=SC2059 # it is a format
        printf -- "$line" > "$corpus/$1/$(printf '%02d' $n)"
    done
}

# files of chats
list chats << 'EOF'
[{"role":"user","content":"a"}]\n
{"messages":[{"role":"user","content":"a"}],"id":7,"tools":[{"name":"b"}],"documents":null}\n
{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}],"chat_template_kwargs":{"d":1}}\n
{"messages":[{"role":"user","content":["a"]}],"continue_final_message":true}\n
{"messages":[{"role":"user"}],"add_generation_prompt":true,"continue_final_message":true}\n
{"messages":[]}\n{"messages":{}}\n{"tools":[]}\n7\n
[{"messages":[{"role":"user","content":"a"}]},\n[{"role":"user","content":"b"}]]\n
[\n {"role": "system", "content": ["a"]},\n {"role": "user", "content": "b"}\n]\n
\357\273\277\n\n[{"role":"user","content":"a"}]\n\n[{"content":"a"}]\n
{"messages":[{"role":"user","content":"a","content":"b"}]}\n
EOF

# lines given to tp-run: @ a model of words, A one with token types, B one with a source, as C, D, E take them for text
# and F, G, H for JSON; I a model with boxes, J one with types of cells, K one with too many marks; ` and what follows have no tokenizer (fuzz-input)
list input << 'EOF'
@"aab"\n"ab"\n
@{"text":"aab"}\n{"ids":[1,2,3]}\n\n{"prompt":"b"}\n
@plain text\nanother line
@{"text":"a"\n
@{"ids":[]}\n
@{"ids":[8]}\n{"ids":[-1]}\n{"ids":[1.5]}\n{"ids":[1e99]}\n
@{"ids":"1,2"}\n{"ids":{"a":1}}\n{"ids":[null]}\n{"ids":[[1]]}\n
@{"text":"a","pair":"b"}\n
@{"question":"a","context":"b"}\n{"question":"a"}\n{"context":"b"}\n
@{"text":"a","choices":["a","b","aab"]}\n
@{"text":"a","choices":[]}\n{"text":"a","choices":[1]}\n{"text":"a","choices":["a",null,"b"]}\n
@{"text":"\\ud83d\\ude00"}\n{"text":"\\ud83d"}\n
@"\\ude00"\n"a"\n
@{"text":"\\u0000"}\n{"text":"a\\u0000b"}\n
@{"text":"\377\376"}\n
@\377\376\n
@\000\n
@"a"\000"b"\n
@{}\n[]\n1\ntrue\nnull\n""\n
@{"text":null}\n{"text":1}\n{"text":["a"]}\n
@{"token_types":[0]}\n{"ids":[1],"token_types":[0]}\n
A{"ids":[1,2],"token_types":[0,1]}\n{"ids":[1,2],"token_types":[0]}\n
A{"ids":[1,2],"token_types":[0,2]}\n{"ids":[0,1]}\n
A{"text":"ab","pair":"aab"}\n{"text":"ab","token_types":[1]}\n
A{"text":"ab","pair":"aab","token_types":[0,0]}\n
A{"question":"ab","context":"a"}\n{"text":"ab","choices":["a","b"]}\n
A"ab"\n
Aab\naab\n
Aa b c d e f g h\n
B{"source":"aab","text":"b"}\n{"source":"aab"}\n{"text":"b"}\n
B{"source_ids":[1,2],"ids":[3]}\n{"source":[1,2]}\n{"source":{}}\n{"source":7}\n
B{"source":"a","pair":"b"}\n
B"aab"\n
Baab\n
B{"source_ids":[9]}\n{"source":"\377"}\n
C"aab"\n{"text":\n
D{"ids":[1]}\n
E{"source":"a"}\n
F"aab"\nnot JSON\n{"text":"b"}\n
F{"text":"aab"}}\n{"text":"aab"} x\n
G{"ids":[1,1,1],"token_types":[0,1,1]}\n{"text":"b","pair":""}\n
H{"ids":[1],"source_ids":[2]}\n"x"\n
F{"text":"a","text":"b","ids":[1],"ids":[2]}\n
F[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n
F{"a":{"b":{"c":{"d":{"text":"a"}}}}}\n
F\r\n{"text":"a"}\r\n
F
`"aab"\n
`{"ids":[1,2,3]}\n"text"\n{"ids":[4]}\n
a{"ids":[1,2],"token_types":[1,1]}\n{"text":"a"}\n
b{"source_ids":[1],"ids":[1]}\n{"source":"a"}\n
f{"ids":[1]}\n{"ids":[99999999999999999999]}\n
@{"ids":[1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7]}\n
@<e><e>a<e>\n
F"<e>"\n{"text":"<e>","choices":["<e>"]}\n
@{"text":"a","pair":3}\n{"text":"a","choices":"b"}\n{"text":"a","pair":"b","choices":["a"]}\n
A{"ids":[1],"token_types":"0"}\n{"ids":[1],"token_types":[[0]]}\n{"ids":[1],"bbox":[[0,0,1,1]]}\n
I{"ids":[1,2],"bbox":[[0,0,1,1],[2,3,8,4]]}\n{"ids":[1],"bbox":[[0,0,9,1]]}\n{"ids":[1],"bbox":[[4,0,3,1]]}\n
I{"ids":[1],"bbox":[[0,0,1]]}\n{"ids":[1],"bbox":[[0,0,1,1,1]]}\n{"ids":[1],"bbox":[0,0,1,1]}\n{"ids":[1],"bbox":7}\n
I{"ids":[1],"bbox":[[0,0,1e10,1]]}\n{"ids":[1],"bbox":[[-1,0,1,1]]}\n{"ids":[1],"bbox":[["0",0,1,1]]}\n{"ids":[],"bbox":[]}\n
I{"ids":[1],"token_types":[[0,0,1,1,1,1]],"bbox":[[0,0,1,1]]}\n{"ids":[1],"token_types":[0],"bbox":[[0,0,1,1]]}\n
I{"ids":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"bbox":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}\n
J{"ids":[1,2,3],"token_types":[[0,1,1,0,0,0,0],[0,1,1,0,0,0,0],[0,2,1,0,0,0,0]]}\n{"ids":[1],"token_types":[[0,0,0]]}\n
J{"ids":[1,2,3],"token_types":[[0,1,1,0,0,0,0],[0,2,1,0,0,0,0],[0,1,1,0,0,0,0]]}\n{"ids":[1],"token_types":[[3,0,0,0,0,0,0]]}\n
J{"ids":[1],"token_types":[0]}\n{"ids":[1],"bbox":[[0,0,1,1]]}\n{"text":"ab","token_types":[[0,0,0,0,0,0,0]]}\n
K{"ids":[1],"token_types":[[0,0,0,0,0,0,0,0,0]]}\n{"ids":[1],"bbox":[[0,0,1,1]]}\n
EOF

list generation << 'EOF'
{}
{"eos_token_id":2}
{"eos_token_id":[2,3]}
{"eos_token_id":[]}
{"eos_token_id":"2"}
{"eos_token_id":-1}
{"eos_token_id":1e300}
{"eos_token_id":[1,"a",null,2.5]}
{"max_new_tokens":20}
{"max_new_tokens":0}
{"max_new_tokens":1e9,"max_length":1000000000}
{"max_length":1e10}
{"max_length":null}
{"max_length":"long"}
{"do_sample":true}
{"do_sample":true,"temperature":0.7,"top_k":40,"top_p":0.9}
{"do_sample":true,"temperature":-1}
{"do_sample":true,"temperature":1e309}
{"do_sample":true,"top_p":0}
{"do_sample":true,"top_p":1.5}
{"do_sample":true,"top_k":-1}
{"do_sample":true,"top_k":null,"top_p":null,"temperature":null}
{"do_sample":false,"temperature":"hot"}
{"do_sample":true,"min_p":0.1}
{"do_sample":false,"min_p":0.1}
{"do_sample":true,"typical_p":1.0,"epsilon_cutoff":0,"eta_cutoff":0.0}
{"do_sample":1}
{"num_beams":1}
{"num_beams":4}
{"num_beams":null,"early_stopping":true,"length_penalty":2}
{"repetition_penalty":1.0}
{"repetition_penalty":1.2}
{"bad_words_ids":[]}
{"bad_words_ids":[[1]]}
{"suppress_tokens":[],"begin_suppress_tokens":null}
{"suppress_tokens":{"a":1}}
{"stop_strings":["x"]}
{"guidance_scale":1}
{"decoder_start_token_id":0}
{"decoder_start_token_id":[7]}
{"decoder_start_token_id":[7,8]}
{"decoder_start_token_id":[]}
{"decoder_start_token_id":-1}
{"decoder_start_token_id":2147483648}
{"forced_bos_token_id":250004,"forced_eos_token_id":2}
{"forced_bos_token_id":"en","forced_eos_token_id":[[2]]}
{"use_cache":false,"cache_implementation":"static","output_scores":true,"_from_model_config":true}
{"transformers_version":"5","unheard_of":1,"another\\u0000":2,"":3}
{"unheard_of":null}
{"pad_token_id":0,"bos_token_id":[1]}
[]
1
null
"x"
{"a":
{"max_length":1,"max_length":2}
{"\\u006dax_length":3}
[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
EOF

list words << 'EOF'
[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\nab\n\000\000ab b abab
[UNK]\n[CLS]\n[SEP]\nword\n##s\n\000{}\000words Word
[UNK]\n[CLS]\n[SEP]\nword\n##s\n\000{"do_lower_case":false}\000words Word
[UNK]\n[CLS]\n[SEP]\nword\n##s\n\000{"do_lower_case":true,"strip_accents":false}\000W\303\266rds
[UNK]\n[CLS]\n[SEP]\nword\n##s\n\000{"strip_accents":true}\000w\303\266rds
[UNK]\n[CLS]\n[SEP]\nword\n##s\n\000{"strip_accents":null,"tokenize_chinese_chars":false}\000\344\275\240\345\245\275
[UNK]\n[CLS]\n[SEP]\n\344\275\240\n\000\000\344\275\240\345\245\275
[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n\000\000a
[UNK]\n[CLS]\n[SEP]\na
[UNK]\n[CLS]\n[SEP]\n\n\na\n\000\000a
[UNK]\n[CLS]\na\n
[CLS]\n[SEP]\na\n
[UNK]\n[SEP]\n
[UNK]\n<s>\n</s>\n<pad>\n<mask>\na\n\000\000a <mask>
[UNK]\n<s>\na\n
<s>\n</s>\na\n
<s>\n<pad>\n</s>\n<unk>\n[UNK]\na\n##a\n\000\000aaaa
[CLS]\n<s>\n</s>\n[UNK]\n[SEP]\n\000\000a
[UNK]\n[UNK]\n[CLS]\n[CLS]\n[SEP]\n[SEP]\n\000\000a
[UNK]\n[CLS]\n[SEP]\na\na\na\n\000\000a a
[UNK]\n[CLS]\n[SEP]\n##\n\000\000a##
[UNK]\n[CLS]\n[SEP]\n#\n##\n###\n\000\000###
[UNK]\n[CLS]\n[SEP]\n\377\n
[UNK]\n[CLS]\n[SEP]\n\303\n
[UNK]\n[CLS]\n[SEP]\na\n\000[]
[UNK]\n[CLS]\n[SEP]\na\n\000{
[UNK]\n[CLS]\n[SEP]\na\n\0001
[UNK]\n[CLS]\n[SEP]\na\n\000{"do_lower_case":"yes"}\000A
[UNK]\n[CLS]\n[SEP]\na\n\000{"do_lower_case":1,"strip_accents":0}\000A
[UNK]\n[CLS]\n[SEP]\na\n\000{"do_lower_case":null}\000A
[UNK]\n[CLS]\n[SEP]\na\n\000[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
[UNK]\n[CLS]\n[SEP]\na\n\000{"unk_token":"a","cls_token":{"content":"x"}}\000a
[UNK]\n[CLS]\n[SEP]\n"\n\\\\\n'\n\001\n\000\000"\\\\
[UNK]\n[CLS]\n[SEP]\n \n\t\n\000\000 \t
[UNK]\n[CLS]\n[SEP]\na b\n\000\000a b
[UNK]\n[CLS]\n[SEP]\na\n\000\000\000a
[UNK]\n[CLS]\n[SEP]\na\n\000\000\377\376
[UNK]\n[CLS]\n[SEP]\na\n\000\000a[MASK]a[SEP]
[MASK]\n[UNK]\n[CLS]\n[SEP]\na\n\000\000a[MASK]a[SEP]
[UNK]\n[CLS]\n[SEP]\n!\n?\n##!\n\000\000!?a!
[UNK]\n[CLS]\n[SEP]\na\n\000\000a\302\240a\342\200\213a\302\255a
[UNK]\n[CLS]\n[SEP]\n\314\201\na\n\000\000a\314\201
[UNK]\n[CLS]\n[SEP]\n\357\277\275\na\n\000\000\357\277\275
[UNK]\n[CLS]\n[SEP]\n\357\273\277a\n\000\000\357\273\277a
\357\273\277[UNK]\n[CLS]\n[SEP]\na\n
[UNK]\n[CLS]\n[SEP]\n\360\235\220\200\n\000\000\360\235\220\200
[UNK]\n[CLS]\n[SEP]\nss\n\000\000\303\237 \304\260 \316\243
[UNK]\n[CLS]\n[SEP]\na\n##a\n##aa\n##aaa\naaaa\n\000\000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
[unk]\n[cls]\n[sep]\n
\n\n\n
\000
\000\000
\000{}\000a
[UNK]\n[CLS]\n[SEP]\na
EOF

list sums << 'EOF'
00000000\t5\tfuzz.safetensors\n
352441c2\t3\tfuzz.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\ta\n00000000\t2\tfuzz.safetensors\tb\n
352441C2\t3\tfuzz.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\ta\n352441c2\t3\tfuzz.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\tc\n
352441c2\t4\tfuzz.safetensors\ta\n
352441c2\t3\tother.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\n
352441c2\t3\n
352441c2\n
\n
\n\n\n
352441c2 3 fuzz.safetensors a\n
352441c\t3\tfuzz.safetensors\ta\n
352441c20\t3\tfuzz.safetensors\ta\n
+52441c2\t3\tfuzz.safetensors\ta\n
0x352441\t3\tfuzz.safetensors\ta\n
        \t3\tfuzz.safetensors\ta\n
352441c2\t-3\tfuzz.safetensors\ta\n
352441c2\t+3\tfuzz.safetensors\ta\n
352441c2\t03\tfuzz.safetensors\ta\n
352441c2\t\tfuzz.safetensors\ta\n
352441c2\t18446744073709551616\tfuzz.safetensors\ta\n
352441c2\t18446744073709551615\tfuzz.safetensors\ta\n
352441c2\t3.0\tfuzz.safetensors\ta\n
352441c2\t3\t\ta\n
352441c2\t3\t../fuzz.safetensors\ta\n
352441c2\t3\t/etc/passwd\n
352441c2\t3\t.\n
352441c2\t3\tfuzz.safetensors\t\n
352441c2\t3\tfuzz.safetensors\ta\tb\n
352441c2\t3\tfuzz.safetensors\ta
352441c2\t3\tfuzz.safetensors\ta\r\n
\000
352441c2\000\t3\tfuzz.safetensors\ta\n
352441c2\t3\tfuzz\000.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\t\377\n
352441c2\t3\tfuzz.safetensors\t\\u0061\n
352441c2\t3\tfuzz.safetensors\t\\\\\n
\t\t\t\n
\t3\tfuzz.safetensors\ta\n
# a comment\n352441c2\t3\tfuzz.safetensors\ta\n
352441c2\t3\tfuzz.safetensors\ta\nzzz\n
zzz\n352441c2\t3\tfuzz.safetensors\ta\n
00000000\t113\tfuzz.safetensors\n352441c2\t3\tfuzz.safetensors\ta\n
ffffffff\t0\tfuzz.safetensors\tb\nffffffff\t2\tfuzz.safetensors\tb\n
352441c2\t3\tfuzz.safetensors\ta\n\n00000000\t2\tfuzz.safetensors\tb\n
{"a":1}\n
352441c2\t3\t"fuzz.safetensors"\ta\n
352441c2\t3\tfuzz.safetensors\t a\n
352441c2\t3\tfuzz.safetensors\ta \n
EOF

list costs << 'EOF'
1\n1\n1\n1\n1\n1\n
0\n1\n2\n3\n4\n0\n
1\n\n1\n1\n1\n1\n1
1\n1\n1\n1\n1\n
1\n1\n1\n1\n1\n1\n1\n
0\n0\n0\n0\n0\n0\n
-1\n1\n1\n1\n1\n1\n
1e100\n1\n1\n1\n1\n1\n
1e101\n1\n1\n1\n1\n1\n
1e-320\n1e-320\n1e-320\n1e-320\n1e-320\n1e-320\n
1e-300\n1e100\n1\n1\n1\n1e-300\n
nan\n1\n1\n1\n1\n1\n
inf\n1\n1\n1\n1\n1\n
-0\n1\n1\n1\n1\n1\n
0x10\n1\n1\n1\n1\n1\n
1,5\n1\n1\n1\n1\n1\n
 1\n1\n1\n1\n1\n1\n
1 \n1\n1\n1\n1\n1\n
1 2 3\n1\n1\n1\n1\n1\n
+1\n1\n1\n1\n1\n1\n
.5\n5.\n1e0\n1E+1\n1\n1\n
1e\n1\n1\n1\n1\n1\n
1\r\n1\r\n1\r\n1\r\n1\r\n1\r\n
1\0001\n1\n1\n1\n1\n
\n\n\n
\000
one\n
99999999999999999999999999999999999999\n1\n1\n1\n1\n1\n
18446744073709551615\n18446744073709551616\n1\n1\n1\n1\n
1\n1\n1\n1\n1\n1
1\n1\n1\n1\n1\nx
{
{}
[]
{"type":"calibration"}
{"type":"calibration","version":1,"parts":[]}
{"type":"calibration","layers":4,"parts":[{"prefill":1},{"prefill":1},{"prefill":1},{"prefill":1},{"prefill":1},{"prefill":1}]}
{"parts":[{"name":"embedding","prefill":1e-3,"decode":1e-4}]}
{"parts":[{"name":"embedding","prefill":-1}]}
{"parts":[{"name":"embedding","prefill":1e400}]}
{"parts":null}
{"parts":{"a":1}}
 {"parts":[]}
\n{"parts":[]}
{"parts":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}
{"a":1,"a":2}
{"\\u0000":1}
{"parts":[1,2,3,4,5,6]}
{"parts":[{},{},{},{},{},{}]}
\357\273\277{"parts":[]}
\357\273\2771\n1\n1\n1\n1\n1\n
#1\n1\n1\n1\n1\n1\n
EOF
n=$(find "$corpus/costs" -type f | wc -l)
for file in "$corpus"/calibration/*; do # of a model of 4 layers, too
    n=$((n + 1))
    cp "$file" "$corpus/costs/$n"
done

# changes to the file of a study: of its header; of each page's kind, first cell, cells and places of them; of its end
n=0
mkdir -p "$corpus/database"
# put AT LENGTH BYTES... - the next seed, in octal; more of them are one
put() {
    n=$((n + 1))
    while [ $# -gt 0 ]; do
        format="\\$(printf %03o $(($1 & 255)))\\$(printf %03o $(($1 >> 8 & 255)))\\$(printf %03o $(($1 >> 16)))\\$(printf %03o "$2")$3"
        # shellcheck disable=SC2059 # it is a format
        printf "$format"
        shift 3
    done > "$corpus/database/$(printf '%02d' $n)"
}
put 0 1 S
put 0 6 Sqlite
put 16 2 '\000\001'
put 16 2 '\020\000'
put 16 2 '\003\000'
put 18 1 '\002'
put 18 2 '\003\003'
put 20 1 '\377'
put 21 3 '\000\000\000'
put 24 4 '\377\377\377\377'
put 28 4 '\000\000\000\000'
put 28 4 '\177\377\377\377'
put 32 8 '\000\000\000\002\000\000\000\001'
put 32 8 '\377\377\377\377\000\000\000\144'
put 40 4 '\000\000\000\000'
put 44 4 '\000\000\000\011'
put 52 4 '\000\000\000\003'
put 56 4 '\000\000\000\002'
put 56 4 '\000\000\000\007'
put 64 4 '\000\000\000\001'
put 92 8 '\000\000\000\001\000\000\000\001'
put 100 1 '\012'
put 100 1 '\000'
put 101 2 '\000\144'
put 103 2 '\377\377'
put 105 2 '\000\000'
put 108 4 '\000\000\000\001'
put 100 0 ''
put 512 0 ''
put 1000 0 ''
put 20000 0 ''
put 100 1 '\005' 512 1 '\015'
page=1
while [ $page -le 24 ]; do
    at=$((page * 512))
    case $((page % 6)) in
    0) put $at 1 '\015' ;;
    1) put $((at + 3)) 2 '\000\377' ;;
    2) put $((at + 8)) 4 '\000\010\000\010' ;;
    3) put $((at + 480)) 16 '\177\200\200\200\200\200\200\200\001\006\011\011\011\001\002\003' ;;
    4) put $((at + 8)) 4 '\000\000\000\001' ;;
    5) put $((at + 500)) 12 '\377\377\377\377\377\377\377\377\377\377\377\377' ;;
    esac
    page=$((page + 1))
done
# a file that is its own: an empty one, and a table of which nobody knows
printf 'SQLite format 3\000' > "$corpus/database/short"
rm -f "$work/s.db"
sqlite3 "$work/s.db" 'PRAGMA page_size = 512; CREATE TABLE trials (number, state)' && cp "$work/s.db" "$corpus/database/other"

# what is asked for, and what a trial wrote
list measure << 'EOF'
loss\n{"loss": 0.5}\n
a.b\n{"a": {"b": 1}}\n
a.b\n{"a": [{"b": 1}, {"b": 2}]}\n
a\n{"a": [[1, 2], [3]]}\n
a\n{"a": []}\n
a.b.c\n{"a.b": {"c": 1}}\n
loss\n{"values": [0.5]}\n
loss\n{"value": 0.5}\n
loss\n{"values": [0.5, 1]}\n
loss\n{"values": [0.5, "a"]}\n
loss\n{"value": "a"}\n
x\n[0.5, 0.25]\n
x\n[0.5]\n
x\n0.5\n
x\n"0.5"\n
loss\n[{"loss": 1}, {"loss": 2}]\n
loss\n{"loss": "a"}\n
loss\n{"loss": NaN}\n
loss\nloss: 0.5\nacc 0.7\n
loss\nloss=0.5, acc=0.7\n
loss\n0.5 0.25\n
loss\n1.0\n2.0\n
loss\n1.0\n\n\n
loss\nthe loss is 3\n
loss\n1 2 3\n
loss\n-inf\n
loss\n1e999\n
loss=([0-9.]+)\nstep loss=0.25\nloss=0.125\n
loss=[0-9]+\nloss=25\n
([a-z]+)\nloss\n
(\nloss\n
a{99999}\na\n
x*\nxxx\n
loss\n{"step": 3, "value": 0.5}\n
loss\n{"step": -1, "values": [1, 2]}\n
loss\n{"step": 1.5, "value": 1}\n
loss\n{"step": 2}\n
loss\n{"step": 2, "loss": 0.25}\n
loss\n{"step": 2, "loss": null}\n
eval_loss\n{"eval_loss": 0.5, "train_loss": 1, "epoch": 3}\n
eval_loss\n{"eval_loss": 0.5}\n{"loss": 1}\n{"train_runtime": 3}\n
eval\n{'eval_loss': 0.5, 'epoch': 1.0}\n{'train_loss': 0.25}\n
eval\n{'eval_loss': 0.5, 'eval_runtime': 1.0}\n
c\n{"c": 0.1, "d": [0.5, -1]}\n
c\n{"c": [0.5, -1]}\n
c\n{"c": [0.5, "a"]}\n
c\n{"c": {}}\n
loss\n{"loss": 1\n
loss\n{"loss": 1} x\n
loss\n{}\n
loss\n\n
loss\n\377\376 1\n
loss\n\000 1\n
.\n{"": 1}\n
a.\n{"a": 1}\n
.a\n{"a": 1}\n
loss\n[1, [2]]\n{"loss": 7}\n[\n
EOF

# run.json of train, with the settings that fuzz-run has
list run << 'EOF'
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"other","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":1,"version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":2,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":"1","model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1.5,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":null,"data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":7,"data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"\\u0000","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"a","model":"b","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":{},"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":{"a":{"path":"d","size":1,"crc32":"1"}},"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":"d","eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[3],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":-1,"crc32":"0"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"zz"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":18446744073709551616,"crc32":"0"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":3,"size":1,"crc32":"0"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"a","size":1,"crc32":"0"},{"path":"b"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[{"path":"e","size":1,"crc32":"ffffffffff"}],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[null],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":7}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":[]}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"x":1}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":0,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":-1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":2147483648,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1.5,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":"1","seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":0,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":-1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"micro_batch":1,"seq":16,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":18446744073709551615,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":-1,"lr":0.5,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":1e999,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":-0,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":1e-320,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":NaN,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":null,"pack":"chunks"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"documents"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":"other"}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":1}}
{"format":"shardutils-run","version":1,"model":"m","data":[{"path":"d","size":1,"crc32":"00000001"}],"eval_data":[],"options":{"steps":1,"micro_batch":1,"seq":16,"lr":0.5,"pack":null}}

{
[]
null
"format"
EOF

# the step to resume after, and log.jsonl of train (fuzz-log)
list log << 'EOF'
0
\001{"type":"step","step":1,"loss":1}\n
\000{"type":"step","step":1,"loss":2}\n{"type":"step","step":2,"loss":1}\n
\377{"type":"step","step":1,"loss":2}\n{"type":"step","step":2,"loss":1}\n{"type":"step","step":2,"loss":3}\n{"type":"step","step":3,"loss":1}\n
0{"type":"step","step":3,"loss":1}\n{"type":"step","step":2,"loss":1}\n{"type":"step","step":1,"loss":1}\n
\001{"type":"step","step":1,"loss":2}\n{"type":"eval","step":2,"eval_loss":1}\n{"type":"step","step":2,"loss":3}\n
\000{"type":"eval","step":1,"eval_loss":1}\n
\377{"type":"train","step":1,"loss":1}\n
0{"type":"step","step":1,"loss":null}\n
\001{"type":"step","step":1,"loss":NaN}\n
\000{"type":"step","step":1,"loss":1e308}\n{"type":"step","step":2,"loss":-1e308}\n
\377{"type":"step","step":1,"loss":1e-320}\n{"type":"step","step":2,"loss":1e305}\n
0{"type":"step","step":1e308,"loss":1}\n{"type":"step","step":-1e308,"loss":2}\n
\001{"type":"step","step":-1,"loss":1}\n{"type":"step","step":0,"loss":2}\n
\000{"type":"step","step":1.5,"loss":1}\n{"type":"step","step":2.5,"loss":2}\n
\377{"type":"step","step":"1","loss":1}\n
0{"type":"step","step":null,"loss":1}\n
\001{"type":"step","step":1,"loss":0}\n{"type":"step","step":2,"loss":0}\n
\000{"type":"step","step":1,"loss":-1}\n{"type":"step","step":2,"loss":5}\n
\377{"type":"step","step":1,"loss":1}\n{"type":"step","step":2,"loss":100}\n
0{"type":"step","step":1,"loss":1}\n{"type":"step","step":1,"loss":2}\n
\001{"type":"step","step":18446744073709551615,"loss":1}\n
\000{"type":"step","step":18446744073709551616,"loss":1}\n{"type":"step","step":1,"loss":1}\n
\377{"type":"step","step":9007199254740993,"loss":1}\n{"type":"step","step":9007199254740995,"loss":2}\n
0{"type":"step","step":1,"loss":1}\n{"type":"step","st
\001{"type":"step","step":1,"loss":1}\nx\n{"type":"step","step":2,"loss":1}\n
\000{"type":"step","step":1,"loss":1}\n\n{"type":"step","step":2,"loss":1}\n
\377\n\n\n
0{"type":"step","step":1,"loss":1}\n\000\000\n{"type":"step","step":2,"loss":1}\n
\001{"type":"step","step":1,"loss":1}\n\000\000
\000{"type":"step","step":1,"loss":1}\nx\000y\n\n{"type":"step","step":2,"loss":2}\n{"type":"step","step":3,"loss":3}\n
\377{"type":"step","step":1,"loss":1}\n{}\n
0{"type":"step","step":1,"loss":1}\n[]\n1\n"a"\nnull\n
\001{"step":1}\n
\000{"type":"step"}\n
\377{"type":1,"step":1,"loss":1}\n
0{"type":"step","step":1}\n
\001{"type":"step","step":1,"step":2,"loss":1}\n
\000{"type":"step","step":1,"loss":1}\r\n{"type":"step","step":2,"loss":1}\n
\377\357\273\277{"type":"step","step":1,"loss":1}\n
0{"type":"step","step":1,"loss":[1]}\n
\001{"type":"step","step":1,"loss":{}}\n
\000{"type":"step","step":1,"loss":"1"}\n
\377{"type":"step","step":1,"loss":1e999}\n
0{"type":"step","step":1,"loss":-0}\n{"type":"step","step":2,"loss":0}\n
\001{"type":"step","step":1,"loss":1}\n{"type":"step","step":40,"loss":1}\n{"type":"step","step":41,"loss":1}\n{"type":"step","step":42,"loss":1}\n
\000{"type":"step","step":47,"loss":1}\n{"type":"step","step":48,"loss":1}\n{"type":"step","step":49,"loss":1}\n
\377{"type":"step","step":0,"loss":1}\n{"type":"step","step":0,"loss":2}\n{"type":"step","step":0,"loss":3}\n
0{"type":"step","step":1,"loss":1}\n{"type":"eval","step":2,"eval_loss":1}\n{"type":"eval","step":1,"eval_loss":1}\n{"type":"eval","step":3,"eval_loss":2}\n
\001{"type":"step","step":1,"loss":1e300}\n{"type":"step","step":2,"loss":1e301}\n{"type":"step","step":3,"loss":1}\n
\000{"a":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}\n{"type":"step","step":1,"loss":1}\n
EOF

list pooling << 'EOF'
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false,"pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":false}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false,"pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":false}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":true,"pooling_mode_mean_sqrt_len_tokens":false,"pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":false}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":true,"pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":false}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false,"pooling_mode_weightedmean_tokens":true,"pooling_mode_lasttoken":false}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]\000{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false,"pooling_mode_weightedmean_tokens":false,"pooling_mode_lasttoken":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"cls","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"mean","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"max","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"lasttoken","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"weightedmean","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]\000{"embedding_dimension":8,"pooling_mode":"mean_tokens","include_prompt":true}
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"}]
[{"idx":0,"name":"0","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Dense","type":"sentence_transformers.models.Dense"},{"idx":3,"name":"3","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"2_Normalize","type":"sentence_transformers.models.Normalize"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]
[{"idx":0,"name":"0","path":"..","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"a/b","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"/etc","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":"a//b","type":"sentence_transformers.models.Pooling"}]
[{"idx":0,"name":"0","path":".","type":"sentence_transformers.models.Pooling"}]
[]
{}

null
[1]
["a"]
[[]]
[{}]
[{"type":"Pooling"}]
[{"path":"a"}]
[{"type":1,"path":"a"}]
[{"type":"Pooling","path":null}]
[{"type":"Pooling","path":"p"}]
[{"type":".Pooling","path":"p"}]
[{"type":"Pooling.","path":"p"}]
[{"type":"","path":""}]
[{"type":"Transformer","type":"Pooling","path":"p"}]
[{"type":"Pooling","path":"p\\u0000"}]
[{"type":"Pool\\u0069ng","path":"\\ud83d\\ude00"}]
[{"type":"Pooling","path":"p"}
[{"type":"Pooling","path":"p"}]x
\000{}
[]\000[]
[]\000{"pooling_mode":["cls","mean"]}
[]\000{"pooling_mode":null}
[]\000{"pooling_mode_cls_token":1}
[]\000{"pooling_mode_cls_token":true,"pooling_mode":"cls"}
[]\000{"pooling_mode_cls_token":true,"pooling_mode_cls_token":true}
[]\000{"pooling_mode_":true}
[]\000{"pooling_modes":true}
[]\000
[]\000\000
[]\000{"a":{"pooling_mode":"cls"}}
[]\000{"pooling_mode":"cls"
EOF

# what comes on a rank's connections: of a stranger, or of an admitted rank (fuzz-tcp)
list tcp << 'EOF'
\000\377shardtc2\000\000\000\001\000\000\000\002\000\000\273\204nonce of 16 byte29501-0-00000000-\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000pppppppppppppppppppppppppppppppp
\000\000shardtc2\000\000\000\001\000\000\000\002\000\000\273\204nonce of 16 byte29501-0-00000000-\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000pppppppppppppppppppppppppppppppp
\002\007shardtc2\000\000\000\001\000\000\000\002\000\000\273\204nonce of 16 byte29502-0-00000000-\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000pppppppppppppppppppppppppppppppp
\000\377shardtc2\000\000\000\001\000\000\000\002\000\000\273\204nonce of 16 byte29501-0-00000000-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxpppppppppppppppppppppppppppppppp
\000\377shardtc2\000\000\000\000the other nonce.shardtc2\000\000\000\001\000\000\000\002cccccccccccccccccccccccccccccccc
\000\377shardtc2\000\000\000\000the other nonce.shardtc2\000\000\000\003\000\000\000\002cccccccccccccccccccccccccccccccc
\000\377shardtc2\000\000\000\001the other nonce.
\000\377GET / HTTP/1.0\r\n\r\n
\000\003shardtc1
\001\000\000\000\000\000\000\000\000\000\000\000\005words\000\000\000\001\000\000\000\001\000\000\000\014twelve bytes\000\000\000\000\000\000\000\003\000\000\000\005about\000\000\000\000\000\000\000\004\000\000\000\000
\001\000\000\000\000\000\000\000\000\000\000\000\002wo\000\000\000\000\000\000\000\000\000\000\000\003rds\000\000\000\001\000\000\000\001\000\000\000\014twelve bytes\000\000\000\000\000\000\000\003\000\000\000\005about
\001\000\000\000\001\000\000\000\001\000\000\000\014twelve bytes\000\000\000\000\000\000\000\000\000\000\000\005words\000\000\000\000\000\000\000\005\000\000\000\000
\001\000\000\000\000\000\000\000\005\000\000\000\000
\001\000\000\000\000\000\000\000\004\000\000\000\000
\001\000\000\000\000\000\000\000\004\000\000\000\001x
\001\000\000\000\000\000\000\000\000\000\000\000\000
\001\000\000\000\000\000\000\000\000\000\020\000\000
\001\000\000\000\000\000\000\000\000\000\020\000\001
\001\000\000\000\000\000\000\000\000\377\377\377\377
\001\000\000\000\000\000\000\000\006\000\000\000\001
\001\000\000\000\001\000\000\000\007\000\000\000\001
\001\000\000\000\011\000\000\000\011\000\000\000\001
\001\000\000\000\000\000\000\000\012\000\000\000\004four
\001\000\000\000\000\000\000\000\006\000\000\000\000
\001\000\000\000\000\000\000\000\007\377\377\377\377
\001\000\000\000\000\000\000\000\000\000\000\000\001x\000\000\000\001\000\000\000\000\000\000\000\001x\000\000\000\002\000\000\000\000\000\000\000\001x\000\000\000\003\000\000\000\000\000\000\000\001x\000\000\000\004\000\000\000\000\000\000\000\001x\000\000\000\005\000\000\000\000\000\000\000\001x\000\000\000\006\000\000\000\000\000\000\000\001x\000\000\000\007\000\000\000\000\000\000\000\001x\000\000\000\010\000\000\000\000\000\000\000\001x\000\000\000\011\000\000\000\000\000\000\000\001x\000\000\000\012\000\000\000\000\000\000\000\001x\000\000\000\013\000\000\000\000\000\000\000\001x\000\000\000\014\000\000\000\000\000\000\000\001x\000\000\000\015\000\000\000\000\000\000\000\001x\000\000\000\016\000\000\000\000\000\000\000\001x\000\000\000\017\000\000\000\000\000\000\000\001x\000\000\000\020\000\000\000\000\000\000\000\001x\000\000\000\021\000\000\000\000\000\000\000\001x\000\000\000\022\000\000\000\000\000\000\000\001x\000\000\000\023\000\000\000\000\000\000\000\001x\000\000\000\024\000\000\000\000\000\000\000\001x\000\000\000\025\000\000\000\000\000\000\000\001x\000\000\000\026\000\000\000\000\000\000\000\001x\000\000\000\027\000\000\000\000\000\000\000\001x\000\000\000\030\000\000\000\000\000\000\000\001x\000\000\000\031\000\000\000\000\000\000\000\001x\000\000\000\032\000\000\000\000\000\000\000\001x\000\000\000\033\000\000\000\000\000\000\000\001x\000\000\000\034\000\000\000\000\000\000\000\001x\000\000\000\035\000\000\000\000\000\000\000\001x\000\000\000\036\000\000\000\000\000\000\000\001x\000\000\000\037\000\000\000\000\000\000\000\001x\000\000\000\040\000\000\000\000\000\000\000\001x\000\000\000\041\000\000\000\000\000\000\000\001x\000\000\000\042\000\000\000\000\000\000\000\001x\000\000\000\043\000\000\000\000\000\000\000\001x\000\000\000\044\000\000\000\000\000\000\000\001x\000\000\000\045\000\000\000\000\000\000\000\001x\000\000\000\046\000\000\000\000\000\000\000\001x\000\000\000\047\000\000\000\000\000\000\000\001x
\001\000\000\000\007\000\000\000\000\000\000\000\001x\000\000\000\007\000\000\000\001\000\000\000\001x\000\000\000\007\000\000\000\002\000\000\000\001x\000\000\000\007\000\000\000\003\000\000\000\001x
\001\000\000\000\000\000\000\000\000\000\000\000\005wor
\001\000\000\000
EOF
