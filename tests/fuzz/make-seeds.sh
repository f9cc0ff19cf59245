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
