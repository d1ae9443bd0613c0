#include "engine/thoughts.h"
#include "api/sampler.h"
#include "base/platform.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

enum { LLM__THINK_PAST = 0, LLM__THINK_BEFORE, LLM__THINK_OPEN };

LLM__PRIVATE void llm__think_begin(llm__seq *s) {
    const llm_sampling *p = &s->request->sampling;
    s->think.state = !p->thinking_tokens ? LLM__THINK_PAST : p->thinking_open ? LLM__THINK_OPEN : LLM__THINK_BEFORE;
}

/* Whether the answer so far ends with a tag. */
static int llm__think_ends(const llm__seq *s, const int32_t *tag, int32_t n) {
    return n && s->n_ids - s->n_prompt >= n && !memcmp(s->ids + s->n_ids - n, tag, (size_t)n * sizeof *tag);
}

LLM__PRIVATE void llm__think_note(llm__seq *s) {
    const llm_sampling *p = &s->request->sampling;
    if (s->think.state == LLM__THINK_BEFORE && llm__think_ends(s, p->think_open, p->n_think_open)) s->think.state = LLM__THINK_OPEN;
    else if (s->think.state == LLM__THINK_OPEN) {
        s->think.n++;
        s->think.closing = p->n_think_close;
        while (s->think.closing && !llm__think_ends(s, p->think_close, s->think.closing)) s->think.closing--;
        if (s->think.closing == p->n_think_close) s->think.state = LLM__THINK_PAST;
    }
}

/* The token that must come next; -1: any may. */
static int32_t llm__think_forced(const llm__seq *s) {
    const llm_sampling *p = &s->request->sampling;
    return s->think.state == LLM__THINK_OPEN && s->think.n >= p->thinking_tokens - 1 ? p->think_close[s->think.closing] : -1;
}

LLM__PRIVATE void llm__think_narrow(const llm__seq *s, llm__rules *rules, uint32_t *mask, size_t words) {
    const int32_t id = llm__think_forced(s);
    if (id < 0 || (rules->allowed && !(rules->allowed[id / 32] >> id % 32 & 1))) return;
    for (size_t i = 0; i < words; i++) mask[i] = 0;
    mask[id / 32] = 1u << id % 32;
    rules->allowed = mask;
    rules->bad = NULL;
}
