# bard.mk - train the sample model anew from random weights, and score it as its reference.json does
#
#   make -f bard.mk TEXT=tinyshakespeare.txt
#
# The first 95 % of TEXT (1.1 MB, the model's tokenizer) is learnt, the rest chooses the checkpoint; heldout.txt is the
# start of that rest.  The model in ../bard, of nll 3.0039, is the best of such a run, which later steps overfit.  With
# seed 0 and two ranks step 1700 is the best, of nll 2.9662: half an hour on two cores (17.8 MFLOPs a token, 2,048 tokens
# a step).  The next make goes on where one was interrupted.
MODEL = ../bard
TEXT = tinyshakespeare.txt
SEQ = 256
STEPS = 3705
EVERY = 100
RANKS = --tp 2

nll.txt: bard.new
	tp-run score --window $(SEQ) $(MODEL)/heldout.txt $< > $@.tmp
	mv $@.tmp $@

# of the checkpoint with the best evaluation
bard.new: bard.done
	best=$$(sed -n 's/.*"eval","step":\([0-9]*\),"eval_loss":\([^,]*\),.*/\2 \1/p' bard.run/log.jsonl | \
	    sort -g | awk 'NR == 1 { print $$2 }') && tp-shard merge -q "bard.run/step-$$(printf '%06d' "$$best")" $@

bard.done: learn.txt choose.txt
	tp-run train -q --resume --init --data learn.txt --eval-data choose.txt --seq $(SEQ) --global-batch 8 --micro-batch 4 \
	    --steps $(STEPS) --lr 1.5e-3 --lr-schedule cosine --warmup 100 --beta2 0.95 --weight-decay 0.1 --dropout 0.1 \
	    --eval-every $(EVERY) --save-every $(EVERY) --keep best $(RANKS) -o bard.run $(MODEL)
	touch $@

learn.txt choose.txt: $(TEXT)
	n=$$(($$(wc -c < $(TEXT)) * 95 / 100)); head -c $$n $(TEXT) > learn.txt; tail -c +$$((n + 1)) $(TEXT) > choose.txt
