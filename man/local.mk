# man - the pages
dist_man_MANS += \
    %D%/hpo-sweep.1 \
    %D%/mem-estimate.1 \
    %D%/pp-partition.1 \
    %D%/shardutils-calibration.5 \
    %D%/shardutils-eager.5 \
    %D%/shardutils-family.5 \
    %D%/shardutils-template.5 \
    %D%/shardutils.7 \
    %D%/shardutils-checkpoint.5 \
    %D%/tp-run.1 \
    %D%/tp-run-bench.1 \
    %D%/tp-run-chat.1 \
    %D%/tp-run-classify.1 \
    %D%/tp-run-detokenize.1 \
    %D%/tp-run-devices.1 \
    %D%/tp-run-embed.1 \
    %D%/tp-run-generate.1 \
    %D%/tp-run-load.1 \
    %D%/tp-run-logits.1 \
    %D%/tp-run-plot.1 \
    %D%/tp-run-program.1 \
    %D%/tp-run-score.1 \
    %D%/tp-run-serve.1 \
    %D%/tp-run-tokens.1 \
    %D%/tp-run-train.1 \
    %D%/tp-shard.1

# all pages linked, an index, and pictures that the programs draw
html-local: all
	$(SHELL) $(srcdir)/build-aux/make-html $(srcdir) html bin
clean-local:
	rm -rf html
