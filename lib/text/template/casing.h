/* casing - capital letters that are more than one character: Unicode's SpecialCasing */
#ifndef LIB_TEXT_TEMPLATE_CASING_H
#define LIB_TEXT_TEMPLATE_CASING_H

#include <stdint.h>

/* The upper case or title case of CP, such as SS and Ss of U+00DF; NULL where it is at
 * most one character. */
const char *casing_upper(uint32_t cp);
const char *casing_title(uint32_t cp);

#endif
