#!/bin/sh
# mpirun.sh - score a text with a checkpoint's ranks on several machines
#
#   mpirun.sh CHECKPOINT TEXT RANKS [HOST:RANKS,HOST:RANKS...]
#
# Every machine needs the checkpoint under the same name, with its own ranks' files at least.
set -eu
exec mpirun ${4:+--host "$4"} --oversubscribe -n "$3" tp-run score "$2" "$1"
