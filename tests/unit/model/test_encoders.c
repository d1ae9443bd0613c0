/* Encoders: vectors and scores against the results of a plain pass, the same bits alone, side by side and on any number of threads or ranks;
 * what stands behind pooling; modules, configs, prompts and calls that are refused. */
#include "../folder.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/files.h"
#include "base/json.h"
#include "model/arch_encoder.h"
#include "model/loader.h"
#include "model/modules.h"
#include "model/pooler.h"
#include "model/net.h"
#include "model/convert_encoder.h"
#include "engine/pooling.h"
#include "engine/scheduler.h"
#include "tokenizer/subword.h"
#include "serve/openai_rank.h"

enum { ENC_MOST = 256, ENC_ROWS = 16 };

/* Texts or pairs of a checkpoint's expected.json, as requests. */
typedef struct enc_case {
    int32_t ids[ENC_MOST], types[ENC_MOST];
    size_t n;
    float want[ENC_MOST], got[ENC_MOST];
    int32_t n_want;
} enc_case;

static int32_t enc_numbers(const llm_json *d, int list, int32_t *out) {
    int32_t n = 0;
    int64_t x;
    for (int v = llm_json_first(d, list); v >= 0 && n < ENC_MOST; v = llm_json_next(d, v))
        if (CHECK(llm_json_int(d, v, &x))) out[n++] = (int32_t)x;
    return n;
}

static int enc_read(const char *path, enc_case *c, int *scores) {
    llm_json *d = NULL;
    char file[200];
    int n = 0;
    double x;
    snprintf(file, sizeof file, "%s/expected.json", path);
    if (!CHECK(!llm__json_file(file, 1 << 20, &d))) return 0;
    int list = llm_json_find(d, 0, "texts");
    *scores = list < 0;
    if (*scores) list = llm_json_find(d, 0, "pairs");
    for (int v = llm_json_first(d, list); v >= 0 && n < ENC_ROWS; v = llm_json_next(d, v), n++) {
        memset(&c[n], 0, sizeof c[n]);
        c[n].n = (size_t)enc_numbers(d, llm_json_find(d, v, "token_ids"), c[n].ids);
        if (*scores) enc_numbers(d, llm_json_find(d, v, "token_type_ids"), c[n].types);
        const int one = llm_json_find(d, v, *scores ? "logit" : "embedding");
        for (int e = *scores ? one : llm_json_first(d, one); e >= 0 && c[n].n_want < ENC_MOST; e = *scores ? -1 : llm_json_next(d, e))
            if (CHECK(llm_json_num(d, e, &x))) c[n].want[c[n].n_want++] = (float)x;
    }
    llm_json_free(d);
    return n;
}

static llm_request *enc_submit(llm_engine *e, const enc_case *c, int scores, int types) {
    llm_request_config r = {.prompt_ids = c->ids, .n_prompt_ids = c->n, .pooling = scores ? LLM_POOLING_SCORE : LLM_POOLING_OWN};
    llm_request *request = NULL;
    if (types) r.prompt_types = c->types;
    return CHECK(!llm_request_submit(e, &r, &request)) ? request : NULL;
}

/* Of an embedding that has length 1 the distance to what is expected; of a score the difference. */
static double enc_distance(const enc_case *c, const float *x, int32_t n, int normalize) {
    double length = 0, off = 0, all = 0;
    if (n != c->n_want) return 1e9;
    for (int32_t i = 0; i < n; i++) length += (double)x[i] * (double)x[i];
    for (int32_t i = 0; i < n; i++) {
        const double y = (double)x[i] / (normalize ? sqrt(length) : 1) - (double)c->want[i];
        off += y * y;
        all += (double)c->want[i] * (double)c->want[i];
    }
    return sqrt(off / LLM__MAX(all, 1));
}

/* All cases on one engine: alone first, then together; vectors go to got, or (same) must be what is there. */
static void enc_engine(const llm_model *m, enc_case *c, int n, int scores, int threads, int ranks, int same) {
    llm_engine_config cfg = {.n_threads = threads, .tensor_parallel_size = ranks, .dtype = LLM_COMPUTE_F32, .max_num_seqs = 4};
    const llm_model_info *info = llm_model_get_info(m);
    const int types = info->n_token_types > 0, normalize = !scores && !info->raw_embeddings;
    llm_request *r[ENC_ROWS] = {NULL};
    llm_engine *e = NULL;
    if (!CHECK(!llm_engine_open(m, &cfg, &e))) return;
    for (int together = 0; together < 2; together++)
        for (int i = 0; i < n; i++) {
            for (int k = together ? (i ? n : 0) : i; k < (together ? n : i + 1); k++) r[k] = enc_submit(e, &c[k], scores, types && scores);
            if (!r[i] || !CHECK(!llm_request_run(e, r[i]))) continue;
            int32_t size = 0;
            const float *x = llm_request_embedding(r[i], &size);
            if (!CHECK(x && size == c[i].n_want)) continue;
            if (!same && !together) memcpy(c[i].got, x, (size_t)size * sizeof *x);
            if (ranks == 1) CHECK(!memcmp(c[i].got, x, (size_t)size * sizeof *x));
            const double off = enc_distance(&c[i], x, size, normalize);
            if (!CHECK(off < 3e-5)) printf("  case %d: %g away\n", i, off);
            llm_request_free(r[i]);
            r[i] = NULL;
        }
    llm_engine_close(e);
}

static void enc_checkpoint(const char *path, int ranks) {
    static enc_case c[ENC_ROWS];
    llm_model *m = NULL;
    int scores;
    const int n = enc_read(path, c, &scores);
    if (!n || !CHECK(!llm_model_open(path, NULL, &m))) return;
    const llm_model_info *info = llm_model_get_info(m);
    CHECK(info->encoder && info->n_labels == scores);
    if (!scores) CHECK(info->embedding_size == c[0].n_want);
    enc_engine(m, c, n, scores, 1, 1, 0);
    enc_engine(m, c, n, scores, 3, 1, 1);
    if (ranks > 1) enc_engine(m, c, n, scores, 1, ranks, 1);
    llm_model_close(m);
}

/* Both texts of a pair become the ids and kinds of the Hugging Face library, which stand in expected.json; cut to a length too. */
static void enc_pairs(const char *path) {
    llm_json *d = NULL;
    llm_model *m = NULL;
    char file[200];
    const llm_model_config vocab = {.vocab_only = 1};
    snprintf(file, sizeof file, "%s/expected.json", path);
    if (!CHECK(!llm__json_file(file, 1 << 20, &d)) || !CHECK(!llm_model_open(path, &vocab, &m))) return;
    for (int v = llm_json_first(d, llm_json_find(d, 0, "pairs")); v >= 0; v = llm_json_next(d, v)) {
        int32_t ids[ENC_MOST], types[ENC_MOST];
        const llm__str a = llm__json_text_at(d, v, "query"), b = llm__json_text_at(d, v, "document");
        const int32_t n = enc_numbers(d, llm_json_find(d, v, "token_ids"), ids);
        CHECK(enc_numbers(d, llm_json_find(d, v, "token_type_ids"), types) == n);
        LLM__SCOPED(llm_tokens_free) llm_tokens got = LLM__ZERO;
        LLM__SCOPED(llm_tokens_free) llm_tokens kinds = LLM__ZERO;
        CHECK(!llm_tokenize_pair(m, a.p, a.n, b.p, b.n, LLM_TOK_ADD_SPECIAL, 0, &got, &kinds) && got.len == (size_t)n &&
              kinds.len == (size_t)n);
        CHECK(!memcmp(got.data, ids, got.len * sizeof *ids) && !memcmp(kinds.data, types, got.len * sizeof *ids));
        got.len = kinds.len = 0;
        CHECK(!llm__tokenizer_pair(m->source.tokenizer, a, b, LLM_TOK_ADD_SPECIAL, 12, &got, &kinds) && got.len == 12 &&
              got.data[11] == ids[n - 1]);
    }
    llm_json_free(d);
    llm_model_close(m);
}

/* A window has a token and both sides; GGUF and config.json tell it in different words. */
static void enc_windows(void) {
    static const struct {
        const char *family;
        int32_t window[4];
    } table[] = {
        {"modernbert", {0, 9, 9, 0}}, {"embedding_gemma", {13, 13, 0, 0}}, {"embedding_gemma2", {10, 10, 0, 0}}, {"bert", {0, 0, 0, 0}}};
    for (int i = 0; i < LLM__COUNT(table); i++) {
        char path[100];
        llm_model *m = NULL;
        snprintf(path, sizeof path, TEST_CHECKPOINT("%s"), table[i].family);
        if (!CHECK(!llm_model_open(path, NULL, &m))) continue;
        for (int k = 0; k < m->arch.n_layers; k++) CHECK(m->arch.layer[k].window == table[i].window[k]);
        if (!strcmp(table[i].family, "modernbert")) CHECK(m->arch.layer[0].bare && !m->arch.layer[1].bare && m->arch.layer[1].rope == 1);
        llm_model_close(m);
    }
}

/* A config.json that is refused, and a word of the sentence. */
static void enc_config(const char *config, const char *says) {
    test_folder f;
    llm_model *m = NULL;
    const llm_model_config dummy = {.dummy_weights = 1};
    if (!folder_open(&f)) return;
    folder_write_text(&f, "config.json", config);
    if (!CHECK(llm_model_open(f.path, &dummy, &m) && strstr(llm_last_error(), says)))
        printf("  \"%s\" expected, got \"%s\"\n", says, m ? "a model" : llm_last_error());
    llm_model_close(m);
    folder_close(&f);
}

#define ENC_BERT \
    "\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"intermediate_size\":16,\"vocab_size\":32,\"max_position_" \
    "embeddings\":20"

static void enc_configs(void) {
    enc_config("{\"model_type\":\"bert\",\"is_decoder\":true," ENC_BERT "}", "is_decoder: true is not supported");
    enc_config("{\"model_type\":\"bert\",\"position_embedding_type\":\"relative_key\"," ENC_BERT "}", "absolute expected");
    enc_config("{\"model_type\":\"roberta\",\"pad_token_id\":30," ENC_BERT "}", "more than pad_token_id + 1 expected");
    enc_config("{\"model_type\":\"mpnet\",\"relative_attention_num_buckets\":16," ENC_BERT "}",
               "relative_attention_num_buckets: 32 expected");
    enc_config("{\"model_type\":\"nomic_bert\",\"prenorm\":true," ENC_BERT "}", "prenorm: true is not supported");
    enc_config("{\"model_type\":\"nomic_bert\",\"activation_function\":\"gelu\"," ENC_BERT "}", "swiglu or geglu expected");
    enc_config("{\"model_type\":\"electra\",\"embedding_size\":32," ENC_BERT "}", "embedding_size: another than hidden_size");
    enc_config("{\"model_type\":\"ernie\",\"is_decoder\":true," ENC_BERT "}", "is_decoder: true is not supported");
    enc_config("{\"model_type\":\"xlm-roberta-xl\",\"pad_token_id\":30," ENC_BERT "}", "more than pad_token_id + 1 expected");
    enc_config("{\"model_type\":\"megatron-bert\",\"position_embedding_type\":\"relative_key\"," ENC_BERT "}", "absolute expected");
    enc_config("{\"model_type\":\"bert\",\"position_embedding_type\":\"rotary\"," ENC_BERT "}", "\"rotary\", absolute expected");
    enc_config("{\"model_type\":\"new\",\"position_embedding_type\":\"absolute\"," ENC_BERT "}", "\"absolute\", rope expected");
    enc_config("{\"model_type\":\"new\",\"logn_attention_scale\":true," ENC_BERT "}", "logn_attention_scale: true is not supported");
    enc_config("{\"model_type\":\"gte\",\"layer_norm_type\":\"rms_norm\"," ENC_BERT "}", "layer_norm expected");
    enc_config("{\"model_type\":\"gte\",\"rope_scaling\":{\"type\":\"ntk\",\"factor\":8,\"mixed_b\":0.6}," ENC_BERT "}",
               "\"ntk\" is not supported");
    enc_config("{\"model_type\":\"llama\",\"is_causal\":false," ENC_BERT "}", "attention to both sides is not supported");
    enc_config("{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForSequenceClassification\"]," ENC_BERT "}", "a classifier over qwen3");
    enc_config("{\"model_type\":\"modernbert\",\"layer_types\":[\"chunked\"]," ENC_BERT "}",
               "sliding_attention or full_attention expected");
}

/* modules.json that is refused, and the sentence; `inner`: 1_Pooling/config.json. */
static void enc_modules_refused(const char *modules, const char *inner, const char *says) {
    test_folder f;
    llm__source s = LLM__ZERO;
    llm__modules m = LLM__ZERO;
    if (!folder_open(&f)) return;
    CHECK(!mkdir(folder_file(&f, "1_Pooling"), 0700));
    folder_write_text(&f, "modules.json", modules);
    if (inner) folder_write_text(&f, "1_Pooling/config.json", inner);
    s.path = f.path;
    if (!CHECK(llm__modules_read(&s, f.path, 1, &m) && strstr(llm_last_error(), says))) printf("  \"%s\" expected\n", says);
    llm__modules_free(&m);
    llm__arena_free(&s.arena);
    folder_close(&f);
}

#define ENC_MODULE(type, path) "{\"type\":\"sentence_transformers.models." type "\",\"path\":\"" path "\"}"
#define ENC_FIRST "[" ENC_MODULE("Transformer", "") "," ENC_MODULE("Pooling", "1_Pooling")

static void enc_modules(void) {
    static const char mean[] = "{\"pooling_mode_mean_tokens\":true}";
    CHECK(llm__dense_act_of("torch.nn.modules.activation.Tanh") == LLM__DENSE_TANH && llm__dense_act_of("torch.nn.Softmax") == -1);
    enc_modules_refused("{}", NULL, "a list of modules expected");
    enc_modules_refused("[" ENC_MODULE("Transformer", "") "]", NULL, "no Pooling among its modules");
    enc_modules_refused("[" ENC_MODULE("Transformer", "0_T") "]", NULL, "give that folder");
    enc_modules_refused("[" ENC_MODULE("Transformer", "") "," ENC_MODULE("Pooling", "../up") "]", NULL,
                        "the plain name of a folder expected");
    enc_modules_refused(ENC_FIRST "]", NULL, "no such file");
    enc_modules_refused(ENC_FIRST "]", "{\"pooling_mode_max_tokens\":true}", "pooling_mode_max_tokens is not supported");
    enc_modules_refused(ENC_FIRST "]", "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", "2 ways of pooling");
    enc_modules_refused(ENC_FIRST "]", "{\"pooling_mode\":\"weightedmean\"}", "0 ways of pooling");
    enc_modules_refused(ENC_FIRST "," ENC_MODULE("LSTM", "2_LSTM") "]", mean, "module 2 is sentence_transformers.models.LSTM");
    enc_modules_refused(ENC_FIRST "," ENC_MODULE("Normalize", "2_N") "," ENC_MODULE("Dense", "3_D") "]", mean, "in this order, expected");
}

/* Calls that an encoder cannot answer, and prompts that do not fit. */
static void enc_refused(void) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_request *r = NULL;
    static int32_t ids[200];
    const int32_t types[3] = {0, 1, 2};
    const llm_engine_config drafts = {.n_threads = 1, .speculative_model = "[ngram]", .num_speculative_tokens = 2},
                            plain = {.n_threads = 1};
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("bert"), NULL, &m))) return;
    CHECK(llm_engine_open(m, &drafts, &e) && strstr(llm_last_error(), "has no drafts"));
    if (!CHECK(!llm_engine_open(m, &plain, &e))) return;
    llm_request_config c = {.prompt_ids = ids, .n_prompt_ids = 3};
    CHECK(llm_request_submit(e, &c, &r) && strstr(llm_last_error(), "is an encoder, which gives vectors of texts and no answers"));
    c.pooling = LLM_POOLING_SCORE;
    CHECK(llm_request_submit(e, &c, &r) && strstr(llm_last_error(), "has no classifier"));
    c.pooling = LLM_POOLING_OWN;
    c.prompt_types = types;
    CHECK(llm_request_submit(e, &c, &r) && strstr(llm_last_error(), "prompt_types: entry 2 is 2"));
    c.prompt_types = NULL;
    c.n_prompt_ids = 129; /* the table of positions has 128 */
    CHECK(llm_request_submit(e, &c, &r) == LLM_ERR_LIMIT && strstr(llm_last_error(), "maximum context length is 128"));
    c.pooling = (llm_pooling)9;
    CHECK(llm_request_submit(e, &c, &r) && strstr(llm_last_error(), "pooling: 9"));
    float logits[1];
    CHECK(llm_forward(e, 0, 0, ids, 1, logits, 0) && strstr(llm_last_error(), "gives vectors and no logits"));
    CHECK(e->p.max_out >= e->p.c.max_num_batched_tokens && e->p.c.disable_prefix_caching && e->p.c.max_num_batched_tokens >= 128);
    llm_engine_close(e);
    llm_model_close(m);
}

/* Prompts that do not fit a step together wait whole: a part of one would see a part of its text. */
static void enc_whole(void) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    static float alone[64];
    static int32_t ids[100];
    const llm_engine_config c = {.n_threads = 1, .max_num_seqs = 4, .max_num_batched_tokens = 150};
    llm_request_config r = {.prompt_ids = ids, .n_prompt_ids = LLM__COUNT(ids), .pooling = LLM_POOLING_MEAN};
    llm_request *request[4] = {NULL};
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("bert"), NULL, &m) && !llm_engine_open(m, &c, &e))) return;
    for (int i = 0; i < LLM__COUNT(ids); i++) ids[i] = 5 + i;
    CHECK(e->p.c.max_num_batched_tokens < 2 * LLM__COUNT(ids));
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            for (int k = 1; k < 4; k++) CHECK(!llm_request_submit(e, &r, &request[k]));
        else if (!i) CHECK(!llm_request_submit(e, &r, &request[0]));
        int32_t n = 0;
        if (!request[i] || !CHECK(!llm_request_run(e, request[i]))) continue;
        const float *x = llm_request_embedding(request[i], &n);
        if (!CHECK(x && n == LLM__COUNT(alone))) continue;
        if (!i) memcpy(alone, x, sizeof alone);
        CHECK(!memcmp(alone, x, sizeof alone));
        llm_request_free(request[i]);
    }
    llm_engine_close(e);
    llm_model_close(m);
}

/* RoBERTa's table of positions begins behind that of padding. */
static void enc_positions(void) {
    static const char config[] = "{\"pad_token_id\":1,\"type_vocab_size\":1}";
    const llm__tensors none = LLM__ZERO;
    llm__facts f = {.path = "roberta", .n_nodes = 1};
    static llm__arch a;
    llm_json *d = NULL;
    if (!CHECK(!llm_json_parse(config, strlen(config), NULL, &d))) return;
    f.json = d;
    for (int i = 0; i < LLM__COUNT(llm__families); i++)
        if (!strncmp(llm__families[i].names, "roberta", 7)) a.family = &llm__families[i], a.flags = a.family->flags;
    a.max_positions = a.max_len = 514;
    llm__arch_encoder_shapes(&f, &a, &none);
    CHECK(!f.r && a.encoder && a.n_types == 1 && a.position_offset == 2 && a.max_positions == 512 && a.max_len == 512);
    llm_json_free(d);
}

/* What the files say of pooling, and which rows of a prompt each way wants. */
static void enc_pooling(void) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    const llm_engine_config plain = {.n_threads = 1};
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("embedding_gemma"), NULL, &m))) return;
    CHECK(!strcmp(llm__convert_encoder_arch(m), "gemma-embedding") && llm__convert_encoder_refuse(m) == LLM_ERR_UNSUPPORTED);
    memset(&m->pooler, 0, sizeof m->pooler);
    CHECK(!llm__pooler_open(m) && m->pooler.kind == LLM_POOLING_MEAN && m->pooler.normalize && m->pooler.n_dense == 2);
    CHECK(m->pooler.size == 48 && m->pooler.wide == 112 && m->pooler.dense[1].act == LLM__DENSE_TANH && m->pooler.dense[1].b &&
          !m->pooler.dense[0].b);
    if (!CHECK(!llm_engine_open(m, &plain, &e))) return;
    static const struct {
        llm_pooling kind;
        int32_t from, end;
    } rows[] = {{LLM_POOLING_FIRST, 0, 1}, {LLM_POOLING_LAST, 6, 7}, {LLM_POOLING_MEAN, 0, 7}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        static llm_request r;
        memset(&r, 0, sizeof r);
        r.engine = e;
        r.pooling.kind = rows[i].kind;
        CHECK(!llm__pooling_room(&r, 7) && r.prompt.score_from == rows[i].from && r.prompt.score_end == rows[i].end);
        llm__arena_free(&r.arena);
    }
    llm_engine_close(e);
    llm_model_close(m);
}

/* A body of /v1/rerank, best first, and of /v1/score. */
static void enc_ranks(void) {
    static const char rerank[] =
        "{\"query\":\"where is the bridge\",\"documents\":[\"bread\",{\"text\":\"the bridge\"},\"stars\"],\"top_n\":2}";
    static const char score[] = "{\"text_1\":\"where is the bridge\",\"text_2\":[\"bread\",\"the bridge\"]}";
    llm_openai_service s;
    llm_model *m = NULL;
    llm_engine *e = NULL;
    const llm_engine_config plain = {.n_threads = 1, .dtype = LLM_COMPUTE_F32};
    double scores[4] = {0};
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("bert_reranker"), NULL, &m) && !llm_engine_open(m, &plain, &e))) return;
    llm_openai_service_init(&s, m, e);
    for (int which = 0; which < 2; which++) {
        LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
        llm_json *d = NULL;
        llm_openai_call *k = llm_openai_begin(&s, which ? LLM_OPENAI_SCORE : LLM_OPENAI_RERANK, which ? score : rerank,
                                              which ? sizeof score - 1 : sizeof rerank - 1, NULL);
        if (!CHECK(k && llm__rank_submit(k))) break;
        while (!llm_openai_next(k, &out)) CHECK(!llm_engine_step(e, NULL));
        CHECK(!llm_json_parse(out.data, out.len, NULL, &d));
        const int list = llm_json_find(d, 0, which ? "data" : "results"), first = llm_json_first(d, list);
        CHECK(llm_json_size(d, list) == 2);
        for (int v = first, i = 0; v >= 0 && i < 2; v = llm_json_next(d, v), i++)
            CHECK(llm_json_num(d, llm_json_find(d, v, which ? "score" : "relevance_score"), &scores[2 * which + i]));
        if (!which) {
            CHECK(scores[0] >= scores[1]);
            out.len = 0;
            llm__rank_whole(k, &out); /* what is there can be written again */
            CHECK(!out.failed && strstr(out.data, "\"document\":{\"text\":"));
        } else CHECK(scores[2] == scores[0] || scores[2] == scores[1] || scores[3] == scores[0] || scores[3] == scores[1]);
        llm_json_free(d);
        llm_openai_free(k);
    }
    llm_engine_close(e);
    llm_model_close(m);
}

TEST_GROUP(encoders) {
    if (!test_made(TEST_CHECKPOINT("bert"), "checkpoints")) return;
    enc_checkpoint(TEST_CHECKPOINT("bert"), 2);
    enc_checkpoint(TEST_CHECKPOINT("bert_reranker"), 2);
    enc_checkpoint(TEST_CHECKPOINT("xlm_roberta_reranker"), 2);
    enc_checkpoint(TEST_CHECKPOINT("electra_reranker"), 2);
    enc_checkpoint(TEST_CHECKPOINT("gte_reranker"), 2);
    enc_checkpoint(TEST_CHECKPOINT("distilbert"), 2);
    enc_checkpoint(TEST_CHECKPOINT("distilbert_reranker"), 2);
    enc_checkpoint(TEST_CHECKPOINT("mpnet"), 2);
    enc_checkpoint(TEST_CHECKPOINT("mpnet"), 3);
    enc_checkpoint(TEST_CHECKPOINT("nomic_bert"), 2);
    enc_checkpoint(TEST_CHECKPOINT("modernbert"), 2);
    enc_checkpoint(TEST_CHECKPOINT("modernbert_reranker"), 1);
    enc_checkpoint(TEST_CHECKPOINT("embedding_gemma"), 3);
    enc_checkpoint(TEST_CHECKPOINT("embedding_gemma2"), 2);
    enc_pairs(TEST_CHECKPOINT("bert_reranker"));
    enc_pairs(TEST_CHECKPOINT("xlm_roberta_reranker"));
    enc_pairs(TEST_CHECKPOINT("modernbert_reranker"));
    enc_windows();
    enc_whole();
    enc_positions();
    enc_configs();
    enc_modules();
    enc_pooling();
    enc_ranks();
    enc_refused();
}
