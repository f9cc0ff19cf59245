#!/bin/sh
# frameworks.t - checkpoints that training frameworks left are read without the framework
. "${top_srcdir:?}/tests/lib.sh"
gzip -dc "$data/frameworks.tar.gz" | tar xf - || exit 99
cd frameworks || exit 99

# every form gives what the framework's own loader gives: DIR TRUTH
while read -r dir truth; do
    run tp-shard diff "$dir" "$truth.safetensors"
    status_is 0 "$dir: every tensor is that of the framework's loader"
    run tp-shard verify "$dir"
    status_is 0 "$dir: verify finds it intact"
done << 'END'
dcp fsdp
accelerate fsdp
hsdp-dcp hsdp
ranks fsdp
mesh mesh
hsdp hsdp
fsdp1 fsdp1
zero0 zero0
zero1 zero1
zero1-f32 zero1-f32
zero2-align zero2-align
zero2-frozen zero2-frozen
END

# all that take a checkpoint take one
run tp-shard merge --config . accelerate merged
status_is 0 "a checkpoint of FSDP is merged with the config of another directory"
err_is "tp-shard: merged: 12 tensors, 3.25 KiB" "and what was written is told"
ok "as a Hugging Face directory" cmp config.json merged/config.json
run tp-shard merge accelerate none
status_is 3 "without a config it is refused"
err_is "tp-shard: accelerate/config.json: missing; --config gives the model's config.json" "and it is said how"
run tp-shard split --tp 2 --config config.json dcp cut
status_is 0 "it is split over ranks"
run tp-shard diff cut fsdp.safetensors
status_is 0 "and the split is the same model"
run tp-shard merge cut again
status_is 0 "which merges"
ok "to the same file as the checkpoint itself" cmp merged/model.safetensors again/model.safetensors
cp config.json dcp/
run tp-shard show dcp
out_has "llama: 12 tensors, 832 parameters, 3.25 KiB" "a config in its directory is found"
run tp-shard show --json dcp
out_has '"pieces":3' "and the pieces of a tensor are told"
run tp-shard show accelerate/pytorch_model_fsdp_0
status_is 0 "the inner directory of accelerate's is one too"
run tp-shard verify --json dcp
out_has '{"type":"summary","files":4,' "verify counts the files"

# what is wrong with one is told
file=accelerate/pytorch_model_fsdp_0
run tp-shard show $file/__0_0.distcp
status_is 3 "a file of items is no checkpoint"
err_is "tp-shard: $file/__0_0.distcp: one file of a checkpoint of torch.distributed.checkpoint; give its directory" "and it is said what is"
cp $file/__1_0.distcp kept
printf X | dd of=$file/__1_0.distcp bs=1 seek=720 conv=notrunc 2> /dev/null
run tp-shard verify accelerate
status_is 1 "damage is found"
out_has "$(printf '__1_0.distcp: member archive/data/0 at byte')" "and told with its place"
head -c 9000 kept > $file/__1_0.distcp
run tp-shard merge --config . accelerate no
status_is 3 "a file that is cut short is refused"
err_has "__1_0.distcp: 9000 bytes; " "and named"
rm $file/__1_0.distcp
run tp-shard verify accelerate
status_is 1 "a file that is missing is a finding"
out_has "__1_0.distcp: missing" "and named"
mv kept $file/__1_0.distcp
mv $file/.metadata .
run tp-shard show $file
status_is 3 "without .metadata it is refused"
err_is "tp-shard: $file: unfinished: it has .distcp files, but no .metadata, which is written last" "and it is said why"
printf 'cos\nsystem\n(S"true"\ntR.' > $file/.metadata
run tp-shard show $file
status_is 3 "a function in .metadata is refused"
err_is "tp-shard: $file/.metadata: refused: its pickle names os.system" "and named"
done_testing
