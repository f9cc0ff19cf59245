# examples - the sample model and what can be done with it
EXTRA_DIST += %D%/demo.sh %D%/schedule.svg \
    %D%/bard/README %D%/bard/config.json %D%/bard/generation_config.json %D%/bard/heldout.txt \
    %D%/bard/model.safetensors %D%/bard/reference.json %D%/bard/tokenizer.json \
    %D%/bard/tokenizer_config.json \
    %D%/machines/text.mk %D%/machines/job.sbatch %D%/machines/mpirun.sh %D%/machines/train.sbatch %D%/machines/train.sh %D%/machines/plan.sh \
    %D%/train/bard.mk %D%/train/lr.yaml %D%/train/policy.sh %D%/train/reward.awk %D%/train/train.mk \
    %D%/serve/Dockerfile \
    %D%/serve/nginx.conf \
    %D%/serve/tp-run-serve.service \
    %D%/serve/tp-run-serve.socket \
    %D%/sweep/best.mk %D%/sweep/crontab %D%/sweep/member %D%/sweep/require %D%/sweep/window.yaml
