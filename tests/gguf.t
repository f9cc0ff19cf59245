#!/bin/sh
# gguf - GGUF files are read: weights, blocks, metadata as a config, tokenizers
. "${top_srcdir:?}/tests/lib.sh"
gzip -dc "$data/gguf.tar.gz" | tar xf - || exit 99
cd gguf || exit 99

# sums DIR - the checksums of a merge's tensors, without its files
sums() {
    tp-shard sum "$1" | cut -f 1,2,4 | grep '"' | LC_ALL=C sort -k 3
}

# weights are those that were converted, and so is what is made of them
for kind in f32 f16 bf16 qwen2 qwen3 phi3 gemma gemma2 gemma3 mixtral blocks llama3 divisors longrope yarn; do
    file=$kind.gguf
    [ $kind = blocks ] && file=blocks-00001-of-00002.gguf
    LC_ALL=C sort -k 3 $kind.sums > truth
    run tp-shard merge $file merged
    status_is 0 "$kind is merged"
    sums merged > got
    ok "and every tensor has the bytes of the truth" cmp truth got
    run tp-shard split -q --tp 2 $file cut
    status_is 0 "$kind is split"
    tp-shard merge -q cut again
    sums again > got
    ok "and merged again" cmp truth got
    run tp-run logits --tp 2 --ids 1,5,9,20,33 -o a.npy $file
    status_is 0 "$kind runs on two ranks"
    tp-run logits --tp 2 --ids 1,5,9,20,33 -o b.npy merged
    ok "as the merged weights do" cmp a.npy b.npy
    tp-run logits --ids 1,5,9,20,33 -o b.npy cut
    ok "and what is cut" cmp a.npy b.npy
    tr -d ' ' < $kind.json | tr ',' '\n' | tr -d '{}[]' > keys
    tr ',' '\n' < merged/config.json | tr -d '{}[]' > has
    grep -vxFf has keys > unlike
    ok "the metadata are the model's config" test ! -s unlike
    cat unlike
    rm -rf merged cut again
done

# tokenizers
for name in bpe spm; do
    "$top_builddir/tests/tokenize" $name.gguf < $name.inp > got
    ok "$name: ids are those of the package that trained it, and their texts come back" cmp $name.out got
done
tp-run generate --max-tokens 4 --prompt "Hello World" f32.gguf > answer
ok "a file alone takes a text" test $? = 0
tp-shard merge -q f32.gguf dir
tp-run generate --max-tokens 4 --prompt "Hello World" dir > same
ok "and answers as the directory that is made of it" cmp answer same
ok "whose chat template is the file's" grep -qF '[{{ m.role }}]' dir/tokenizer_config.json
echo '[{"role":"user","content":"Hello World"}]' > chat
tp-run generate --max-tokens 4 --echo --chat chat f32.gguf > answer
ok "a file alone takes a chat, by its template" grep -q 'Hello World' answer
tp-run generate --max-tokens 4 --echo --chat chat dir > same
ok "and answers it as the directory does" cmp answer same
sed 's/llama-bpe/llama-abc/' bpe.gguf > other.gguf
run "$top_builddir/tests/tokenize" other.gguf
out_has "other.gguf: its tokenizer: how pre-tokenizer 'llama-abc' cuts a text is not known" "a pre-tokenizer that is not known is refused by name"

run tp-shard show blocks-00001-of-00002.gguf
out_has "21 tensors, 222464 parameters, 149.28 KiB" "numbers in blocks are counted as parameters, not their bytes"

# a layout that divides a block
run tp-shard split --tp 4 blocks-00001-of-00002.gguf cut
status_is 1 "more ranks than heads"
err_has "valid tp: 1, 2" "names what is valid"

# files that are damaged, or of another kind
bad() { # MESSAGE ABOUT
    run tp-shard show bad.gguf
    status_is 3 "$2"
    err_is "tp-shard: bad.gguf: $1" "is told"
}
head -c 1200 f16.gguf > bad.gguf
bad "byte 1193: the file ends in its tensors" "a file that ends in its header"
head -c 40000 f16.gguf > bad.gguf
run tp-shard show bad.gguf
status_is 3 "one that ends in its data"
err_has "tp-shard: bad.gguf: 40000 bytes; " "is told"
sed '1s/GGUF\x03/GGUF\x01/' f16.gguf > bad.gguf
bad "GGUF of another version, which is not read; 2 and 3 are" "version 1"
sed 's/blk.1.attn_q.weight/blk.0.attn_q.weight/' f16.gguf > bad.gguf
bad "tensor blk.0.attn_q.weight is there twice" "a name that is there twice"
sed 's/llama.block_count/llama.bloch_count/' f16.gguf > bad.gguf
run tp-shard merge bad.gguf made
status_is 3 "a key that is missing"
err_has "bad.gguf: no llama.block_count, of which no config.json is made" "is named"
sed 's/general.architecture/general.archytecture/' f16.gguf > bad.gguf
run tp-shard merge --config f16.json bad.gguf made
status_is 0 "--config is enough"
printf abc > bad.gguf
bad "too short for a GGUF file" "a file of three bytes"
printf 'version https://git-lfs.github.com/spec/v1\n' > bad.gguf
bad "is a pointer of Git LFS (git lfs pull), not a GGUF file" "a pointer"
sed 's/qwen3.rope.scaling.type/qwen3.rope.scaling.tipe/; s/qwen3.rope.scaling.factor/qwen3.rope.scaling.falter/' yarn.gguf > odd.gguf
rm -rf made
tp-shard merge -q odd.gguf made
ok "without a type the positions are not scaled" test -z "$(grep rope_scaling made/config.json)"
rm -rf made
sed 's/rope.scaling.original_context_length/rope.scaling.original_context_lenght/' longrope.gguf > bad.gguf
run tp-shard merge bad.gguf made
err_has "bad.gguf: no phi3.rope.scaling.original_context_length, of which" "two lists without their border are refused"
mv blocks-00002-of-00002.gguf second
run tp-shard show blocks-00001-of-00002.gguf
status_is 3 "a file of several that is missing"
err_has "blocks-00002-of-00002.gguf: missing" "is named"
cp blocks-00001-of-00002.gguf blocks-00002-of-00002.gguf
run tp-shard show blocks-00001-of-00002.gguf
err_is "tp-shard: blocks-00002-of-00002.gguf: is file 1 of 2 by its metadata, and 2 of 2 by its name" "and one that is another"
done_testing
