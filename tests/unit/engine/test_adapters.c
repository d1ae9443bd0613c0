/* Adapters of an engine by name: slots, those set aside, who holds what; the turns between two steps. Over a tiny checkpoint, with adapters
 * written here. */
#include "../safetensors.h"
#include "../gguf.h"
#include "engine/adapters.h"
#include "engine/engine.h"
#include "engine/scheduler.h"

static test_folder ad_folder;

/* A folder "aN" with an adapter of random factors for q of layer 0. */
static const char *ad_make(int number) {
    static float x[4 * 96];
    test_folder f;
    safe_file s = LLM__ZERO;
    snprintf(f.path, sizeof f.path, "%.50s/a%d", ad_folder.path, number);
    CHECK(!mkdir(f.path, 0700));
    folder_write_text(&f, "adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}");
    safe_numbers((uint64_t)number, 4 * 96, x);
    safe_add(&s, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 4, 96, x);
    safe_add(&s, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", 96, 4, x);
    safe_write(&s, &f, "adapter_model.safetensors");
    return folder_file(&ad_folder, f.path + strlen(ad_folder.path) + 1);
}

static llm_engine *ad_engine(const llm_model *m, int32_t max_loras, int32_t max_cpu_loras) {
    llm_engine_config c = LLM__ZERO;
    llm_engine *e = NULL;
    c.n_threads = 1, c.max_num_seqs = 3, c.max_model_len = 64, c.max_loras = max_loras, c.max_cpu_loras = max_cpu_loras,
    c.max_lora_rank = 8;
    CHECK(!llm_engine_open(m, &c, &e));
    return e;
}

static int32_t ad_find(llm_engine *e, const char *name, int listed) { return llm__lora_find(e, llm__s(name, strlen(name)), listed); }

/* The names listed, in the order of their loading, behind each other. */
static const char *ad_listed(llm_engine *e) {
    static char all[64];
    llm_text t = LLM__ZERO;
    for (int32_t i = 0; llm_lora_get(e, i, &t, NULL, NULL); i++) llm_text_str(&t, " ");
    snprintf(all, sizeof all, "%s", t.data ? t.data : "");
    llm_text_free(&t);
    return all;
}

/* A free slot is taken, a name is listed once; unloaded with a user left the slot stays until the user goes. */
static void ad_slots(const llm_model *m) {
    llm_engine *e = ad_engine(m, 2, 2);
    char one[128], two[128];
    int32_t slot, again, counts[2] = {9, 9};
    snprintf(one, sizeof one, "%s", ad_make(1)), snprintf(two, sizeof two, "%s", ad_make(2));
    CHECK(ad_find(e, "one", 0) == -1 && llm__lora_hold(e, "one", &slot) == LLM_ERR_ARG && slot == -1);
    CHECK(!llm__lora_hold(e, NULL, &slot) && slot == -1); /* none, and nothing to let go of */
    CHECK(llm_lora_load(e, "x", "/no/such") != LLM_OK && ad_find(e, "x", 0) == -1 && !e->adapters.slot[0].refs);
    CHECK(!llm_lora_load(e, "one", one) && !llm_lora_load(e, "two", two));
    CHECK(ad_find(e, "one", 1) == 0 && ad_find(e, "two", 1) == 1 && ad_find(e, "on", 1) == -1 && !strcmp(ad_listed(e), "one two "));
    CHECK(llm_lora_load(e, "one", two) == LLM_ERR_ARG && strstr(llm_last_error(), "has already been loaded"));
    CHECK(llm_lora_load(e, "", two) == LLM_ERR_ARG && llm_lora_load(e, "a\nb", two) == LLM_ERR_ARG);
    CHECK(e->adapters.slot[0].refs == 1 && !llm__lora_hold(e, "one", &slot) && slot == 0 && e->adapters.slot[0].refs == 2);
    CHECK(!llm__lora_hold(e, "one", &again) && again == 0 && e->adapters.slot[0].refs == 3);
    llm__lora_drop(e, again);
    CHECK(!llm_lora_unload(e, "one") && ad_find(e, "one", 0) == -1 && e->adapters.slot[0].refs == 1 && !strcmp(ad_listed(e), "two "));
    CHECK(llm_lora_unload(e, "one") == LLM_ERR_ARG && strstr(llm_last_error(), "cannot be found"));
    const uint64_t content = e->adapters.slot[0].content, id = e->adapters.slot[0].id;
    llm__lora_drop(e, slot); /* the last user: empty */
    CHECK(!e->adapters.slot[0].refs && !e->adapters.slot[0].content && !e->adapters.slot[0].id);
    CHECK(!llm_lora_load(e, "one", one) && ad_find(e, "one", 1) == 0 && e->adapters.slot[0].content == content &&
          e->adapters.slot[0].id > id);
    CHECK(!strcmp(ad_listed(e), "two one ") && llm_lora_get(e, 1, NULL, NULL, counts) && counts[0] == 0 && counts[1] == 0);
    CHECK(!llm_lora_get(e, 2, NULL, NULL, NULL) && !llm_lora_get(e, -1, NULL, NULL, NULL));
    llm_engine_close(e);
}

/* One slot for three adapters: who was named longest ago is set aside, read again when it is named, and kept out while the slot is used. */
static void ad_aside(const llm_model *m) {
    llm_engine *e = ad_engine(m, 1, 1);
    int32_t slot, other;
    for (int i = 3; i <= 5; i++) {
        char name[2] = {(char)('a' + i - 3), 0};
        CHECK(!llm_lora_load(e, name, ad_make(i)));
    }
    CHECK(ad_find(e, "c", 1) == 0 && ad_find(e, "a", 1) > 0 && ad_find(e, "b", 1) > 0 && !strcmp(ad_listed(e), "a b c "));
    CHECK(!llm__lora_hold(e, "a", &slot) && slot == 0 && ad_find(e, "a", 1) == 0 && ad_find(e, "c", 1) > 0 &&
          e->adapters.slot[0].refs == 2);
    CHECK(!strcmp(ad_listed(e), "b c a ")); /* it was loaded once more */
    CHECK(llm__lora_hold(e, "b", &other) == LLM_ERR_BUSY && other == -1 && strstr(llm_last_error(), "1 others are in use"));
    CHECK(llm_lora_load(e, "d", ad_make(6)) == LLM_ERR_LIMIT && ad_find(e, "d", 0) == -1);
    CHECK(!llm_lora_unload(e, "b") && ad_find(e, "b", 0) == -1); /* one that is set aside is forgotten at once */
    llm__lora_drop(e, slot);
    CHECK(e->adapters.slot[0].refs == 1 && !llm__lora_hold(e, "c", &other) && other == 0 && ad_find(e, "a", 1) > 0);
    llm__lora_drop(e, other);
    CHECK(!llm_lora_unload(e, "a") && !llm_lora_unload(e, "c") && !llm_lora_get(e, 0, NULL, NULL, NULL));
    for (int32_t i = 0; i < e->p.n_loras + LLM__LORA_ASIDE; i++) CHECK(!e->adapters.slot[i].refs && !e->adapters.slot[i].name);
    llm_engine_close(e);
}

/* Of two that nobody uses the one named longest ago makes room, not the one loaded first. */
static void ad_oldest(const llm_model *m) {
    llm_engine *e = ad_engine(m, 2, 2);
    char path[3][128];
    int32_t slot;
    for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s", ad_make(8 + i));
    CHECK(!llm_lora_load(e, "a", path[0]) && !llm_lora_load(e, "b", path[1]) && !llm__lora_hold(e, "a", &slot));
    llm__lora_drop(e, slot);
    CHECK(!llm_lora_load(e, "c", path[2]) && ad_find(e, "a", 1) == 0 && ad_find(e, "c", 1) == 1 && ad_find(e, "b", 1) >= 2);
    CHECK(!llm__lora_hold(e, "b", &slot) && slot == 0 && ad_find(e, "a", 1) >= 2 && ad_find(e, "c", 1) == 1);
    llm__lora_drop(e, slot);
    llm_engine_close(e);
}

/* Keys of the prefix cache differ by adapter, also by one that is loaded anew, by scaling and salt. */
static void ad_roots(const llm_model *m) {
    llm_engine *e = ad_engine(m, 1, 1);
    llm__kv_key all[6];
    int n = 0;
    CHECK(!llm_lora_load(e, "a", ad_make(7)));
    all[n++] = llm__prompt_root(e, -1, llm__rope_number(0, 1), NULL);
    all[n++] = llm__prompt_root(e, 0, llm__rope_number(0, 1), NULL);
    CHECK(!llm_lora_unload(e, "a") && !llm_lora_load(e, "a", folder_file(&ad_folder, "a7")));
    all[n++] = llm__prompt_root(e, 0, llm__rope_number(0, 1), NULL);
    all[n++] = llm__prompt_root(e, 0, llm__rope_number(1, 1), NULL);
    all[n++] = llm__prompt_root(e, 0, llm__rope_number(0, 2), NULL);
    all[n++] = llm__prompt_root(e, 0, llm__rope_number(0, 1), "salt");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) CHECK(all[i].a != all[k].a && all[i].b != all[k].b);
    CHECK(llm__rope_number(0, 1) == 0x3F800000 && llm__rope_number(2, 1.5f) == 0x23FC00000);
    llm_engine_close(e);
}

/* ---- turns ---- */

enum { AD_THREADS = 6 };

static struct ad_turns {
    llm_engine *e;
    int order[AD_THREADS], n, inside, overlaps; /* inside: threads that have the turn */
} ad_turns;

static void *ad_wants_turn(void *arg) {
    llm__turn_take(ad_turns.e);
    ad_turns.overlaps += ad_turns.inside++ != 0;
    ad_turns.order[ad_turns.n++] = *(const int *)arg;
    usleep(2000);
    ad_turns.inside--;
    llm__turn_give(ad_turns.e);
    return NULL;
}

/* Threads that come while one has its turn get theirs one after the other, in the order in which they came. */
static void ad_take_turns(const llm_model *m) {
    pthread_t thread[AD_THREADS];
    int number[AD_THREADS];
    llm_engine *e = ad_turns.e = ad_engine(m, 0, 0);
    llm__turn_take(e);
    for (int i = 0; i < AD_THREADS; i++) {
        number[i] = i;
        CHECK(!pthread_create(&thread[i], NULL, ad_wants_turn, &number[i]));
        for (int drawn = 0; !drawn; usleep(100)) { /* until it has drawn its number */
            pthread_mutex_lock(&e->mutex);
            drawn = e->turn.next == e->turn.now + 2 + (uint64_t)i;
            pthread_mutex_unlock(&e->mutex);
        }
    }
    CHECK(ad_turns.n == 0);
    llm__turn_give(e);
    for (int i = 0; i < AD_THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < AD_THREADS; i++) CHECK(ad_turns.order[i] == i);
    CHECK(ad_turns.n == AD_THREADS && !ad_turns.overlaps && e->turn.now == e->turn.next);
    llm_engine_close(e);
}

/* A GGUF adapter of random factors for q and v of layer 0; the head's length in *head. */
static llm_text ad_gguf(size_t *head) {
    static float x[4 * 96];
    static const char *const names[] = {"blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b", "blk.0.ffn_up.weight.lora_a",
                                        "blk.0.ffn_up.weight.lora_b"};
    static const int tall[] = {0, 96, 0, 176};
    uint32_t alpha;
    const float eight = 8;
    llm_text t = gguf_head(3, 4, 4);
    gguf_kv_str(&t, "general.architecture", "llama");
    gguf_kv_str(&t, "general.type", "adapter");
    gguf_kv_str(&t, "adapter.type", "lora");
    memcpy(&alpha, &eight, 4);
    gguf_kv(&t, "adapter.lora.alpha", LLM__GGUF_F32, alpha, 4);
    for (int i = 0, at = 0; i < 4; i++) {
        gguf_tensor(&t, names[i], 2, tall[i] ? 4 : 96, tall[i] ? (uint64_t)tall[i] : 4, 0, (uint64_t)at);
        at += 4 * 4 * (tall[i] ? tall[i] : 96);
    }
    *head = t.len;
    while (t.len % 32) gguf_u(&t, 0, 1);
    safe_numbers(5, 4 * 96, x);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < (tall[i] ? 4 * tall[i] : 4 * 96); k++) llm_text_add(&t, (const char *)&x[k % (4 * 96)], 4);
    return t;
}

/* Loads what stands in `bytes`: it is listed, computes and can be unloaded, or its slot is free. Returns whether it was loaded. */
static int ad_load_bytes(llm_engine *e, const char *bytes, size_t n, int compute) {
    static const int32_t ids[] = {5, 17, 44, 9};
    folder_write(&ad_folder, "m.gguf", bytes, n);
    const llm_result r = llm_lora_load(e, "m", folder_file(&ad_folder, "m.gguf"));
    CHECK(llm_lora_get(e, 0, NULL, NULL, NULL) == (r == LLM_OK) && e->adapters.slot[0].refs == (r == LLM_OK));
    if (r) return CHECK(strlen(llm_last_error()) > 10), 0;
    llm_request_config q = LLM__ZERO;
    llm_request *request = NULL;
    q.prompt_ids = ids, q.n_prompt_ids = 4, q.sampling.max_tokens = 2, q.lora = "m";
    if (compute && CHECK(!llm_request_submit(e, &q, &request))) (void)llm_request_run(e, request); /* numbers of strangers may be none */
    llm_request_free(request);
    return CHECK(!llm_lora_unload(e, "m"));
}

/* GGUF adapters of strangers: each byte of the head changed in several ways, and the file cut at each. */
static void ad_mutants(const llm_model *m) {
    static const int changes[] = {1, 0x80, 0xFF, 4};
    llm_engine *e = ad_engine(m, 1, 1);
    size_t head;
    int loaded = 0, refused = 0;
    llm_text t = ad_gguf(&head);
    if (!CHECK(ad_load_bytes(e, t.data, t.len, 1))) printf("  %s\n", llm_last_error());
    for (size_t i = 0; i < head; i++)
        for (int k = 0; k < LLM__COUNT(changes); k++) {
            t.data[i] = (char)(t.data[i] ^ changes[k]);
            const int ok = ad_load_bytes(e, t.data, t.len, k == 3);
            loaded += ok, refused += !ok;
            t.data[i] = (char)(t.data[i] ^ changes[k]);
        }
    for (size_t n = 0; n < t.len; n += n < head ? 1 : 509) CHECK(!ad_load_bytes(e, t.data, n, 0));
    CHECK(refused > 500 && loaded > 5); /* both ends are reached */
    CHECK(ad_load_bytes(e, t.data, t.len, 1));
    llm_text_free(&t);
    llm_engine_close(e);
}

TEST_GROUP(adapters) {
    llm_model *m = NULL;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    if (!folder_open(&ad_folder)) return;
    ad_slots(m);
    ad_oldest(m);
    ad_aside(m);
    ad_roots(m);
    ad_take_turns(m);
    ad_mutants(m);
    folder_close(&ad_folder);
    llm_model_close(m);
}
