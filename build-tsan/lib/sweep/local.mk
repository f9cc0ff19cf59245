# lib/sweep - hyperparameter sweeps, in rooms
include %D%/space/local.mk
include %D%/sampler/local.mk
include %D%/pruner/local.mk
include %D%/storage/local.mk
include %D%/format/local.mk
include %D%/job/local.mk
