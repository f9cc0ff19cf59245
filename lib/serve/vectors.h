/* vectors - answers of OpenAI's interface that are vectors, or made of them
 *
 * A vector is what a choice has as its text: the bytes of its numbers, float. */
#ifndef LIB_SERVE_VECTORS_H
#define LIB_SERVE_VECTORS_H

#include "lib/serve/openai.h"

/* Appends {"object":"list","data":[{"object":"embedding","index","embedding"}],...}:
 * the vectors V[n], as R asks for them.  A part of a vector of length 1 has length 1,
 * too. Status 400: they have fewer numbers than it asks for; OUT is as before. */
MUST_CHECK int vectors_add_embeddings(struct str *out, const struct openai_head *h,
                                      const struct openai_request *r,
                                      const struct openai_choice *v, size_t n,
                                      const struct openai_usage *usage,
                                      struct openai_error *e);
/* Appends {"id","model","usage","results":[{"index","document","relevance_score"}]},
 * the most relevant first.  V[n] has one number for each document, its logit, of which
 * the score is the logistic function; or vectors of the query and of each document,
 * whose score is the cosine of their angle. */
void vectors_add_ranks(struct str *out, const struct openai_head *h,
                       const struct openai_request *r, const struct openai_choice *v,
                       size_t n, const struct openai_usage *usage);

#endif
