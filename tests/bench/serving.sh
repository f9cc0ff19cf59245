#!/bin/sh
# serving.sh - predicted against published speeds of inference: output tokens a second, and first tokens
#
# NVIDIA TensorRT-LLM, docs/source/performance.md (release 0.6.1; L40S, and first tokens, of 0.5): static batches, whose
# prompts come at once, then their outputs; in FP8 with caches in FP8 on H100 and L40S, in FP16 on A100.  Figures are
# tokens a second of a device.
#
# No constant was chosen by them.  "old" are long outputs of models whose query heads share keys (LLaMA 70B by 8, Falcon
# 180B by 29): they have the time that reading the cache once for each query head would take, so attention of that
# release did; they do not count.  First tokens of 128 on H100 have three milliseconds (of 80 layers thirteen) that
# the slower devices do not: launches, of which the model of a machine knows nothing.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
bin=$top_builddir/bin
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# kind model device batch tp prompt output figure
cat > rows << 'END'
rate gpt-j-6b h100-80g 1024 1 128 128 26150
rate gpt-j-6b h100-80g 120 1 128 2048 8011
rate gpt-j-6b h100-80g 64 1 2048 128 2551
rate gpt-j-6b h100-80g 64 1 2048 2048 3327
rate llama-2-7b h100-80g 768 1 128 128 19694
rate llama-2-7b h100-80g 112 1 128 2048 6818
rate llama-2-7b h100-80g 80 1 2048 128 2244
rate llama-2-7b h100-80g 48 1 2048 2048 2740
rate llama-2-70b h100-80g 1024 2 128 128 2657
old llama-2-70b h100-80g 480 4 128 2048 1486
rate llama-2-70b h100-80g 96 2 2048 128 306
old llama-2-70b h100-80g 64 2 2048 2048 547
rate falcon-180b h100-80g 1024 4 128 128 987
old falcon-180b h100-80g 1024 8 128 2048 724
rate falcon-180b h100-80g 64 4 2048 128 112
old falcon-180b h100-80g 64 4 2048 2048 264
rate gpt-j-6b l40s 64 1 128 128 3630
rate gpt-j-6b l40s 64 1 128 2048 1859
rate gpt-j-6b l40s 32 1 2048 128 616
rate gpt-j-6b l40s 32 1 2048 2048 757
rate llama-2-7b l40s 64 1 128 128 3240
rate llama-2-7b l40s 64 1 128 2048 1622
rate llama-2-7b l40s 32 1 2048 128 581
rate llama-2-7b l40s 16 1 2048 2048 531
rate gpt-j-6b a100-80g 512 1 128 128 6374
rate gpt-j-6b a100-80g 60 1 2048 128 670
rate llama-2-7b a100-80g 384 1 128 128 5586
rate llama-2-7b a100-80g 60 1 128 2048 1928
rate llama-2-7b a100-80g 52 1 2048 128 591
rate llama-2-70b a100-80g 1280 4 128 128 670
old llama-2-70b a100-80g 240 4 128 2048 525
rate llama-2-70b a100-80g 120 4 2048 128 79
rate falcon-180b a100-80g 1024 8 128 128 232
old falcon-180b a100-80g 128 8 128 2048 180
first gpt-j-6b h100-80g 1 1 128 1 7
first gpt-j-6b h100-80g 1 1 2048 1 29
first llama-2-7b h100-80g 1 1 128 1 7
first llama-2-7b h100-80g 1 1 2048 1 36
first llama-2-70b h100-80g 1 4 128 1 26
first llama-2-70b h100-80g 1 4 2048 1 109
first falcon-180b h100-80g 1 8 128 1 27
first falcon-180b h100-80g 1 8 2048 1 205
first gpt-j-6b l40s 1 1 128 1 12
first gpt-j-6b l40s 1 1 2048 1 71
first llama-2-7b l40s 1 1 128 1 14
first llama-2-7b l40s 1 1 2048 1 73
first gpt-j-6b a100-80g 1 1 128 1 12
first gpt-j-6b a100-80g 1 1 2048 1 129
first llama-2-7b a100-80g 1 1 128 1 16
first llama-2-7b a100-80g 1 1 2048 1 133
first llama-2-70b a100-80g 1 4 128 1 47
first llama-2-70b a100-80g 1 4 2048 1 377
first falcon-180b a100-80g 1 8 128 1 61
first falcon-180b a100-80g 1 8 2048 1 509
END
while read -r kind model device batch tp prompt output figure; do
    test -e "$model.json" || awk -F '\t' -v n="$model" '$1 == n { print $4 }' "$top_srcdir/tests/data/configs.tsv" > "$model.json"
    types="--weights fp8 --compute fp8 --kv-dtype fp8"
    [ "$device" != a100-80g ] || types="--weights f16"
    # shellcheck disable=SC2086 # words are wanted
    "$bin/mem-estimate" plan --gpu "$device" --gpu-mem 1TB --gpus "$tp" --tp "$tp" --pp 1 --dp 1 --ep 1 --sp 1 --prompt-tokens "$prompt" \
        --output-tokens "$output" --requests "$batch" $types --json --top 1 "$model.json" 2> /dev/null |
        sed -n '1s/.*"ttft":\([^,]*\),.*"tokens_per_second_device":\([^,]*\),.*/\1 \2/p' > got
    read -r first rate < got
    share=$(echo "$kind $figure $first $rate" | awk '{ print $1 == "first" ? $2 / 1e3 / $3 : $2 / $4 }')
    echo "$kind $model $device $batch $tp $prompt $output $figure $share"
done < rows > shares
awk '{ printf "%-5s %-12s %-9s batch %4d tp %d, %4d + %4d tokens: %7.0f, %.2f of what is predicted\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }' shares
awk '$1 != "old" { k = $1; n[k]++; sum[k] += log($9); x = $9 < 1 ? 1 / $9 : $9; if (x > most[k]) most[k] = x; near[k] += x < 1.25 }
    END { for (k in n) printf "%s: %d lines, geometric mean %.2f, %d within 1.25, the farthest by %.2f\n", k, n[k], exp(sum[k] / n[k]), near[k], most[k] }' shares | sort
