#!/bin/sh
# pp-schedule.t - schedules against closed forms and published bubble rates
. "${top_srcdir:?}/tests/lib.sh"

schedule() {
    pp-partition schedule "$@"
}

# values "KEY..." OPTION... - the values of the keys in the command's JSON, blanks between
values() {
    values_keys=$1
    shift
    schedule "$@" --json > values.out || return
    for key in $values_keys; do
        sed -n "s/.*\"$key\":\(\[[^]]*\]\|[^,}]*\).*/\1/p" values.out
    done | tr '\n' ' ' | sed 's/ $//'
}

# equal stages, F = B = W = 1: makespan and idle share (ZB-H2 and ZB-V: makespan and span)
while read -r p m gpipe frac v2 frac2 v4 frac4 h1 frach1 h2 h2span zbv zbvspan; do
    size="--pp $p --micro-batches $m"
    # shellcheck disable=SC2086 # options are words
    got="$(values makespan $size --schedule gpipe) $(values makespan $size --schedule 1f1b) \
$(values makespan $size --schedule interleaved --model-chunks 2) \
$(values makespan $size --schedule interleaved --model-chunks 4) $(values makespan $size --schedule zb-h1) \
$(values 'makespan span' $size --schedule zb-h2) $(values 'makespan span' $size --schedule zb-v)"
    ok "$p stages and $m micro-batches take what they must" \
        test "$got" = "$gpipe $gpipe $v2 $v4 $h1 $h2 $h2span $zbv $zbvspan"
    # shellcheck disable=SC2086
    got=$(for s in "gpipe" "interleaved --model-chunks 2" "interleaved --model-chunks 4" "zb-h1"; do
        values bubble_of_total $size --schedule $s
        echo
    done | awk 'NF { printf "%s%.4f", n++ ? " " : "", $1 }')
    ok "and idle as much" test "$got" = "$frac $frac2 $frac4 $frach1"
done << 'END'
2 2 9 0.3333 7.5 0.2000 6.75 0.1111 7 0.1429 7 7 7 7
4 4 21 0.4286 16.5 0.2727 14.25 0.1579 15 0.2000 15 15 15 15
4 8 33 0.2727 28.5 0.1579 26.25 0.0857 27 0.1111 27 24 25.5 24
8 24 93 0.2258 82.5 0.1273 77.25 0.0680 79 0.0886 79 72 75.5 72
8 32 117 0.1795 106.5 0.0986 101.25 0.0519 103 0.0680 103 96 99.5 96
8 64 213 0.0986 202.5 0.0519 197.25 0.0266 199 0.0352 199 192 195.5 192
END

# activations held, in chunks
while IFS='|' read -r options want; do
    # shellcheck disable=SC2086
    ok "held: $options" test "$(values peak_activations $options)" = "[$want]"
done << 'END'
--pp 4 --micro-batches 8 --schedule naive|1,1,1,1
--pp 4 --micro-batches 8 --schedule gpipe|8,8,8,8
--pp 4 --micro-batches 8 --schedule 1f1b|4,3,2,1
--pp 4 --micro-batches 8 --schedule interleaved --model-chunks 2|11,9,7,5
--pp 4 --micro-batches 8 --schedule interleaved --model-chunks 4|19,17,15,13
--pp 4 --micro-batches 8 --schedule zb-h1|4,4,4,4
--pp 4 --micro-batches 8 --schedule zb-h2|7,7,7,7
--pp 4 --micro-batches 8 --schedule zb-v|8,8,8,8
--pp 8 --micro-batches 24 --schedule interleaved --model-chunks 2|23,21,19,17,15,13,11,9
--pp 4 --micro-batches 4 --schedule interleaved --model-chunks 2|8,8,7,5
END

# V-Min and V-Half hold (p+4)/3 and (p+2)/2 micro-batches (Qi et al. 2024), and are no longer than the authors'
# scheduler makes them (tests/oracle/v-shapes.py): stages, micro-batches, of each the span and the chunks held
while read -r p m min held half held2; do
    for v in "v-min $min $held" "v-half $half $held2"; do
        # shellcheck disable=SC2086
        set -- $v
        got=$(values "span peak_activations" --pp "$p" --micro-batches "$m" --schedule "$1" --forward 2 \
            --backward-input 2 --backward-weight 2 | tr '[],' '   ' |
            awk '{ for (i = 2; i <= NF; i++) if ($i > most) most = $i; print $1, most }')
        ok "$1 of $p stages and $m micro-batches: $got where they have $2 $3" test "${got#* }" = "$3" -a \
            "${got% *}" -le "$2"
        case $1 in v-min) paper=$(((p + 4) / 3)) ;; *) paper=$(((p + 2) / 2)) ;; esac
        ok "and holds as much as the paper says" test "$3" = $((2 * paper))
    done
done << 'END'
2 8 51 4 49 4
3 9 59 4 59 4
4 4 35 4 34 6
4 8 59 4 53 6
4 16 107 4 101 6
5 10 75 6 71 6
6 12 89 6 83 8
7 14 107 6 101 8
8 8 75 8 65 10
8 24 171 8 161 10
8 64 411 8 401 10
12 24 185 10 173 14
16 48 347 12 329 18
32 96 699 24 665 34
END

# closed forms: idle of unequal passes, and of messages
idle() {
    values "makespan span ideal" "$@" | awk '{ print $1 - $3, $2 - $3 }'
}
ok "naive idles (p-1)(F+b) with one micro-batch" \
    test "$(idle --schedule naive --pp 4 --micro-batches 1 --forward 2 --backward 3)" = "15 15"
for m in 12 20; do
    ok "1F1B idles (p-1)(F+b) with $m micro-batches" \
        test "$(idle --pp 4 --micro-batches $m --forward 2 --backward 3)" = "15 15"
    ok "interleaved 1F1B idles (p-1)(F+b)/v with $m micro-batches" test \
        "$(idle --schedule interleaved --model-chunks 2 --pp 4 --micro-batches $m --forward 2 --backward 4)" = "9 9"
done
h() {
    idle --schedule "$1" --pp 4 --micro-batches 12 --forward "$2" --backward-input "$3" --backward-weight "$4"
}
ok "ZB-H1 idles (p-1)(F+B-W)" test "$(h zb-h1 1 1 .5) $(h zb-h1 2 2 1)" = "4.5 4.5 9 9"
ok "ZB-H2 idles (p-1)(F+B-2W) of its span" \
    test "$(h zb-h2 1 1 .5 | cut -d' ' -f2) $(h zb-h2 2 2 1 | cut -d' ' -f2)" = "3 6"
ok "GPipe with messages takes (m+p-1)(F+b) + 2(p-1)c" \
    test "$(values makespan --schedule gpipe --pp 4 --micro-batches 8 --latency 0.25)" = 34.5
ok "--pipeline is another name of --schedule" \
    test "$(values makespan --pipeline gpipe --pp 4 --micro-batches 8 --latency 0.25)" = 34.5
span() {
    values span --schedule zb-v --latency 0.1 "$@" | awk '{ printf "%.3f", $1 }'
}
ok "ZB-V with messages takes a little longer" test \
    "$(span --pp 4 --micro-batches 8) $(span --pp 8 --micro-batches 24)" = "25.600 76.000"

# the zero-bubble paper's inputs (milliseconds) and bubble rates: 1F1B, ZB-H1, ZB-H2
while read -r p m f b w c rate h1 h2; do
    set -- --pp "$p" --micro-batches "$m" --forward "$f" --backward-input "$b" --backward-weight "$w" --latency "$c"
    got=$(for s in 1f1b zb-h1 zb-h2; do
        values bubble_of_span "$@" --schedule $s
        echo
    done | awk 'NF { printf "%s%.4f", n++ ? " " : "", $1 }')
    ok "the bubble rates of $p stages, $m micro-batches are the paper's" \
        test "$got" = "0$rate 0$h1 0$h2"
done << 'END'
8 24 18.522 18.086 9.337 .601 .2431 .1585 .1083
8 64 18.546 18.097 9.321 .762 .1240 .0674 .0444
8 24 29.718 29.444 19.927 .527 .2347 .1323 .0698
8 32 29.802 29.428 19.530 .577 .1898 .1045 .0559
16 48 11.347 11.248 8.132 .377 .2552 .1397 .0672
16 64 11.307 11.254 8.101 .379 .2082 .1088 .0516
32 96 10.419 10.207 7.715 .408 .2646 .1421 .0641
END

# the paper's searched orders: 1p and 2p in the memory of so many whole micro-batches, where the input's
# gradient frees 1 - 32h/(34h + 5as) of one (its section 4, s = 1024); ours is to be no worse
while read -r p m f b w c one two h a; do
    set -- --schedule zb --pp "$p" --micro-batches "$m" --forward "$f" --backward-input "$b" \
        --backward-weight "$w" --latency "$c" \
        --input-frees "$(awk -v h="$h" -v a="$a" 'BEGIN { print 1 - 32 * h / (34 * h + 5 * a * 1024) }')"
    for cap in "$p $one" "$((2 * p)) $two"; do
        schedule "$@" --memory-cap "${cap% *}" --json > out
        ok "an order in the memory of ${cap% *} micro-batches idles no more than the paper's ($p stages, $m)" \
            awk -v x="$(sed 's/.*"bubble_of_span":\([^,]*\).*/\1/' out)" -v most="${cap#* }" \
            'BEGIN { exit !(x < most + 0.00005) }'
        ok "and keeps to it" awk -v cap="${cap% *}" '{ sub(/.*"held":\[/, ""); sub(/\].*/, "")
            n = split($0, held, ","); for (i in held) if (held[i] > cap + 1e-6) exit 1 }' out
    done
done << 'END'
8 24 18.522 18.086 9.337 .601 .1585 .0433 2304 24
8 64 18.546 18.097 9.321 .762 .0674 .0026 2304 24
8 24 29.718 29.444 19.927 .527 .1323 .0029 4096 32
8 32 29.802 29.428 19.530 .577 .1045 .0022 4096 32
16 48 11.347 11.248 8.132 .377 .1397 .0066 5120 40
16 64 11.307 11.254 8.101 .379 .1088 .0054 5120 40
32 96 10.419 10.207 7.715 .408 .1421 .0038 6144 48
END
schedule --schedule zb --pp 4 --micro-batches 8 --csv > table.csv
ok "a table that was searched for is a valid one" test \
    "$(values 'makespan span' table.csv)" = "$(values 'makespan span' --pp 4 --micro-batches 8 --schedule zb)"
ok "and without bubbles where there is memory" test "$(values span --pp 4 --micro-batches 8 --schedule zb)" = 24
run schedule --schedule zb --pp 4 --model-chunks 2
status_is 2 "it has one chunk on a stage"
run schedule --schedule zb --pp 4 --input-frees 2
status_is 2 "more than all cannot be freed"

# messages
ok "1F1B sends 2(p-1) messages a micro-batch" test "$(values transfers --pp 4 --micro-batches 8)" = 48
ok "interleaved 2(pv-1)" test \
    "$(values transfers --schedule interleaved --model-chunks 2 --pp 4 --micro-batches 8)" = 112
ok "ZB-V 4(p-1)" test "$(values transfers --schedule zb-v --pp 4 --micro-batches 8)" = 96
ok "bytes are counted" test "$(values transferred_bytes --pp 4 --micro-batches 1 --message 33554432)" = 201326592
ok "a bandwidth delays as a latency does" test \
    "$(values makespan --pp 4 --micro-batches 8 --message 100 --bandwidth 200)" = \
    "$(values makespan --pp 4 --micro-batches 8 --latency 0.5)"

# DualPipe (DeepSeek-AI 2024; the repository's table): idle (p/2 - 1)(F&B + B - 3W), p + 1 activations; the V of Qi et al.
# 2025 the same with halves of stages, each rank meeting itself
while read -r p m idle held v_idle v_held; do
    for name in dualpipe dualpipev; do
        values 'span ideal' --schedule $name --pp "$p" --micro-batches "$m" --forward 1 --backward-input 1 --backward-weight 1 > got
        ok "$name of $p ranks idles as published" test "$(awk '{ print $1 - $2 }' got)" = "$idle"
        schedule --schedule $name --pp "$p" --micro-batches "$m" > got
        ok "and holds $held micro-batches" grep -q "^held       at most $held .*$held micro" got
        idle=$v_idle held=$v_held
    done
done << 'END'
4 16 2 5 3 4.5
8 24 6 9 7 8.5
16 64 14 17 15 16.5
END
run schedule --pp 5 --micro-batches 10 --schedule dualpipe
status_is 2 "two copies of the model need an even number of ranks"
run schedule --pp 4 --micro-batches 6 --schedule dualpipev
status_is 2 "pairs need two micro-batches a stage"
ok "two copies split a model's FLOPs alike" schedule --pp 4 --micro-batches 8 --schedule dualpipe --plan "$bard"

# tables
for s in gpipe 1f1b "interleaved --model-chunks 2" zb-h1 zb-h2 zb-v dualpipe dualpipev; do
    # shellcheck disable=SC2086
    schedule --pp 4 --micro-batches 8 --schedule $s --csv > table.csv
    # shellcheck disable=SC2086
    ok "a table of $s that is read again takes as long" test \
        "$(values 'makespan span peak_activations transfers' table.csv)" = \
        "$(values 'makespan span peak_activations transfers' --pp 4 --micro-batches 8 --schedule $s)"
done
# PyTorch's interleaved tables (oracle/torch-schedules.py)
: > differs
while read -r s ranks micro chunks; do
    : > want.csv
    for _ in $(seq "$ranks"); do
        read -r row
        echo "$row" >> want.csv
    done
    schedule --schedule "$s" --pp "$ranks" --micro-batches "$micro" --model-chunks "$chunks" --csv | cmp -s - want.csv ||
        echo "$s $ranks $micro $chunks" >> differs
done < "$data/torch-schedules.txt"
ok "interleaved tables are PyTorch's, to the action" test ! -s differs
for micro in 9 11 13; do
    ok "groups of different sizes run too: $micro micro-batches of 4 stages" \
        schedule --schedule interleaved --model-chunks 3 --pp 4 --micro-batches $micro
done
printf '0F0,0F1,,,0B0,,0B1\n,1F0,1F1,1B0,,1B1,\n' > ours.csv
run schedule ours.csv --json
status_is 0 "blank cells are idle steps"
out_has '"makespan":9,' "and time is simulated"
printf '0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0B1\n1RECV_F0,1F0,1B0,1F1,1B1\n' > pytorch.csv
run schedule pytorch.csv
status_is 0 "exchanges and overlapped pairs of PyTorch are read"
schedule pytorch.csv --csv > again.csv
ok "and pairs are written as PyTorch does" grep -qx '0F0,(0F1;0B0)OVERLAP_F_B,0B1' again.csv
printf '0F0,0B0,0F1,0B1\n1F0,1B0,(1F1;1B1)OVERLAP_F_B\n' > one.csv
run schedule one.csv
status_is 0 "a pair whose second needs its first is one after the other"
printf '0F0@0+1,0B0@4+2\n1F0@1.5+1,,1B0@2.5+1.5\n' > took.csv
run schedule took.csv
out_has 'makespan   5.5, ' "a table that was measured is simulated with its own times"
out_has 'measured   6, 1.091 times the makespan' "beside what it took"
schedule took.csv --json > out
ok "and both are told" grep -q '"makespan":5.5,.*"measured":6,"passes":\[{"stage":0,"rank":0,"chunk":0,"forward":1,"backward":2},{"stage":1,"rank":1,"chunk":0,"forward":1,"backward":1.5}\]}$' out
schedule took.csv --csv > again.csv
ok "and it is written with its times" test "$(schedule again.csv --csv | cksum) $(tail -n 1 again.csv)" = \
    "$(cksum < again.csv) 1F0@1.500000000+1.000000000,1B0@2.500000000+1.500000000"
cp took.csv drawn.csv # whose name is in the picture
schedule drawn.csv --plot took.svg > took.out
printf '0F0@7+1,0B0@11+2\n1F0@8.5+1,,1B0@9.5+1.5\n' > drawn.csv
schedule drawn.csv --plot late.svg > late.out
ok "a table that begins late in its step is drawn from its first action on" cmp took.svg late.svg
ok "times that are given come first" test "$(values makespan took.csv --forward 1)" = "$(values makespan --pp 2 --micro-batches 1)"
refused() {
    printf "$1" > bad.csv
    run schedule bad.csv
    status_is 3 "$3"
    err_has "$2" "and named"
}
refused '0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n' "rank 0: 0I1 is missing" "a missing action is refused"
refused '0F0,0F0,0B0\n1F0,1B0\n' "rank 0: 0F0 is there twice" "a doubled one"
refused '0B0,0F0\n1F0,1B0\n' "rank 0: 0B0 comes before what it needs" "one out of order"
refused '0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n' "deadlock: rank 0 waits for ever to begin 0B0" "a deadlock"
refused '0F0,0B0\n1F0,1B0,0F1,0B1,1F1,1B1\n' "is of a stage that another rank has" "a stage on two ranks"
refused '0F0,0X0\n' "bad.csv:1: '0X0' is no action" "a word that is none"
refused '0F0@1+1,0B0\n' "bad.csv:1: 0B0 has no time, and others have" "a table of which a part was measured"
for times in @ @1 @1+ @1- @-1+1 @1+1e3 @nan+1 @1+inf @1+1x @1+1+1; do
    refused "0F0$times,0B0@2+1\n" "bad.csv:1: '0F0$times' is no action" "$times, which are no times"
done
refused '' "empty" "an empty table"

run schedule --pp 4 --micro-batches 8 --schedule zb-v --model-chunks 3
status_is 2 "ZB-V has two chunks"
run schedule --pp 4 --forward 1,2,3
status_is 2 "a list has a time for each stage"
run schedule --pp 4 --micro-batches 8 --schedule zb-h2 --memory-cap 4
status_is 1 "what holds more than the cap is an honest no"
run schedule --pp 4 --micro-batches 8 --compare --memory-cap 4
ok "and left out of a comparison" test "$(grep -c zb-h2 out)" = 0
run schedule --pp 8 --micro-batches 96 --compare --memory-cap 6
ok "an order that is searched for under a cap is compared" test "$(awk '{ print $1, $3 }' out | xargs)" = \
    "schedule makespan v-half 296.5 v-min 301 zb 301 naive 2304"
run schedule --pp 4 --micro-batches 8 --compare
ok "a comparison has all, interleaved with 2, 4 and 8 chunks" test "$(awk 'NR > 1 { print $1 $2 }' out | sort | xargs)" = \
    "1f1b1 dualpipe2 dualpipev2 gpipe1 interleaved2 interleaved4 interleaved8 naive1 v-half2 v-min2 zb-h11 zb-h21 zb-interleaved2 zb-interleaved4 zb-interleaved8 zb-v2 zb1"
shape llama-3-8b
run schedule --pp 4 --micro-batches 8 --plan llama-3-8b.json --schedule 1f1b --json
bytes=$(sed 's/.*"held_bytes":\[\([0-9]*\),.*/\1/' out)
ok "a stage of 8 layers holds the activations that mem-estimate predicts" test "$bytes" = \
    "$(mem-estimate train --pp 4 --micro-batches 8 --weights bf16 --json llama-3-8b.json | sed 's/"activations":\([0-9]*\).*/\n\1/' | sed -n 2p)"
for cap in $bytes $((bytes - 1)); do
    run schedule --pp 4 --micro-batches 8 --plan llama-3-8b.json --schedule 1f1b --memory-cap "${cap}B"
    status_is $((cap < bytes)) "a cap of $cap bytes is one of activations"
done
run schedule --pp 4 --micro-batches 8 --plan llama-3-8b.json --compare --memory-cap "${bytes}B" --json
ok "what holds more bytes is not compared" sh -c '! grep -q -e gpipe -e zb-h2 out && grep -q "\"zb\"" out && grep -q 1f1b out'
run schedule --pp 4 --micro-batches 8 --memory-cap 4GiB
status_is 2 "bytes need a model"
err_has "--memory-cap 4GiB: --plan MODEL says what a micro-batch holds" "which is told"
for cap in 0 none -3 1.5; do
    run schedule --pp 4 --micro-batches 8 --memory-cap=$cap
    status_is 2 "a cap is a number or a size ($cap)"
done
run schedule --pp 4 --micro-batches 8 --compare
ok "the shortest first" sh -c "awk 'NR > 1 { print \$3 }' out | sort -gc"
ok "which is marked" test "$(grep -n 'best$' out | cut -d: -f1)" = 2
ok "what is held is of whole stages in every line" test "$(awk '$1 == "zb-v" { print $8 }' out)" = 4
run schedule --pp 4 --micro-batches 8 --schedule zb-v
out_has "held       at most 4 4 4 4 micro-batches" "and of one schedule alone"
run schedule --pp 4 --micro-batches 8 --compare --model-chunks 4
ok "chunks that are named are those compared" test "$(awk '$1 == "interleaved" { print $2 }' out)" = 4
ok "what holds the model twice is not best by its time alone" \
    test "$(schedule --pp 4 --micro-batches 8 --compare | awk '$9 == 2 { twice = $1 } $NF == "best" { best = $1 } END { print twice, best }')" = "dualpipe zb-interleaved"
ok "a backward pass takes twice its stage's forward pass" \
    test "$(values ideal --pp 2 --micro-batches 4 --forward 1,10)" = 120
schedule --pp 2 --plan "$bard" > by-plan
ok "a plan's stages are those that plan prints" grep -qx "layers     $(pp-partition plan --pp 2 --json "$bard" | sed -n 's/.*"layer_count":\([0-9]*\).*/\1/p' | paste -sd, -)" by-plan
ok "or those that are given" schedule --pp 2 --plan "$bard" --stages 1,5 --json
run schedule --pp 2 --plan "$bard" --stages 1,1
status_is 1 "which are all of the model's"
ok "uneven stages wait for the slowest" test \
    "$(values ideal --pp 4 --micro-batches 8 --forward 1,1,2,1 --backward 2,2,4,2)" = 48
run schedule --pp 64 --micro-batches 1024 --schedule zb-v --json
status_is 0 "64 stages and 1,024 micro-batches are simulated"
if schedule --pp 4 --micro-batches 10 --schedule dualpipev --plot pairs.svg > /dev/null 2>&1; then
    grep -o 'd="M [0-9.]* [0-9.]* L [0-9.]* [0-9.]* L [0-9.]* [0-9.]* L' pairs.svg | awk '{ n[$9 - $3]++ }
        END { exit !n[10] }' && pass "the halves of a pair are drawn above each other" ||
        fail "the halves of a pair are drawn above each other" "no half rows"
fi
if schedule --pp 4 --micro-batches 8 --schedule zb-h1 --plot out.svg > /dev/null 2>&1; then
    ok "the timeline is drawn" grep -q '<svg' out.svg
else
    skip "the timeline is drawn" "no cairo"
fi
done_testing
