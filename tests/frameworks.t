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
pipe pipe
zero0 zero0
zero1 zero1
zero1-f32 zero1-f32
zero2-align zero2-align
zero1-opt zero1-opt
zero2-frozen zero2-frozen
zero2-tied zero2-tied
zero3 zero3
zero3-sub zero3-sub
zero3-frozen zero3-frozen
zero3-tied zero3-tied
universal/u zero1
END
# and so are the moments of Adam
for both in dcp:fsdp-moments.safetensors zero3:zero3-moments.safetensors zero3-sub:zero3-sub-moments.safetensors \
    universal/u:zero1; do
    run tp-shard diff --moments "${both%:*}" "${both#*:}"
    status_is 0 "${both%:*}: every moment is that of the framework"
done
run tp-shard show --moments zero1-f32
out_has "36 tensors, " "moments of stage 1 are there"
# experts that are stacked are read as in safetensors
run tp-shard merge -q --config experts.hf experts experts.merged
run tp-shard diff experts.merged experts.safetensors
status_is 0 "stacked experts are told apart, although ranks have them in pieces"

# all that take a checkpoint take one
run tp-shard merge --config . accelerate merged
status_is 0 "a checkpoint of FSDP is merged with the config of another directory"
err_is "tp-shard: merged: 12 tensors, 3.25 KiB" "and what was written is told"
ok "as a Hugging Face directory" cmp config.json merged/config.json
run tp-shard merge accelerate none
status_is 3 "without a config it is refused"
err_is "tp-shard: accelerate/config.json: missing; it lies beside the weights, or --config of tp-shard names it" "and it is said how"
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

run tp-shard split --tp 2 --moments --config config.json zero3 cut-moments
status_is 0 "moments are split with their weights"
run tp-shard diff cut-moments zero3-moments.safetensors
status_is 0 "and are the same"
run tp-shard show --json cut-moments
out_has '"role":"exp_avg_sq"' "and have their role"
run tp-shard merge cut-moments no-moments
run tp-shard diff no-moments zero3.safetensors
status_is 0 "a merge drops them"
run tp-shard show --moments ranks
status_is 3 "where there are no moments that is an error"
err_is "tp-shard: ranks: no moments of an optimizer" "and told"
run tp-shard show --moments cut-moments
status_is 2 "a split checkpoint has its own"

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
# the ranks of a run are all needed
rm zero3/global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt
run tp-shard show zero3
status_is 3 "a rank of ZeRO that is missing is refused"
err_has "no file like zero_pp_rank_2_mp_rank_00_model_states.pt of data-parallel rank 1" "and named"
rm zero1-f32/global_step2/zero_pp_rank_2_mp_rank_00_optim_states.pt
run tp-shard show zero1-f32
status_is 3 "so is the last one"
err_is "tp-shard: zero1-f32/global_step2: 2 files of optimizer states; 3 ranks wrote them" "which the others count"
rm mesh/model_world_size_4_rank_3.pt
run tp-shard show mesh
status_is 3 "and one of FSDP's"
err_is "tp-shard: mesh/model_world_size_4_rank_3.pt: missing" "by name"
mkdir two && cp ranks/* mesh/* two
run tp-shard show two
status_is 3 "files of two runs are refused"
err_is "tp-shard: two: files of runs of 3 and of 4 ranks: which ones?" "and told"
cp -r zero0 tensor-parallel
cp zero0/global_step2/mp_rank_00_model_states.pt tensor-parallel/global_step2/mp_rank_01_model_states.pt
run tp-shard show tensor-parallel
status_is 3 "tensor-parallel ranks are refused"
err_is "tp-shard: tensor-parallel/global_step2: of 2 tensor-parallel ranks, which are not read" "and told"
rm universal/u/zero/model.norm.weight/fp32.pt
run tp-shard show universal/u
status_is 3 "a parameter that is missing is refused"
err_is "tp-shard: universal/u/zero/model.norm.weight/fp32.pt: missing" "by its file"
done_testing
