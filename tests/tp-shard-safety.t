#!/bin/sh
# tp-shard-safety.t - damage is found, and nothing half-written keeps a name
. "$top_srcdir/tests/lib.sh"
models=$data/models

# damage FILE OFFSET: flip a bit of the byte there
damage() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "$(printf '\\%03o' $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> dd.err
}

# anew: a fresh checkpoint of two ranks in `cut`
tp-shard split -q --tp 2 "$models/stories260K/hf" pristine
anew() {
    rm -rf cut
    cp -R pristine cut
}

anew
run tp-shard verify cut
status_is 0 "an intact checkpoint is found intact"
damage cut/rank-tp1-pp0.safetensors 200000
run tp-shard verify cut
status_is 1 "a flipped bit is found"
out_has "rank-tp1-pp0.safetensors: model." "the finding names file and tensor"
out_has "damaged: CRC-32" "and says what is wrong"
err_empty "findings are data, not diagnostics"
run tp-shard verify --json cut
out_has '"type":"summary","files":3,' "findings come as JSON too"
run tp-shard verify --ranks 0 cut
status_is 0 "an intact rank file is found intact alone"
run tp-shard verify --ranks 1 cut
status_is 1 "a damaged one is not"
run tp-shard verify --ranks 2 cut
status_is 2 "a rank that does not exist is a usage error"
run tp-shard merge -q cut whole
status_is 3 "damage is refused when merging"
err_lines 1 "in one line"
ok "and leaves nothing under the final name" test ! -e whole
rm -rf whole.partial

tp-shard split -q --pp 2 "$models/stories260K/hf" staged
cp staged/rank-tp0-pp1.safetensors staged/rank-tp0-pp0.safetensors
run tp-shard verify staged
status_is 1 "another stage's file in the place of a stage's is found"
out_has "model.layers.3.mlp.down_proj.weight: does not belong to this file" "with what it has"
out_has "model.layers.2.self_attn.q_proj.weight: missing" "and what it lacks"
anew
damage cut/rank-tp1-pp0.safetensors 12
run tp-shard verify cut
status_is 1 "a flipped bit in a header is found"
anew
norm=$(tp-shard show --json cut | sed -n 's/.*"name":"\(model.norm[^"]*\)".*/\1/p')
ok "a replicated tensor is there to be damaged" test -n "$norm"
size=$(wc -c < cut/rank-tp1-pp0.safetensors)
damage cut/rank-tp1-pp0.safetensors $((size - 2))
run tp-shard verify cut
status_is 1 "a flipped bit in one rank's copy of a replicated tensor is found"
anew
damage cut/checkpoint.json 700
run tp-shard verify cut
status_is 1 "a flipped bit in the manifest is found"
out_has "checkpoint.json" "and named"
run tp-shard merge -q cut whole
status_is 3 "a damaged manifest is refused"
anew
damage cut/config.json 20
run tp-shard verify cut
out_has "config.json: damaged" "a changed small file is found"
anew
mv cut/rank-tp0-pp0.safetensors x
mv cut/rank-tp1-pp0.safetensors cut/rank-tp0-pp0.safetensors
mv x cut/rank-tp1-pp0.safetensors
run tp-shard verify cut
status_is 1 "swapped rank files are found"
run tp-shard reshard -q --tp 4 cut more
status_is 3 "and refused"
anew
rm cut/rank-tp1-pp0.safetensors
run tp-shard verify cut
out_is "rank-tp1-pp0.safetensors: missing" "a missing rank file is found"
run tp-shard merge -q cut whole
status_is 3 "and refused"
anew
cp cut/rank-tp1-pp0.safetensors cut/rank-tp2-pp0.safetensors
run tp-shard verify cut
out_has "rank-tp2-pp0.safetensors: not listed" "a rank file too many is found"
anew
cp cut/rank-tp1-pp0.safetensors cut/rank-tp0-pp0.safetensors
run tp-shard verify cut
status_is 1 "a rank file copied over another is found"
anew
head -c 100000 pristine/rank-tp0-pp0.safetensors > cut/rank-tp0-pp0.safetensors
run tp-shard verify cut
status_is 1 "a truncated rank file is found"
run tp-shard merge -q cut whole
status_is 3 "and refused"

# against the original, and lists of sums
cp -R "$models/stories260K/hf" model
chmod -R u+w model
run tp-shard verify --against model pristine
status_is 0 "a checkpoint agrees with the directory it came from"
run tp-shard sum -o sums model
status_is 0 "sums are written"
run tp-shard verify --sums sums model
status_is 0 "and agree with the directory"
damage model/model.safetensors 300000
run tp-shard verify --against model pristine
out_has "model.safetensors: damaged" "a changed original is found"
run tp-shard verify --sums sums model
status_is 1 "and disagrees with its sums"
out_has "differs from the list" "which name it"

# outputs appear whole
rm -rf out.d
mkdir out.d
echo mine > out.d/notes
run tp-shard split --tp 2 "$bard" out.d
status_is 2 "an existing directory is not touched"
run tp-shard split -f --tp 2 "$bard" out.d
status_is 2 "nor with -f when it is not ours"
ok "and keeps what is in it" grep -q mine out.d/notes
run tp-shard split -q -f --tp 3 "$bard" cut
status_is 0 "-f replaces a checkpoint"
ok "nothing else is left beside it" test "$(echo cut*)" = cut

# interrupted at any moment, and continued: 50 runs are killed after 0 to 24 ms
tp-shard split -q --tp 4 "$bard" want
n=0
finished=0
same=yes
while [ $n -lt 50 ]; do
    n=$((n + 1))
    tp-shard split -q --tp 4 "$bard" got 2> err &
    sleep "$(awk -v n=$n -v s=$$ 'BEGIN { srand(s * 100 + n); printf "%.4f", rand() * 0.024 }')"
    kill -9 $! 2> kill.err
    wait $! 2> kill.err
    if test -d got; then
        finished=$((finished + 1))
        diff -r want got > diff.out || same=no
        rm -rf got
    fi
done
tp-shard split -q --tp 4 "$bard" got
ok "after 50 kills a run gives what an undisturbed one gives" diff -r want got
ok "and so did the $finished that were killed too late" test $same = yes
rm -rf got got.partial
cp -R "$bard" changed
chmod -R u+w changed
mkdir full
status=0
(
    trap '' XFSZ
    ulimit -f 1000
    exec tp-shard split -q --tp 2 changed full/cut
) > out 2> err || status=$?
status_is 4 "a write that fails is an error of the machine"
err_lines 1 "told in one line"
ok "nothing is under the final name when writing fails" test ! -e full/cut
ok "what was written is kept" test -d full/cut.partial
damage changed/model.safetensors 1000000
run tp-shard split -q --tp 2 changed full/cut
status_is 0 "a changed source is taken up afresh"
run tp-shard verify --against changed full/cut
status_is 0 "and gives the changed model"

# two at once
if command -v flock > lock.path; then
    mkdir busy.partial
    flock busy.partial tp-shard split -q --tp 2 "$bard" busy > out 2> err
    status=$?
    status_is 75 "a second run on one output ends"
    err_is "tp-shard: busy: another run is writing it" "with one line"
else
    skip "a second run on one output ends" "no flock"
fi

# a run that was interrupted in the middle is continued
(
    trap '' XFSZ
    ulimit -f 2000
    exec tp-shard split -q --mesh tp=1,pp=2 "$bard" half
) > out 2> err
rm -rf half.before
cp -R half.partial half.before
run tp-shard split --mesh tp=1,pp=2 "$bard" half
status_is 0 "the same command continues"
tp-shard split -q --mesh tp=1,pp=2 "$bard" whole.half
ok "and gives what one run gives" diff -r whole.half half
mv half.before again.partial
run tp-shard split --mesh tp=1,pp=2 "$bard" again
err_has "tp-shard: continued: " "telling how much had been written"
ok "nothing is copied from another source's rest" diff -r whole.half again

# a hub's cache: a snapshot of symbolic links to blobs
mkdir -p hub/blobs hub/snapshots/main
for f in "$models/llama-sharded"/*.json "$models/llama-sharded"/model*.safetensors; do
    cp "$f" "hub/blobs/$(basename "$f" | tr 'a-z.' 'b-za_')"
    ln -s "../../blobs/$(basename "$f" | tr 'a-z.' 'b-za_')" "hub/snapshots/main/$(basename "$f")"
done
tp-shard split -q --tp 2 hub/snapshots/main hub2 && tp-shard merge -q hub2 hubwhole
ok "a hub's snapshot of symbolic links is cut and merged" \
    cmp "$models/llama-sharded/model.safetensors.index.json" hubwhole/model.safetensors.index.json
ok "to files, not links" test ! -L hubwhole/config.json

# indexes that attack
mkdir attack
cp "$models/llama-sharded"/*.json "$models/llama-sharded"/*.safetensors attack
chmod -R u+w attack
for name in ../secret.safetensors /etc/passwd a/../../x.safetensors '' . ; do
    printf '{"weight_map":{"a":"%s"}}' "$name" > attack/model.safetensors.index.json
    run tp-shard show attack
    status_is 3 "an index that names '$name' is refused"
    err_lines 1 "in one line"
done

# headers that attack
safetensors() {
    size=$(wc -c < text)
    {
        printf "$(printf '\\%03o\\%03o\\%03o' $((size % 256)) $((size / 256 % 256)) \
            $((size / 65536)))\0\0\0\0\0"
        cat text
    } > attack.safetensors
}

refuses() {
    safetensors
    run tp-shard show attack.safetensors
    status_is 3 "$1 is refused"
    err_lines 1 "in one line"
}

awk 'BEGIN {
    printf "{\"a\":{\"dtype\":\"F32\",\"shape\":[1"
    for (i = 0; i < 1000000; i++) printf ",1"
    printf "],\"data_offsets\":[0,4]}}" }' > text
refuses "a million dimensions"
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "{\"a\":" }' > text
refuses "deep nesting"
printf '{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' > text
refuses "a tensor that comes twice"
err_has "duplicate tensor 'a'" "and named"
printf '{"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}1234' > text
refuses "a hole"
printf '{"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}}' > text
refuses "a key that comes twice"
printf '{"a\\u0000b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' > text
refuses "a name with a NUL character"
printf '{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}12' > text
refuses "half a byte"
printf '{"__metadata__":{"a":1}}' > text
refuses "metadata that is no string"

# names that lead out of the directory, in a manifest whose checksum is right and in an index
tp-shard split -q --tp 2 "$bard" two
cp -r two elsewhere
# edited EDIT - two/checkpoint.json after sed's EDIT, its checksum made right
edited() {
    sed "$1" elsewhere/checkpoint.json > two/checkpoint.json
    reseal two
}
edited ''
run tp-shard verify two
status_is 0 "a manifest that is sealed again is read"
for name in ../elsewhere/rank-tp1-pp0.safetensors sub/rank-tp1-pp0.safetensors .. /etc/passwd; do
    edited 's|"name":"rank-tp1-pp0.safetensors"|"name":"'"$name"'"|'
    run tp-shard merge two never
    status_is 3 "a manifest's file is in its directory, not $name"
    err_has "'$name' is not a plain file name" "which is told"
done
edited 's/"part":0,"tp":0/"part":9,"tp":9/; s/"part":1,"tp":1/"part":0,"tp":0/; s/"part":9,"tp":9/"part":1,"tp":1/'
run tp-shard merge two never
status_is 3 "parts are listed in order"
err_has "is listed out of order" "which is told"
mkdir index
cp "$bard/config.json" index
for name in ../elsewhere/rank-tp0-pp0.safetensors sub/x.safetensors ..; do
    printf '{"weight_map": {"model.norm.weight": "%s"}}' "$name" > index/model.safetensors.index.json
    run tp-shard show index
    status_is 3 "an index names files of its directory, not $name"
    err_has "'$name' is not a file of this directory" "which is told"
done
done_testing
