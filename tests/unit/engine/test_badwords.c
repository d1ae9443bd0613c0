/* Texts that must not appear: against a search in the text itself, over random words, answers and tokens. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/index.h"
#include "grammar/machine.h"
#include "grammar/masks.h"
#include "engine/badwords.h"

enum { WORDS_TOKENS = 200 };

static char words_token[WORDS_TOKENS][6];

static uint32_t words_dice(uint64_t *x) { return (uint32_t)((*x = *x * 6364136223846793005u + 1442695040888963407u) >> 33); }

/* A vocabulary of all texts of up to four letters of "ab\n", and some that are there twice. */
static llm__gr_trie *words_trie(void) {
    static llm__index_entry s[WORDS_TOKENS];
    llm__gr_trie *t = (llm__gr_trie *)calloc(1, sizeof *t);
    int32_t n = 0, bytes = 0;
    for (int len = 1; len <= 4; len++)
        for (int i = 0, all = len == 1 ? 3 : len == 2 ? 9 : len == 3 ? 27 : 81; i < all; i++, n++)
            for (int k = 0, x = i; k < len; k++, x /= 3) words_token[n][k] = "ab\n"[x % 3];
    for (; n < WORDS_TOKENS; n++) memcpy(words_token[n], words_token[(n * 7) % 120], sizeof words_token[n]);
    if (!t) return NULL;
    t->vocab = n;
    t->end = (int32_t *)calloc((size_t)n, sizeof *t->end);
    t->spelling = (char *)calloc((size_t)n, 6);
    pthread_mutex_init(&t->lock, NULL);
    if (!t->end || !t->spelling) return t;
    for (int32_t i = 0; i < n; i++) {
        const size_t len = strlen(words_token[i]);
        memcpy(t->spelling + bytes, words_token[i], len);
        s[i].s.p = words_token[i], s[i].s.n = len, s[i].value = i;
        t->end[i] = bytes += (int32_t)len;
    }
    CHECK(llm__gr_trie_lay(t, s, n));
    return t;
}

/* Does a token complete a word that the text before it did not have? */
static int words_bad(const char *before, const char *token, const char *const *words, int n) {
    char text[256];
    snprintf(text, sizeof text, "%s%s", before, token);
    for (int i = 0; i < n; i++)
        for (const char *at = text; (at = strstr(at, words[i])) != NULL; at++)
            if ((size_t)(at - text) + strlen(words[i]) > strlen(before)) return 1;
    return 0;
}

TEST_GROUP(badwords) {
    llm__gr_trie *t = words_trie();
    uint64_t dice = 5;
    int wrong = 0, banned = 0, inside = 0;
    for (int round = 0; round < 400 && t; round++) {
        static char word[4][8];
        const char *words[4];
        char before[128] = "";
        int32_t output[12], n = 1 + round % 4, n_output = round % 12;
        llm__arena memory = LLM__ZERO;
        llm__badwords w;
        float x[WORDS_TOKENS + 10];
        memset(word, 0, sizeof word);
        memset(&w, 0, sizeof w);
        for (int i = 0; i < n; i++) {
            int len = 1 + (int)(words_dice(&dice) % 7);
            for (int k = 0; k < len; k++) word[i][k] = "ab\n"[words_dice(&dice) % 3];
            words[i] = word[i];
        }
        CHECK(!llm__badwords_make(&w, t, words, n, &memory));
        for (int i = 0; i < n_output; i++) {
            output[i] = (int32_t)(words_dice(&dice) % WORDS_TOKENS);
            strcat(before, words_token[output[i]]);
        }
        memset(x, 0, sizeof x);
        llm__badwords_ban(&w, output, n_output, x, round % 2 ? WORDS_TOKENS + 10 : WORDS_TOKENS);
        for (int i = 0; i < WORDS_TOKENS; i++) {
            const int bad = words_bad(before, words_token[i], words, n);
            wrong += bad != (x[i] < 0);
            banned += bad;
            inside += bad && !words_bad("", words_token[i], words, n);
        }
        for (int i = WORDS_TOKENS; i < WORDS_TOKENS + 10; i++) wrong += x[i] < 0;
        llm__arena_free(&memory);
    }
    if (!CHECK(!wrong && banned > 10000 && inside > 1000)) printf("  %d wrong of %d, %d across tokens\n", wrong, banned, inside);
    llm__gr_trie_free(t);
}
