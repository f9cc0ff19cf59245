#!/bin/sh
# tp-shard-ranks - several jobs make a checkpoint with --ranks; the last, or gather, puts it together
. "${top_srcdir:?}/tests/lib.sh"
gqa=$data/models/llama-gqa
sharded=$data/models/llama-sharded

# same A B NAME: two directories have the same files
same() {
    ok "$3" diff -r "$1" "$2"
}

# jobs RANGE... -- COMMAND... : runs COMMAND with --ranks of each RANGE, the output last; none may fail
jobs() {
    ranges=
    while [ "$1" != -- ]; do ranges="$ranges $1"; shift; done
    shift
    for range in $ranges; do
        "$@" --ranks "$range" 2> said || return 1
    done
}

tp-shard split -q --tp 3 --pp 2 "$bard" ref
run tp-shard split --tp 3 --pp 2 --ranks 0-1 "$bard" made
status_is 0 "a job makes some rank files"
err_is "tp-shard: made: 0-1 made, 1.80 MiB; of 6 files, 2-5 are missing" "and says which are missing"
ok "there is no output yet" test ! -e made
run tp-shard split --tp 3 --pp 2 --ranks 0-1 "$bard" made
err_is "tp-shard: made: 0-1 had been made, 1.80 MiB; of 6 files, 2-5 are missing" "the same job again makes nothing"
status_is 0 "which is no error"
run tp-shard gather made
status_is 3 "gather waits for the rest"
err_is "tp-shard: made: of 6 files, 2-5 are missing" "which it names"
ok "more jobs" jobs 3-5 -- tp-shard split --tp 3 --pp 2 "$bard" made
run tp-shard split --tp 3 --pp 2 --ranks 2 "$bard" made
status_is 0 "the last one"
err_is "tp-shard: made: 2 made, 919.88 KiB; it is complete" "puts all together"
same ref made "to the bytes of one job, the manifest's too"
ok "the parts are gone" test ! -e made.parts
run tp-shard verify made
status_is 0 "and verify agrees"
run tp-shard gather made
err_is "tp-shard: made: is there; no parts of it are left" "gather has nothing to do"
run tp-shard split --tp 3 --pp 2 --ranks 2 "$bard" made
status_is 0 "a job that runs again when all is done"
err_is "tp-shard: made: 2 had been made, 919.88 KiB; it is complete" "makes nothing"
run tp-shard split --tp 2 --pp 2 --ranks 2 "$bard" made
status_is 2 "another cut does not replace it"
err_has "tp-shard: made: exists (-f replaces a checkpoint)" "and says so"
ok "unless -f is given" jobs 0-1 2-3 -- tp-shard split -f --tp 2 --pp 2 "$bard" made
tp-shard split -q --tp 2 --pp 2 "$bard" ref2
same ref2 made "to every job"

# ---- every form of output ----
tp-shard split -q --tp 5 --pp 3 --pad-vocab 16 --dtype f32 "$sharded" ref3
ok "casts, padding and stages" jobs 7-14 0 3-6 1-2 -- tp-shard split --tp 5 --pp 3 --pad-vocab 16 --dtype f32 "$sharded" out3
same ref3 out3 "are the same in parts"
tp-shard reshard -q --tp 3 --pp 2 ref3 ref4
ok "reshard" jobs 1-3 0 4-5 -- tp-shard reshard --tp 3 --pp 2 ref3 out4
same ref4 out4 "is the same in parts"
tp-shard split -q --tp 8 "$gqa" heads
tp-shard reshard -q --tp 2 heads ref5
ok "reshard of replicated heads" jobs 0 1 -- tp-shard reshard --tp 2 heads out5
same ref5 out5 "is the same in parts"
tp-shard split -q --tp 2 "$sharded" cut
tp-shard merge -q cut ref6
ok "merge, by files of the original" jobs 1-2 0 3 -- tp-shard merge cut out6
same ref6 out6 "is the same in parts"
run tp-shard merge --ranks 0 cut out6
status_is 0 "and again"
tp-shard split -q --ep 2 --tp 2 "$data/models/mixtral" ref7
ok "experts" jobs 2 0-1 3 -- tp-shard split --ep 2 --tp 2 "$data/models/mixtral" out7
same ref7 out7 "are the same in parts"
tp-shard split -q --tp 2 "$data/pickles/model-shards" ref8
ok "files of torch.save" jobs 1 0 -- tp-shard split --tp 2 "$data/pickles/model-shards" out8
same ref8 out8 "are the same in parts"

# ---- at once, and interrupted ----
for range in 0 1 2 3; do
    tp-shard split -q --tp 4 --ranks "$range" "$gqa" once 2> "err$range" &
done
wait
tp-shard split -q --tp 4 "$gqa" ref9
same ref9 once "four jobs at once, of which one puts all together"
ok "and none complains" sh -c 'cat err0 err1 err2 err3 | cmp - /dev/null'
tp-shard split -q --tp 4 --ranks 0-2 "$gqa" killed
cp -r killed.parts before
tp-shard split -q --tp 4 --ranks 3 "$gqa" killed
rm -rf killed killed.parts
cp -r before killed.parts && chmod 700 killed.parts
mkdir -m 700 killed.partial
printf 'what a gather left\n' > killed.partial/rank-tp0-pp0.safetensors
ok "a gather that was killed" tp-shard split -q --tp 4 --ranks 3 "$gqa" killed
same ref9 killed "is done again"
mkdir -m 700 held.parts held.parts/0-1.partial
if command -v flock > flock.out; then
    flock held.parts/0-1.partial tp-shard split --tp 4 --ranks 0-1 "$gqa" held 2> err
    ok "the same ranks are made by one job at a time" test $? = 75
else
    skip "the same ranks are made by one job at a time" "no flock"
fi

# ---- parts of several machines ----
for node in 0 1; do
    mkdir "node$node"
    cp -r "$sharded" "node$node/model"
    (cd "node$node" && tp-shard split -q --tp 2 --ranks "$node" model out)
done
run tp-shard gather all node0/out.parts node1/out.parts/1-1
status_is 0 "gather collects parts of two machines, with copies of the model of other times"
tp-shard split -q --tp 2 "$sharded" ref10
same ref10 all "to the bytes of one job"
ok "and leaves them" test -d node0/out.parts/0-0
rm -rf all
run tp-shard gather all node0/out.parts
status_is 3 "a machine that is missing"
err_is "tp-shard: all: of 2 files, 1 are missing" "is named by its rank"
run tp-shard gather all node0/out.parts node0/out.parts/0-0
status_is 3 "the same part twice"
err_is "tp-shard: node0/out.parts/0-0 and node0/out.parts/0-0 both have rank 0; remove one of them" "is refused"
run tp-shard gather all node0
status_is 3 "a directory without parts"
err_is "tp-shard: node0: neither a part nor a directory of parts" "is refused"
(cd node1 && rm -rf out.parts && tp-shard split -q --tp 2 --dtype f32 --ranks 1 model out)
run tp-shard gather all node0/out.parts node1/out.parts
status_is 3 "other options"
err_is "tp-shard: node1/out.parts/1-1: made with dtype=F32, but node0/out.parts/0-0 with dtype=kept; they are parts of different outputs" \
    "are named"
(cd node1 && rm -rf out.parts && tp-shard split -q --tp 4 --ranks 1 model out)
run tp-shard gather all node0/out.parts node1/out.parts
err_has "made with tp=4, but node0/out.parts/0-0 with tp=2" "another mesh, too"
(cd node1 && rm -rf out.parts
    echo '{}' > model/generation_config.json && tp-shard split -q --tp 2 --ranks 1 model out)
run tp-shard gather all node0/out.parts node1/out.parts
status_is 3 "another run"
err_is "tp-shard: node1/out.parts/1-1/generation_config.json differs from that of node0/out.parts/0-0; they are parts of different runs" \
    "is named by the file that differs"
rm -rf node1/out.parts
cp "$sharded/generation_config.json" node1/model
(cd node1 && tp-shard split -q --tp 2 --ranks 1 model out)
truncate -s -1 node1/out.parts/1-1/rank-tp1-pp0.safetensors
run tp-shard gather all node0/out.parts node1/out.parts
status_is 3 "a part that is cut short"
err_has "node1/out.parts/1-1/rank-tp1-pp0.safetensors: " "is named"
printf x >> node1/out.parts/1-1/rank-tp1-pp0.safetensors
run tp-shard gather all node0/out.parts node1/out.parts
status_is 3 "a part that was damaged on its way"
err_has "node1/out.parts/1-1/rank-tp1-pp0.safetensors: damaged: CRC-32 " "is read before it is believed"
ok "and no output is there" test ! -e all
chmod 666 node1/out.parts/1-1/rank-tp1-pp0.safetensors # is copied, not linked
run tp-shard gather all node0/out.parts node1/out.parts
status_is 3 "a copy that is damaged"
err_has "node1/out.parts/1-1/rank-tp1-pp0.safetensors: damaged: CRC-32 " "is found while it is copied"
ok "and nothing is there" test ! -e all
sed 's/^read [0-9]/read z/' node0/out.parts/0-0/part > p && cp p node0/out.parts/0-0/part
run tp-shard gather all node0/out.parts
status_is 3 "a record that was changed"
err_is "tp-shard: node0/out.parts/0-0/part: damaged, or not the record of a part" "is refused"

# ---- a source that is overwritten ----
cp -r "$gqa" written && chmod -R u+w written
tp-shard split -q --tp 2 --ranks 0 written out15
truncate -s -64 written/model.safetensors && head -c 64 /dev/zero >> written/model.safetensors
run tp-shard split --tp 2 --ranks 1 written out15
status_is 3 "a model that other weights replaced between two jobs"
err_has "out15.parts/1-1: made with contents=" "is not put together of both"
ok "and nothing is there" test ! -e out15
run tp-shard split --tp 2 --ranks 0 written out15
status_is 2 "the first job does not take its part for made"
run tp-shard split -f --tp 2 --ranks 0 written out15
status_is 0 "and with -f"
ok "makes it anew" tp-shard verify -q out15

# ---- a source that is damaged ----
cp -r cut damaged && chmod -R u+w damaged
size=$(wc -c < damaged/rank-tp1-pp0.safetensors)
printf '\377' | dd of=damaged/rank-tp1-pp0.safetensors bs=1 seek=$((size / 2)) conv=notrunc 2> dd.err
jobs 0 1 -- tp-shard reshard --tp 3 damaged out11
run tp-shard reshard --tp 3 --ranks 2 damaged out11
status_is 3 "a damaged shard of the source is found by what all jobs have read"
err_has "of file 1 of the source was damaged, or changed between the parts" "and named"
ok "before there is an output" test ! -e out11

# ---- asked wrongly ----
run tp-shard split --tp 2 --ranks 1-2 "$gqa" out12
status_is 2 "more ranks than there are"
err_has "tp-shard: --ranks: there are ranks 0 to 1" "are a usage error"
for bad in 1-0 x -1 1- 0,1 ''; do
    run tp-shard split --tp 2 --ranks="$bad" "$gqa" out12
    status_is 2 "--ranks='$bad'"
    err_has "--ranks: '$bad' is not a range such as 0-3" "is named"
done
run tp-shard split --tp 2 --keep-vocab --rank-configs --ranks 0 "$gqa" out12
status_is 2 "--rank-configs is for one job"
run tp-shard split --tp 2 --dtype int8 --ranks 0 "$gqa" out12
status_is 2 "so is --dtype int8"
run tp-shard merge --export dcp --ranks 0 cut out12
status_is 2 "and --export"
run tp-shard split -n --tp 2 --ranks 0 "$gqa" out12
status_is 0 "-n"
ok "writes nothing" test ! -e out12.parts
mkdir out13.parts && chmod 777 out13.parts
run tp-shard split --tp 2 --ranks 0 "$gqa" out13
status_is 3 "parts in a directory that others may write to"
err_is "tp-shard: out13.parts: is writable by others; remove it" "are refused"
run tp-shard gather out14
status_is 3 "gather of nothing"
err_is "tp-shard: out14: no parts of it are there" "says so"
done_testing
