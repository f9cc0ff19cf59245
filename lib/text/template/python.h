/* python - what Python says of characters and numbers */
#ifndef LIB_TEXT_TEMPLATE_PYTHON_H
#define LIB_TEXT_TEMPLATE_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

bool python_is_space(uint32_t cp);     /* str.isspace */
bool python_is_printable(uint32_t cp); /* str.isprintable */
bool python_is_digit(uint32_t cp);     /* str.isdigit, isalpha, isalnum */
bool python_is_alpha(uint32_t cp);
bool python_is_alnum(uint32_t cp);
enum python_case { PYTHON_UNCASED, PYTHON_LOWER, PYTHON_UPPER, PYTHON_TITLE };
enum python_case python_case(uint32_t cp);
/* Is CP passed over where a word's end is sought: marks, modifiers, format? */
bool python_is_case_ignorable(uint32_t cp);
/* repr of a float: the shortest digits, an exponent below 1e-4 and from 1e16 on, inf
 * and nan.  Returns BUF, or a constant. */
enum { PYTHON_FLOAT = 32 };
const char *python_float(char buf[PYTHON_FLOAT], double x);

#endif
