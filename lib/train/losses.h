/* losses - what a training run minimizes: the table of losses
 *
 * A row says which labels a sample has, and what the mean is taken over.  The operation
 * that computes a loss from the logits, and its derivative, are those of the tail of
 * the program (program_tail): the negative log-likelihood of a label, of a row of
 * tokens or of a whole text.  Some losses are functions of those of a sample's
 * tokens, by whose derivative that of each row is multiplied.  Other losses are
 * functions of the logits of a sample, and the reverse begins with the gradient that
 * they give. */
#ifndef LIB_TRAIN_LOSSES_H
#define LIB_TRAIN_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/model/model.h"
#include "lib/run/lossroom.h"

enum loss_kind {
    LOSS_NEXT,   /* of the token after each token */
    LOSS_TARGET, /* of each token of a text, which a decoder makes of a source */
    LOSS_MASKED, /* of tokens that were masked (Devlin et al. 2018) */
    LOSS_CLASS,  /* of a text's class */
    LOSS_TAGS,   /* of each token's class */
    LOSS_DPO,    /* of which of two answers is preferred (Rafailov et al. 2023) */
    LOSS_VALUES, /* of numbers of a text (regression) */
    LOSS_LABELS, /* of classes of which a text has any number */
    LOSS_SPAN,   /* of where an answer begins and ends in a text */
    LOSS_REWARD, /* of which of two texts has the higher score (Ouyang et al. 2022) */
    LOSS_ORPO,   /* of which of two answers is preferred, beside the answer itself
                  * (Hong et al. 2024) */
    LOSS_CHOICE, /* of which of several texts is the right one */
    LOSS_KTO,    /* of whether an answer is good (Ethayarajh et al. 2024) */
    LOSS_POLICY, /* of texts that were drawn, by their advantages (Schulman et al. 2017,
                  * Shao et al. 2024) */
    LOSS_DISTIL, /* of a teacher's probabilities (Hinton et al. 2015) */
    LOSS_KINDS
};

/* The labels of a sample. */
enum loss_labels {
    LABELS_NEXT,    /* the next tokens */
    LABELS_TARGET,  /* the tokens of "target"; an encoder reads "source" */
    LABELS_MASKED,  /* the tokens that were masked */
    LABELS_TEXT,    /* one, in "label" */
    LABELS_TOKENS,  /* one for each token, in "labels" */
    LABELS_PAIR,    /* the next tokens of two answers, "chosen" and "rejected", */
    LABELS_TEXTS,   /* or the two texts alone */
    LABELS_VALUE,   /* numbers, in "label", */
    LABELS_VALUES,  /* or in "labels" */
    LABELS_SPAN,    /* two places, in "start_positions" and "end_positions" */
    LABELS_CHOICES, /* which of "choices", in "label" */
    LABELS_JUDGED,  /* the next tokens of "completion", and whether it is good, */
    LABELS_DRAWN,   /* or of texts that were drawn, with advantages, */
    LABELS_TAUGHT   /* or what a teacher thinks that they are */
};

/* The numbers of losses. */
struct loss_numbers {
    double beta, smoothing;
    double good, bad;           /* weights of answers (LOSS_KTO) */
    double clip_low, clip_high; /* of the ratio of likelihoods (LOSS_POLICY): it is held
                                 * between 1 - clip_low and 1 + clip_high */
    bool by_text;               /* the mean over texts of the mean over their tokens */
    double temperature, hard; /* of LOSS_DISTIL; the share of the targets' likelihood */
};

/* The negative log-likelihoods of a sample's tokens. */
struct loss_tokens {
    const float *nll;
    const int32_t *target;   /* [n]; -1: none, and its likelihood is nothing */
    size_t n, second;        /* the first token of the second document */
    const double *reference; /* [2]: of its documents, by the model at the beginning */
    const double *value;     /* as the labels have them; [1] of an answer; of each drawn
                              * token its advantage, and log-likelihoods when it was
                              * drawn and by the reference, or NaN */
    double kl; /* of the model to the reference, over the batch (.distance) */
};

/* The logits of a sample, and what they should be. */
struct loss_rows {
    const float *logits; /* [rows][cols] */
    size_t rows, cols;
    const double *value; /* as the labels have them; [2] of a span, [cols] of values; a
                          * teacher's: rated.c's */
    const int32_t *target;        /* [rows], of LABELS_TAUGHT */
    const struct loss_numbers *o; /* of LABELS_TAUGHT */
};

struct loss_info {
    const char *name; /* of --loss */
    enum loss_labels labels;
    const char *counted; /* what the mean is taken over, in messages */
    bool by_token; /* with one of these two functions: it is tokens, not samples */
    bool each;     /* .rows reads the rows of all tokens */
    bool distance; /* the second documents of all samples are to tell .kl first */
    int documents; /* of a sample; 0: one, or as the data have it */
    double beta;   /* what it is unless given; 0 also of losses without one */
    /* Returns the loss of a sample, and sets BY[n] to its derivative by each likelihood
     * (it is 0 before).  NULL: the loss is the sum of likelihoods. */
    double (*tokens)(const struct loss_numbers *o, const struct loss_tokens *s,
                     float *by);
    /* Of logits: returns the loss of a sample's, and sets D[rows][cols] to its
     * derivative, times BY; NULL: the loss is one of likelihoods. */
    double (*rows)(const struct loss_rows *r, double by, float *d);
    const char *task;     /* PEFT's name of it; NULL: it has none */
    const char *heads[3]; /* symbols of families with a head for it, one of which
                           * holds; the last is NULL */
};
extern const struct loss_info loss_table[LOSS_KINDS];
/* What KIND needs beside the program. */
enum lossroom losses_room(enum loss_kind kind);
/* The loss of M's head, as far as its memory depends on it; without a head LOSS_NEXT.
 */
enum loss_kind losses_usual(const struct model *m);
/* Their names, behind "auto". */
extern const char *const loss_choices[];

/* Does a decoder of M read what an encoder makes of a source?  *START: the id that its
 * text begins with. */
bool losses_source(const struct model *m, int32_t *start);
/* Finds the loss of M's head, which CAUSAL attention tells from that of masked tokens;
 * ERR_INPUT when M has no head that a loss is known for. */
MUST_CHECK int losses_find(enum loss_kind *kind, const struct model *m, bool causal,
                           struct err *err);
/* Has M a head for KIND? */
bool losses_fit(enum loss_kind kind, const struct model *m, bool causal);

#endif
