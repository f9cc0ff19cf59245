#!/bin/sh
# planner.sh - predicted against published throughput: Kendall's tau of each table, and of all
#
# A pair of a table's lines counts where its figures differ: tau is the pairs in the same order less those
# in the other, as a share.  Layouts of one model are compared by tokens a second of a device, one job being
# the same devices, batch and tokens, too; those of several models by the table's own figure of efficiency, in
# which a large model is no slower than a small one.  That is the harder question: most lines of a table are
# within a tenth of one another.  What a user calls throughput, tokens a second, has a line of its own; it
# follows from MFU or TFLOP/s by what the publication counts of a token.  Whatever a publication does not tell
# is as mem-estimate assumes it; memory is not asked for, because these layouts did run.
#
# ptd       Narayanan et al. 2021, table 1; sizes and chunks from Megatron-LM, examples/sc21/run_table_1.sh:
#           TFLOP/s a device, recomputation among them
# zero-3    the same, table 2: beside ZeRO-3 alone
# selective Korthikanti et al. 2022, abstract: 530B recomputed in full, and but for attention's scores; MFU
# bubbles   Qi et al. 2023, tables 3 and 4: sequences a second of a device.  ZB-1p and ZB-2p stand beside
#           our zb-h1 and zb-h2; 1F1B-I is left out, for there some chunks have no layer
# llama-3   Llama team 2024, table 4: TFLOP/s a device, of which it does not say what they count: half of
#           attention here
# context, context-405b, interleaved   torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 2, 6 and 5:
#           tokens a second of a device, in FP8
# nemo      NVIDIA NeMo, docs/source/performance/performance_summary.md (24.07): TFLOP/s a device, in FP8, all of
#           attention counted
# bridge, bridge-b200, bridge-gb200, bridge-gb300   NVIDIA Megatron Bridge, docs/performance-summary.md (25.11): TFLOP/s and
#           tokens a second of a device; what it recomputes, which the page does not tell, is taken to be nothing
# deepseek  DeepSeek-AI 2024, section 3.1: 180,000 hours of H800 for 10^12 tokens
# mosaic, mosaic-a100   MosaicML, llm-foundry, scripts/train/benchmarking/README.md: MFU, all of attention
#           counted, under FSDP; H100 and A100
# mosaic-40g, mosaic-40g-full   the same, A100 of 40 GB; lines without recomputation and with it.  Nothing was
#           chosen by them, and they do not count for what stands under the tables
#
# Of products with experts, their share of the rate of large ones was chosen with the lines in view that have experts, but
# for those of B200.  Otherwise one constant was chosen with tables in view (cmd/mem-estimate/cluster.c): that FlashAttention-2, older kernels and single
# products reach half of what FlashAttention-2 can (MosaicML ran a Triton kernel of the first generation, submit_benchmarks.py;
# torchtitan PyTorch's own); the rates of newer kernels are their authors' (lib/estimate/gpu.c).  The tables in view are
# those of Narayanan, Korthikanti, Llama 3 and of MosaicML but for its lines of 40 GB; those of Qi, torchtitan, NeMo, Megatron Bridge and DeepSeek were held out.  Both halves have a line.
#
# How far a model can get: a regression of a line's logarithm on those of width, layers, tokens, devices, micro-batch and
# so on, nine numbers fitted to each table of MosaicML by itself, has tau 0.77 on the H100, 0.60 on the A100 and 0.80 on
# the A100 of 40 GB; with all products of two of these (45 numbers) 0.78, 0.71 and 0.83 for lines left out of its fit.
# Five lines contradict their neighbours: mpt-1536 on an A100 with 49,152 tokens a micro-batch has MFU 56.9 in sequences
# of 2,048, but 47.8 of 1,024 and 45.1 of 512 (with 40 GB 52.9, 53.6 and 53.5); on eight H100 it has 34.9 where 16 have
# 37.9; mpt-7168 loses a fourth of its MFU (A100) and a sixth (H100) where its one sequence has 8,192 tokens, not 4,096.
# They take part in 111 of 304 pairs that are told wrong; a line tells tau without them.
#
# What no constant makes good: DeepSpeed's ZeRO-3 of 2021 gathered as if a node had one link to others and not
# eight, and Megatron Bridge's lines with experts are up to a half slower than predicted where the experts of a model are
# not spread over 32 devices or more.  A third of the pairs that are told wrong differ by less than 2 %.  Recomputation ends early, as PyTorch's does from 2.1 on: mosaic-40g-full was measured with an older one.
#
# 405B      seconds of planning its training on 1,024 devices
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
bin=$top_builddir/bin
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# model NAME - NAME.json: a public model, or gpt-WIDTH-HEADS-LAYERS with 51,200 words, mpt-... with 50,368
model() {
    test -e "$1.json" && return
    case $1 in
    gpt-[0-9]* | mpt-*)
        echo "$1" | awk -F - '{ printf "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":%d,", $2
            printf "\"n_head\":%d,\"n_layer\":%d,\"vocab_size\":%d,", $3, $4, $1 == "mpt" ? 50368 : 51200
            printf "\"n_positions\":2048,\"torch_dtype\":\"bfloat16\"}\n" }' > "$1.json"
        ;;
    *) awk -F '\t' -v n="$1" '$1 == n { print $4 }' "$top_srcdir/tests/data/configs.tsv" > "$1.json" ;;
    esac
}

# table model device devices net mesh size batch tokens zero recompute order chunks flash figure
cat > rows << 'END'
ptd gpt-2304-24-24 a100-80g 32 25GB tp=1,pp=1 16 512 2048 0 full 1f1b 1 off 137
ptd gpt-3072-32-30 a100-80g 64 25GB tp=2,pp=1 16 512 2048 0 full 1f1b 1 off 138
ptd gpt-4096-32-36 a100-80g 128 25GB tp=4,pp=1 16 512 2048 0 full 1f1b 1 off 142
ptd gpt-6144-48-40 a100-80g 256 25GB tp=8,pp=1 8 1024 2048 0 full 1f1b 1 off 135
ptd gpt-8192-64-48 a100-80g 512 25GB tp=8,pp=2 4 1536 2048 0 full 1f1b 1 off 138
ptd gpt-10240-80-60 a100-80g 1024 25GB tp=8,pp=4 2 1792 2048 0 full interleaved 3 off 140
ptd gpt-12288-96-80 a100-80g 1536 25GB tp=8,pp=8 2 2304 2048 0 full interleaved 2 off 148
ptd gpt-16384-128-96 a100-80g 1920 25GB tp=8,pp=16 1 2160 2048 0 full interleaved 2 off 155
ptd gpt-20480-128-105 a100-80g 2520 25GB tp=8,pp=35 1 2520 2048 0 full interleaved 3 off 163
ptd gpt-25600-160-128 a100-80g 3072 25GB tp=8,pp=64 1 3072 2048 0 full 1f1b 1 off 163
zero-3 gpt-12288-96-96 a100-80g 384 25GB tp=1,pp=1 4 1536 2048 3 full 1f1b 1 off 144
zero-3 gpt-12288-96-96 a100-80g 768 25GB tp=1,pp=1 2 1536 2048 3 full 1f1b 1 off 88
zero-3 gpt-12288-96-96 a100-80g 1536 25GB tp=1,pp=1 1 1536 2048 3 full 1f1b 1 off 44
zero-3 gpt-20480-128-105 a100-80g 640 25GB tp=1,pp=1 4 2560 2048 3 full 1f1b 1 off 138
zero-3 gpt-20480-128-105 a100-80g 1120 25GB tp=1,pp=1 2 2240 2048 3 full 1f1b 1 off 98
zero-3 gpt-20480-128-105 a100-80g 2240 25GB tp=1,pp=1 1 2240 2048 3 full 1f1b 1 off 48
zero-3 gpt-12288-96-96 a100-80g 384 25GB tp=8,pp=12 1 1536 2048 0 full 1f1b 1 off 153
zero-3 gpt-12288-96-96 a100-80g 768 25GB tp=8,pp=12 1 1536 2048 0 full 1f1b 1 off 149
zero-3 gpt-12288-96-96 a100-80g 1536 25GB tp=8,pp=12 1 1536 2048 0 full 1f1b 1 off 141
zero-3 gpt-20480-128-105 a100-80g 560 25GB tp=8,pp=35 1 2240 2048 0 full 1f1b 1 off 171
zero-3 gpt-20480-128-105 a100-80g 1120 25GB tp=8,pp=35 1 2240 2048 0 full 1f1b 1 off 167
zero-3 gpt-20480-128-105 a100-80g 2240 25GB tp=8,pp=35 1 2240 2048 0 full 1f1b 1 off 159
selective gpt-20480-128-105 a100-80g 2240 25GB tp=8,pp=35 1 2240 2048 0 full interleaved 3 off 42.1
selective gpt-20480-128-105 a100-80g 2240 25GB tp=8,pp=35 1 2240 2048 0 selective interleaved 3 off 54.2
llama-3 llama-3.1-405b h100-80g 8192 50GB tp=8,pp=16,sp=1 1 2048 8192 1 none interleaved 4 on 430
llama-3 llama-3.1-405b h100-80g 16384 50GB tp=8,pp=16,sp=1 1 2048 8192 1 none interleaved 4 on 400
llama-3 llama-3.1-405b h100-80g 16384 50GB tp=8,pp=16,sp=16 1 128 131072 1 none interleaved 4 on 380
context llama-3-8b h100-80g:fp8 8 50GB dp=8,sp=1,tp=1,pp=1 1 8 32768 3 full 1f1b 1 2 3890
context llama-3-8b h100-80g:fp8 8 50GB dp=4,sp=2,tp=1,pp=1 1 4 65536 3 full 1f1b 1 2 2540
context llama-3-8b h100-80g:fp8 8 50GB dp=2,sp=4,tp=1,pp=1 1 2 131072 3 full 1f1b 1 2 1071
context llama-3-8b h100-80g:fp8 8 50GB dp=1,sp=8,tp=1,pp=1 1 1 262144 3 full 1f1b 1 2 548
context-405b llama-3.1-405b h100-80g:fp8 512 50GB dp=8,sp=1,tp=8,pp=8 1 64 32768 3 full 1f1b 1 2 76
context-405b llama-3.1-405b h100-80g:fp8 512 50GB dp=4,sp=2,tp=8,pp=8 1 32 65536 3 full 1f1b 1 2 47
context-405b llama-3.1-405b h100-80g:fp8 512 50GB dp=2,sp=4,tp=8,pp=8 1 16 131072 3 full 1f1b 1 2 31
context-405b llama-3.1-405b h100-80g:fp8 512 50GB dp=1,sp=8,tp=8,pp=8 1 8 262144 3 full 1f1b 1 2 16
interleaved llama-3.1-405b h100-80g:fp8 512 50GB dp=8,sp=1,tp=8,pp=8 4 256 8192 3 full 1f1b 1 2 100
interleaved llama-3.1-405b h100-80g:fp8 512 50GB dp=8,sp=1,tp=8,pp=8 2 256 8192 3 full interleaved 2 2 128
nemo gpt-4096-32-24 h100-80g:fp8 64 50GB tp=1,pp=1,sp=1 4 2048 2048 1 none 1f1b 1 on 736
nemo gpt-6144-48-44 h100-80g:fp8 64 50GB tp=2,pp=1,sp=1 2 256 2048 1 none 1f1b 1 on 750
nemo gpt-12288-96-96 h100-80g:fp8 128 50GB tp=4,pp=8,sp=1 1 256 2048 1 none interleaved 6 on 782
nemo gpt-12288-96-96 h100-80g:fp8 512 50GB tp=4,pp=8,sp=1 2 2048 2048 1 none interleaved 6 on 842
nemo llama-2-7b h100-80g:fp8 8 50GB tp=1,pp=1,sp=1 1 128 4096 1 none 1f1b 1 on 776
nemo llama-2-13b h100-80g:fp8 16 50GB tp=1,pp=4,sp=1 1 128 4096 1 none interleaved 10 on 754
nemo llama-2-70b h100-80g:fp8 64 50GB tp=4,pp=4,sp=1 1 128 4096 1 none interleaved 20 on 759
nemo llama-3-8b h100-80g:fp8 8 50GB tp=1,pp=1,sp=2 1 128 8192 1 none 1f1b 1 on 697
nemo llama-3-70b h100-80g:fp8 64 50GB tp=4,pp=4,sp=2 1 128 8192 1 none interleaved 5 on 738
mosaic mpt-8192-64-80 h100-80g 64 50GB tp=1,pp=1,sp=1 8 2048 2048 3 full 1f1b 1 2 42.57
mosaic mpt-8192-64-80 h100-80g 32 50GB tp=1,pp=1,sp=1 2 1024 2048 3 full 1f1b 1 2 36.15
mosaic mpt-7168-64-48 h100-80g 8 50GB tp=1,pp=1,sp=1 1 168 8192 3 full 1f1b 1 2 29.92
mosaic mpt-7168-64-48 h100-80g 8 50GB tp=1,pp=1,sp=1 1 168 4096 3 full 1f1b 1 2 35.86
mosaic mpt-7168-64-48 h100-80g 32 50GB tp=1,pp=1,sp=1 14 1344 2048 3 full 1f1b 1 2 43.92
mosaic mpt-7168-64-48 h100-80g 16 50GB tp=1,pp=1,sp=1 10 480 2048 3 full 1f1b 1 2 43.07
mosaic mpt-7168-64-48 h100-80g 8 50GB tp=1,pp=1,sp=1 3 504 2048 3 full 1f1b 1 2 38.11
mosaic mpt-7168-64-48 h100-80g 8 50GB tp=1,pp=1,sp=1 6 1008 1024 3 full 1f1b 1 2 38.76
mosaic mpt-5120-40-40 h100-80g 8 50GB tp=1,pp=1,sp=1 1 24 32768 3 full 1f1b 1 2 31.68
mosaic mpt-5120-40-40 h100-80g 8 50GB tp=1,pp=1,sp=1 3 72 16384 3 full 1f1b 1 2 35.55
mosaic mpt-5120-40-40 h100-80g 8 50GB tp=1,pp=1,sp=1 10 240 4096 3 full 1f1b 1 2 41.6
mosaic mpt-5120-40-40 h100-80g 64 50GB tp=1,pp=1,sp=1 2 128 2048 3 none 1f1b 1 2 39.86
mosaic mpt-5120-40-40 h100-80g 32 50GB tp=1,pp=1,sp=1 2 64 2048 3 none 1f1b 1 2 39.95
mosaic mpt-5120-40-40 h100-80g 16 50GB tp=1,pp=1,sp=1 2 32 2048 3 none 1f1b 1 2 39.58
mosaic mpt-5120-40-40 h100-80g 8 50GB tp=1,pp=1,sp=1 2 16 2048 3 none 1f1b 1 2 39.79
mosaic mpt-5120-40-40 h100-80g 8 50GB tp=1,pp=1,sp=1 40 960 1024 3 full 1f1b 1 2 44.27
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 28.59
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 2 32 32768 3 full 1f1b 1 2 30.94
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 8 128 8192 3 full 1f1b 1 2 37.14
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 16 256 4096 3 full 1f1b 1 2 40.42
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 6 48 2048 3 none 1f1b 1 2 46.44
mosaic mpt-4096-32-32 h100-80g 8 50GB tp=1,pp=1,sp=1 64 1024 1024 3 full 1f1b 1 2 42.83
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 26.81
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 3 144 32768 3 full 1f1b 1 2 28.84
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 1 48 16384 3 none 1f1b 1 2 36.34
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 3 144 8192 3 none 1f1b 1 2 40.31
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 5 240 4096 3 none 1f1b 1 2 42.31
mosaic mpt-2560-20-32 h100-80g 64 50GB tp=1,pp=1,sp=1 6 1152 2048 3 none 1f1b 1 2 40.8
mosaic mpt-2560-20-32 h100-80g 32 50GB tp=1,pp=1,sp=1 6 576 2048 3 none 1f1b 1 2 41.7
mosaic mpt-2560-20-32 h100-80g 16 50GB tp=1,pp=1,sp=1 10 480 2048 3 none 1f1b 1 2 43.73
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 20 960 1024 3 none 1f1b 1 2 46.2
mosaic mpt-2560-20-32 h100-80g 8 50GB tp=1,pp=1,sp=1 40 1920 512 3 none 1f1b 1 2 46.32
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 26.34
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 1 32 32768 3 none 1f1b 1 2 33.54
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 2 64 16384 3 none 1f1b 1 2 35.22
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 3 96 8192 3 none 1f1b 1 2 37.73
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 7 224 4096 3 none 1f1b 1 2 40.26
mosaic mpt-2048-16-24 h100-80g 64 50GB tp=1,pp=1,sp=1 20 1280 2048 3 none 1f1b 1 2 40.85
mosaic mpt-2048-16-24 h100-80g 32 50GB tp=1,pp=1,sp=1 20 640 2048 3 none 1f1b 1 2 41.52
mosaic mpt-2048-16-24 h100-80g 16 50GB tp=1,pp=1,sp=1 20 320 2048 3 none 1f1b 1 2 42.36
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 14 112 2048 3 none 1f1b 1 2 41.82
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 18 576 1024 3 none 1f1b 1 2 41.95
mosaic mpt-2048-16-24 h100-80g 8 50GB tp=1,pp=1,sp=1 56 1792 512 3 none 1f1b 1 2 43.21
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 1 16 32768 3 none 1f1b 1 2 31.84
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 3 48 16384 3 none 1f1b 1 2 33.57
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 6 96 8192 3 none 1f1b 1 2 34.84
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 12 192 4096 3 none 1f1b 1 2 35.83
mosaic mpt-1536-12-24 h100-80g 32 50GB tp=1,pp=1,sp=1 24 768 2048 3 none 1f1b 1 2 37.57
mosaic mpt-1536-12-24 h100-80g 16 50GB tp=1,pp=1,sp=1 24 384 2048 3 none 1f1b 1 2 37.89
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 24 384 2048 3 none 1f1b 1 2 34.9
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 48 768 1024 3 none 1f1b 1 2 39.76
mosaic mpt-1536-12-24 h100-80g 8 50GB tp=1,pp=1,sp=1 96 1536 512 3 none 1f1b 1 2 40.42
mosaic-a100 mpt-8192-64-80 a100-80g 64 25GB tp=1,pp=1,sp=1 8 2048 2048 3 full 1f1b 1 2 53.33
mosaic-a100 mpt-8192-64-80 a100-80g 32 25GB tp=1,pp=1,sp=1 2 1024 2048 3 full 1f1b 1 2 48.56
mosaic-a100 mpt-7168-64-48 a100-80g 8 25GB tp=1,pp=1,sp=1 1 168 8192 3 full 1f1b 1 2 39.38
mosaic-a100 mpt-7168-64-48 a100-80g 8 25GB tp=1,pp=1,sp=1 1 168 4096 3 full 1f1b 1 2 51.37
mosaic-a100 mpt-7168-64-48 a100-80g 8 25GB tp=1,pp=1,sp=1 3 504 2048 3 full 1f1b 1 2 55.3
mosaic-a100 mpt-7168-64-48 a100-80g 8 25GB tp=1,pp=1,sp=1 6 1008 1024 3 full 1f1b 1 2 55.82
mosaic-a100 mpt-7168-64-48 a100-80g 8 25GB tp=1,pp=1,sp=1 12 2016 512 3 full 1f1b 1 2 56.4
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 1 24 32768 3 full 1f1b 1 2 51.69
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 3 72 16384 3 full 1f1b 1 2 54.07
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 5 120 8192 3 full 1f1b 1 2 56.07
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 10 240 4096 3 full 1f1b 1 2 57.62
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 2 48 2048 3 none 1f1b 1 2 59.57
mosaic-a100 mpt-5120-40-40 a100-80g 8 25GB tp=1,pp=1,sp=1 40 960 1024 3 full 1f1b 1 2 59.48
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 46.97
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 2 32 32768 3 full 1f1b 1 2 49.46
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 4 64 16384 3 full 1f1b 1 2 51.96
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 8 128 8192 3 full 1f1b 1 2 54.47
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 16 256 4096 3 full 1f1b 1 2 54.84
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 6 96 2048 3 none 1f1b 1 2 64.23
mosaic-a100 mpt-4096-32-32 a100-80g 8 25GB tp=1,pp=1,sp=1 64 1024 1024 3 full 1f1b 1 2 58.01
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 46.05
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 3 144 32768 3 full 1f1b 1 2 47.18
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 1 48 16384 3 none 1f1b 1 2 57.13
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 3 144 8192 3 none 1f1b 1 2 59.34
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 5 240 4096 3 none 1f1b 1 2 60.53
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 10 160 2048 3 none 1f1b 1 2 62.11
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 20 960 1024 3 none 1f1b 1 2 62.73
mosaic-a100 mpt-2560-20-32 a100-80g 8 25GB tp=1,pp=1,sp=1 40 1920 512 3 none 1f1b 1 2 63.71
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 46.18
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 none 1f1b 1 2 55.52
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 2 64 16384 3 none 1f1b 1 2 56.6
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 3 96 8192 3 none 1f1b 1 2 56.69
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 7 224 4096 3 none 1f1b 1 2 59.0
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 14 448 2048 3 none 1f1b 1 2 59.86
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 18 576 1024 3 none 1f1b 1 2 60.15
mosaic-a100 mpt-2048-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 56 1792 512 3 none 1f1b 1 2 60.68
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 full 1f1b 1 2 45.34
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 32768 3 none 1f1b 1 2 54.57
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 3 48 16384 3 none 1f1b 1 2 54.64
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 6 96 8192 3 none 1f1b 1 2 55.31
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 12 192 4096 3 none 1f1b 1 2 56.05
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 24 384 2048 3 none 1f1b 1 2 56.85
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 48 768 1024 3 none 1f1b 1 2 47.76
mosaic-a100 mpt-1536-12-24 a100-80g 8 25GB tp=1,pp=1,sp=1 96 1536 512 3 none 1f1b 1 2 45.07
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 none 1f1b 1 2 52.7
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 2 32 32768 3 none 1f1b 1 2 52.46
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 4 64 16384 3 none 1f1b 1 2 53.28
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 8 128 8192 3 none 1f1b 1 2 53.8
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 16 256 4096 3 none 1f1b 1 2 53.31
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 32 512 2048 3 none 1f1b 1 2 51.62
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 64 1024 1024 3 none 1f1b 1 2 50.51
mosaic-a100 mpt-1024-16-24 a100-80g 8 25GB tp=1,pp=1,sp=1 128 2048 512 3 none 1f1b 1 2 50.61
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 1 16 65536 3 none 1f1b 1 2 54.13
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 2 32 32768 3 none 1f1b 1 2 52.71
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 4 64 16384 3 none 1f1b 1 2 50.61
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 8 128 8192 3 none 1f1b 1 2 48.85
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 16 256 4096 3 none 1f1b 1 2 46.08
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 40 640 2048 3 none 1f1b 1 2 44.79
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 64 1024 1024 3 none 1f1b 1 2 43.15
mosaic-a100 mpt-768-12-12 a100-80g 8 25GB tp=1,pp=1,sp=1 128 2048 512 3 none 1f1b 1 2 42.56
mosaic-40g mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 1 64 8192 3 none 1f1b 1 2 55.13
mosaic-40g mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 2 128 4096 3 none 1f1b 1 2 56.18
mosaic-40g mpt-2560-20-32 a100-40g 128 25GB tp=1,pp=1,sp=1 6 768 2048 3 none 1f1b 1 2 54.8
mosaic-40g mpt-2560-20-32 a100-40g 64 25GB tp=1,pp=1,sp=1 6 384 2048 3 none 1f1b 1 2 55.94
mosaic-40g mpt-2560-20-32 a100-40g 32 25GB tp=1,pp=1,sp=1 6 192 2048 3 none 1f1b 1 2 56.96
mosaic-40g mpt-2560-20-32 a100-40g 16 25GB tp=1,pp=1,sp=1 5 80 2048 3 none 1f1b 1 2 56.02
mosaic-40g mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 5 320 2048 3 none 1f1b 1 2 57.82
mosaic-40g mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 10 640 1024 3 none 1f1b 1 2 58.14
mosaic-40g mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 20 1280 512 3 none 1f1b 1 2 59.49
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 1 64 16384 3 none 1f1b 1 2 55.23
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 2 128 8192 3 none 1f1b 1 2 55.29
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 4 256 4096 3 none 1f1b 1 2 55.85
mosaic-40g mpt-2048-16-24 a100-40g 128 25GB tp=1,pp=1,sp=1 10 1280 2048 3 none 1f1b 1 2 54.41
mosaic-40g mpt-2048-16-24 a100-40g 64 25GB tp=1,pp=1,sp=1 10 640 2048 3 none 1f1b 1 2 55.44
mosaic-40g mpt-2048-16-24 a100-40g 32 25GB tp=1,pp=1,sp=1 10 320 2048 3 none 1f1b 1 2 45.39
mosaic-40g mpt-2048-16-24 a100-40g 16 25GB tp=1,pp=1,sp=1 8 128 2048 3 none 1f1b 1 2 55.69
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 8 512 2048 3 none 1f1b 1 2 56.23
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 16 1024 1024 3 none 1f1b 1 2 57.02
mosaic-40g mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 32 2048 512 3 none 1f1b 1 2 57.1
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 16384 3 none 1f1b 1 2 53.26
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 3 96 8192 3 none 1f1b 1 2 53.12
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 6 192 4096 3 none 1f1b 1 2 53.0
mosaic-40g mpt-1536-12-24 a100-40g 128 25GB tp=1,pp=1,sp=1 12 1536 2048 3 none 1f1b 1 2 50.73
mosaic-40g mpt-1536-12-24 a100-40g 64 25GB tp=1,pp=1,sp=1 12 768 2048 3 none 1f1b 1 2 51.44
mosaic-40g mpt-1536-12-24 a100-40g 32 25GB tp=1,pp=1,sp=1 12 384 2048 3 none 1f1b 1 2 51.97
mosaic-40g mpt-1536-12-24 a100-40g 16 25GB tp=1,pp=1,sp=1 12 192 2048 3 none 1f1b 1 2 51.9
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 12 384 2048 3 none 1f1b 1 2 52.89
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 24 768 1024 3 none 1f1b 1 2 53.63
mosaic-40g mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 48 1536 512 3 none 1f1b 1 2 53.47
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 none 1f1b 1 2 51.55
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 2 64 16384 3 none 1f1b 1 2 51.78
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 4 128 8192 3 none 1f1b 1 2 51.39
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 8 256 4096 3 none 1f1b 1 2 50.38
mosaic-40g mpt-1024-16-24 a100-40g 128 25GB tp=1,pp=1,sp=1 18 2304 2048 3 none 1f1b 1 2 45.61
mosaic-40g mpt-1024-16-24 a100-40g 64 25GB tp=1,pp=1,sp=1 18 1152 2048 3 none 1f1b 1 2 46.27
mosaic-40g mpt-1024-16-24 a100-40g 32 25GB tp=1,pp=1,sp=1 18 576 2048 3 none 1f1b 1 2 47.26
mosaic-40g mpt-1024-16-24 a100-40g 16 25GB tp=1,pp=1,sp=1 18 288 2048 3 none 1f1b 1 2 48.66
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 16 512 2048 3 none 1f1b 1 2 49.17
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 32 1024 1024 3 none 1f1b 1 2 48.73
mosaic-40g mpt-1024-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 64 2048 512 3 none 1f1b 1 2 48.39
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 none 1f1b 1 2 47.27
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 2 48 16384 3 none 1f1b 1 2 46.77
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 5 120 8192 3 none 1f1b 1 2 46.94
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 13 312 4096 3 none 1f1b 1 2 44.82
mosaic-40g mpt-768-12-12 a100-40g 128 25GB tp=1,pp=1,sp=1 26 3328 2048 3 none 1f1b 1 2 38.86
mosaic-40g mpt-768-12-12 a100-40g 64 25GB tp=1,pp=1,sp=1 26 1664 2048 3 none 1f1b 1 2 39.27
mosaic-40g mpt-768-12-12 a100-40g 32 25GB tp=1,pp=1,sp=1 26 832 2048 3 none 1f1b 1 2 39.86
mosaic-40g mpt-768-12-12 a100-40g 16 25GB tp=1,pp=1,sp=1 26 416 2048 3 none 1f1b 1 2 40.93
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 26 624 2048 3 none 1f1b 1 2 42.75
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 52 1248 1024 3 none 1f1b 1 2 40.89
mosaic-40g mpt-768-12-12 a100-40g 8 25GB tp=1,pp=1,sp=1 104 2496 512 3 none 1f1b 1 2 40.26
mosaic-40g-full mpt-8192-64-80 a100-40g 128 25GB tp=1,pp=1,sp=1 4 512 2048 3 full 1f1b 1 2 48.91
mosaic-40g-full mpt-8192-64-80 a100-40g 64 25GB tp=1,pp=1,sp=1 2 128 2048 3 full 1f1b 1 2 35.87
mosaic-40g-full mpt-7168-64-48 a100-40g 128 25GB tp=1,pp=1,sp=1 6 768 2048 3 full 1f1b 1 2 52.25
mosaic-40g-full mpt-7168-64-48 a100-40g 32 25GB tp=1,pp=1,sp=1 4 128 2048 3 full 1f1b 1 2 51.74
mosaic-40g-full mpt-5120-40-40 a100-40g 8 25GB tp=1,pp=1,sp=1 1 128 8192 3 full 1f1b 1 2 43.95
mosaic-40g-full mpt-5120-40-40 a100-40g 8 25GB tp=1,pp=1,sp=1 2 256 4096 3 full 1f1b 1 2 44.85
mosaic-40g-full mpt-5120-40-40 a100-40g 128 25GB tp=1,pp=1,sp=1 16 2048 2048 3 full 1f1b 1 2 51.93
mosaic-40g-full mpt-5120-40-40 a100-40g 64 25GB tp=1,pp=1,sp=1 16 1024 2048 3 full 1f1b 1 2 52.04
mosaic-40g-full mpt-5120-40-40 a100-40g 32 25GB tp=1,pp=1,sp=1 14 448 2048 3 full 1f1b 1 2 52.62
mosaic-40g-full mpt-5120-40-40 a100-40g 16 25GB tp=1,pp=1,sp=1 10 160 2048 3 full 1f1b 1 2 52.5
mosaic-40g-full mpt-5120-40-40 a100-40g 8 25GB tp=1,pp=1,sp=1 4 512 2048 3 full 1f1b 1 2 43.94
mosaic-40g-full mpt-5120-40-40 a100-40g 8 25GB tp=1,pp=1,sp=1 8 1024 1024 3 full 1f1b 1 2 44.07
mosaic-40g-full mpt-5120-40-40 a100-40g 8 25GB tp=1,pp=1,sp=1 16 2048 512 3 full 1f1b 1 2 44.28
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 16384 3 full 1f1b 1 2 47.65
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 3 96 8192 3 full 1f1b 1 2 49.04
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 6 192 4096 3 full 1f1b 1 2 50.11
mosaic-40g-full mpt-4096-32-32 a100-40g 128 25GB tp=1,pp=1,sp=1 18 2304 2048 3 full 1f1b 1 2 50.14
mosaic-40g-full mpt-4096-32-32 a100-40g 64 25GB tp=1,pp=1,sp=1 18 1152 2048 3 full 1f1b 1 2 50.73
mosaic-40g-full mpt-4096-32-32 a100-40g 32 25GB tp=1,pp=1,sp=1 18 576 2048 3 full 1f1b 1 2 51.55
mosaic-40g-full mpt-4096-32-32 a100-40g 16 25GB tp=1,pp=1,sp=1 16 256 2048 3 full 1f1b 1 2 50.44
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 12 384 2048 3 full 1f1b 1 2 50.92
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 24 768 1024 3 full 1f1b 1 2 51.31
mosaic-40g-full mpt-4096-32-32 a100-40g 8 25GB tp=1,pp=1,sp=1 48 1536 512 3 full 1f1b 1 2 50.85
mosaic-40g-full mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 full 1f1b 1 2 46.03
mosaic-40g-full mpt-2560-20-32 a100-40g 8 25GB tp=1,pp=1,sp=1 2 128 16384 3 full 1f1b 1 2 46.14
mosaic-40g-full mpt-2048-16-24 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 full 1f1b 1 2 45.07
mosaic-40g-full mpt-1536-12-24 a100-40g 8 25GB tp=1,pp=1,sp=1 1 32 32768 3 full 1f1b 1 2 44.53
bridge llama-3-8b h100-80g:fp8 8 50GB tp=1,pp=1,sp=1 1 128 8192 3 none 1f1b 1 on 744@14451
bridge llama-3-70b h100-80g:fp8 64 50GB tp=4,pp=8,sp=1 1 128 8192 1 none interleaved 5 on 719@1602
bridge llama-3.1-405b h100-80g:fp8 1024 50GB tp=8,pp=8,sp=2 1 512 8192 1 none interleaved 8 on 737@292
bridge gpt-oss-120b h100-80g 64 50GB tp=1,pp=4,sp=1,ep=8 4 512 4096 1 none 1f1b 1 on 153@5630
bridge-b200 llama-3-8b b200:fp8 8 50GB tp=1,pp=1,sp=1 2 128 8192 1 none 1f1b 1 on 1576@30624
bridge-b200 llama-3.1-405b b200:fp8 128 50GB tp=4,pp=8,sp=2 1 64 8192 1 none interleaved 8 on 1667@661
bridge-b200 deepseek-v3 b200:fp8 256 50GB tp=1,pp=16,sp=1,ep=8 1 2048 4096 1 none 1f1b 1 on 557@2139
bridge-b200 qwen3-235b-a22b b200:fp8 64 50GB tp=1,pp=8,sp=1,ep=8 1 1024 4096 1 none interleaved 2 on 484@3269
bridge-b200 gpt-oss-120b b200 64 50GB tp=1,pp=1,sp=1,ep=8 4 512 4096 1 none 1f1b 1 on 223@8213
bridge-gb200 llama-3-8b gb200:fp8 8 50GB tp=1,pp=1,sp=1 2 128 8192 1 none 1f1b 1 on 1622@31508
bridge-gb200 llama-3-70b gb200:fp8 64 50GB tp=1,pp=1,sp=1 2 256 8192 3 none 1f1b 1 on 1937@4312
bridge-gb200 llama-3.1-405b gb200:fp8 256 50GB tp=4,pp=16,sp=1 1 1536 8192 1 none interleaved 4 on 2053@813
bridge-gb200 deepseek-v3 gb200 256 50GB tp=1,pp=4,sp=1,ep=64 1 4096 4096 1 none interleaved 4 on 782@3139
bridge-gb200 deepseek-v3 gb200:fp8 256 50GB tp=1,pp=8,sp=1,ep=32 1 4096 4096 1 none interleaved 4 on 1003@4018
bridge-gb200 qwen3-235b-a22b gb200 256 50GB tp=1,pp=8,sp=1,ep=32 1 8192 4096 1 none interleaved 3 on 728@4916
bridge-gb200 gpt-oss-120b gb200 64 50GB tp=1,pp=1,sp=1,ep=64 1 1280 8192 1 none 1f1b 1 on 488@15876
bridge-gb300 llama-3-8b gb300:fp8 8 100GB tp=1,pp=1,sp=1 2 128 8192 1 none 1f1b 1 on 1933@37556
bridge-gb300 llama-3-70b gb300:fp8 64 100GB tp=1,pp=1,sp=1 2 256 8192 3 none 1f1b 1 on 2030@4520
bridge-gb300 llama-3.1-405b gb300:fp8 256 100GB tp=2,pp=8,sp=2 1 1536 8192 1 none interleaved 4 on 2522@999
bridge-gb300 deepseek-v3 gb300 256 100GB tp=1,pp=2,sp=1,ep=32 1 4096 4096 1 none interleaved 4 on 961@3848
bridge-gb300 deepseek-v3 gb300:fp8 256 100GB tp=1,pp=2,sp=1,ep=32 1 4096 4096 1 none interleaved 4 on 1088@4357
bridge-gb300 qwen3-235b-a22b gb300 256 100GB tp=1,pp=4,sp=1,ep=16 2 8192 4096 1 none interleaved 12 on 907@6131
bridge-gb300 gpt-oss-120b gb300 64 100GB tp=1,pp=1,sp=1,ep=64 2 1280 8192 1 none 1f1b 1 on 565@18347
deepseek deepseek-v3 h800:fp8 2048 50GB tp=1,pp=16,sp=1,ep=64 1 15360 4096 1 full dualpipe 2 on 343@1543
END
# model heads layers size devices, and each order's figures for three numbers of micro-batches
while read -r width heads layers size devices few some many figures; do
    for order in zb-h2 zb-h1 1f1b; do
        for number in $few $some $many; do
            echo "bubbles gpt-$width-$heads-$layers a100-80g $devices 25GB tp=1,pp=$devices $size" \
                "$((size * number)) 1024 0 none $order 1 off ${figures%% *}"
            figures=${figures#* }
        done
    done
done >> rows << 'END'
2304 24 22 6 8 24 32 64 14.5 14.8 14.9 12.9 13.4 14.2 11.8 12.5 13.6
4096 32 30 3 8 24 32 64 4.32 4.35 4.39 3.88 4.00 4.20 3.50 3.70 4.03
5120 40 46 1 16 48 64 128 1.81 1.83 1.85 1.61 1.67 1.76 1.40 1.49 1.64
6144 48 62 1 32 96 128 256 0.99 1.00 1.00 0.87 0.90 0.96 0.76 0.80 0.88
END

# Table, model, published and predicted figure, published and predicted tokens a second of a device, job
while read -r table name device devices net mesh size batch tokens zero recompute order chunks flash figure; do
    model "$name"
    set -- --gpu "${device%:fp8}"
    [ "$device" = "${device%:fp8}" ] || set -- "$@" --compute fp8
    case $device in gb*) set -- "$@" --gpus-per-node 64 ;; esac
    predicted=$("$bin/mem-estimate" plan "$@" --mode train --json --weights bf16 --gpu-mem 1024GiB --gpus "$devices" \
        --net "$net" --mesh "$mesh" --micro-batch "$size" --global-batch "$batch" --seq "$tokens" --zero "$zero" \
        --recompute "$recompute" --schedule "$order" --model-chunks "$chunks" --flash "$flash" --top 1 "$name.json" |
        sed -n 's/.*"type":"plan".*"tokens_per_second":\([0-9.e+-]*\),"mfu":\([0-9.e+-]*\).*/\1 \2/p')
    echo "$table $name $tokens $devices $figure ${predicted:-missing -} $batch $device"
done < rows | awk '
# Operations of a token as the publication counts them, with w columns, n layers and s tokens: products of a
# layer are w * w times those of attention (q and its result), of keys and values, and of what follows
BEGIN {
    split("llama-2-7b 4096 32 1 11008 32000 llama-2-13b 5120 40 1 13824 32000 llama-2-70b 8192 80 8 28672 32000 " \
        "llama-3-8b 4096 32 4 14336 128256 llama-3-70b 8192 80 8 28672 128256 llama-3.1-405b 16384 126 16 53248 128256", f, " ")
    for (i = 1; i in f; i += 6) for (k = 1; k < 6; k++) shape[f[i], k] = f[i + k]
}
function counted(table, name, s,  d, w, n, v, layer) {
    if (split(name, d, "-") && name ~ /^(gpt|mpt)-[0-9]/) {
        w = d[2]; n = d[4]; layer = 12 * w * w
        v = name ~ /^mpt/ ? 50368 : 51200
    } else {
        w = shape[name, 1]; n = shape[name, 2]; v = shape[name, 5]
        layer = 2 * w * w + 2 * w * w / shape[name, 3] + 3 * w * shape[name, 4]
    }
    if (table ~ /ptd|zero-3/) return 96 * n * w * w * (1 + s / (6 * w) + v / (16 * n * w))
    if (table ~ /mosaic/) return 6 * (n * (layer + 13 * w) + (v + s) * w) + 12 * n * w * s
    return 6 * (n * layer + v * w) + (table == "nemo" ? 12 : 6) * n * w * s
}
{
    flops = counted($1, $2, $3)
    unit = flops ? 1e12 / flops : 0
    if ($1 ~ /mosaic/) unit = ($9 ~ /^a100/ ? 3.12e12 : 9.89e12) / flops
    if ($1 == "selective") unit = 3.12e12 / flops
    if ($1 == "bubbles") unit = $3
    if ($1 ~ /context|interleaved/) unit = 1
    if (split($5, own, "@") > 1) { # the publication tells both
        $5 = own[1]
        unit = own[2] / own[1]
    }
    if ($6 != "missing") print $1, $2, $5, $6 / $4 / unit, $5 * unit, $6 / $4, $3 "-" $4 "-" $8
    else print $1, $2, $6
}' > figures

awk -v verbose="${VERBOSE:-}" '
function median(h,  m, k, x, y, less) { # the line that half of them are no further off than
    m = count_of[h]
    for (k = 1; k <= m; k++) {
        x = off[h, k]
        less = 0
        for (y = 1; y <= m; y++) less += off[h, y] <= x
        if (less * 2 >= m && (!best[h] || x < best[h])) best[h] = x
    }
    return best[h]
}
BEGIN {
    contradicts["mosaic mpt-7168-64-48 8192-8-168"]
    contradicts["mosaic mpt-1536-12-24 2048-8-384"]
    contradicts["mosaic-a100 mpt-7168-64-48 8192-8-168"]
    contradicts["mosaic-a100 mpt-1536-12-24 1024-8-768"]
    contradicts["mosaic-a100 mpt-1536-12-24 512-8-1536"]
}
function sign(x) { return x > 0 ? 1 : x < 0 ? -1 : 0 }
function count(what, agree) { same[what] += agree; pairs[what]++ }
function show(what, label) { if (pairs[what]) printf "%-13s tau %5.2f of %4d pairs%s\n", what, same[what] / pairs[what], pairs[what], label }
# published/predicted: the geometric mean, and how far lines are from it
function ratio(what,  mean) {
    mean = sum[what] / lines[what]
    return sprintf(", %2d lines, tokens/s %.2f of predicted, give or take %2.0f %%", lines[what], exp(mean),
        100 * sqrt((square[what] / lines[what] - mean * mean > 0 ? square[what] / lines[what] - mean * mean : 0)))
}
# Sources of which no constant was chosen, and the others
function half(t) { return t ~ /bubbles|context|interleaved|nemo|bridge|deepseek|40g/ ? "held out" : "fitted" }
$3 == "missing" { print "no prediction:", $0; exit bad = 1 }
{
    odd[NR] = ($1 " " $2 " " $7) in contradicts
    table[NR] = $1; model[NR] = $2; want[NR] = $3; got[NR] = $4; tokens[NR] = $5; predicted[NR] = $6; job[NR] = $7
    if (verbose) printf "%-12s %-16s %-16s %8s %8.4g %9.4g %9.4g %5.2f\n", $1, $2, $7, $3, $4, $5, $6, $5 / $6
    if (!($1 in lines)) name[++n] = $1
    off[half($1), ++count_of[half($1)]] = $5 > $6 ? $5 / $6 : $6 / $5
    lines[$1]++
    sum[$1] += log($5 / $6)
    square[$1] += log($5 / $6) ^ 2
}
END {
    if (bad) exit 1
    for (i = 1; i <= NR; i++) {
        t = table[i]
        for (j = i + 1; j <= NR; j++) {
            if (table[j] != t || want[i] == want[j] || (t == "bubbles" && model[i] != model[j])) continue
            speed = sign(tokens[i] - tokens[j]) * sign(predicted[i] - predicted[j])
            several = model[i] != model[j]
            agree = several ? sign(want[i] - want[j]) * sign(got[i] - got[j]) : speed
            count(t, agree)
            count(half(t), agree)
            if (t ~ /40g/) continue
            count("all", agree)
            if (!odd[i] && !odd[j]) count("without", agree)
            count(several ? "several" : "one model", agree)
            if (several) count("tokens/s", speed)
            if (!several && job[i] == job[j]) count("one job", agree)
        }
    }
    for (i = 1; i <= n; i++) show(name[i], ratio(name[i]))
    for (h in count_of) show(h, sprintf(": %d lines, half of them within %.2f of predicted tokens/s", count_of[h], median(h)))
    show("one job", ": one model on the same devices, batch and tokens, by tokens/s")
    show("one model", ", by tokens/s")
    show("tokens/s", ": several models, by tokens/s")
    show("several", ": several models, by the table'"'"'s TFLOP/s or MFU")
    show("all", ": one model by tokens/s, several by the table'"'"'s figure")
    show("without", ": all but the five lines that contradict their neighbours")
}' figures

model llama-3.1-405b
start=$(date +%s.%N)
"$bin/mem-estimate" plan --mode train --gpu h100-80g --gpus 1024 --global-batch 2048 --seq 8192 --weights bf16 llama-3.1-405b.json > plan
date +%s.%N | awk -v s="$start" '{ printf "405B          %.2f s of 1\n", $1 - s }'
