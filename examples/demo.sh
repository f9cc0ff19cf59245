#!/bin/sh
# demo.sh - cut the sample model for several ranks, run it, and merge it again: demo.sh MODEL [DIR]
#
# What it makes stays in DIR, a new directory, if one is named.
set -eu
model=$1
if [ $# -gt 1 ]; then
    dir=$2
    mkdir "$dir"
else
    dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-demo.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
fi

say() {
    printf '\n$ %s\n' "$*"
    "$@"
}

echo "== cut the model for 2 ranks, and check the result"
say tp-shard split --tp 2 "$model" "$dir/bard.tp2"
say tp-shard verify "$dir/bard.tp2"

echo
echo "== run it on 2 ranks"
say tp-run generate --prompt 'ROMEO:' --max-tokens 80 "$dir/bard.tp2"

echo "== the same text has the same perplexity on 1, 2, 3 and 6 ranks"
for tp in 1 2 3 6; do
    [ "$tp" = 2 ] || tp-shard split --tp "$tp" "$model" "$dir/bard.tp$tp"
    say tp-run score --window 256 "$model/heldout.txt" "$dir/bard.tp$tp"
done

echo
echo "== merged, it is the model it was, byte for byte"
say tp-shard merge "$dir/bard.tp6" "$dir/bard"
say cmp "$dir/bard/model.safetensors" "$model/model.safetensors"
echo "identical"
[ $# -eq 1 ] || echo "the checkpoints are in $dir"
