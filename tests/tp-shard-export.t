#!/bin/sh
# tp-shard-export.t - checkpoints as other engines load them
. "${top_srcdir:?}/tests/lib.sh"

# the files that tests/oracle/check-dcp.py loaded with torch.distributed.checkpoint 2.13 and found equal
tp-shard split -q --tp 2 "$bard" two
tp-shard split -q --mesh tp=3,pp=2 --pad-vocab 64 "$bard" six
for from in two six; do
    run tp-shard merge --export dcp $from $from.dcp
    status_is 0 "$from is exported"
    cat $from.dcp/.metadata | cksum > sums
    cat $from.dcp/__0_0.distcp | cksum >> sums
    same_text sums "1968771277 48715
3125344293 5697607" "as files that PyTorch was seen to load"
    { (cd "$bard" && find . -type f ! -name model.safetensors) | sed "s,./,,"; printf '.metadata\n__0_0.distcp\n'; } | LC_ALL=C sort > want
    ls -A $from.dcp | LC_ALL=C sort > names
    ok "with what lies beside the weights, and nothing else" cmp want names
done
run tp-shard merge --export dcp two two.dcp
status_is 2 "an existing directory is not touched"
run tp-shard merge -f --export dcp two two.dcp
status_is 0 "but with -f when it is our own"
run tp-shard merge --export onnx two never
status_is 2 "another format is a usage error"
err_has "dcp" "that names those there are"
cp -r two damaged
printf 'x' | dd of=damaged/rank-tp1-pp0.safetensors bs=1 seek=200000 conv=notrunc 2> dd.err
run tp-shard merge --export dcp damaged never
status_is 3 "damage is refused"
ok "and nothing has the final name" test ! -e never

tp-shard split -q --tp 2 "$data/quantized/fp8" eight
run tp-shard merge --export dcp eight eight.dcp
status_is 0 "weights of 8 bits are exported"
cat eight.dcp/.metadata | cksum > sums
cat eight.dcp/__0_0.distcp | cksum >> sums
same_text sums "1268518855 30368
2261770289 51591" "as files that PyTorch was seen to load"
run tp-shard merge --export dcp "$data/quantized/fp8" whole.dcp
ok "a directory that was never cut gives the same" diff -r eight.dcp whole.dcp
header='{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}'
printf '\065\000\000\000\000\000\000\000%sx' "$header" > four.safetensors
run tp-shard merge --export dcp four.safetensors never
status_is 1 "a type that PyTorch does not have is an honest no"
err_has "PyTorch has no type F4" "which names it"
ok "and nothing has the final name" test ! -e never
done_testing
