#!/bin/sh
# plan.sh - measure this machine, plan for ranks on it, and generate text as planned
#
#   plan.sh MODEL RANKS [OPTION OF tp-run generate...]
#
# Leaves machine.json, run.sh and the model's parts in the directory where it is run.
set -eu
model=$1 ranks=$2
shift 2
tp-run bench -q --tp "$ranks" --tokens 128 -o machine.json "$model" > /dev/null
mem-estimate plan --calibration machine.json --gpus "$ranks" --gpu-mem 1GiB --runtime 0 \
    --emit sh "$model" > run.sh
exec sh run.sh "$@"
