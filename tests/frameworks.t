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
half-dcp half
half half
zero0-half zero0-half
zero2-half zero2-half
zero3-half zero3-half
hub hub
END
# and so are the moments of Adam
for both in dcp:fsdp-moments.safetensors zero3:zero3-moments.safetensors zero3-sub:zero3-sub-moments.safetensors \
    universal/u:zero1 zero3-half:zero3-half-moments.safetensors \
    optim:optim.safetensors optim-names:optim.safetensors optim-tied:optim-tied.safetensors; do
    run tp-shard diff --moments "${both%:*}" "${both#*:}"
    status_is 0 "${both%:*}: every moment is that of the framework"
done
run tp-shard show --moments zero1-f32
out_has "36 tensors, " "moments of stage 1 are there"
# names of a framework become a family's, those of moments, too
while read -r dir config; do
    run tp-shard split --tp 2 --moments --config "$config" "$dir" "$dir.cut"
    status_is 0 "$dir: names become those of the config's family"
    run tp-shard diff "$dir.cut" "$dir.safetensors"
    status_is 0 "and rows and moments are where the framework's own conversion has them"
done << 'END'
titan2 titan.json
titan3 titan.json
neox-layers neox-layers.hf
bloom-layers bloom-layers.hf
END
run tp-shard merge --config config.json neox-layers other
status_is 3 "a family without names of a pipeline"
err_is "tp-shard: neox-layers: a checkpoint of pipeline, whose names of family llama are not known" "is refused"

# whose a moment is must be certain
cp -r optim unsure
rm unsure/optim_world_size_2_rank_1.pt
run tp-shard show --moments unsure
status_is 3 "moments of a rank that are missing"
err_is "tp-shard: unsure/optim_world_size_2_rank_1.pt: missing" "are named"
cp zero0/global_step2/mp_rank_00_model_states.pt unsure/optim_world_size_2_rank_1.pt
run tp-shard show --moments unsure
err_is "tp-shard: unsure/optim_world_size_2_rank_1.pt: no state of an optimizer of PyTorch" "and so is what is none"
cp optim-names/optim_world_size_2_rank_0.pt unsure
sed 's/param_names/param_nam_s/' optim-names/optim_world_size_2_rank_0.pt > unsure/optim_world_size_2_rank_0.pt
run tp-shard show --moments unsure
status_is 3 "moments in another order than the weights"
err_is "tp-shard: unsure/optim_world_size_2_rank_0.pt: the moments are in another order than the weights: whose they are cannot be told" \
    "are refused if they have no names"
sed 's/lm_head/lm_head_/; s/lm_head_./lm_head_/' optim-names/optim_world_size_2_rank_0.pt > unsure/optim_world_size_2_rank_0.pt
run tp-shard show --moments unsure
err_has "unsure/optim_world_size_2_rank_0.pt: moments of lm_head_weight, which is no weight" "and a name that no weight has is told"

# pieces in safetensors files
run tp-shard audit hub
ok "none of which is a stray shard" sh -c '! grep -q "stray" out'
rm hub/shard-00002-*
run tp-shard show hub
status_is 3 "the files of a rank that are missing"
err_is "tp-shard: hub: no file shard-00002-model-*" "are named"
mkdir odd && cp hub/shard-00001-* odd
cp hub/shard-00003-model-00001-of-00002.safetensors odd/shard-00002-model-00001-of-00002.safetensors
run tp-shard show odd
status_is 3 "pieces of others"
err_has "odd: model.embed_tokens.weight: " "leave gaps, which are told"
sed 's/DCP_SHARDING_INFO/DCP_SHARDING_XXXX/' odd/shard-00001-model-00001-of-00002.safetensors > x && mv x odd/shard-00001-model-00001-of-00002.safetensors
run tp-shard show odd
err_is "tp-shard: odd/shard-00001-model-00001-of-00002.safetensors: no DCP_SHARDING_INFO, which says where its pieces belong" \
    "and so is a file that does not say where its pieces belong"

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
run tp-run logits --ids 1,2,3 -o one.safetensors --config . accelerate
status_is 0 "tp-run takes a config"
run tp-run logits --ids 1,2,3 -o two.safetensors merged
ok "and runs the same model" cmp one.safetensors two.safetensors
run tp-run program --config config.json accelerate
status_is 0 "program, too"
run mem-estimate infer --seq 4 --json --config config.json accelerate
mv out want
run mem-estimate infer --seq 4 --json merged
sed 's/"merged"/"accelerate"/' out > got
ok "mem-estimate estimates it like the merged one" cmp want got
run pp-partition plan --pp 1 --config config.json accelerate
status_is 0 "and pp-partition plans its stages"
run pp-partition plan --pp 1 --config config.json config.json
status_is 2 "a config has none"
err_has "--config: config.json has no weights, and is one itself" "and it is said"
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

# what is read is nothing that lies around
for dir in optim titan2 dcp; do
    run tp-shard audit $dir
    ok "$dir: audit reads all files, moments too" sh -c '! grep -q "not read\|stray" out'
done
run tp-shard audit neox-layers
out_has "layer_00-model_states.pt: weights or state that are not read" "16-bit copies of the masters are not"

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
# differ FILE NAME: the archive's CRC-32 of a member becomes another
differ() {
    at=$(grep -abo "$2" "$1" | tail -n 1 | cut -d : -f 1)
    printf '\377\0\377\0' | dd of="$1" bs=1 seek=$((at - 30)) conv=notrunc status=none
}
run tp-shard show hsdp
err_empty "copies of a shard that are the same are one"
differ hsdp/model_world_size_4_rank_2.pt model_world_size_4_rank_2/data/0
run tp-shard show hsdp
status_is 0 "copies that differ are no error"
err_is "tp-shard: hsdp: model.embed_tokens.weight is not the same on ranks 0 and 2, which should have copies; that of the lowest rank is read" "but told"
mkdir two && cp ranks/* mesh/* two
run tp-shard show two
status_is 3 "files of two runs are refused"
err_is "tp-shard: two: files of runs of 3 and of 4 ranks: which ones?" "and told"
cp -r zero0 tensor-parallel
cp zero0/global_step2/mp_rank_00_model_states.pt tensor-parallel/global_step2/mp_rank_01_model_states.pt
run tp-shard show tensor-parallel
status_is 3 "tensor-parallel ranks are refused"
err_is "tp-shard: tensor-parallel/global_step2: of 2 tensor-parallel ranks, which are not read" "and told"
run tp-shard show universal
status_is 0 "latest_universal names a tag, too"
err_empty "without a word where it is alone"
echo gone > universal/latest
run tp-shard show universal
status_is 0 "and is followed where the tag of latest is gone"
err_is "tp-shard: universal: the tag that 'latest' names is not here; that of 'latest_universal' is read" "which is said"
rm universal/u/zero/model.norm.weight/fp32.pt
run tp-shard show universal/u
status_is 3 "a parameter that is missing is refused"
err_is "tp-shard: universal/u/zero/model.norm.weight/fp32.pt: missing" "by its file"
cp -r zero0 moe
touch moe/global_step2/layer_0_expert_0_mp_rank_00_model_states.pt
run tp-shard show moe
status_is 3 "experts, which DeepSpeed stores in files of their own, are refused"
err_is "tp-shard: moe/global_step2/layer_0_expert_0_mp_rank_00_model_states.pt: of an expert, which DeepSpeed stores apart, and which is not read" \
    "and not left out"
touch zero0/global_step2/mp_rank_2147483647_model_states.pt zero0/global_step2/layer_00-model_states.pt
run tp-shard diff zero0 zero0.safetensors
status_is 0 "a number that no rank has is none"

# what lies around is not in the way: directories, links and long files called latest; a directory that is not listed
gqa=$data/models/llama-gqa
cp -r "$gqa" around && chmod u+w around
mkdir -p around/runs/latest
run tp-shard show around
status_is 0 "a directory called latest below a model"
rmdir around/runs/latest && ln -s nowhere around/runs/latest
run tp-shard show around
status_is 0 "a link that leads nowhere"
rm around/runs/latest && head -c 5000 /dev/zero > around/runs/latest
run tp-shard show around
status_is 0 "and a long file are not DeepSpeed's"
mkdir home && mv ranks home && chmod 311 home && chmod 711 . .. && chmod -R a+rX home/ranks
user=
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $user test -r home/ranks > user.out 2>&1; then
    # shellcheck disable=SC2086 # words
    run $user tp-shard show home/ranks
    status_is 0 "a checkpoint in a directory that may not be listed"
else
    skip "a checkpoint in a directory that may not be listed" "no other user"
fi
chmod 700 home && mv home/ranks .

# the older format of torch.save has no checksums
mkdir older && cp "$data/pickles/types-legacy.pt" older/consolidated.00.pth
run tp-shard verify older
status_is 0 "files of torch.save's older format are no damaged archives"
out_has ", 0 archives by their CRC-32s" "and it is said that nothing of them was checked"

# hostile files: few bytes that ask for much; in the older format, which needs no archive
text() {
    # shellcheck disable=SC2059 # octal
    printf "X$(printf '\\%03o' ${#1})\\0\\0\\0%s" "$1"
}
older() { # KEYS: a file with the pickle in root
    printf '\200\002\212\012l\374\234F\371 j\250P\031.\200\002M\351\003.\200\002}.'
    cat root
    printf '\200\002](%se.' "$1"
}
ones=$(printf 'K\001')
for n in 1 2 3 4 5; do ones=$ones$ones; done
{
    printf '\200\002ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\nctorch.distributed.tensor\nDTensor\n'
    printf '(ctorch.distributed.tensor\nDTensor\nctorch\nfloat32\n(M\000\040%stt}(' "$ones"
    text _local_tensor
    printf 'ctorch._utils\n_rebuild_tensor_v2\n(('
    text storage
    printf 'ctorch\nFloatStorage\n'
    text 0
    text cpu
    printf 'M\000\020NtQK\000(M\000\020%st(K\001%st\211}tR' "$ones" "$ones"
    text _spec
    printf 'ctorch.distributed.tensor\nDTensorSpec\n)\201}('
    text mesh
    printf 'ctorch.distributed.device_mesh\nDeviceMesh\n)\201}('
    text _coordinate_on_dim
    printf 'K\000\205'
    text _layout
    printf 'ctorch.distributed.device_mesh\nLayout\n)\201}('
    text axes
    printf 'ctorch.distributed.device_mesh\nAxis\n)\201}('
    text shape
    printf 'K\002\205ub\205ubub'
    text placements
    printf 'ctorch.distributed.tensor\n_StridedShard\n)\201}('
    text dim
    printf 'K\000'
    text split_factor
    printf 'M\000\020ub\205ubutR\224}('
    for n in 1 2 3 4 5 6 7 8 9; do for k in 1 2 3 4; do text "w$n$k"; printf 'h\000'; done; done
    printf 'u.'
} > root
mkdir many
{
    older "$(text 0 | tr '\0' @)" | tr @ '\0'
    printf '\000\020\0\0\0\0\0\0'
    head -c 16384 /dev/zero
} > many/model_world_size_1_rank_0.pt
run tp-shard show many
status_is 3 "boxes that would take much more memory than a file has bytes"
err_has "too many pieces for so small files" "are refused"
names=$(printf 'h\001h\002')
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do names=$names$names; done
{
    printf '\200\002}('
    text module
    printf '}('
    text a
    printf 'q\001K\001q\002%su' "$names"
    text buffer_names
    printf ']('
    text b
    printf 'q\001%s' "$names"
    printf 'e'
    text param_shapes
    printf ']u.'
} > root
mkdir slow slow/zero
older '' > slow/mp_rank_00_model_states.pt
ok "many names are sought in many entries in seconds" timeout 20 tp-shard show slow
none=$(printf '\212\001@')
for n in 1 2 3 4 5 6; do none=$none$none; done
{
    printf '\200\002(%stq\0010}(' "$none" | tr @ '\0'
    text param_shapes
    printf ']}('
    awk 'BEGIN { for (i = 0; i < 300000; i++) printf "U\006%06xh\001", i }'
    printf 'uau.'
} > root
mkdir wide
older '' > wide/mp_rank_00_model_states.pt
{
    printf '\200\002}('
    text optimizer_state_dict
    printf '}('
    text zero_stage
    printf 'K\001'
    text single_partition_of_fp32_groups
    printf '](ctorch._utils\n_rebuild_tensor_v2\n(('
    text storage
    printf 'ctorch\nFloatStorage\n'
    text 0
    text cpu
    printf 'K\000NtQK\000K\000\205K\001\205\211}tReuu.'
} > root
{
    older "$(text 0 | tr '\0' @)" | tr @ '\0'
    printf '\0\0\0\0\0\0\0\0'
} > wide/zero_pp_rank_0_mp_rank_00_optim_states.pt
run tp-shard show wide
status_is 3 "shapes that would take much more memory than a file has bytes"
err_has "wide/mp_rank_00_model_states.pt: refused: its " "are refused"

# tensors that are whole on every rank
mkdir whole
for rank in 0 1; do cp "$data/pickles/types.pt" whole/model_world_size_2_rank_$rank.pt; done
run tp-shard show whole
status_is 0 "plain tensors of ranks are read"
out_has "10 tensors" "once each"
at=$(grep -abo ByteStorage whole/model_world_size_2_rank_1.pt | head -n 1 | cut -d : -f 1)
printf Char | dd of=whole/model_world_size_2_rank_1.pt bs=1 seek="$at" conv=notrunc status=none
run tp-shard show whole
status_is 3 "one of another type on another rank"
err_is "tp-shard: whole/model_world_size_2_rank_1.pt: x.uint8: of another type or shape than on rank 0" "is refused by name"
done_testing
