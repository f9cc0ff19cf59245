/* verdict - how often what a model says is right: accuracy and F1
 *
 * As the examples of transformers have them: of classes accuracy, and F1 as
 * scikit-learn's f1_score, of class 1 if there are two (its "binary"), else the mean of
 * that of all classes that occur ("macro").  Of sets of classes F1 over all of them
 * together ("micro"), and the accuracy of whole sets.  Of tags whose names are those of
 * entities, such as B-PER, I-PER and O, precision, recall and F1 of whole entities over
 * all types together, as seqeval; of other tags as of classes.  Of choices accuracy.
 * All are sums of counts, so that ranks add them up. */
#ifndef LIB_TRAIN_VERDICT_H
#define LIB_TRAIN_VERDICT_H

#include "lib/train/losses.h"
#include "lib/train/squad.h"

enum verdict_kind {
    VERDICT_NONE,
    VERDICT_CLASSES,
    VERDICT_ENTITIES,
    VERDICT_SETS,
    VERDICT_CHOICES,
    VERDICT_SPANS
};

struct verdict {
    enum verdict_kind kind;
    size_t classes;
    const char *const *name; /* [classes]; borrowed */
    double *count;           /* [n] */
    size_t n;
};

/* NAME[CLASSES] may have empty names; it must outlive *m. */
void verdict_open(struct verdict *m, enum loss_kind loss, size_t classes,
                  const char *const *name);
void verdict_clear(struct verdict *m);

/* Counts N places of a text, which are IS and of which the model SAYS; those below 0
 * are none. */
void verdict_add(struct verdict *m, const int32_t *is, const int32_t *says, size_t n);
/* Counts a text with the classes K of which IS[K] is above 1/2, and of which the model
 * says those with a LOGIT above 0. */
void verdict_add_set(struct verdict *m, const double *is, const float *logit);
/* Counts the span that the model says by the logits X[n][2] of the tokens at ID[n], of
 * the text T, or NULL: then IS[2] are its first and last token, if they are in it. */
void verdict_add_span(struct verdict *m, const struct squad_text *t, const double *is,
                      const int32_t *id, size_t n, const float *x);

/* NaN: there is none, or nothing was counted. */
double verdict_accuracy(const struct verdict *m);
double verdict_f1(const struct verdict *m);
double verdict_precision(const struct verdict *m); /* of entities */
double verdict_recall(const struct verdict *m);
double verdict_exact(const struct verdict *m); /* of answers in a text */
double verdict_class_f1(const struct verdict *m, size_t k);

#endif
