#!/bin/sh
# tp-shard-trust.t - directories that others may write, and files that are not what they seem
. "${top_srcdir:?}/tests/lib.sh"
cp -R "$bard" model
chmod -R u+w model
tp-shard split -q --tp 2 model want

# interrupted OUT [SIZE] - an unfinished split of `model` to OUT, cut short at SIZE blocks
interrupted() {
    (
        ulimit -f "${2-1000}"
        exec tp-shard split -q --tp 2 model "$1"
    ) > out 2> err
    status=$?
}

interrupted half
status_is 4 "a write beyond the file size limit is an error of the machine"
err_has "File too large" "that is named"
ok "an unfinished output is for its user alone" \
    test "$(stat -c %a half.partial)" = 700
ok "and so are its files" test "$(stat -c %a half.partial/rank-tp0-pp0.safetensors)" = 600

# what somebody else may have put there
echo secret > victim
refused() {
    run tp-shard split -q --tp 2 model planted
    status_is 3 "an unfinished output $1 is refused"
    err_is "tp-shard: planted.partial: $2; remove it" "which says to remove it"
    ok "and nothing is written through its links" grep -qx secret victim
    rm -rf planted.partial
}

plant() {
    cp -R half.partial planted.partial
    rm planted.partial/rank-tp0-pp0.safetensors
    ln -s ../victim planted.partial/rank-tp0-pp0.safetensors
}

plant
chmod 777 planted.partial
refused "that all may write" "is writable by others"
plant
chmod 770 planted.partial
refused "that a group may write" "is writable by others"
mkdir elsewhere
ln -s elsewhere planted.partial
refused "that is a link" "is no directory"
if [ "$(id -u)" -eq 0 ]; then
    plant
    chown 12345 planted.partial
    refused "of another user" "belongs to another user"
else
    skip "an unfinished output of another user is refused" "not root"
fi
for how in -s ''; do
    for file in rank-tp0-pp0.safetensors config.json checkpoint.json progress; do
        cp -R half.partial planted.partial
        rm -f "planted.partial/$file"
        ln $how "$scratch/victim" "planted.partial/$file"
        run tp-shard split -q --tp 2 model planted
        status_is 0 "a link (ln $how) under the name of $file is no file of ours"
        ok "it is not written through" grep -qx secret victim
        ok "and what is made is whole" diff -r want planted
        rm -rf planted
    done
done
mkdir dcp.partial
chmod 700 dcp.partial
ln -s ../victim dcp.partial/__0_0.distcp
run tp-shard merge -q --export dcp want dcp
ok "nor is an export's" grep -qx secret victim

# modes
modes() {
    rm -rf moded moded.partial
    (umask "$1" && tp-shard split -q --tp 2 model moded)
    stat -c %a moded moded/rank-tp0-pp0.safetensors moded/checkpoint.json moded/config.json |
        tr '\n' ' '
}
chmod 644 model/*
ok "an output has the modes that the umask gives" test "$(modes 022)" = "755 644 644 644 "
ok "whatever it is" test "$(modes 077)" = "700 600 600 600 "
chmod 600 model/model.safetensors
ok "weights that their owner alone reads stay so" \
    test "$(modes 022)" = "755 600 600 644 "
tp-shard merge -q moded moded.whole
ok "and so when merged" test "$(stat -c %a moded.whole/model.safetensors)" = 600
chmod 444 model/*
ok "what is read-only can be written on" test "$(modes 022)" = "755 644 644 644 "
chmod 644 model/*

# a source that changes in secret between two runs
rm -rf half.partial
interrupted half 2000
cp -R half.partial again.partial
cp -p model/model.safetensors kept
cp -p kept model/other
mv model/other model/model.safetensors
run tp-shard split --tp 2 model half
status_is 0 "a source that was copied is the same source"
err_has "continued: " "whose run is continued"
ok "and gives the same" diff -r want half
sed 's/^files .*/files 1:1/' again.partial/progress > progress
cat progress > again.partial/progress
size=$(wc -c < model/model.safetensors)
printf 'abcd' | dd of=model/model.safetensors bs=1 seek=$((size / 8)) conv=notrunc 2> dd.err
touch -r kept model/model.safetensors
run tp-shard split --tp 2 model again
status_is 0 "a source that was changed and has its time set back"
tp-shard split -q --tp 2 model new
ok "is not mixed with what was read before" diff -r new again
ok "which was another model" test "$(cmp -s new/rank-tp0-pp0.safetensors \
    want/rank-tp0-pp0.safetensors && cmp -s new/rank-tp1-pp0.safetensors \
    want/rank-tp1-pp0.safetensors; echo $?)" = 1
ok "the manifest has neither inode nor time" \
    test "$(grep -c "$(stat -c %i model/model.safetensors)" new/checkpoint.json)" = 0

# what is no regular file is not waited for
pipes() {
    run timeout 20 "$@"
    status_is "$want_status" "a FIFO: $1 $2 ends"
    cat out err > both
    ok "and says so" grep -q "$fifo: not a regular file" both
}
want_status=3
cp -R model fifo
for fifo in model.safetensors config.json; do
    rm "fifo/$fifo"
    mkfifo "fifo/$fifo"
    pipes tp-shard split -q --tp 2 fifo cut
    pipes tp-run logits --ids 1 -o x fifo
    rm "fifo/$fifo"
    cp "model/$fifo" fifo
done
cp -R want fiforank
fifo=rank-tp1-pp0.safetensors
rm fiforank/$fifo
mkfifo fiforank/$fifo
pipes tp-shard merge -q fiforank whole
want_status=1
pipes tp-shard verify fiforank

# an output that holds its own source
cp -R want own
for out in own ./own/ own/../own; do
    run tp-shard merge -q -f own "$out"
    status_is 2 "merge -f own $out is a usage error"
    ok "that leaves own as it is" diff -r want own
done
run tp-shard reshard -q -f --tp 4 own own
status_is 2 "and so is reshard -f"
cp -R model own/inner
run tp-shard split -q -f --tp 2 own/inner own
status_is 2 "and a split to the directory around its source"
mkdir linked
ln -s ../own/inner/model.safetensors ../own/inner/config.json linked
run tp-shard split -q -f --tp 2 linked own
status_is 2 "or around what its source's links lead to"
ok "all of which leave the source" diff -r model own/inner
run tp-shard merge -q -f --export dcp own own
status_is 2 "an export too"
done_testing
