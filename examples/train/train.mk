# train.mk - train a model on a text, score what comes of it, and sweep the learning rate
#
#   make -f train.mk MODEL=../bard TEXT=../bard/heldout.txt STEPS=400
#
# Each rule can be interrupted at any time: the next make goes on from the last checkpoint.
MODEL = bard
TEXT = $(MODEL)/heldout.txt
STEPS = 6
LR = 1e-4
RANKS = --tp 2
OPTIONS = --data $(TEXT) --eval-fraction 0.2 --seq 32 --steps $(STEPS)

score.txt: model.new
	tp-run score $(TEXT) $< > $@.tmp
	mv $@.tmp $@

# a directory that transformers opens
model.new: run.done
	tp-shard merge -q run/step-$$(printf '%06d' $(STEPS)) $@

run.done:
	tp-run train -q --resume --lr $(LR) $(OPTIONS) --save-every 100 --keep 1 $(RANKS) -o run $(MODEL)
	touch $@

losses.svg: run.done
	tp-run plot -o $@ run

# the best of some learning rates, each tried without a checkpoint
lr.txt: lr.yaml
	hpo-sweep run -q lr.yaml -S lr.journal --sampler grid \
	    -- tp-run train -q --lr '{lr}' $(OPTIONS) --eval-every 2 --save-every 0 $(MODEL)
	hpo-sweep best -S lr.journal > $@.tmp
	mv $@.tmp $@
