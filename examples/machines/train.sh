#!/bin/sh
# train.sh - train on several machines, or go on with a run
#
#   train.sh MODEL TEXT RUN RANKS [HOST:RANKS,HOST:RANKS...] [OPTION...]
#
# Options are those of tp-run train; --dp, --tp and --pp make RANKS.  All machines see RUN.
set -eu
model=$1 text=$2 run=$3 ranks=$4
shift 4
hosts=
case ${1-} in
*:*) hosts=$1 && shift ;;
esac
exec mpirun ${hosts:+--host "$hosts"} --oversubscribe -n "$ranks" \
    tp-run train -q --resume --data "$text" "$@" -o "$run" "$model"
