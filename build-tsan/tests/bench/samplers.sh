#!/bin/sh
# samplers.sh - draws per second, and quality beside Optuna's when Python has it
#
# draw      one draw after so many trials of five parameters
# quality   medians over 30 seeds and the p-value of being worse (samplers.py); set PYTHON to an
#           interpreter with optuna and scipy, HPO_DATA to the tables
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
bench=$top_builddir/tests/bench/bench-sampler
python=${PYTHON:-python3}

for sampler in tpe nsga-ii cma-es qmc; do
    for trials in 100 1000 10000; do
        printf '%-8s %6d trials  draw %s ms\n' $sampler $trials "$("$bench" speed $sampler $trials)"
    done
done
if "$python" -c 'import optuna, scipy' 2> /dev/null; then
    "$python" "$top_srcdir/tests/bench/samplers.py" "$bench" ${HPO_DATA:+--data "$HPO_DATA"}
fi
