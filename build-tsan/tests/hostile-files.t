#!/bin/sh
# hostile-files.t - small files that ask for much memory or time are refused
#
# A reader of foreign bytes may take 64 MiB and 16 times what it reads, and 256 bytes a tensor.  What is limited
# here is more: all of the address space, libraries included.
. "${top_srcdir:?}/tests/lib.sh"
REFUSAL="ask for more memory than 64 MiB and 16 times their number"

# bounded KIB COMMAND... - run it in so much memory and half a minute
bounded() {
    limit=$1
    shift
    status=0
    # shellcheck disable=SC3045 # where a shell has no limit, the test is skipped
    (ulimit -v "$limit" && exec timeout 30 "$@") > out 2> err < /dev/null || status=$?
}

bounded 160000 tp-shard --version
if [ "$status" -ne 0 ]; then
    skip "hostile files are refused in bounded memory" "the address space cannot be limited"
    done_testing
fi

# a file of torch.save in the older form, in text opcodes: its object is standard input
pickle() {
    printf '\200\002\212\012\154\374\234\106\371\040\152\250\120\031.\200\002M\351\003.(d.'
    cat
    printf '(V0\nl.\001\0\0\0\0\0\0\0\0\0\0\0'
}
# shellcheck disable=SC2059 # the line feeds are the format
TENSOR=$(printf 'ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI1\ntQI0\n(I1\nt(I1\ntI0\nccollections\nOrderedDict\n(tRtR')
export TENSOR

awk 'BEGIN {
    printf "ccollections\nOrderedDict\np1\n0((I1\nI1\ntp3\n"
    for (i = 1; i < 50000; i++) printf "g3\n"
    printf "lp2\n0("
    for (i = 0; i < 20000; i++) printf "g1\n(g2\ntR"
    printf "l." }' | pickle > bad.bin
bounded 160000 tp-shard show bad.bin
status_is 3 "a list of pairs that becomes a dictionary again and again is refused"
err_has "$REFUSAL" "as the limit of memory says"
awk 'BEGIN {
    printf "(V"
    for (i = 0; i < 20000; i++) printf "k"
    printf "\n(%sp5\n", ENVIRON["TENSOR"]
    for (i = 1; i < 100000; i++) printf "g5\n"
    printf "ld." }' | pickle > bad.bin
bounded 160000 tp-shard show bad.bin
status_is 3 "a long key in front of many tensors is refused"
err_has "$REFUSAL" "as the limit of memory says"
for op in '(' ')' ']' N; do
    awk -v op="$op" 'BEGIN { printf "("; for (i = 0; i < 3000000; i++) printf op; printf "l." }' |
        pickle > bad.bin
    bounded 160000 tp-shard show bad.bin
    status_is 3 "three million of the opcode $op are refused"
done
awk 'BEGIN {
    printf "(V"
    for (i = 0; i < 20000; i++) printf "k"
    printf "\np5\n0"
    for (i = 0; i < 60; i++) printf "("
    printf "I1\nI1\n"
    for (i = 0; i < 60; i++) printf "dp%d\n0(g5\ng%d\n", i + 10, i + 10
    printf "d." }' | pickle > bad.bin
bounded 160000 tp-shard show bad.bin
status_is 3 "long keys that lead to nothing are refused"
awk 'BEGIN {
    printf "("
    for (i = 0; i < 100000; i++)
        printf "Vmodel.layers.%d.self_attn.q_proj.weight\n%s", i, ENVIRON["TENSOR"]
    printf "d." }' | pickle > good.bin
bounded 600000 tp-shard show good.bin
status_is 0 "a hundred thousand tensors are read"
ok "all of them" test "$(grep -c self_attn out)" = 100000

# trees of JSON
awk 'BEGIN { printf "{\"x\":["; for (i = 0; i < 5000000; i++) printf "1,"; printf "1]}" }' > ones
for where in tokenizer.json config.json generation_config.json; do
    rm -rf model
    cp -R "$bard" model
    chmod -R u+w model
    cp ones "model/$where"
    bounded 400000 tp-run generate --threads 1 --max-tokens 1 --prompt a model
    status_is 3 "a $where of ten million bytes of ones is refused"
    err_has "model/$where: refused: its 10000009 bytes $REFUSAL" "as the limit of memory says"
done
bounded 200000 tp-shard families --family ones
status_is 3 "and so is such a family"
bounded 200000 pp-partition schedule --pp 2 --micro-batches 4 --calibration ones
status_is 3 "a calibration"
{
    echo '{"op_code":0,"worker_id":"a","study_name":"s","directions":[1]}'
    printf '{"op_code":2,"worker_id":"a","study_id":0,"user_attr":'
    cat ones
    echo '}'
} > journal
bounded 300000 hpo-sweep show --storage journal:journal --study s
status_is 3 "a line of a journal"
sed 's/{"x":/{"parameters":{"a":{"values":/; s/}$/}}}/' ones > ones.json
bounded 300000 hpo-sweep run -S "journal:new" --trials 1 ones.json -- true
status_is 3 "a sweep file"
err_has "$REFUSAL" "which is told"
if hpo-sweep --version | grep -q '+yaml'; then
    sed 's/{"x":/parameters: {a: {values: /; s/}$/}}/' ones > ones.yaml
    bounded 300000 hpo-sweep run -S "journal:new" --trials 1 ones.yaml -- true
    status_is 3 "and one of YAML"
    err_has "$REFUSAL" "which is told"
    {
        echo 'a0: &a0 [1,1,1,1,1,1,1,1,1,1]'
        for i in 1 2 3 4 5 6 7 8 9; do
            j=$((i - 1))
            echo "a$i: &a$i [*a$j,*a$j,*a$j,*a$j,*a$j,*a$j,*a$j,*a$j,*a$j,*a$j]"
        done
    } > laughs.yaml
    bounded 300000 hpo-sweep run -S "journal:new" --trials 1 laughs.yaml -- true
    status_is 3 "YAML's aliases of aliases are refused"
    awk 'BEGIN {
        printf "parameters: {a: {values: ["
        for (i = 0; i < 20000; i++) printf "%d, ", i
        printf "20000]}}" }' > choices.yaml
    bounded 300000 hpo-sweep run -q -S "journal:new" --trials 1 choices.yaml -- echo 1
    ok "twenty thousand choices are read at once" test "$status" -lt 2
fi
printf '{"parameters":{"a":{"values":[1, 2, "x", 1.0, "x"]}}}' > twice.json
run hpo-sweep run -S "journal:new" --trials 1 twice.json -- true
status_is 3 "a choice that comes twice is refused"
err_has "twice.json:1:42: a: a value is listed twice" "at its place"
done_testing
