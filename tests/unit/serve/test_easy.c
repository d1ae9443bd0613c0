/* The easy level: how answers end, messages that are given and read back, budgets of time, models that are no files; with the default model. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/files.h"
#include "base/place.h"
#include "engine/scheduler.h"
#include "serve/easy.h"

static const char *const easy_path = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

/* All pieces of the answer under way, to be freed. */
static char *easy_rest(llm_chat *c) {
    llm_text t;
    memset(&t, 0, sizeof t);
    llm_text_str(&t, "");
    for (const char *piece; (piece = llm_chat_next(c)) != NULL;) llm_text_str(&t, piece);
    return t.data;
}

/* The answer of the chat, which must have ended so. */
static llm_answer easy_ended(llm_chat *c, llm_finish finish) {
    llm_answer a;
    memset(&a, 0xA5, sizeof a);
    char *all = easy_rest(c);
    llm_chat_get_answer(c, &a);
    CHECK(a.finish == finish && !llm_chat_busy(c) && !strcmp(a.text, all) && a.text_len == strlen(all));
    CHECK((a.error != NULL) == (finish == LLM_FINISH_ERROR));
    free(all);
    return a;
}

/* ---- how an answer ends ---- */

static void easy_test_ends(llm *l) {
    static const char *const stop[] = {"Paris"};
    llm_sampling s;
    memset(&s, 0, sizeof s);
    llm_chat *c = llm_chat_new(l, "You are a helpful assistant. Answer briefly.");
    llm_answer a;
    llm_chat_get_answer(c, &a);
    CHECK(!a.finish && !a.error && !a.text_len && !*a.text && !llm_chat_busy(c) && !llm_chat_next(c));
    llm_chat_sampling(c)->temperature = 0;
    /* by itself */
    CHECK(!llm_chat_say(c, "What is the capital of France?") && llm_chat_busy(c));
    llm_chat_get_answer(c, &a);
    CHECK(!a.finish && a.completion_tokens == 0);
    a = easy_ended(c, LLM_FINISH_STOP);
    CHECK(strstr(a.text, "Paris") && !a.stop_reason && a.prompt_tokens > 20 && a.completion_tokens > 3);
    CHECK(a.context_left == 512 - a.prompt_tokens - a.completion_tokens && a.first_token_s > 0 && a.total_s >= a.first_token_s);
    const int32_t whole = a.completion_tokens;
    /* a stop string, of this turn alone */
    s.stop = stop, s.n_stop = 1;
    llm_chat_keep(c, 1);
    CHECK(!llm_chat_add(c, "user", "What is the capital of France?") && !llm_chat_reply(c, &s));
    a = easy_ended(c, LLM_FINISH_STOP);
    CHECK(a.stop_reason && !strcmp(a.stop_reason, "Paris") && !strstr(a.text, "Paris"));
    /* as many tokens as it may have, of this turn alone; the next is as the chat says */
    memset(&s, 0, sizeof s);
    s.max_tokens = 3;
    llm_chat_keep(c, 1);
    CHECK(!llm_chat_add(c, "user", "What is the capital of France?") && !llm_chat_reply(c, &s));
    CHECK(easy_ended(c, LLM_FINISH_LENGTH).completion_tokens == 3);
    llm_chat_keep(c, 2);
    CHECK(!llm_chat_reply(c, NULL) && easy_ended(c, LLM_FINISH_STOP).completion_tokens == whole);
    /* the context's end */
    llm_chat_keep(c, 1);
    llm_chat_sampling(c)->ignore_eos = 1;
    llm_chat_sampling(c)->max_tokens = -1;
    char *big = (char *)malloc(20000);
    for (int i = 0; i < 19999; i++) big[i] = "a "[i & 1];
    big[800] = 0; /* 400 tokens: not many are left to be said */
    CHECK(!llm_chat_say(c, big));
    a = easy_ended(c, LLM_FINISH_LENGTH);
    CHECK(a.context_left == 0 && a.prompt_tokens > 400 && a.completion_tokens > 30);
    /* stopped: what was said stays, and is what it says */
    llm_chat_keep(c, 1);
    CHECK(!llm_chat_say(c, "Count.") && llm_chat_next(c) != NULL && !llm_chat_stop(c));
    const char *role, *said = llm_chat_message(c, 2, &role);
    llm_chat_get_answer(c, &a);
    CHECK(a.finish == LLM_FINISH_CANCELLED && said && !strcmp(said, a.text) && a.text_len && !strcmp(role, "assistant"));
    /* refused: the message is taken back, and nothing is under way */
    big[800] = ' ', big[19999] = 0;
    llm_chat_keep(c, 1);
    CHECK(llm_chat_say(c, big) == LLM_ERR_LIMIT && strstr(llm_last_error(), "512") && llm_chat_count(c) == 1 && !llm_chat_busy(c));
    llm_chat_get_answer(c, &a);
    CHECK(!a.finish && !a.text_len);
    free(big);
    llm_chat_free(c);
}

/* A step that fails: the sentence, and what was said before it. */
static llm_result easy_fails(llm_backend_ctx *ctx) { return (void)ctx, llm_backend_error(LLM_ERR_BACKEND, "the device is gone"); }

static void easy_test_failure(llm *l) {
    llm_backend broken = *l->engine->backend;
    const llm_backend *own = l->engine->backend;
    llm_chat *c = llm_chat_new(l, NULL);
    llm_chat_sampling(c)->ignore_eos = 1;
    CHECK(!llm_chat_say(c, "Count.") && llm_chat_next(c) != NULL);
    broken.wait = easy_fails;
    l->engine->backend = &broken;
    char *rest = easy_rest(c);
    l->engine->backend = own;
    llm_answer a;
    llm_chat_get_answer(c, &a);
    CHECK(a.finish == LLM_FINISH_ERROR && a.error && strstr(a.error, "the device is gone") && a.text_len && llm_chat_count(c) == 2);
    free(rest);
    CHECK(!llm_chat_say(c, "And now?") && llm_chat_next(c) != NULL); /* it goes on */
    llm_chat_free(c);
}

static void easy_test_generate(llm *l) {
    llm_sampling s;
    llm_answer a;
    memset(&s, 0, sizeof s);
    s.max_tokens = 5;
    char *text = llm_generate(l, "The capital of France is", &s);
    llm_get_answer(l, &a);
    CHECK(text && strstr(text, "Paris") && !strcmp(text, a.text) && a.finish == LLM_FINISH_LENGTH && a.completion_tokens == 5 && !a.error);
    llm_string_free(text);
    s.top_p = 2;
    CHECK(!llm_generate(l, "The", &s) && strstr(llm_last_error(), "top_p"));
    llm_get_answer(l, &a);
    CHECK(!a.finish && !a.text_len);
    /* zeroed and NULL are not the same: greedy is the same each time, a person's sampling is not */
    char *drawn[4] = {NULL};
    for (int i = 0; i < (TEST_BRIEF ? 2 : 4); i++) { /* a person's answers have 256 tokens */
        memset(&s, 0, sizeof s);
        s.max_tokens = 24;
        drawn[i] = llm_generate(l, "My favourite word is", i < 2 ? &s : NULL);
        llm_get_answer(l, &a);
        CHECK(drawn[i] && a.completion_tokens <= 256);
    }
    CHECK(drawn[1] && !strcmp(drawn[0], drawn[1]) && (TEST_BRIEF || (drawn[3] && strcmp(drawn[2], drawn[3]))));
    for (int i = 0; i < 4; i++) llm_string_free(drawn[i]);
}

/* ---- messages ---- */

static void easy_test_messages(llm *l) {
    static const char given[] =
        " [ {\"role\":\"system\",\"content\":\"Be \\\"brief\\\".\"},{\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"role\":\"user\"},"
        "{\"role\":\"assistant\",\"content\":\"b\",\"x\":1}]";
    static const struct {
        const char *text, *words;
    } bad[] = {{"{}", "list expected"},
               {"[1]", "messages[0]"},
               {"[{\"role\":\"user\"},{\"role\":2}]", "messages[1]"},
               {"[", "JSON"},
               {"", "JSON"}};
    const char *role;
    llm_chat *c = llm_chat_new(l, NULL);
    CHECK(!llm_chat_count(c) && !strcmp(llm_chat_messages(c), "[]") && !llm_chat_message(c, 0, &role) && !role);
    CHECK(!llm_chat_add(c, "user", "What\n\x01is \"2\"?") && !llm_chat_add(c, "assistant", ""));
    CHECK(llm_chat_count(c) == 2 && !strcmp(llm_chat_message(c, 0, &role), "What\n\x01is \"2\"?") && !strcmp(role, "user"));
    CHECK(!strcmp(llm_chat_message(c, 1, NULL), "") && !llm_chat_message(c, 2, NULL) && !llm_chat_message(c, -1, NULL));
    CHECK(!strcmp(llm_chat_messages(c),
                  "[{\"role\":\"user\",\"content\":\"What\\n\\u0001is \\\"2\\\"?\"},{\"role\":\"assistant\",\"content\":\"\"}]"));
    CHECK(llm_chat_add(c, "", "a") == LLM_ERR_ARG && llm_chat_add(c, "user", NULL) == LLM_ERR_ARG && llm_chat_count(c) == 2);
    for (int i = 0; i < LLM__COUNT(bad); i++)
        CHECK(llm_chat_load(c, bad[i].text, strlen(bad[i].text)) && strstr(llm_last_error(), bad[i].words) && llm_chat_count(c) == 2);
    CHECK(!llm_chat_load(c, given, strlen(given)) && llm_chat_count(c) == 3);
    CHECK(!strcmp(llm_chat_message(c, 0, NULL), "Be \"brief\".") &&
          !strcmp(llm_chat_message(c, 1, &role), "[{\"type\":\"text\",\"text\":\"a\"}]"));
    CHECK(!strcmp(role, "user"));
    /* what was read out is read in as the same */
    char *kept = llm__strdup(llm_chat_messages(c));
    CHECK(!llm_chat_load(c, kept, strlen(kept)) && !strcmp(llm_chat_messages(c), kept));
    free(kept);
    llm_chat_reset(c);
    CHECK(llm_chat_count(c) == 1 && !llm_chat_load(c, "[]", 2) && !llm_chat_count(c));
    llm_chat_reset(c);
    /* preloaded turns are what the model reads: the same tokens as turns that were said */
    CHECK(!llm_chat_add(c, "system", "You are a helpful assistant. Answer briefly.") &&
          !llm_chat_add(c, "user", "What is the capital of France?") && !llm_chat_add(c, "assistant", "Paris."));
    llm_chat_sampling(c)->temperature = 0;
    CHECK(!llm_chat_say(c, "And of Italy?"));
    llm_answer a = easy_ended(c, LLM_FINISH_STOP);
    if (!CHECK(strstr(a.text, "Rome") && llm_chat_count(c) == 5)) printf("it said: %s\n", a.text);
    const int32_t before = a.prompt_tokens;
    CHECK(!llm_chat_say(c, "And of Spain?"));
    a = easy_ended(c, LLM_FINISH_STOP);
    CHECK(a.cached_tokens >= before / 32 * 32 && a.cached_tokens >= 32 && a.prompt_tokens > before && llm_chat_count(c) == 7);
    /* messages that are touched while an answer is under way: it ends there */
    CHECK(!llm_chat_say(c, "And yours?") && llm_chat_next(c) != NULL && llm_chat_count(c) == 9 && !llm_chat_busy(c));
    CHECK(llm_chat_set_tools(c, "{}") == LLM_ERR_FORMAT && llm_chat_set_tools(c, "[") && !llm_chat_set_tools(c, "[]") &&
          !llm_chat_set_tools(c, NULL));
    llm_chat_free(c);
}

/* Tools go to the template, until they are taken away. */
static void easy_test_tools(void) {
    llm_model_config files;
    llm_engine_config c;
    llm_text read;
    memset(&files, 0, sizeof files);
    memset(&c, 0, sizeof c);
    memset(&read, 0, sizeof read);
    files.chat_template = "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
    c.max_model_len = 128;
    llm *l = llm__easy_open(easy_path, &files, &c);
    if (!CHECK(l != NULL)) return;
    llm_chat *chat = llm_chat_new(l, NULL);
    for (int with = 1; with >= 0; with--) {
        size_t n = 0;
        CHECK(!llm_chat_set_tools(chat, with ? "[{\"type\": \"function\", \"function\": {\"name\": \"look\"}}]" : NULL));
        llm_chat_keep(chat, 0);
        CHECK(!llm_chat_say(chat, "hello"));
        const int32_t *ids = llm_request_prompt(chat->request, &n);
        read.len = 0;
        CHECK(!llm_detokenize(l->model, ids, n, 0, &read) && !strcmp(read.data, with ? "<look>hello" : "hello"));
    }
    llm_chat_free(chat);
    llm_text_free(&read);
    llm_free(l);
}

/* More prompts than the engine's queue has places: those that find none wait here, and none is refused. */
static void easy_test_queue(void) {
    enum { PROMPTS = 12 };
    llm_engine_config c;
    llm_prompt prompts[PROMPTS];
    llm_sampling_params params;
    llm_batch_config how;
    memset(&c, 0, sizeof c);
    memset(prompts, 0, sizeof prompts);
    memset(&how, 0, sizeof how);
    c.max_model_len = 64;
    c.max_num_seqs = 2;
    c.max_queue = 3;
    llm *l = llm_load(TEST_CHECKPOINT("llama"), &c);
    if (!CHECK(l != NULL)) return;
    llm_sampling_default(llm_get_model(l), &params);
    params.max_tokens = 2;
    params.ignore_eos = 1;
    how.sampling_params = &params;
    for (int i = 0; i < PROMPTS; i++) prompts[i].prompt = "abc";
    llm_outputs *out = llm_generate_batch(l, prompts, PROMPTS, &how);
    if (CHECK(out && out->n == PROMPTS))
        for (int i = 0; i < PROMPTS; i++)
            if (!CHECK(!out->items[i].error_code && out->items[i].outputs.n_token_ids == 2))
                printf("  %d: %s\n", i, out->items[i].error_msg);
    llm_outputs_free(out);
    llm_free(l);
}

/* ---- time ---- */

/* How many times slower than alone, where others compute too. */
static double easy_slow(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? LLM__MAX(1.0, load / llm__cores()) : 1;
}

/* The k-th smallest of n times. */
static double easy_time(double *t, int n, int k) {
    for (int i = 1; i < n; i++)
        for (int at = i; at > 0 && t[at - 1] > t[at]; at--) {
            double x = t[at];
            t[at] = t[at - 1], t[at - 1] = x;
        }
    return t[k];
}

enum { EASY_CALLS = 4000 };

/* A game's loop: 5 ms for each picture, also in the middle of a long prompt. The answer is that of a plain run, to the letter. */
static void easy_test_budget(llm *l) {
    static double took[EASY_CALLS];
    llm_chat *c = llm_chat_new(l, NULL);
    llm_text said, prompt;
    llm_answer a;
    int n = 0;
    memset(&said, 0, sizeof said);
    memset(&prompt, 0, sizeof prompt);
    for (int i = 0; i < (TEST_BRIEF ? 12 : 60); i++) llm_text_format(&prompt, "Item %d costs %d coins. ", i, i * 37 % 100);
    llm_text_str(&prompt, "What is this list about?");
    llm_chat_sampling(c)->temperature = 0;
    llm_chat_sampling(c)->max_tokens = 24;
    CHECK(!llm_chat_say(c, prompt.data));
    while (llm_chat_busy(c) && n < EASY_CALLS) {
        double begin = llm__now();
        const char *piece = llm_chat_next_for(c, 5);
        took[n++] = llm__now() - begin;
        if (piece) llm_text_str(&said, piece);
    }
    llm_chat_get_answer(c, &a);
    CHECK(n > 12 && n < EASY_CALLS && said.data && !strcmp(said.data, a.text)); /* one token a call at most */
    double late = easy_time(took, n, n * 9 / 10);
    if (!CHECK(TEST_BRIEF || took[n / 2] < 0.010 * easy_slow()))
        printf("a budget of 5 ms: %d calls, the median %.2f ms, nine in ten below %.2f ms\n", n, took[n / 2] * 1e3, late * 1e3);
    llm_chat_reset(c);
    llm_engine_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.disable_prefix_caching = 1; /* or nothing would be computed again */
    cfg.max_model_len = 1024;
    llm *plain = llm_load(easy_path, &cfg);
    llm_chat *other = plain ? llm_chat_new(plain, NULL) : NULL;
    if (CHECK(other != NULL)) {
        *llm_chat_sampling(other) = *llm_chat_sampling(c);
        CHECK(!llm_chat_say(other, prompt.data));
        char *want = easy_rest(other);
        if (!CHECK(!strcmp(want, said.data))) printf("said   %s\nwanted %s\n", said.data, want);
        free(want);
        llm_chat_free(other);
        llm_free(plain);
    }
    llm_text_free(&said);
    llm_text_free(&prompt);
    llm_chat_free(c);
}

typedef struct easy_button {
    llm_chat *chat;
    llm_request *request;
    double pressed;
} easy_button;

/* A stop button, pressed 60 ms after it was made: of a chat, or of a request. */
static void *easy_press(void *arg) {
    easy_button *b = (easy_button *)arg;
    const struct timespec wait = {0, 60000000};
    nanosleep(&wait, NULL);
    b->pressed = llm__now();
    if (b->chat) llm_chat_cancel(b->chat);
    else llm_request_cancel(b->request);
    return NULL;
}

/* A stop during a long prompt is heard within 20 ms, by llm_chat_next and by llm_engine_step: of seven tries the best three, for the machine
 * may have others. */
static void easy_test_stop(llm *l) {
    double took[2][7];
    int32_t *ids = (int32_t *)malloc(900 * sizeof *ids);
    llm_chat *c = llm_chat_new(l, NULL);
    llm_text prompt;
    llm_answer a;
    memset(&prompt, 0, sizeof prompt);
    for (int i = 0; i < 14; i++) {
        easy_button b;
        pthread_t thread;
        llm_request_config cfg;
        memset(&b, 0, sizeof b);
        memset(&cfg, 0, sizeof cfg);
        prompt.len = 0;
        for (int k = 0; k < 60; k++) llm_text_format(&prompt, "Item %d costs %d coins. ", k, (i * 1000 + k * 37) % 1000);
        for (int k = 0; k < 900; k++) ids[k] = 300 + (k * 37 + i * 1001) % 4000;
        cfg.prompt_ids = ids;
        cfg.n_prompt_ids = 900;
        if (i % 2) CHECK(!llm_request_submit(llm_get_engine(l), &cfg, &b.request));
        else CHECK(!llm_chat_say(b.chat = c, prompt.data));
        CHECK(!pthread_create(&thread, NULL, easy_press, &b));
        if (i % 2) CHECK(llm_request_run(llm_get_engine(l), b.request) == LLM_ERR_CANCELLED);
        else CHECK(llm_chat_next(c) == NULL);
        double end = llm__now();
        pthread_join(thread, NULL);
        took[i % 2][i / 2] = end - b.pressed;
        llm_request_free(b.request);
        llm_chat_get_answer(c, &a);
        CHECK(i % 2 || (a.finish == LLM_FINISH_CANCELLED && !a.completion_tokens));
        llm_chat_reset(c);
    }
    for (int i = 0; i < 2; i++)
        if (!CHECK(easy_time(took[i], 7, 2) < (TEST_BRIEF ? 0.5 : 0.02 * easy_slow())))
            printf("%s: a stop was heard after %.1f ms\n", i ? "request" : "chat", took[i][2] * 1e3);
    llm_text_free(&prompt);
    llm_chat_free(c);
    free(ids);
}

/* ---- models that are no files ---- */

/* A reader that gives little at a time. */
static int64_t easy_read(void *user, int64_t offset, void *to, size_t n) {
    const llm__file *f = (const llm__file *)user;
    n = LLM__MIN(n, (size_t)100000);
    n = LLM__MIN(n, f->size - (size_t)offset);
    memcpy(to, f->data + offset, n);
    return (int64_t)n;
}
static int64_t easy_no_read(void *user, int64_t offset, void *to, size_t n) {
    (void)user, (void)to;
    return offset ? -1 : (int64_t)LLM__MIN(n, (size_t)16);
}
static int64_t easy_short_read(void *user, int64_t offset, void *to, size_t n) {
    (void)user;
    if (offset) return 0;
    memset(to, 'x', 4);
    return (void)n, 4;
}

/* What the model says after three tokens, as text of its greatest logit; "" if it did not open. */
static double easy_logit(llm_model *m) {
    static const int32_t ids[3] = {1, 5, 9};
    llm_engine *e = NULL;
    double sum = 0;
    if (!m || !CHECK(!llm_engine_open(m, NULL, &e))) return NAN;
    int32_t n = llm_logits_size(e);
    float *row = (float *)calloc((size_t)n, sizeof *row);
    CHECK(!llm_forward(e, 0, 0, ids, 3, row, 1));
    for (int32_t i = 0; i < n; i++) sum += (double)row[i] * (i % 7 + 1);
    free(row);
    llm_engine_close(e);
    return sum;
}

/* The same file, given in every way, is the same model; of a folder all files. */
static void easy_test_files(const char *folder, const char *const *names, int32_t n, double want) {
    llm__file f[8];
    llm_file given[8];
    char path[200];
    int fd[8];
    for (int32_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!CHECK(!llm__file_open(path, 0, 0, &f[i]))) return;
    }
    char *odd = (char *)malloc(f[n - 1].size + 1);
    memcpy(odd + 1, f[n - 1].data, f[n - 1].size);
    for (int way = 0; way < 5; way++) {
        llm_model *m = NULL;
        memset(given, 0, sizeof given);
        for (int32_t i = 0; i < n; i++) {
            given[i].name = names[i];
            if (way < 3) given[i].size = (int64_t)f[i].size;
            if (way < 2) given[i].data = way && i == n - 1 ? (const void *)(odd + 1) : (const void *)f[i].data;
            if (way == 2) given[i].read = easy_read, given[i].user = &f[i];
            if (way < 3) continue;
            /* 3: the file's descriptor; 4: a place inside another file */
            FILE *t = tmpfile();
            size_t before = way == 4 ? 5001 : 0;
            for (size_t k = 0; k < before; k++) fputc('#', t);
            fwrite(f[i].data, 1, f[i].size, t);
            if (way == 4) fputs("###", t), given[i].offset = (int64_t)before, given[i].size = (int64_t)f[i].size;
            fflush(t);
            given[i].has_fd = 1;
            given[i].fd = fd[i] = dup(fileno(t));
            fclose(t);
        }
        llm_model_config cfg;
        memset(&cfg, 0, sizeof cfg);
        cfg.no_mmap = way == 4;
        CHECK(!llm_model_open_files(given, n, &cfg, &m));
        for (int32_t i = 0; i < n && way > 2; i++) close(fd[i]);
        double got = easy_logit(m);
        if (!CHECK(got == want)) printf("%s, way %d: %.17g, %.17g expected: %s\n", folder, way, got, want, llm_last_error());
        CHECK(!m || !strncmp(llm_model_get_info(m)->path, "<given>", 7));
        llm_model_close(m);
    }
    free(odd);
    for (int32_t i = 0; i < n; i++) llm__file_close(&f[i]);
}

/* What cannot be opened is told by its name. */
static void easy_test_bad_files(void) {
    static const char json[] = "{\"model_type\": \"llama\"}";
    llm_model *m = NULL;
    llm_file f[3];
    memset(f, 0, sizeof f);
    CHECK(llm_model_open_files(NULL, 0, NULL, &m) == LLM_ERR_ARG && !m && llm_model_open_files(f, 0, NULL, &m) == LLM_ERR_ARG);
    CHECK(llm_model_open_files(f, 1, NULL, &m) == LLM_ERR_ARG && strstr(llm_last_error(), "files[0]: a name"));
    f[0].name = f[1].name = "config.json";
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_ARG && strstr(llm_last_error(), "\"config.json\" is given twice"));
    f[1].name = "other.json";
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_ARG && strstr(llm_last_error(), "<given>/config.json: neither data"));
    f[0].data = json, f[0].size = sizeof json - 1;
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_IO && strstr(llm_last_error(), "no model.safetensors there"));
    f[1].name = "model.safetensors", f[1].read = easy_no_read, f[1].size = 1 << 20;
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_IO && strstr(llm_last_error(), "the reader failed at byte 16 of 1048576"));
    f[1].read = easy_short_read;
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_IO && strstr(llm_last_error(), "the reader ended at byte 4 of 1048576"));
    f[1].read = NULL, f[1].has_fd = 1, f[1].fd = -1;
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_IO && strstr(llm_last_error(), "descriptor -1"));
    int fd = open("llm.h", O_RDONLY);
    f[1].fd = fd, f[1].offset = (int64_t)1 << 40, f[1].size = 0;
    CHECK(llm_model_open_files(f, 2, NULL, &m) == LLM_ERR_IO && strstr(llm_last_error(), "1099511627776"));
    close(fd);
    f[0].name = "m.gguf", f[0].size = -1;
    CHECK(llm_model_open_files(f, 1, NULL, &m) == LLM_ERR_ARG && strstr(llm_last_error(), "size -1") && !m);
    llm *l = llm_load_files(f, 1, NULL);
    CHECK(!l);
}

static void easy_test_given(void) {
    static const char *const folder[] = {"config.json", "tokenizer.json", "model.safetensors"};
    static const char *const gguf[] = {"SmolLM2-135M-Instruct.Q4_1.gguf"};
    llm_model *m = NULL;
    if (CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) easy_test_files(TEST_CHECKPOINT("llama"), folder, 3, easy_logit(m));
    llm_model_close(m);
    if (TEST_BRIEF) return;
    if (CHECK(!llm_model_open(easy_path, NULL, &m))) easy_test_files("models", gguf, 1, easy_logit(m));
    llm_model_close(m);
    /* the easy level, from a descriptor */
    llm_file f;
    memset(&f, 0, sizeof f);
    f.name = "m.gguf", f.has_fd = 1, f.fd = open(easy_path, O_RDONLY);
    llm *l = llm_load_files(&f, 1, NULL);
    close(f.fd);
    char *text = l ? llm_generate(l, "The capital of France is", &(llm_sampling){.max_tokens = 4}) : NULL;
    CHECK(text && strstr(text, "Paris"));
    llm_string_free(text);
    llm_free(l);
}

/* ---- memory ---- */

static int64_t easy_resident(void) {
    long long all = 0, resident = 0, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lld %lld %lld", &all, &resident, &shared) != 3) resident = 0;
    if (f) fclose(f);
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

/* What was estimated is what is taken, and what cannot be is refused with both numbers before anything is read. */
static void easy_test_estimate(void) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c;
    llm_estimate x, y;
    llm_engine_stats stats;
    memset(&c, 0, sizeof c);
    if (!CHECK(!llm_model_open(easy_path, NULL, &m))) return;
    c.max_model_len = 2048;
    c.max_num_seqs = 4;
    c.kv_cache_prealloc = 1;
    c.n_threads = 2;
    c.kv_cache_dtype = LLM_KV_F16;
    int64_t before = easy_resident();
    CHECK(!llm_model_estimate(m, &c, &x) && x.fits && x.max_model_len == 2048);
    CHECK(x.kv_bytes == 4 * 2048 / 32 * 737280LL); /* 30 layers of 3 heads of 64 numbers, keys and values, two bytes each */
    CHECK(x.weight_bytes > 70 << 20 && x.weight_bytes < 120 << 20 && x.buffer_bytes > 0 && x.available_bytes > 0);
    CHECK(x.peak_bytes == x.weight_bytes + x.kv_bytes + x.buffer_bytes);
    CHECK(easy_resident() - before < 16 << 20); /* nothing was loaded */
    if (CHECK(!llm_engine_open(m, &c, &e))) {
        llm_engine_get_stats(e, &stats);
        int64_t took = easy_resident() - before;
        CHECK(took < x.peak_bytes + (8 << 20) && took > x.weight_bytes + x.kv_bytes);
        CHECK(stats.memory_bytes <= x.peak_bytes && stats.memory_bytes > x.weight_bytes + x.kv_bytes);
        if (took >= x.peak_bytes + (8 << 20)) printf("estimated %lld, took %lld\n", (long long)x.peak_bytes, (long long)took);
        llm_engine_close(e);
    }
    /* smaller numbers take less */
    c.kv_cache_dtype = LLM_KV_INT8;
    CHECK(!llm_model_estimate(m, &c, &y) && y.kv_bytes < x.kv_bytes * 6 / 10 && y.weight_bytes >= x.weight_bytes);
    c.dtype = LLM_COMPUTE_F32;
    CHECK(!llm_model_estimate(m, &c, &y) && y.fits);
    /* too much: refused, with both numbers, and the estimate says them without an error */
    memset(&c, 0, sizeof c);
    c.max_num_seqs = 60000;
    c.max_num_batched_tokens = 60000;
    c.kv_cache_memory_bytes = (int64_t)100 << 40;
    char need[32], free_now[32];
    before = easy_resident();
    const double begin = llm__now();
    CHECK(!llm_model_estimate(m, &c, &x) && !x.fits && x.kv_bytes > (int64_t)10 << 40);
    CHECK(easy_resident() - before < 64 << 20 &&
          (TEST_BRIEF || llm__now() - begin < 2 * easy_slow())); /* at once, without books of the pages */
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_NOMEM && !e);
    snprintf(need, sizeof need, "KV cache %lld", (long long)x.kv_bytes);
    snprintf(free_now, sizeof free_now, "are free");
    if (!CHECK(strstr(llm_last_error(), need) && strstr(llm_last_error(), free_now))) printf("%s\n", llm_last_error());
    memset(&c, 0, sizeof c);
    c.kv_cache_memory_bytes = 1 << 20;
    c.max_model_len = 1000;
    CHECK(!llm_model_estimate(m, &c, &x) && !x.fits && llm_engine_open(m, &c, &e) == LLM_ERR_LIMIT && strstr(llm_last_error(), "1048576"));
    c.max_model_len = -7;
    CHECK(llm_model_estimate(m, &c, &x) == LLM_ERR_ARG && !x.fits && !x.kv_bytes);
    memset(&c, 0, sizeof c);
    c.device = "cuda";
    CHECK(llm_model_estimate(m, &c, &x) == LLM_ERR_UNSUPPORTED);
    llm_model_close(m);
}

TEST_GROUP(easy) {
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    easy_test_bad_files();
    if (test_made(TEST_CHECKPOINT("llama"), "checkpoints") && test_made(easy_path, "model")) easy_test_given();
    if (test_exists(TEST_CHECKPOINT("llama"))) easy_test_queue();
    if (!test_made(easy_path, "model")) return;
    easy_test_estimate();
    easy_test_tools();
    c.max_model_len = 512;
    llm *l = llm_load(easy_path, &c);
    if (!CHECK(l != NULL)) return;
    easy_test_ends(l);
    easy_test_failure(l);
    easy_test_generate(l);
    easy_test_messages(l);
    llm_free(l);
    c.max_model_len = 2048;
    if (!CHECK((l = llm_load(easy_path, &c)) != NULL)) return;
    easy_test_budget(l);
    easy_test_stop(l);
    llm_free(l);
}
