# man - the pages
dist_man_MANS += \
    %D%/hpo-sweep.1 \
    %D%/mem-estimate.1 \
    %D%/pp-partition.1 \
    %D%/shardutils-calibration.5 \
    %D%/shardutils-family.5 \
    %D%/shardutils.7 \
    %D%/shardutils-checkpoint.5 \
    %D%/tp-run.1 \
    %D%/tp-shard.1
