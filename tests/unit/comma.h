/* A locale whose numbers have a comma: what a program writes for another must not change with it. */
#ifndef COMMA_H
#define COMMA_H
#include "folder.h"

#include <locale.h>

/* One that localedef makes of nothing but its numbers, in milliseconds; (locale_t)0: it is not there. */
static inline locale_t comma_locale(void) {
    static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
    const char *before = getenv("LOCPATH");
    char command[300];
    locale_t l = (locale_t)0;
    test_folder f;
    if (!folder_open(&f)) return l;
    folder_write_text(&f, "source", source);
    snprintf(command, sizeof command, "localedef -c -i %s/source -f ANSI_X3.4-1968 %s/comma >/dev/null 2>&1", f.path, f.path);
    if (system(command) >= 0 && !setenv("LOCPATH", f.path, 1)) { /* it warns of all that has no definition */
        l = newlocale(LC_NUMERIC_MASK, "comma", (locale_t)0);
        if (before) setenv("LOCPATH", before, 1);
        else unsetenv("LOCPATH");
    }
    folder_close(&f);
    return l;
}

#endif
