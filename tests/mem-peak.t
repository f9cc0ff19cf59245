#!/bin/sh
# mem-peak.t - steps of training in which PyTorch was watched (tests/oracle/peak-memory.py), and what is predicted
. "${top_srcdir:?}/tests/lib.sh"

# predict OPTION... - JSON of the step in config.json, with nothing that is not a value, a weight or a gradient
# shellcheck disable=SC2086 # $options are words
predict() {
    mem-estimate train --eager --json --runtime 0 --fragmentation 0 --optimizer sgd --master none "$@" $options config.json > json
}
shown() { cat json; }
key() { rank0 "$1" shown; }

# Without weights: what is kept is foretold within 1 %, and so is the most, which is mostly at the loss; the rest of
# the backward pass within 5 %.  Not so:
tab=$(printf '\t')
while IFS="$tab" read -r model options kept loss backward config; do
    [ "$model" = model ] && continue
    printf '%s\n' "$config" > config.json
    within=1 most=1 rest=5
    case "$model $options" in
    # of peak-families.py, at shapes to which nothing was fitted
    */*) within=3 most=5 rest=20 ;;
    # The memory's gradient is there while its other readers are gone through
    t5*) most=6 rest=6 ;;
    esac
    predict
    case $options in
    *none*) ok "$model $options keeps what PyTorch does" near "$kept" "$(key activations)" "$within / 100 * $kept" ;;
    esac
    [ "$backward" -gt "$loss" ] && loss=$backward most=$rest
    ok "$model $options has as much at most" near "$loss" "$(key total) - $(key weights)" "$most / 100 * $loss"
    [ "$backward" -gt 0 ] || continue # was not seen apart from the loss
    predict --fused-loss
    ok "$model $options has as much in its backward pass" near "$backward" "$(key total) - $(key weights)" "$rest / 100 * $backward"
done < "$data/peak-memory.tsv"
done_testing
