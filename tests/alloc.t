#!/bin/sh
# alloc.t - out of memory, anywhere: tests/alloc/run on two jobs
. "${top_srcdir:?}/tests/lib.sh"
shim=$top_builddir/tests/fail-alloc.so
if LD_PRELOAD=$shim tp-shard --version > version.out 2> version.err && [ ! -s version.err ]; then
    for job in split ask; do
        run sh "$top_srcdir/tests/alloc/run" -a -k "$job"
        status_is 0 "each allocation of $job may fail"
        [ "$status" -eq 0 ] || head -n 20 out | sed 's/^/# /'
    done
    # a product that gets no memory is no gradient of zeros; which products need any depends on the machine
    if tp-run --version | grep -q +dnnl; then
        step="tp-run train -q --seq 8 --steps 1 --seed 1 --data ids.jsonl $bard"
        printf '{"ids":[1,2,3,4,5,6,7,8,9]}\n' > ids.jsonl
        $step -o undisturbed
        for least in 32768 0; do
            run env LD_PRELOAD="$shim" ALLOC_IN=libdnnl ALLOC_LEAST="$least" $step -o "least.$least"
            if [ "$status" -eq 0 ]; then
                ok "oneDNN needs no block of $least bytes" diff -r undisturbed/step-000001 "least.$least/step-000001"
            else
                status_is 4 "a run ends when oneDNN gets no block of $least bytes"
                err_has "tp-run: out of memory: oneDNN has no room for" "which is told"
                err_lines 1 "in one line"
                ok "before a step is saved" test ! -e "least.$least/step-000001"
            fi
        done
    fi
else
    skip "each allocation may fail" "nothing can be preloaded"
fi
done_testing
