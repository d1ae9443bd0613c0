/* ---- The model object ---- */

/* Read-only once llm_model_open has returned it: threads need no lock. */
struct llm_model {
    llm__source source;
    llm__arch arch;          /* n_layers 0 with vocab_only */
    llm_model_info info;
    int dummy;
    char *path;
};

/* ---- Where weights are called what ----
 * No family has names of its own here: a slot lists every name its weight goes by anywhere. Where two families use
 * one name for different things the order settles it: post_attention_layernorm is the MLP's norm unless the file also
 * has pre_feedforward_layernorm. '#' stands for an expert's number; a name of experts without it is one tensor for
 * all of them. The four slots of an MLP stand in the same order for the plain one, the experts and the shared expert:
 * see llm__load_mlp. */
#define LLM__SLOTS(SLOT) \
    /* of the whole model */ \
    SLOT(EMBED, "model.embed_tokens model.decoder.embed_tokens wte transformer.wte transformer.word_embeddings " \
                "transformer.embedding.word_embeddings word_embeddings model.tok_embeddings gpt_neox.embed_in " \
                "model.language_model.embed_tokens language_model.model.embed_tokens token_embd embed_tokens decoder.embed_tokens") \
    SLOT(POSITIONS, "wpe transformer.wpe model.decoder.embed_positions position_embd decoder.embed_positions") \
    SLOT(EMBED_NORM, "transformer.word_embeddings_layernorm word_embeddings_layernorm token_embd_norm") \
    SLOT(OUT_NORM, "model.norm model.final_layernorm model.decoder.final_layer_norm ln_f transformer.ln_f " \
                   "transformer.encoder.final_layernorm gpt_neox.final_layer_norm model.language_model.norm " \
                   "language_model.model.norm output_norm norm final_layernorm decoder.final_layer_norm") \
    SLOT(HEAD, "lm_head output transformer.output_layer embed_out language_model.lm_head") \
    SLOT(FC, "fc model.fc") /* of an EAGLE head */ \
    /* of a layer: attention */ \
    SLOT(ATTN_NORM, "input_layernorm attention_norm ln_1 self_attn_layer_norm ln_attn attn_norm") \
    SLOT(QKV, "self_attn.qkv_proj self_attn.W_pack attention.wqkv self_attention.query_key_value attention.query_key_value " \
              "attn.c_attn attn_qkv") \
    SLOT(Q, "self_attn.q_proj attention.wq attn.q_proj attn_q") \
    SLOT(K, "self_attn.k_proj attention.wk attn.k_proj attn_k") \
    SLOT(V, "self_attn.v_proj attention.wv attn.v_proj attn_v") \
    SLOT(O, "self_attn.o_proj self_attn.out_proj self_attn.dense attention.wo self_attention.dense attention.dense " \
            "attn.c_proj attn.out_proj attn_output") \
    SLOT(Q_NORM, "self_attn.q_norm self_attn.q_layernorm attn_q_norm") \
    SLOT(K_NORM, "self_attn.k_norm self_attn.k_layernorm attn_k_norm") \
    SLOT(SINKS, "self_attn.sinks attn_sinks") \
    SLOT(POST_ATTN, "post_self_attn_layernorm post_attention_layernorm post_attention_norm") \
    /* latent attention */ \
    SLOT(Q_A, "self_attn.q_a_proj attn_q_a") \
    SLOT(Q_A_NORM, "self_attn.q_a_layernorm attn_q_a_norm") \
    SLOT(Q_B, "self_attn.q_b_proj attn_q_b") \
    SLOT(KV_A, "self_attn.kv_a_proj_with_mqa attn_kv_a_mqa") \
    SLOT(KV_A_NORM, "self_attn.kv_a_layernorm attn_kv_a_norm") \
    SLOT(KV_B, "self_attn.kv_b_proj attn_kv_b") \
    SLOT(K_B, "attn_k_b") \
    SLOT(V_B, "attn_v_b") \
    /* the MLP */ \
    SLOT(FFN_NORM, "pre_feedforward_layernorm post_attention_layernorm ffn_norm ln_2 final_layer_norm ln_mlp post_attention_norm") \
    SLOT(GATE_UP, "mlp.gate_up_proj mlp.dense_h_to_4h") \
    SLOT(GATE, "mlp.gate_proj feed_forward.w1 mlp.w2 ffn_gate") \
    SLOT(UP, "mlp.up_proj feed_forward.w3 mlp.w1 mlp.c_fc mlp.fc1 mlp.fc_in fc1 mlp.dense_h_to_4h ffn_up") \
    SLOT(DOWN, "mlp.down_proj feed_forward.w2 mlp.c_proj mlp.fc2 mlp.fc_out fc2 mlp.dense_4h_to_h ffn_down") \
    SLOT(POST_FFN, "post_feedforward_layernorm post_mlp_layernorm post_ffw_norm") \
    /* the mixture of experts */ \
    SLOT(ROUTER, "mlp.gate mlp.router block_sparse_moe.gate block_sparse_moe.router.layer ffn_gate_inp") \
    SLOT(CORRECTION, "mlp.gate.e_score_correction_bias mlp.moe_statics.e_score_correction_bias exp_probs_b.bias exp_probs_b") \
    SLOT(E_GATE_UP, "mlp.experts.gate_up_proj block_sparse_moe.input_linear ffn_gate_up_exps") \
    SLOT(E_GATE, "mlp.experts.#.gate_proj block_sparse_moe.experts.#.w1 ffn_gate_exps") \
    SLOT(E_UP, "mlp.experts.#.up_proj block_sparse_moe.experts.#.w3 ffn_up_exps") \
    SLOT(E_DOWN, "mlp.experts.#.down_proj block_sparse_moe.experts.#.w2 mlp.experts.down_proj block_sparse_moe.output_linear " \
                 "ffn_down_exps") \
    SLOT(S_GATE_UP, "shared_mlp.input_linear") \
    SLOT(S_GATE, "mlp.shared_experts.gate_proj mlp.shared_expert.gate_proj ffn_gate_shexp") \
    SLOT(S_UP, "mlp.shared_experts.up_proj mlp.shared_expert.up_proj ffn_up_shexp") \
    SLOT(S_DOWN, "mlp.shared_experts.down_proj mlp.shared_expert.down_proj shared_mlp.output_linear ffn_down_shexp") \
    SLOT(S_SCALE, "mlp.shared_expert_gate ffn_gate_inp_shexp")

typedef enum llm__slot {
#define LLM__SLOT_ENUM(slot, names) LLM__W_##slot,
    LLM__SLOTS(LLM__SLOT_ENUM) LLM__W_SLOTS
} llm__slot;

static const char *const llm__slot_names[LLM__W_SLOTS] = {
#define LLM__SLOT_NAMES(slot, names) names,
    LLM__SLOTS(LLM__SLOT_NAMES)
};

/* How names of layers begin: the first that any tensor of the file has, behind `skip` bytes that all have. A file of one
 * family has one of them; the longer ones stand later, where they are not mistaken for their own beginnings. */
static const char *llm__layer_base(const llm__tensors *t, size_t skip) {
    static const char *const bases[] = {
        "model.layers.", "blk.", "model.decoder.layers.", "h.", "transformer.h.", "transformer.encoder.layers.", "gpt_neox.layers.",
        "model.language_model.layers.", "language_model.model.layers.", "layers.", "decoder.layers."};
    for (int b = 0; b < LLM__COUNT(bases); b++)
        for (size_t i = 0; i < t->n; i++)
            if (t->item[i].name.n > skip && !strncmp(t->item[i].name.p + skip, bases[b], strlen(bases[b]))) return bases[b];
    return bases[0];
}

/* ---- Loading: from tensors to weights of a backend ----
 * A weight is put together of segments (rows and columns of stored matrices), so nothing is copied here. What families
 * store in different ways are only different lists of segments; for q, k and v of a rank:
 *   apart       rows of Q, rows of K, rows of V
 *   fused       three ranges of rows of one matrix: q, k, v
 *   grouped     many ranges: the matrix goes kv head by kv head, its queries, its k, its v
 *   Conv1D      the same with `transposed`: a row of the weight is a stored column
 *   experts     gate and up of expert 0, gate and up of expert 1, ...; in gpt-oss every second row of one matrix
 * llm__take adds to the lists, llm__make hands them over. A vector (a norm, a bias) is a stored row, seen as a matrix of
 * one column: the same cuts fit it. Without a backend everything is looked up and checked, and nothing made: so a broken
 * file is refused when the model is opened. */

/* How one dimension is shared: this rank takes n of `size`, from `first` on, each `step` apart (0 means 1). As rows,
 * columns, or one of several matrices. */
typedef struct llm__slice {
    int64_t size, first, n, step;
} llm__slice;

/* n of `size` from `first` on. */
static llm__slice llm__slice_of(int64_t size, int64_t first, int64_t n) {
    llm__slice c = {size, first, n, 1};
    return c;
}

/* The whole of it. */
static llm__slice llm__all(int64_t size) { return llm__slice_of(size, 0, size); }

/* The cut of heads, as rows of `width` each. */
static llm__slice llm__slice_times(llm__slice c, int64_t width) { return llm__slice_of(c.size * width, c.first * width, c.n * width); }

/* A norm or a linear layer: weight and bias, either may be NULL. */
typedef struct llm__net_pair {
    llm_weight *w, *b;
    llm_lora_site *lora;        /* where adapters may add to it; NULL: nowhere */
    int32_t rows;               /* of w */
} llm__net_pair;

/* The segments of a weight that is being put together. */
typedef struct llm__segments {
    llm_segment *segment;
    size_t n, cap;
    int64_t rows;               /* of all */
} llm__segments;

/* An adapter's files while they are put into the sites of a net: see >>lora. */
typedef struct llm__adapter {
    const char *path;
    int gguf;                   /* its names, and the order of its rows, are GGUF's */
    const char *prefix, *base;  /* how all names begin; how those of layers go on */
    llm__file file;
    llm__gguf keys;
    llm_json *config;
    llm__tensors tensors;
    uint8_t *used;              /* (tensors.n) */
    double alpha;
    int root;                   /* scale alpha / sqrt(r) instead of alpha / r (rsLoRA) */
    int32_t max_rank, rank;     /* rank: that every B must have; 0: any up to max_rank */
    uint64_t content;           /* hash of all that it says */
} llm__adapter;

/* What llm__take was asked for. */
typedef struct llm__taken {
    int slot;
    llm__slice rows, cols;
} llm__taken;

/* Goes through all weights of all ranks. After the first failure all calls do nothing; `r` keeps the error. */
typedef struct llm__loader {
    const llm_model *m;
    const llm__arch *a;
    const char *path, *base;    /* of the files that are read, for messages; of the names of the model's layers */
    const llm_backend *backend; /* NULL: check only */
    llm_backend_ctx *ctx;
    int rank, n_ranks, layer;   /* layer -1: weights of the whole model */
    int n_group;                /* ranks of a stage of the pipeline */
    llm__segments list[2];      /* of the weight, and of its bias */
    llm__arena keep;            /* unpacked experts, until the backend has packed them; all ranks take their rows from one copy */
    const uint8_t *mxfp4[LLM__MAX_LAYERS][2]; /* of a layer: gate and up, down */
    int64_t n_params, bytes, step_bytes; /* what is tied counts once; of what was taken, the part that a token reads; the sum of these */
    int n_slots;                /* of every site; 0: no sites */
    int64_t wide;               /* rows of the widest layer that adapters may add to, but for the output layer and experts */
    int balance;                /* keys will be rounded: see llm__load_balanced */
    llm__adapter *adapter;      /* not NULL: nothing is made, its tensors go into slot `slot` of the sites */
    int slot;
    llm__taken *taken;          /* (n_taken) since the last llm__make, with an adapter only */
    size_t n_taken, taken_cap;
    llm_result r;
} llm__loader;

/* What a word of a slot is called in the current layer: `prefix`, the layer's name, the word with the expert's number in it, `end`. */
static void llm__slot_name(const llm__loader *L, const char *prefix, const char *base, llm__str word, int expert, const char *end,
                           char name[256]) {
    char layer[64] = "", number[16] = "";
    const size_t n = llm__str_until(word, "#"), rest = LLM__MIN(n + 1, word.n);
    if (L->layer >= 0) snprintf(layer, sizeof layer, "%s%d.", base, L->layer);
    if (n < word.n) snprintf(number, sizeof number, "%d", expert);
    snprintf(name, 256, "%s%s%.*s%s%.*s%s", prefix, layer, (int)n, word.p, number, (int)(word.n - rest), word.p + rest, end);
}

/* The tensor of a slot (or of the bias that belongs to it), or NULL. `name` holds 256 bytes: what it is called, or
 * would be. All experts in one tensor may have a name without ".weight", or be stored as MXFP4. */
static const llm__tensor *llm__loader_find(const llm__loader *L, int slot, int expert, int bias, char *name) {
    static const char *const suffixes[2][3] = {{".weight", "", "_blocks"}, {".bias", "_bias", ""}};
    char first[256] = "";
    llm__str word;
    int mxfp4 = !bias && (slot == LLM__W_E_GATE_UP || slot == LLM__W_E_DOWN);
    for (int i = 0; i < 2 + mxfp4; i++)
        for (const char *words = llm__slot_names[slot]; llm__list_next(&words, " ", &word);) {
            llm__slot_name(L, "", L->base, word, expert, suffixes[bias][i], name);
            const llm__tensor *t = llm__tensors_find(&L->m->source.tensors, name);
            if (t) return t;
            if (!first[0]) memcpy(first, name, 256);
        }
    memcpy(name, first, 256);
    return NULL;
}

/* 1 if the file has it: how the loader tells fused from separate matrices, tied from untied outputs. */
static int llm__has(const llm__loader *L, int slot) {
    char name[256];
    return llm__loader_find(L, slot, 0, 0, name) != NULL;
}

/* Dimensions as text: "2, 3". */
static void llm__shape_text(const int64_t *d, int n, char out[96]) {
    int at = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) at += snprintf(out + at, 96 - (size_t)at, "%s%lld", i ? ", " : "", (long long)d[i]);
}

/* 1 if a tensor has these n dimensions; leading dimensions of size 1 do not matter. One dimension: any shape of so
 * many values will do. */
static int llm__loader_fits(llm__loader *L, const llm__tensor *t, const int64_t *want, int n) {
    char found[96], expected[96];
    int skip = 0, w = 0;
    while (skip < t->n_dims && t->shape[skip] == 1) skip++;
    while (w < n && want[w] == 1) w++;
    if (n == 1 && t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] == want[0]) return 1;
    if (t->n_dims - skip == n - w && !memcmp(t->shape + skip, want + w, (size_t)(n - w) * sizeof *want)) return 1;
    llm__shape_text(t->shape, t->n_dims, found);
    llm__shape_text(want, n, expected);
    L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has shape (%s), (%s) expected", L->path, t->name.p, found, expected);
    return 0;
}

/* 1 if weights may be of this type. */
static int llm__loader_type(llm__loader *L, const llm__tensor *t) {
    if (llm__type_readable(t->type)) return 1;
    L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not read as a weight", L->path, t->name.p,
                      llm__type_name(t->type));
    return 0;
}

/* The scales of an fp8 or int8 matrix, which stand beside it: one, or one a row ("channel"), in any float. Values are multiplied by them;
 * what a file says about rounding activations is left aside, for ours keep their precision. Scales of blocks are not known here. */
static void llm__loader_scales(llm__loader *L, const llm__tensor *t, int64_t rows, llm_segment *s) {
    char name[256];
    snprintf(name, sizeof name, "%.240s_scale", t->name.p);
    const llm__tensor *scale = llm__tensors_find(&L->m->source.tensors, name);
    int64_t n = scale ? scale->shape[0] * scale->shape[1] * scale->shape[2] * scale->shape[3] : 0;
    if (!scale || !llm__word_in("F32 F16 BF16", llm__type_name(scale->type)) || (n != 1 && (n != rows || s->transposed))) {
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s is %s without one scale for the tensor or for each of its %lld rows", L->m->path,
                          t->name.p, t->type == LLM_TYPE_I8 ? "int8" : "fp8", (long long)rows);
        return;
    }
    if (n == 1) s->scale = llm__element(scale->type, scale->data, 0);
    if (n == 1 && s->scale == 0) s->scale = 1e-30f; /* a segment's 0 stands for 1 */
    if (n == 1 || !L->backend) return;
    float *to = (float *)llm__arena_get(&L->keep, (size_t)n * sizeof *to);
    if (!to) L->r = llm__nomem();
    for (int64_t i = 0; i < n && to; i++) to[i] = llm__element(scale->type, scale->data, i);
    s->scales = to;
}

/* gpt-oss as its publisher stores it: 4-bit values and exponents in two tensors. Put together as MXFP4 blocks of 17
 * bytes: an exponent, then bytes that hold element i and i + 16 (stored: 2i and 2i + 1). NULL: they do not fit, no
 * memory, or only checking. */
static const uint8_t *llm__loader_mxfp4(llm__loader *L, int slot, const llm__tensor *blocks, int64_t rows, int64_t cols) {
    char name[256];
    const uint8_t **made = &L->mxfp4[L->layer][slot == LLM__W_E_DOWN];
    snprintf(name, sizeof name, "%.*s_scales", (int)LLM__MIN(blocks->name.n - 7, (size_t)240), blocks->name.p);
    const llm__tensor *scales = llm__tensors_find(&L->m->source.tensors, name);
    int64_t E = L->a->n_experts, n = E * rows * (cols / 32);
    int ok = scales && blocks->type == LLM_TYPE_U8 && scales->type == LLM_TYPE_U8 && cols % 32 == 0;
    if (!ok || blocks->bytes != n * 16 || scales->bytes != n)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s and its _scales: MXFP4 of %d experts of (%lld, %lld) expected", L->m->path,
                          blocks->name.p, (int)E, (long long)rows, (long long)cols);
    if (L->r || !L->backend || *made) return *made;
    uint8_t *to = (uint8_t *)llm__arena_get(&L->keep, (size_t)n * 17);
    if (!to) L->r = llm__nomem();
    for (int64_t b = 0; to && b < n; b++) {
        const uint8_t *from = blocks->data + b * 16;
        to[b * 17] = scales->data[b];
        for (int i = 0; i < 16; i++) {
            int low = from[i / 2] >> (i % 2 * 4) & 15, high = from[8 + i / 2] >> (i % 2 * 4) & 15;
            to[b * 17 + 1 + i] = (uint8_t)(low | high << 4);
        }
    }
    return *made = to;
}

/* 1 if a slot has a matrix for each expert. */
static int llm__is_experts(int slot) { return slot >= LLM__W_E_GATE_UP && slot <= LLM__W_E_DOWN; }

/* 1 if a matrix stands as (in, out): GPT-2's Conv1D, gpt-oss's experts, and the keys of latent attention in GGUF. */
static int llm__stored_across(const llm__loader *L, int slot) {
    if (L->a->gguf) return slot == LLM__W_K_B;
    return (L->a->flags & LLM__CONV1D && L->layer >= 0) || (llm__is_experts(slot) && llm__arch_is(L->a, "gpt_oss"));
}

/* Finds the stored matrix (rows, cols) of a slot, or with cols 0 its vector of `rows` values; `bias`: the vector that
 * belongs to it. `which`: one of several, each a tensor of its own or all in one with an outermost dimension more.
 * Fills in what a segment says of the stored matrix. 0: an error. */
static int llm__loader_seek(llm__loader *L, int slot, llm__slice which, int64_t rows, int64_t cols, int bias, llm_segment *s) {
    char name[256];
    int across = cols && llm__stored_across(L, slot), matrix = cols > 0;
    s->type = matrix && L->m->dummy ? LLM_TYPE_RANDOM - 1 + L->m->dummy : LLM_TYPE_RANDOM;
    s->transposed = across || !matrix;
    s->stored_cols = s->transposed ? rows : cols;
    if (L->m->dummy || L->r) return !L->r;
    const llm__tensor *t = llm__loader_find(L, slot, (int)which.first, bias, name);
    if (!t) return L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->m->path, name), 0;
    int stacked = which.size > 1 && t->n_dims > 1 + matrix; /* all in one tensor: one dimension more */
    s->type = t->type;
    s->data = t->data;
    if (llm__ends_with(t->name.p, "_blocks")) {
        s->data = llm__loader_mxfp4(L, slot, t, rows, cols);
        s->type = LLM_TYPE_MXFP4;
        s->transposed = 0;
        s->stored_cols = cols;
        stacked = 1;
    } else {
        const int64_t want[3] = {which.size, across ? cols : rows, across ? rows : cols}, flat = (stacked ? which.size : 1) * rows;
        if (!llm__loader_type(L, t) || !llm__loader_fits(L, t, matrix ? want + !stacked : &flat, matrix ? 2 + stacked : 1)) return 0;
        for (size_t i = 0; i < L->m->source.n_files; i++) {
            const llm__file *f = &L->m->source.files[i];
            s->mapped |= f->mapped && t->data >= f->data && t->data < f->data + f->size;
        }
    }
    /* the matrices of a stack follow each other: skip those before this one */
    int64_t stored_rows = s->transposed ? LLM__MAX(cols, 1) : rows;
    if (stacked && s->data) s->data = (const uint8_t *)s->data + which.first * stored_rows * llm__row_bytes(s->type, s->stored_cols);
    if (t->type == LLM_TYPE_F8_E4M3 || t->type == LLM_TYPE_F8_E5M2 || t->type == LLM_TYPE_I8)
        llm__loader_scales(L, t, stacked ? 0 : rows, s);
    return !L->r;
}

/* A new segment of n rows, all fields zero; NULL: no memory. */
static llm_segment *llm__loader_segment(llm__loader *L, int list, int64_t n) {
    llm__segments *to = &L->list[list];
    if (!L->r && !llm__grow((void **)&to->segment, &to->cap, to->n + 1, sizeof *to->segment)) L->r = llm__nomem();
    if (L->r) return NULL;
    llm_segment *s = &to->segment[to->n++];
    memset(s, 0, sizeof *s);
    s->n_rows = n;
    to->rows += n;
    return s;
}

