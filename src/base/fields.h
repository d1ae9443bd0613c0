/* fields: the numbers of a config struct, described once.
 *
 * A row says what a field is called, where it stands, what it may be, and what 0 stands for. The API's LLM_FIELD_x macros hold the rows;
 * from them come the check of a config, its defaults and the ranges of options, so that no two of them can say different things. */
#pragma once
#include "api/config.h"
#include "api/options.h"
#include "base/platform.h"

typedef struct llm__field {
    const char *name;
    size_t at;            /* offset in the struct */
    llm_option_kind kind; /* INT, INT64, FLOAT, or ENUM: an int32_t that must be one of a list */
    double least, most;
    double otherwise; /* what 0 stands for; 0: itself, or something that depends on others */
    const char *unit; /* and special values, for messages; NULL: none. Of an ENUM the list "16=16|32=32" */
} llm__field;

/* The row of a field x of struct T, from LLM_FIELD_x. */
#define LLM__FIELD(T, field) LLM__FIELD_ROW(#field, offsetof(T, field), LLM_FIELD_##field)
#define LLM__FIELD_ROW(...) LLM__FIELD_CUT(__VA_ARGS__)
#define LLM__FIELD_CUT(name, at, kind, least, most, otherwise, unit) \
    { name, at, LLM_OPTION_##kind, least, most, otherwise, unit }

/* Checks one number; NaN is in no range. The sentence names the field as the APIs spell it, the value, and what is allowed. */
LLM__PRIVATE llm_result llm__check_number(const char *name, double value, double low, double high, const char *allowed);

/* Checks all fields of a config. 0 is in every range, since it stands for the default. LLM_ERR_ARG: the first that is wrong. */
LLM__PRIVATE llm_result llm__fields_check(const llm__field *field, int n, const void *config);

/* Puts the defaults in place of zeros. */
LLM__PRIVATE void llm__fields_default(const llm__field *field, int n, void *config);

/* Puts a value into the field of that name if it is in its range; 0: it is not, or there is no such field. */
LLM__PRIVATE int llm__fields_put(const llm__field *field, int n, void *config, const char *name, double value);
