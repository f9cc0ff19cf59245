#!/bin/sh
# tp-run.sh - the speed of tp-run as shares of what the machine can do in the same run
#
# tp-run.sh [PART...] runs the parts decode, prefill, codes, batches, attention, first, ranks, others, peers
# (default: all) and ends with a table of shares and aims.  Each share is the median of REPEAT
# (default 3) runs, each beside a probe of its own: memory reading, or products of f32, bf16 or int8,
# whichever binds.  A probe is the best of several runs, as is what is compared with it; decode, a mean over
# seconds, is compared with the mean rate of reading.  bf16 is with --compute bf16.
#
# peers: torch if ${TORCH:-python3} has torch and transformers, llama.cpp if ${LLAMA:-python3} has
# llama_cpp and gguf; tp-run and the peer take turns.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
bin=$top_builddir/bin
bench=$top_builddir/tests/bench
peers=$top_srcdir/tests/bench/peers.py
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
threads=$(nproc)
repeat=${REPEAT:-3}
tokens=${TOKENS:-40}
long=${LONG:-200} # tokens, of which the copies of weights in huge pages are worth their time
parts=${*:-decode prefill codes batches attention first ranks others peers}
hidden=2048 layers=8 ffn=5632 heads=16 kv=8 vocab=16384
# elements of the matrices that every token is multiplied by
elements=$((layers * (2 * hidden * hidden + 2 * hidden * hidden * kv / heads + 3 * hidden * ffn) +
    vocab * hidden))
: > "$dir/table"

wanted() {
    case " $parts " in *" $1 "*) true ;; *) false ;; esac
}

median() {
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# row WHAT VALUE AIM PROBE [most]: a row of the table; VALUE is to be at least AIM, or at most
row() {
    awk -v what="$1" -v value="$2" -v aim="$3" -v probe="$4" -v most="${5:-}" 'BEGIN {
        met = most ? value <= aim : value >= aim
        printf "%-34s %6.2f  %-7s %-6s  %s\n", what, value, (most ? "<= " : ">= ") aim, met ? "met" : "missed", probe
    }' | tee -a "$dir/table"
}

# model TYPE: a model of this type, made when first needed
model() {
    [ -e "$dir/$1" ] || "$bench/make-model" "$dir/$1" "$1" $hidden $layers $ffn $heads $kv $vocab
}

# field OPTIONS...: of TYPE, sets size (bytes of a weight), compute, and which (the column of its probe)
type_is() {
    model "$1"
    size=4 compute=f32 which=2
    if [ "$1" = BF16 ]; then
        size=2 compute=bf16
        [ "$("$bench/probe" 1 | cut -d' ' -f3)" = 0 ] || which=3
    fi
}

# rate MODEL THREADS OPTION...: tokens a second of one prompt
rate() {
    what=$1 n=$2
    shift 2
    "$bin/tp-run" generate --ids 1 --max-tokens "$tokens" --json --threads "$n" "$@" "$dir/$what" |
        sed 's/.*"tokens_per_second":\([^,}]*\).*/\1/'
}

# batch MODEL PROMPTS OPTION...: tokens a second of so many prompts at once
batch() {
    what=$1 n=$2
    shift 2
    seq "$n" | sed 's/.*/{"ids":[&]}/' |
        "$bin/tp-run" generate --input - --max-tokens "$tokens" --json --threads "$threads" \
            --requests "$n" --cache-tokens $((n * (tokens + 17))) "$@" "$dir/$what" |
        sed 's/.*"tokens_per_second":\([^,}]*\).*/\1/' | awk '{ all += $1 } END { print all }'
}

runs() {
    seq "$repeat"
}

seconds() {
    start=$(date +%s.%N)
    "$@" > /dev/null
    date +%s.%N | awk -v s="$start" '{ print $1 - s }'
}

# reading TYPE THREADS OPTION...: what one prompt reads a second, as a share of the mean rate of reading
# memory before and after it
reading() {
    before=$("$bench/probe" "$2" 1)
    now=$(rate "$@")
    "$bench/probe" "$2" 1 | awk -v e=$elements -v s=$size -v r="$now" -v b="$before" '{ print r * e * s / ((b + $1) / 2) }'
}

decode_part() {
    for t in F32 BF16; do
        type_is $t
        for n in 1 "$threads"; do
            for _ in $(runs); do
                reading $t "$n" --compute $compute
            done | median > "$dir/share"
            row "decode, $compute, threads: $n" "$(cat "$dir/share")" 0.95 read
        done
        for _ in $(runs); do
            tokens=$long
            reading $t "$threads" --compute $compute
        done | median > "$dir/share"
        row "decode of $long, $compute, threads: $threads" "$(cat "$dir/share")" 0.95 read
        [ "$threads" = 2 ] || continue
        # each with a copy: two that read the same pages share what a cache has
        cp -r "$dir/$t" "$dir/copy"
        for _ in $(runs); do
            rate copy 1 --compute $compute > "$dir/second" &
            first=$(rate $t 1 --compute $compute)
            wait
            rate $t 2 --compute $compute | awk -v a="$first" -v b="$(cat "$dir/second")" '{ print $1 / (a + b) }'
        done | median > "$dir/share"
        row "decode, $compute, against 2 processes" "$(cat "$dir/share")" 1 "two processes"
        rm -r "$dir/copy"
    done
}

# prefill WHAT MODEL THREADS: a row: a prompt's share of the probe of products
prefill() {
    for _ in $(runs); do
        "$bin/tp-run" bench --json --tokens 1024 --repeat 2 --threads "$3" --compute $compute "$dir/$2" |
            sed 's/.*"prefill_share":\([^,}]*\).*/\1/'
    done | median > "$dir/share"
    aim=0.85
    [ $compute = f32 ] || aim=0.80
    row "prefill of 1024, $1" "$(cat "$dir/share")" $aim $compute
}

prefill_part() {
    for t in F32 BF16; do
        type_is $t
        for n in 1 "$threads"; do
            prefill "$compute, threads: $n" $t "$n"
        done
        # weights that a checkpoint stores by input
        rm -rf "$dir/by-input"
        "$bench/make-model" "$dir/by-input" $t '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],
            "n_embd":1024,"n_layer":8,"n_head":16,"vocab_size":16384,"n_positions":2048}'
        prefill "GPT-2, $compute" by-input "$threads"
    done
}

# weights in 8 and 4 bits: tokens by their own bytes; long prompts beside int8 products, of which one by such
# weights takes three, or beside f32 products where the CPU has none
codes_part() {
    model BF16
    for w in int8 int4; do
        for n in 1 "$threads"; do
            : > "$dir/shares"
            for _ in $(runs); do
                "$bench/probe" "$n" > "$dir/probe"
                "$bin/tp-run" bench --json --tokens 512 --repeat 2 --threads "$n" --weights $w "$dir/BF16" |
                    sed 's/.*"product":\([^,}]*\).*"prefill_share":\([^,}]*\).*"decode_share":\([^,}]*\).*/\1 \2 \3/' |
                    awk 'NR == FNR { type = $4 > 0 ? "int8" : "f32"; most = $4 > 0 ? $4 : $2; next }
                             { print $3, $1 * $2 / most, type }' "$dir/probe" - >> "$dir/shares"
            done
            row "decode, --weights $w, threads: $n" "$(cut -d' ' -f1 "$dir/shares" | median)" 0.85 read
            printf 'prefill of 512, --weights %s, threads: %d: %.2f of %s products\n' $w "$n" \
                "$(cut -d' ' -f2 "$dir/shares" | median)" "$(cut -d' ' -f3 "$dir/shares" | tail -n 1)" | tee -a "$dir/notes"
        done
    done
}

batches_part() {
    for t in F32 BF16; do
        type_is $t
        for n in 8 32 128; do
            for _ in $(runs); do
                "$bench/probe" "$threads" > "$dir/probe"
                batch $t $n --compute $compute | awk -v n=$n -v e=$elements -v s=$size -v which=$which '
                    NR == FNR { read = $1; product = $which; next }
                    { memory = e * s / read; work = 2 * e * n / product
                      binds = memory > work ? "read" : "products"
                      print $1 / n * (binds == "read" ? memory : work), binds }' "$dir/probe" -
            done > "$dir/shares"
            binds=$(cut -d' ' -f2 "$dir/shares" | tail -n 1)
            [ "$binds" = read ] || binds=$compute
            row "$n prompts at once, $compute" "$(cut -d' ' -f1 "$dir/shares" | median)" 0.8 "$binds"
        done
    done
}

# reading a KV cache of 32768 tokens, with several KV heads and with one
attention_part() {
    for n in 1 "$threads"; do
        for how in "8 32 f32" "1 8 f32" "8 32 bf16" "8 32 int8"; do
            # shellcheck disable=SC2086 # words
            set -- $how
            for _ in $(runs); do
                "$bench/long-cache" "$n" 32768 "$1" "$2" 128 "$3"
            done > "$dir/shares"
            row "32k keys, $3, KV heads: $1, threads: $n" "$(cut -d' ' -f1 "$dir/shares" | median)" 0.8 read
            products=$(cut -d' ' -f3 "$dir/shares" | tail -n 1)
            [ "$products" = read ] ||
                echo "32k keys, $3, threads: $n: products bind, $(cut -d' ' -f2 "$dir/shares" | median) of $products" |
                tee -a "$dir/notes"
        done
    done
}

first_part() {
    for t in F32 BF16; do
        type_is $t
        cat "$dir/$t/model.safetensors" > /dev/null
        for _ in $(runs); do
            c=$(seconds cat "$dir/$t/model.safetensors")
            seconds "$bin/tp-run" generate --ids 1 --max-tokens 1 --json "$dir/$t" |
                awk -v c="$c" '{ print $1 / c }'
        done | median > "$dir/share"
        row "first token, $compute" "$(cat "$dir/share")" 1.5 "cat of the file" most
    done
}

ranks_part() {
    [ "$threads" -gt 1 ] || return 0
    for t in F32 BF16; do
        type_is $t
        for _ in $(runs); do
            one=$(rate $t "$threads" --compute $compute)
            rate $t $((threads / 2)) --tp 2 --compute $compute | awk -v one="$one" '{ print $1 / one }'
        done | median > "$dir/share"
        row "tp 2, $compute" "$(cat "$dir/share")" 0.95 "one rank, $threads threads"
    done
    "$bin/tp-run" program --tp 2 --json --tokens 1 "$dir/F32" |
        sed -n 's/.*"op":"all-reduce","over":"tp","group":2,"count":\([0-9]*\),"bytes":\([0-9]*\).*/\1 \2/p' |
        head -n 1 > "$dir/reduces"
    "$bin/tp-run" bench --tp 2 --threads $((threads / 2)) --collectives --repeat 9 --json "$dir/F32" |
        awk -v bytes=$((hidden * 4)) '
        NR == FNR { count = $1; all = $2; next }
        /"kind":"all-reduce"/ {
            split($0, b, "\"bytes\":"); split($0, s, "\"seconds\":")
            if (b[2] + 0 >= bytes && !time) time = s[2] + 0 }
        END { printf "a token on two ranks: %d all-reduces, %d bytes, %.3g ms\n", count, all, 1e3 * count * time }' \
            "$dir/reduces" - | tee -a "$dir/notes"
}

# activations of a rank when N share a sequence, and the price of --deterministic and of drawing tokens
others_part() {
    seq 1 1025 > "$dir/ids"
    model F32
    for n in 1 2 4; do
        "$bin/tp-run" score --window 1024 --sp $n --ids-file "$dir/ids" --report-memory "$dir/F32" 2>&1 > /dev/null |
            sed -n 's/.*"rank":0,.*"activations":\([0-9]*\).*/\1/p' > "$dir/sp$n"
    done
    for n in 2 4; do
        awk -v n=$n -v a="$(cat "$dir/sp1")" '{ printf "sp %d: activations %.3f of one rank\n", n, $1 / a }' "$dir/sp$n" |
            tee -a "$dir/notes"
    done
    for t in F32 BF16; do
        type_is $t
        for _ in $(runs); do
            one=$(rate $t "$threads" --compute $compute)
            rate $t "$threads" --deterministic --compute $compute | awk -v a="$one" '{ print $1 / a }'
        done | median | awk -v c=$compute '{ printf "--deterministic, %s: %.2f of the rate without\n", c, $1 }' |
            tee -a "$dir/notes"
    done
    # of the best backend; the CPU fuses nothing
    model BF16
    "$bench/fusing" any "$dir/BF16" "$threads" 1 256 stored bf16 |
        awk '{ printf "fusing: a token %.2f, a prompt %.2f of the speed without\n", $2, $4 }' | tee -a "$dir/notes"
    "$bench/make-model" "$dir/words" BF16 512 4 1408 8 4 151936
    for how in "--top-k 50" "--top-p 0.9"; do
        for _ in $(runs); do
            one=$(batch words 8)
            # shellcheck disable=SC2086 # words
            batch words 8 --temperature 0.8 $how | awk -v a="$one" '{ print $1 / a }'
        done | median | awk -v h="$how" '{ printf "8 prompts at once, 151,936 tokens, %s: %.2f of the rate without\n", h, $1 }' |
            tee -a "$dir/notes"
    done
}

# beside PEER, which PYTHON runs; names are as peers.py takes them
beside() {
    peer=$1 python=$2 type=$3 name=$4 aim=$5
    shift 5
    for n in 1 "$threads"; do
        "$python" "$peers" "$peer" "$dir/$type" "$name" "$n" "$repeat" "$bin/tp-run" "$tokens" "$@" > "$dir/beside" || {
            echo "tp-run.sh: $peer: no result in $name" >&2
            return 0
        }
        read -r prefill decode < "$dir/beside"
        row "prefill, $name, threads: $n" "$prefill" "$aim" "$peer"
        row "decode, $name, threads: $n" "$decode" "$([ "$peer" = torch ] && echo 1 || echo "$aim")" "$peer"
    done
}

peers_part() {
    torch=${TORCH:-python3} llama=${LLAMA:-python3}
    model F32
    model BF16
    if "$torch" -c 'import torch, transformers' 2> /dev/null; then
        beside torch "$torch" F32 f32 0.95
        beside torch "$torch" BF16 bf16 1.2 --compute bf16
    fi
    if "$llama" -c 'import llama_cpp, gguf' 2> /dev/null; then
        beside llama.cpp "$llama" F32 f32 1.2
        beside llama.cpp "$llama" BF16 bf16 1.2 --compute bf16
        if "$bin/tp-run" generate --help | grep -q -e '--weights'; then
            beside llama.cpp "$llama" BF16 q8_0 1.2 --weights int8 --compute bf16
            beside llama.cpp "$llama" BF16 q4_0 1.2 --weights int4 --compute bf16
        fi
    fi
}

"$bench/probe" "$threads" | awk -v n="$threads" '{
    printf "probes on %d threads: read %.1f GB/s, f32 %.0f, bf16 %.0f, int8 %.0f Gop/s; kernels: %s, with --compute bf16 %s\n",
        n, $1 / 1e9, $2 / 1e9, $3 / 1e9, $4 / 1e9, $5, $6 }' | tee "$dir/notes"
for part in decode prefill codes batches attention first ranks others peers; do
    if wanted $part; then
        ${part}_part
    fi
done
echo
printf '%-34s %6s  %-7s %-6s  %s\n' what share aim "" "of which probe"
cat "$dir/table"
awk '/ missed / { n++ } END { printf "%d of %d missed\n", n, NR }' "$dir/table"
cat "$dir/notes"
