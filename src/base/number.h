/* number: numbers from text and back, whatever the locale of the host program.
 *
 * strtod and printf follow the locale that the host program has chosen: under de_DE "0.7" reads as 0 and 0.7 is printed as "0,7". POSIX
 * 2008 has a locale a thread (uselocale), and the C libraries of Linux round correctly in both directions. So all doubles are read and
 * printed while this thread has the locale "C", here and nowhere else. (Reading the last bit right takes big integers: Clinger, "How to
 * read floating point numbers accurately", 1990. The C libraries have done that work.) */
#pragma once
#include "base/platform.h"

/* Switches this thread to the locale "C", and back: `old` is what the first returned. For glibc and musl "C" is a constant: nothing is
 * allocated, and freeing it does nothing. */
LLM__PRIVATE locale_t llm__c_locale_begin(locale_t *c);
LLM__PRIVATE void llm__c_locale_end(locale_t c, locale_t old);

/* Reads a number of exactly n bytes: digits with or without a point, a minus, an exponent. 0 if it is none, which "+1", "inf", "0x1" and "
 * 1" are not either; out of range gives infinity or zero. */
LLM__PRIVATE int llm__parse_double(const char *s, size_t n, double *out);

/* Reads a decimal integer of exactly n bytes. 0 if it is none or does not fit 64 bits. */
LLM__PRIVATE int llm__parse_int(const char *s, size_t n, int64_t *out);

/* The value of a hexadecimal digit, or -1. */
LLM__PRIVATE int llm__hex(char c);

/* Python's repr of a float, the shortest text that reads back equal: 1.0, 0.1, 1e+22, 1e-07. `out` holds 40 bytes. Returns its length.
 * Every decimal of up to 15 digits survives the way through a double, and 17 digits tell any two apart, so 15, 16 and 17 are tried and
 * zeros at the end dropped: 0.1 is found with 15 digits, 0.1 + 0.2 takes 17, 0.30000000000000004. (Ryu, Adams 2018, finds the shortest
 * directly, with tables of 10 KB; here a number printed is a rare thing.) Subnormal numbers carry fewer: there the search begins with
 * one. */
LLM__PRIVATE int llm__format_double(double d, char *out);
