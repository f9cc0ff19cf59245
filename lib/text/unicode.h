/* unicode - properties of code points, of the versions of Unicode that the `tokenizers`
 * library has
 *
 * The library's stages have several versions: normal forms Unicode 9, BERT's stages
 * Unicode 8, lower case and words Unicode 17, regular expressions Unicode 16.  The
 * tables are made by tests/oracle/make-unicode.py. */
#ifndef LIB_TEXT_UNICODE_H
#define LIB_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

struct unicode_range {
    uint32_t first, last;
};

/* Code points in ascending ranges. */
struct unicode_set {
    const struct unicode_range *range;
    size_t n;
};

/* word: \w of the crate regex; number: Rust's char::is_numeric; mark: categories M;
 * nonspacing, punctuation, other: BERT's Mn, P with ASCII's symbols, and Cc, Cf, Co;
 * later_form: what normal forms leave as it is, because it is younger than they are. */
extern const struct unicode_set unicode_word, unicode_number, unicode_mark,
    unicode_nonspacing, unicode_punctuation, unicode_other, unicode_later_form;

/* The code points first, first + step ... last have a lower case DELTA further on. */
struct unicode_case {
    uint32_t first, last, step;
    int32_t delta;
};
extern const struct unicode_case unicode_lower[];
extern const size_t unicode_nlower;

/* The category of these code points differs between versions of Unicode; TO has in all
 * versions the category that they have in Unicode 16, and as many bytes in UTF-8. */
struct unicode_stand_in {
    uint32_t first, last, to;
};
extern const struct unicode_stand_in unicode_stand_ins[];
extern const size_t unicode_nstand_ins;

/* The scripts of the stage UnicodeScripts, which has Hiragana and Katakana as Han. */
struct unicode_script {
    uint32_t first, last;
    int script; /* a number from 1 */
};
extern const struct unicode_script unicode_scripts[];
extern const size_t unicode_nscripts;

#endif
