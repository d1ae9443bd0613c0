#include "base/log.h"
#include "api/linkage.h"
#include "api/config.h"
#include "base/platform.h"

enum { LLM__ERROR_SIZE = 1024 };

/* This thread's error text. A function-local thread variable: the header has no mutable globals. */
static char *llm__error_here(void) {
    static LLM__THREAD_LOCAL char text[LLM__ERROR_SIZE];
    return text;
}

LLM__PRIVATE LLM__PRINTF(2, 3) llm_result llm__error(llm_result r, const char *format, ...) {
    char raw[LLM__ERROR_SIZE], *text = llm__error_here();
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    for (const char *p = raw; *p && text + 5 < llm__error_here() + LLM__ERROR_SIZE; p++) {
        /* names from files must not write to the terminal: control characters, also those of two bytes, U+0080 to U+009F */
        const unsigned char c = (unsigned char)*p, d = (unsigned char)p[1];
        const int high = c == 0xC2 && d >= 0x80 && d < 0xA0;
        if (c < 32 || c == 127 || high) text += sprintf(text, "\\x%02x", (unsigned)(high ? d : c));
        else *text++ = *p;
        p += high;
    }
    *text = 0;
    return r;
}

LLM__PRIVATE llm_result llm__nomem(void) { return llm__error(LLM_ERR_NOMEM, "%s", llm__out_of_memory); }

LLM_API const char *llm_last_error(void) { return llm__error_here(); }

LLM_API const char *llm_result_str(llm_result r) {
    /* LLM_OK is 0, the others -1, -2, ... */
    static const char *const name[] = {
        "ok",           "invalid argument", "out of memory", "input/output error", "malformed input", "not supported",
        "over a limit", "cancelled",        "device error",  "queue full",         "template error"};
    return r <= 0 && -(int)r < LLM__COUNT(name) ? name[-(int)r] : "unknown result";
}

LLM__PRIVATE LLM__PRINTF(3, 4) void llm__log(const llm__logger *l, int level, const char *format, ...) {
    if (!l || !l->fn) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->fn(l->user, level, text);
}
