/* What the loader makes of an adapter's tensors for one layer: which factors, which of their rows and columns, in which order and how much
 * of them. Over a table of tensors written here and a backend that only keeps what it is given. */
#include "../test.h"
#include "model/families.h"
#include "model/loader.h"
#include "model/loader_adapters.h"

enum { FAC_MOST = 4000, FAC_HIDDEN = 8, FAC_EXPERTS = 3 };

static struct fac_kept {
    int calls, slot, n;
    int64_t row[LLM_LORA_PARTS], rows[LLM_LORA_PARTS][2], cols[LLM_LORA_PARTS][2];
    llm_role role[LLM_LORA_PARTS][2];
    float x[LLM_LORA_PARTS][2][256]; /* (rows, cols) of each factor */
} fac_kept;

static struct fac {
    llm__arch arch;
    llm__family family;
    llm__adapter adapter;
    llm__loader loader;
    llm__taken taken[4];
    llm__net_pair to;
    float x[FAC_MOST];
    uint8_t used[32];
    int n;
} fac;

static llm_result fac_put(LLM__UNUSED llm_backend_ctx *ctx, LLM__UNUSED int rank, LLM__UNUSED llm_lora_site *site, int slot,
                          const llm_lora_part *parts, int n) {
    fac_kept.calls++, fac_kept.slot = slot, fac_kept.n = n;
    for (int i = 0; i < n; i++) {
        fac_kept.row[i] = parts[i].row;
        for (int k = 0; k < 2; k++) {
            const llm_weight_desc *d = k ? parts[i].b : parts[i].a;
            const llm_segment *s = d->segments;
            const int64_t n_values = s->n_rows * s->n_cols;
            fac_kept.role[i][k] = d->role, fac_kept.rows[i][k] = d->rows, fac_kept.cols[i][k] = d->cols;
            CHECK(d->n_segments == 1 && s->type == LLM_TYPE_F32 && n_values <= 256);
            for (int64_t at = 0; at < n_values; at++) {
                const int64_t row = at / s->n_cols, col = at % s->n_cols;
                fac_kept.x[i][k][at] = ((const float *)s->data)[s->transposed ? col * s->stored_cols + row : row * s->stored_cols + col];
            }
        }
    }
    return LLM_OK;
}

static void fac_begin(int gguf) {
    static const llm_backend backend = {.lora_put = fac_put};
    static const struct fac zero = LLM__ZERO;
    llm__tensors_free(&fac.adapter.tensors);
    fac = zero;
    memset(&fac_kept, 0, sizeof fac_kept);
    fac.family.names = "llama", fac.arch.family = &fac.family;
    fac.arch.hidden = FAC_HIDDEN, fac.arch.layer[1].head_dim = 4, fac.arch.n_experts = FAC_EXPERTS;
    fac.adapter.path = "adapter", fac.adapter.gguf = gguf, fac.adapter.max_rank = 4, fac.adapter.alpha = 6, fac.adapter.used = fac.used;
    fac.adapter.prefix = gguf ? "" : "base_model.model.", fac.adapter.base = gguf ? "blk." : "model.layers.";
    fac.to.lora = (llm_lora_site *)&fac; /* only passed on */
    fac.loader.a = &fac.arch, fac.loader.path = "adapter", fac.loader.backend = &backend, fac.loader.adapter = &fac.adapter,
    fac.loader.taken = fac.taken, fac.loader.layer = 1, fac.loader.slot = 5;
}

/* Adds a tensor whose value at (i, j, ...) is base + its number in memory. */
static void fac_add(const char *name, int base, int d0, int d1, int d2) {
    const int64_t n = (int64_t)d0 * d1 * LLM__MAX(d2, 1);
    llm__tensor t = LLM__ZERO;
    t.type = LLM_TYPE_F32, t.n_dims = d2 ? 3 : 2, t.shape[0] = d0, t.shape[1] = d1, t.shape[2] = LLM__MAX(d2, 1), t.shape[3] = 1;
    CHECK(fac.n + n <= FAC_MOST);
    for (int64_t i = 0; i < n; i++) fac.x[fac.n + i] = (float)(base + i);
    CHECK(!llm__tensors_add(&fac.adapter.tensors, "adapter", llm__s(name, strlen(name)), &t));
    fac.adapter.tensors.item[fac.adapter.tensors.n - 1].data = (const uint8_t *)(fac.x + fac.n);
    fac.n += (int)n;
}

static void fac_take(int slot, llm__slice rows, llm__slice cols) {
    const llm__taken t = {slot, rows, cols};
    fac.taken[fac.loader.n_taken++] = t;
}

/* 1 if a factor of a part is (rows, cols) with these values. */
static int fac_is(int part, int k, int rows, int cols, const float *values) {
    return part < fac_kept.n && fac_kept.rows[part][k] == rows && fac_kept.cols[part][k] == cols &&
           !memcmp(fac_kept.x[part][k], values, (size_t)rows * (size_t)cols * sizeof *values);
}

/* q whole and v by half, k without factors: two parts, and v begins where its rows stand in the layer. A has the columns that were taken,
 * B the rows, times alpha / r. */
static void fac_layer(void) {
    const llm__slice cols = llm__slice_of(8, 2, 4);
    const float a_q[8] = {2, 3, 4, 5, 10, 11, 12, 13}, a_v[4] = {302, 303, 304, 305}, b_v[2] = {12, 18};
    float b_q[16];
    for (int i = 0; i < 16; i++) b_q[i] = (float)(3 * i); /* alpha 6, r 2 */
    fac_begin(0);
    fac_add("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", 0, 2, 8, 0);
    fac_add("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", 0, 8, 2, 0);
    fac_add("base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight", 300, 1, 8, 0);
    fac_add("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight", 0, 4, 1, 0);
    fac_add("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", 0, 1, 8, 0); /* of another layer */
    fac_add("base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight", 0, 4, 1, 0);
    fac_take(LLM__W_Q, llm__all(8), cols);
    fac_take(LLM__W_K, llm__slice_of(4, 2, 2), cols);
    fac_take(LLM__W_V, llm__slice_of(4, 2, 2), cols);
    llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
    CHECK(!fac.loader.r && fac_kept.calls == 1 && fac_kept.slot == 5 && fac_kept.n == 2 && fac.loader.n_taken == 0);
    CHECK(fac_kept.row[0] == 0 && fac_is(0, 0, 2, 4, a_q) && fac_is(0, 1, 8, 2, b_q));
    CHECK(fac_kept.row[1] == 10 && fac_is(1, 0, 1, 4, a_v) && fac_is(1, 1, 2, 1, b_v));
    CHECK(fac.used[0] && fac.used[1] && fac.used[2] && fac.used[3] && !fac.used[4] && !fac.used[5]);
}

/* What is taken of one stored matrix in three is one part, whose B has the rows of all; a step of 2 takes every other row. */
static void fac_fused(void) {
    const float b[8] = {0, 6, 24, 36, 96, 102, 108, 114};
    fac_begin(0);
    fac_add("base_model.model.model.layers.1.self_attn.qkv_proj.lora_A.weight", 0, 1, 8, 0);
    fac_add("base_model.model.model.layers.1.self_attn.qkv_proj.lora_B.weight", 0, 20, 1, 0);
    const llm__slice every_other = {20, 4, 2, 2};
    fac_take(LLM__W_QKV, llm__slice_of(20, 0, 2), llm__all(8));
    fac_take(LLM__W_QKV, every_other, llm__all(8));
    fac_take(LLM__W_QKV, llm__slice_of(20, 16, 4), llm__all(8));
    llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
    CHECK(!fac.loader.r && fac_kept.n == 1 && fac_kept.row[0] == 0 && fac_is(0, 1, 8, 1, b));
    fac_begin(0); /* an adapter without tensors empties the slot; a layer without a site is passed over */
    fac_take(LLM__W_QKV, llm__all(20), llm__all(8));
    llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
    CHECK(!fac.loader.r && fac_kept.calls == 1 && fac_kept.n == 0);
    fac.to.lora = NULL;
    fac_take(LLM__W_QKV, llm__all(20), llm__all(8));
    llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
    CHECK(!fac.loader.r && fac_kept.calls == 1 && fac.loader.n_taken == 0);
}

/* An embedding's A is stored across: a token takes a row of what becomes of it. Its B reaches over the hidden size, and is scaled. */
static void fac_embed(void) {
    const float a[6] = {1, 6, 2, 7, 3, 8}; /* tokens 1 to 3 of 5 */
    float b[2 * FAC_HIDDEN];
    for (int i = 0; i < 2 * FAC_HIDDEN; i++) b[i] = (float)(3 * (100 + i));
    for (int gguf = 0; gguf < 2; gguf++) {
        const float a_gguf[6] = {2, 3, 4, 5, 6, 7}; /* (vocab, r) as it is */
        fac_begin(gguf);
        fac.loader.layer = -1;
        if (gguf) fac_add("token_embd.weight.lora_a", 0, 5, 2, 0), fac_add("token_embd.weight.lora_b", 100, FAC_HIDDEN, 2, 0);
        else
            fac_add("base_model.model.model.embed_tokens.lora_embedding_A", 0, 2, 5, 0),
                fac_add("base_model.model.model.embed_tokens.lora_embedding_B", 100, FAC_HIDDEN, 2, 0);
        fac_take(LLM__W_EMBED, llm__slice_of(5, 1, 3), llm__all(FAC_HIDDEN));
        llm__adapter_layer(&fac.loader, LLM_ROLE_EMBED, &fac.to);
        CHECK(!fac.loader.r && fac_kept.n == 1 && fac_kept.role[0][0] == LLM_ROLE_VECTOR && fac_kept.role[0][1] == LLM_ROLE_LINEAR);
        CHECK(fac_is(0, 0, 3, 2, gguf ? a_gguf : a) && fac_is(0, 1, FAC_HIDDEN, 2, b));
    }
}

/* Scales: alpha / sqrt(r), an alpha of the module's own, 1 where a GGUF adapter has no alpha. */
static void fac_scales(void) {
    static const char config[] = "{\"alpha_pattern\":{\"v_proj\":8,\"self_attn.o_proj\":16,\"j\":32,\"o_proj\":64}}";
    for (int i = 0; i < 4; i++) {
        const char *const names[4] = {"q_proj", "v_proj", "o_proj", "q_proj"};
        const llm__slot slots[4] = {LLM__W_Q, LLM__W_V, LLM__W_O, LLM__W_Q};
        const float want[4] = {3, 4, 8, 1};
        const int gguf = i == 3;
        char name[100];
        fac_begin(gguf);
        fac.adapter.root = !gguf;
        CHECK(gguf || !llm_json_parse(config, strlen(config), NULL, &fac.adapter.config));
        if (gguf) fac.adapter.alpha = 0;
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "base_model.model.model.layers.1.self_attn.%s.lora_%c.weight", names[i], "AB"[k]);
            fac_add(gguf ? (k ? "blk.1.attn_q.weight.lora_b" : "blk.1.attn_q.weight.lora_a") : name, 1, k ? 2 : 4, k ? 4 : 2, 0);
        }
        fac_take((int)slots[i], llm__all(2), llm__all(2));
        llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
        CHECK(!fac.loader.r && fac_kept.n == 1 && fac_kept.x[0][1][0] == want[i] && fac_kept.x[0][1][7] == 8 * want[i]);
        llm_json_free(fac.adapter.config);
    }
}

/* ... also of an embedding, and of a parameter of a module that has two, which patterns know by its own name. */
static void fac_patterns(void) {
    static const char config[] = "{\"alpha_pattern\":{\"experts\":7,\"embed_tokens\":10,\"experts.gate_up_proj\":12,\"base_layer\":9}}";
    llm_json *patterns = NULL;
    CHECK(!llm_json_parse(config, strlen(config), NULL, &patterns));
    fac_begin(0);
    fac.adapter.config = patterns, fac.loader.layer = -1;
    fac_add("base_model.model.model.embed_tokens.lora_embedding_A", 0, 2, 5, 0);
    fac_add("base_model.model.model.embed_tokens.lora_embedding_B", 1, FAC_HIDDEN, 2, 0);
    fac_take(LLM__W_EMBED, llm__all(5), llm__all(FAC_HIDDEN));
    llm__adapter_layer(&fac.loader, LLM_ROLE_EMBED, &fac.to);
    CHECK(!fac.loader.r && fac_kept.n == 1 && fac_kept.x[0][1][0] == 5 && fac_kept.x[0][1][1] == 10);
    fac_begin(0);
    fac.adapter.config = patterns;
    fac_add("base_model.model.model.layers.1.mlp.experts.base_layer.lora_A.weight", 0, 3, 4, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.base_layer.lora_B.weight", 1, 6, 3, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.lora_A.weight", 0, 3, 3, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.lora_B.weight", 1, 4, 3, 0);
    llm__adapter_experts(&fac.loader, LLM__W_E_GATE, llm__all(3), llm__all(4), 0, &fac.to);
    CHECK(!fac.loader.r && fac_kept.n == 2 && fac_kept.x[0][1][0] == 12 && fac_kept.x[1][1][0] == 12 * 10);
    llm__adapter_experts(&fac.loader, LLM__W_E_DOWN, llm__all(4), llm__all(3), 0, &fac.to);
    CHECK(!fac.loader.r && fac_kept.n == 1 && fac_kept.x[0][1][0] == 6); /* lora_alpha */
    llm_json_free(patterns);
}

/* The rows of a head of q in GGUF are the folder's 0, d / 2, 1, d / 2 + 1 ...: those of an adapter of the other format are put into the
 * model's order. */
static void fac_order(void) {
    static const float of_gguf[6] = {0, 3, 1, 4, 2, 5}, of_folder[6] = {0, 2, 4, 1, 3, 5};
    for (int gguf = 0; gguf < 2; gguf++)
        for (int own = 0; own < 2; own++) {
            float b[12];
            fac_begin(own ? gguf : !gguf);
            fac.arch.gguf = gguf, fac.arch.flags = LLM__PAIRS_GGUF, fac.arch.layer[1].head_dim = 6, fac.adapter.alpha = 1;
            const int file = fac.adapter.gguf;
            fac_add(file ? "blk.1.attn_q.weight.lora_a" : "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", 0, 1, 2, 0);
            fac_add(file ? "blk.1.attn_q.weight.lora_b" : "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", 0, 12, 1, 0);
            fac_take(LLM__W_Q, llm__all(12), llm__all(2));
            llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
            for (int i = 0; i < 12; i++) b[i] = own ? (float)i : (float)(i / 6 * 6) + (gguf ? of_gguf : of_folder)[i % 6];
            CHECK(!fac.loader.r && fac_is(0, 1, 12, 1, b));
        }
}

/* Factors of each expert, with zeros for who has none or fewer than the others; gate and up are two parts, the second behind the first. */
static void fac_experts(void) {
    const float a[12] = {0, 0, 0, 0, 3, 4, 0, 0, 10, 11, 12, 13};
    float b[12] = {0, 0, 0, 0, 0, 0, 0, 0, 60, 63, 66, 69};
    b[4] = 120, b[6] = 126; /* r 1: alpha / 1, and nothing for the second */
    fac_begin(0);
    fac_add("base_model.model.model.layers.1.mlp.experts.1.gate_proj.lora_A.weight", 3, 1, 2, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.1.gate_proj.lora_B.weight", 20, 2, 1, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.2.gate_proj.lora_A.weight", 10, 2, 2, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.2.gate_proj.lora_B.weight", 20, 2, 2, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.0.up_proj.lora_A.weight", 50, 1, 2, 0);
    fac_add("base_model.model.model.layers.1.mlp.experts.0.up_proj.lora_B.weight", 1, 2, 1, 0);
    llm__adapter_experts(&fac.loader, LLM__W_E_GATE, llm__all(2), llm__all(2), 0, &fac.to);
    CHECK(!fac.loader.r && fac_kept.n == 2 && fac_kept.role[0][0] == LLM_ROLE_EXPERTS && fac_kept.role[0][1] == LLM_ROLE_EXPERTS);
    CHECK(fac_kept.row[0] == 0 && fac_is(0, 0, 6, 2, a) && fac_is(0, 1, 6, 2, b));
    CHECK(fac_kept.row[1] == 2 && fac_kept.rows[1][0] == 3 && fac_kept.x[1][0][0] == 50 && fac_kept.x[1][0][2] == 0);
}

/* All experts in one: GGUF's stacks, and what PEFT makes of a parameter: A expert by expert, B with the expert's number last, of a matrix that
 * stands either way round. What the file has for gate and up in one has them behind each other, or in turns. */
static void fac_stacked(void) {
    float want[48];
    fac_begin(1);
    fac_add("blk.1.ffn_down_exps.weight.lora_a", 0, 3, 2, 4);
    fac_add("blk.1.ffn_down_exps.weight.lora_b", 0, 3, 4, 2);
    llm__adapter_experts(&fac.loader, LLM__W_E_DOWN, llm__slice_of(4, 1, 2), llm__slice_of(4, 2, 2), 0, &fac.to);
    for (int e = 0, n = 0; e < 3; e++)
        for (int i = 0; i < 2; i++)
            for (int j = 2; j < 4; j++) want[n++] = (float)(e * 8 + i * 4 + j);
    CHECK(!fac.loader.r && fac_kept.n == 1 && fac_is(0, 0, 6, 2, want));
    for (int e = 0, n = 0; e < 3; e++)
        for (int i = 1; i < 3; i++)
            for (int j = 0; j < 2; j++) want[n++] = 3 * (float)(e * 8 + i * 2 + j);
    CHECK(fac_is(0, 1, 6, 2, want));
    for (int across = 0; across < 2; across++) /* down (5, 4) of r 2; the parameter is (E, 4, 5) or (E, 5, 4) */
        for (int turns = 0; turns < 2; turns++) {
            const int n = across ? 5 : 4, m = across ? 4 : 5;
            fac_begin(0);
            fac_add("base_model.model.model.layers.1.mlp.experts.lora_A.weight", 0, 3 * 2, n, 0);
            fac_add("base_model.model.model.layers.1.mlp.experts.lora_B.weight", 0, m, 2 * 3, 0);
            llm__adapter_experts(&fac.loader, LLM__W_E_DOWN, llm__all(5), llm__all(4), turns, &fac.to);
            for (int e = 0, k = 0; e < 3; e++)
                for (int i = 0; i < 2; i++)
                    for (int j = 0; j < 4; j++) want[k++] = (float)(across ? j * 6 + i * 3 + e : (e * 2 + i) * 4 + j);
            CHECK(!fac.loader.r && fac_kept.n == 1 && fac_is(0, 0, 6, 4, want));
            for (int e = 0, k = 0; e < 3; e++)
                for (int i = 0; i < 5; i++)
                    for (int j = 0; j < 2; j++) want[k++] = 3 * (float)(across ? (e * 2 + j) * 5 + i : i * 6 + j * 3 + e);
            CHECK(fac_is(0, 1, 15, 2, want));
        }
    for (int turns = 0; turns < 2; turns++) { /* gate and up (3 each) of one matrix of 6 rows, r 1 */
        fac_begin(0);
        fac.adapter.alpha = 1;
        fac_add("base_model.model.model.layers.1.mlp.experts.base_layer.lora_A.weight", 0, 3, 4, 0);
        fac_add("base_model.model.model.layers.1.mlp.experts.base_layer.lora_B.weight", 0, 6, 3, 0);
        llm__adapter_experts(&fac.loader, LLM__W_E_GATE, llm__slice_of(3, 1, 2), llm__all(4), turns, &fac.to);
        CHECK(!fac.loader.r && fac_kept.n == 2 && fac_kept.row[0] == 0 && fac_kept.row[1] == 2);
        for (int part = 0; part < 2; part++) {
            for (int e = 0, k = 0; e < 3; e++)
                for (int i = 1; i < 3; i++) want[k++] = (float)((turns ? 2 * i + part : 3 * part + i) * 3 + e);
            CHECK(fac_is(part, 1, 6, 1, want));
        }
    }
}

/* Every mistake says what is wrong with which tensor, and nothing is put. */
static void fac_mistakes(void) {
    static const struct {
        int r_a, r_b, alone, rank, bad;
        llm_result result;
        const char *message;
    } rows[] = {{2, 2, 1, 0, 0, LLM_ERR_FORMAT, "q_proj.lora_B.weight is missing"},
                {5, 5, 0, 0, 0, LLM_ERR_LIMIT, "LoRA rank 5 is greater than max_lora_rank 4."},
                {2, 2, 0, 3, 0, LLM_ERR_FORMAT, "has rank 2, adapter_config.json says r = 3"},
                {3, 2, 0, 0, 0, LLM_ERR_FORMAT, "q_proj.lora_A.weight"},
                {2, 2, 0, 0, 1, LLM_ERR_FORMAT, "q_proj.lora_A.weight: a value is not a finite number"},
                {2, 2, 0, 0, 2, LLM_ERR_FORMAT, "q_proj.lora_B.weight: a value is not a finite number"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        fac_begin(0);
        fac.adapter.rank = rows[i].rank;
        fac_add("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", 0, rows[i].r_a, 8, 0);
        if (!rows[i].alone) fac_add("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", 0, 8, rows[i].r_b, 0);
        if (rows[i].bad == 1) fac.x[15] = NAN;
        if (rows[i].bad == 2) fac.x[16 + 15] = INFINITY;
        fac_take(LLM__W_Q, llm__all(8), llm__all(8));
        llm__adapter_layer(&fac.loader, LLM_ROLE_LINEAR, &fac.to);
        CHECK(fac.loader.r == rows[i].result && strstr(llm_last_error(), rows[i].message) && !fac_kept.calls);
    }
    llm__adapter_experts(&fac.loader, LLM__W_E_DOWN, llm__all(5), llm__all(4), 0, &fac.to); /* after a mistake nothing happens */
    CHECK(fac.loader.r == LLM_ERR_FORMAT && !fac_kept.calls);
}

TEST_GROUP(factors) {
    fac_layer();
    fac_fused();
    fac_embed();
    fac_scales();
    fac_patterns();
    fac_order();
    fac_experts();
    fac_stacked();
    fac_mistakes();
    llm__tensors_free(&fac.adapter.tensors);
}
