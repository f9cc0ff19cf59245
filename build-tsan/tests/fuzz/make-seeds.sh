#!/bin/sh
# make-seeds.sh CORPUS - the seeds of fuzz-checkpoint, fuzz-manifest and fuzz-config
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

for config in "$data"/models/*/config.json "$data"/models/*/hf/config.json "$data"/stacks/*/config.json \
    "$data"/quantised/*/config.json; do
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
