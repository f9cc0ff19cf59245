# man - the pages
dist_man_MANS += \
    %D%/shardutils-family.5
