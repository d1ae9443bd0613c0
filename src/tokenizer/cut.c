/* ---- Steps that cut ----
 * Each divides what comes to it into parts, or tokens that were found. Offsets are bytes. */

/* Cuts at the matches of a regex. Pieces come in turn, matches and what is between them (invert: the other way round); by the behaviour a
 * piece joins the word under way, or begins a new one, or is left out. ab-cd--e, cut at "-":
 *
 *     REMOVED      ab | cd | e              PREVIOUS     ab- | cd- | - | e
 *     ISOLATED     ab | - | cd | - | - | e  NEXT         ab | -cd | - | -e
 *     CONTIGUOUS   ab | - | cd | -- | e */
static void llm__cut_split(llm__encode *e, int k, const llm__tok_step *step, llm__str s, int begin) {
    llm__rx_run *rx = &e->stage[k].rx;
    size_t from = 0, end = 0, done = 0, word_at = 0, word_end = 0;
    int found = 0, started = 0, last = 0; /* last: the piece before was a match */
    if (step->re) llm__rx_begin(rx, step->re, s.p, s.n);
    for (int more = 1; more && !e->result; done = end) {
        found = step->re ? llm__rx_next(rx, &from, &end) : 0;
        more = found > 0;
        if (!more) from = end = s.n;
        for (int which = 0; which < 2; which++) { /* what is before the match; the match */
            size_t at = which ? from : done, to = which ? end : from;
            int match = which != step->b, join = 0;
            if ((which ? !more : at == to) || (step->a == LLM__SPLIT_REMOVED && match)) continue;
            if (step->a == LLM__SPLIT_CONTIGUOUS) join = last == match;
            if (step->a == LLM__SPLIT_PREVIOUS) join = match && !last;
            if (step->a == LLM__SPLIT_NEXT) join = !match && last;
            if (started && !join) llm__encode_part(e, k, s, word_at, word_end, begin);
            if (!started || !join) word_at = at;
            word_end = to;
            started = 1;
            last = match;
        }
    }
    if (found < 0) llm__encode_fail(e, rx->result);
    if (started) llm__encode_part(e, k, s, word_at, word_end, begin);
}

/* Cuts where the script changes (ICU's Script property); Hiragana, Katakana and the long vowel mark count as Han, spaces and what has no
 * script as what is around. Text before the first letter of any script is dropped, as the reference does. */
static void llm__cut_scripts(llm__encode *e, int k, llm__str s, int begin) {
    int hiragana = llm__uni_script_find(llm__lit("Hira")), katakana = llm__uni_script_find(llm__lit("Kana")),
        han = llm__uni_script_find(llm__lit("Hani"));
    size_t from = s.n;
    int last = -1;
    for (size_t at = 0, next = 0; at < s.n; at = next) {
        int32_t c = llm__uni_next(s, &next);
        int script = llm__uni_script(c);
        if (script == hiragana || script == katakana || c == 0x30FC) script = han;
        if (c == ' ' || !script) continue;
        if (script != last) {
            if (from < at) llm__encode_part(e, k, s, from, at, begin);
            from = at;
        }
        last = script;
    }
    llm__encode_part(e, k, s, from, s.n, begin);
}

/* 1 if the text around [at, end) lets a token that must be a word by itself stand there: no word character or joiner touches it. */
static int llm__word_alone(llm__str s, size_t at, size_t end) {
    size_t before = at ? llm__uni_back(s.p, at) : 0;
    int32_t left = at ? llm__uni_next(s, &before) : ' ', right = end < s.n ? llm__uni_next(s, &end) : ' ';
    return !llm__uni_word(left) && !llm__uni_word(right) && left >> 1 != 0x200C >> 1 && right >> 1 != 0x200C >> 1;
}

/* Cuts out added tokens: from the left, the longest at each place; one that may not stand there still hides the shorter ones. */
static void llm__cut_added(llm__encode *e, int k, const llm__index *x, llm__str s, int begin) {
    size_t done = 0;
    for (size_t at = 0, step; x->n && at < s.n && !e->result; at += step) {
        const llm__index_entry *hit = llm__index_longest(x, llm__str_from(s, at));
        step = hit ? hit->s.n : 1;
        if (!hit) continue;
        const llm__added *a = &e->t->added[hit->value];
        size_t from = at, end = at + step;
        if ((a->flags & LLM__ADDED_SPECIAL) && !(e->flags & LLM_TOK_PARSE_SPECIAL)) continue;
        if ((a->flags & LLM__ADDED_PIECE) && e->t->model == LLM__TOK_UNIGRAM) continue; /* its score decides */
        if ((a->flags & LLM__ADDED_WORD) && !llm__word_alone(s, from, end)) continue;
        /* White space beside the token may belong to it, but not what an earlier token took. */
        if (a->flags & LLM__ADDED_LSTRIP) from = LLM__MAX(llm__strip_space(llm__s(s.p, from), 2).n, done);
        if (a->flags & LLM__ADDED_RSTRIP) end = (size_t)(llm__strip_space(llm__str_from(s, end), 1).p - s.p);
        llm__encode_part(e, k, s, done, LLM__MAX(from, done), begin);
        if (from < end) llm__emit(e, a->id); /* else it is white space that the token before took */
        done = end;
    }
    llm__encode_part(e, k, s, done, s.n, begin);
}

